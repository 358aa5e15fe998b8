"""Pictures of `muster run`, stored as text in tests/sim/frames/ by `python -m tests.sim.drawings`."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from rich.console import Console, Group

from extender.apimachinery.service import Service
from extender.apimachinery.store import Store
from extender.sim.show.frames import Picture, Rerun, closing_summary, frame, transition_lines
from extender.sim.show.sentences import TransitionLog
from extender.sim.show.tables import Canvas
from tests.sim.stage import LARGE_LINE, LINE, SHARES, large, seen, shares, small

FOLDER = Path(__file__).with_name("frames")
HEAD = (
    "Ctrl-C ends it. In another terminal:",
    "export KUBECONFIG=/tmp/muster-1/kubeconfig",
    ".venv/bin/muster why NAME",
    "kubectl get podgroups,pods",
    ".venv/bin/muster queue list",
)
CLUSTER_OF: dict[str, Callable[[Service], None]] = {"3-gangs": small, "60-gangs": large}
QUEUES = {"3-gangs": SHARES, "60-gangs": shares(80, 82, len(LARGE_LINE))}
LINES = {"3-gangs": LINE, "60-gangs": LARGE_LINE}
WIDTHS = {80: 24, 120: 40, 200: 60}  # each with a height


class Drawing(NamedTuple):
    """Drawing. `form`: terminal, coloured (a terminal, with colours) or piped."""

    gangs: str
    width: int
    form: str

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.gangs}-{self.width}-{self.form}.txt"


DRAWINGS = [
    Drawing(gangs, width, form)
    for gangs in CLUSTER_OF
    for width in WIDTHS
    for form in ("terminal", "coloured", "piped")
]


def drawn(drawing: Drawing) -> str:
    service, log = Service(Store(), Random(0)), TransitionLog()
    CLUSTER_OF[drawing.gangs](service)
    state = seen(service, queues=QUEUES[drawing.gangs], podgroups=LINES[drawing.gangs])
    for second in (1.0, 3.0):  # two frames: a group that waits for others is shown once these are known
        log.observe(state, second)
    canvas = Canvas(drawing.width, WIDTHS[drawing.width])
    picture = Picture(state, log, second=72.5)
    if drawing.form == "piped":
        return "".join(f"{line}\n" for line in _piped(picture, canvas))
    return _on_terminal(picture, canvas, colours=drawing.form == "coloured")


def _on_terminal(picture: Picture, canvas: Canvas, colours: bool) -> str:
    file = io.StringIO()
    console = Console(
        file=file,
        width=canvas.width,
        force_terminal=True,
        color_system="standard" if colours else None,
        no_color=not colours,
        legacy_windows=False,
        _environ={},
    )
    console.print(Group(*frame(picture, HEAD, canvas)))
    return file.getvalue()


def _piped(picture: Picture, canvas: Canvas) -> Iterator[str]:
    for transition in picture.log.transitions:
        yield from transition_lines(transition, canvas)
    yield ""
    yield from closing_summary(
        picture.cluster, picture.log, Rerun("muster", ["some.yaml"], has_own_nodes=False), canvas
    )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for drawing in DRAWINGS:
        drawing.path.write_text(drawn(drawing), encoding="utf-8")
