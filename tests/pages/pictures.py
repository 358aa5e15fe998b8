"""Pictures of the pages: terminals with the output of commands, and drawings of `muster simulate`.

`python -m tests.pages.pictures` writes them to docs/pictures. Terminals have colours for light and for dark
pages.
"""

import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from xml.sax.saxutils import escape

from click.testing import CliRunner
from rich.console import Console
from rich.style import Style
from rich.text import Text

from extender.cli import main
from tests.cli.cluster import Cluster
from tests.domain.builders import queue
from tests.pages.fences import ROOT, File, steps
from tests.pages.register import TUTORIAL
from tests.pages.sample import add_sample
from tests.pages.share_pictures import Row, reclaimed, shares
from tests.sim.drawings import Drawing, drawn

FOLDER = ROOT / "docs" / "pictures"
LETTER, LINE, MARGIN = 7.8, 18, 12  # pixels: the width of a letter, the height of a line, and the edge
CELL_WIDE, CELL_HIGH = 36, 10  # pixels of a cell of the dashboard
COLOURS = {
    1: "wrong",
    2: "ok",
    3: "waits",
    4: "typed",
}  # classes of the style sheet, by the numbers of ANSI colours
STYLE = """<style>
  text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #1f2937; }
  .paper { fill: #f9fafb; stroke: #d1d5db; } .typed { fill: #2563eb; } .bold { font-weight: 600; }
  .dim { fill: #6b7280; } .ok { fill: #15803d; } .waits { fill: #b45309; } .wrong { fill: #b91c1c; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e5e7eb; } .paper { fill: #0d1117; stroke: #374151; } .typed { fill: #60a5fa; }
    .dim { fill: #9ca3af; } .ok { fill: #4ade80; } .waits { fill: #fbbf24; } .wrong { fill: #f87171; }
  }
</style>"""


def run() -> str:
    frame = drawn(Drawing("3-gangs", 120, "coloured"))
    return terminal("Two gangs wait and one runs, as muster run shows them.", [("muster run", frame)])


def terminal_picture(title: str, *commands: str) -> Callable[[], str]:
    """Return a picture of a terminal, with commands to the cluster of tests/pages/sample.py."""

    def draw() -> str:
        with tempfile.TemporaryDirectory() as folder:
            cluster = Cluster(Path(folder))
            cluster.server.start()
            try:
                add_sample(cluster)
                return terminal(title, [(command, _answer(cluster, command)) for command in commands])
            finally:
                cluster.server.stop()

    return draw


def _answer(cluster: Cluster, command: str) -> str:
    arguments = [*command.split()[1:], "--kubeconfig", str(cluster.kubeconfig)]
    result = CliRunner().invoke(main, arguments, color=True)
    assert result.exit_code == 0, result.output
    return result.stdout


def simulation_chart(*arguments: str) -> Callable[[], str]:
    """Return the chart of the command in the tutorial, with its files."""

    def draw() -> str:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            Path("examples").symlink_to(ROOT / "examples")
            for file in steps(ROOT / TUTORIAL):
                if isinstance(file, File) and not Path(file.path).exists():
                    Path(file.path).write_text(file.text)
            result = CliRunner().invoke(main, ["simulate", *arguments, "--gantt", "chart.svg"])
            assert result.exit_code == 0, result.output
            return Path("chart.svg").read_text(encoding="utf-8")

    return draw


def report() -> str:
    """Return a picture of the first command in docs/how-to/simulate.md."""
    command = "muster simulate --trace examples/trace.csv --nodes 4 --node-cpu 8"
    with chdir(ROOT):
        result = CliRunner().invoke(main, command.split()[1:], color=True)
    assert result.exit_code == 0, result.output
    return terminal("How long gangs waited, and what the queues held.", [(command, result.stdout)])


def terminal(title: str, commands: list[tuple[str, str]]) -> str:
    """Return a picture of a terminal with commands and their outputs."""
    lines: list[Text] = []
    for command, printed in commands:
        lines += [Text("")] if lines else []
        lines += [Text("$ ").append(command, Style(color="blue")), *map(Text.from_ansi, printed.splitlines())]
    while not lines[-1].plain.strip():
        lines.pop()
    width = round(max(len(line.plain.rstrip()) for line in lines) * LETTER + 2 * MARGIN)
    height = len(lines) * LINE + 2 * MARGIN
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
            f' height="{height}" role="img" aria-labelledby="title" xml:space="preserve">',
            f'<title id="title">{escape(title)}</title>',
            STYLE,
            f'<rect class="paper" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>',
            *(piece for number, line in enumerate(lines) for piece in _pieces(line, number)),
            "</svg>\n",
        )
    )


def _pieces(line: Text, number: int) -> Iterator[str]:
    """Yield the texts of a line by colour, with fixed positions and widths, for any font."""
    column, baseline = 0, MARGIN + number * LINE + 13
    for segment in line.render(Console(file=io.StringIO(), color_system="standard")):
        text, style = segment.text.rstrip("\n"), segment.style or Style()
        colour = [COLOURS[style.color.number or 0]] if style.color else []
        classes = " ".join([*colour, *(word for word in ("bold", "dim") if getattr(style, word))])
        if text.strip():
            class_attribute = f' class="{classes}"' if classes else ""
            x = MARGIN + (column + len(text) - len(text.lstrip())) * LETTER
            letters = text.strip()
            yield (
                f'<text x="{x:.1f}" y="{baseline}" textLength="{len(letters) * LETTER:.1f}"'
                f"{class_attribute}>{escape(letters)}</text>"
            )
        column += len(text)


def dashboard() -> str:
    """Return a drawing of the panels of the Grafana dashboard, with titles and contents."""
    panels = json.loads((ROOT / "manifests/monitoring/dashboard.json").read_text())["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * CELL_HIGH + 2 * MARGIN
    width = 24 * CELL_WIDE + 2 * MARGIN
    pieces = []
    for panel in panels:
        x, y, columns, rows = (panel["gridPos"][name] for name in "xywh")
        left, top = MARGIN + x * CELL_WIDE + 3, MARGIN + y * CELL_HIGH + 3
        box = f'x="{left}" y="{top}" width="{columns * CELL_WIDE - 6}" height="{rows * CELL_HIGH - 6}" rx="4"'
        legends = [target["legendFormat"] or "total" for target in panel["targets"]]
        lines = [panel["title"], *(re.sub(r"{{(\w+)}}", r"<\1>", legend) for legend in legends)]
        pieces.append(f'<rect class="paper" {box}/>')
        for number, line in enumerate(lines[: 1 if rows < 8 else 4]):
            kind = "" if number else ' class="bold"'
            row = top + LINE * (number + 1)
            pieces.append(f'<text x="{left + 8}" y="{row}"{kind}>{escape(line)}</text>')
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
            f' height="{height}" role="img" aria-labelledby="title">',
            '<title id="title">The panels of the dashboard for Grafana.</title>',
            STYLE,
            *pieces,
            "</svg>\n",
        )
    )


PICTURES: dict[str, Callable[[], str]] = {
    "dashboard": dashboard,
    "run": run,
    "why": terminal_picture("Why a group waits, and what would start it.", "muster why podgroup/sweep"),
    "lists": terminal_picture(
        "Queues with their shares, and groups with their phases and reasons.",
        "muster queue list",
        "muster podgroup list -A",
    ),
    "queue": terminal_picture(
        "A queue, what it uses, and who waits in it.", "muster queue describe research"
    ),
    "job": terminal_picture("A job waits, as a job.", "muster job list", "muster why job/train"),
    "report": report,
    "deserved": shares(
        "c needs only 1 of its 4 cpus, so a and b divide the other 15 of 16 by their weights.",
        16,
        Row(queue("a", weight=2), 12, caption="weight: 2"),
        Row(queue("b", weight=1), 7, caption="weight: 1"),
        Row(queue("c", weight=1), 1, caption="weight: 1"),
    ),
    "guarantee": shares(
        "4 of 12 cpus stay free for queue b, which has no groups.",
        12,
        Row(queue("a"), 12),
        Row(queue("b", guarantee={"cpu": "4"}), reserved=4, caption="guarantee: 4"),
    ),
    "ceiling": shares(
        "a may hold 5 of its parent's 8 cpus, since b is guaranteed 3; the cluster's other 4 stay idle.",
        12,
        Row(queue("p", capability={"cpu": "8"}), caption="capability: 8"),
        Row(queue("a", parent="p"), 8, caption="parent: p"),
        Row(queue("b", parent="p", guarantee={"cpu": "3"}), reserved=3, caption="parent: p, guarantee: 3"),
    ),
    "limits": shares(
        "b lends 2 of its 8 cpus: a borrows 1 in addition to its own 4, and c borrows the other.",
        12,
        Row(queue("a", deserved={"cpu": "4"}, borrowing_limit={"cpu": "1"}), 7, caption="borrowingLimit: 1"),
        Row(queue("c"), 3),
        Row(
            queue("b", deserved={"cpu": "8"}, lending_limit={"cpu": "2"}),
            reserved=6,
            caption="lendingLimit: 2",
        ),
    ),
    "oversell": shares(
        "One and a half times its capability of 6 cpus is admitted.",
        12,
        Row(queue("a", capability={"cpu": "6"}, oversell="1.5"), 12, caption="oversell: 1.5"),
    ),
    "order": shares(
        "Each free cpu goes to the queue with the smaller share: every third one to b.",
        9,
        Row(queue("a", weight=2), 6, caption="weight: 2"),
        Row(queue("b", weight=1), 3, caption="weight: 1"),
        one_by_one=True,
    ),
    "lending": shares(
        "A gang of 5 would bring a above the 6 cpus that it deserves, and waits: the 4 left are lent to b.",
        12,
        Row(queue("a", deserved={"cpu": "6"}), 2, gang=5, caption="waits: a gang of 5"),
        Row(queue("b", deserved={"cpu": "6"}), 12),
    ),
    "taken-back": reclaimed(
        "b deserves 4 of 12 cpus for a gang of 4: a's gang of 10 is evicted whole, and a keeps 2.",
        12,
        Row(queue("a"), 2, gang=10),
        Row(queue("b"), gang=4, caption="its gang of 4"),
    ),
    "lent": simulation_chart(
        *("-f", "examples/tutorial/teams.yaml"),
        *("-f", "examples/tutorial/research.yaml"),
        *("-f", "examples/tutorial/late/reports.yaml"),
    ),
    "guaranteed": simulation_chart(
        *("-f", "teams.yaml"),
        *("-f", "examples/tutorial/research.yaml"),
        *("-f", "examples/tutorial/late/reports.yaml"),
    ),
}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for picture, draw in PICTURES.items():
        (FOLDER / f"{picture}.svg").write_text(draw(), encoding="utf-8")
