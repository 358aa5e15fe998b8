"""Facts of the pages: links lead somewhere, commands exist, tables are in step with the code."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import click
import yaml
from prometheus_client.metrics import MetricWrapperBase

from extender import __version__
from extender.api import keys
from extender.api.configuration import SETTINGS, Configuration
from extender.api.workloads.gangs import Defaults, gang_of, gang_size_of
from extender.api.workloads.pod_sets import pod_sets
from extender.api.workloads.table import WORKLOADS
from extender.cli import main
from extender.domain.model.reasons import REMEDIES, Reason
from extender.domain.queues import records
from extender.domain.snapshot.snapshot import Limits
from extender.kube.resources import LOCAL_QUEUES
from extender.telemetry import metrics
from extender.web.debug import ENDPOINTS
from tests.rows import each_of

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
FOLDERS = ("extender", "tests", "manifests", "install", "scheduler-config", "docs", "examples", ".ci")
NOT_YET = "## What is not there yet"
Json = dict[str, Any]

each_page = each_of(*PAGES)


class Block(NamedTuple):
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks, those inside lists as well."""
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [
        Block(language, "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True)))
        for indent, language, text in found
    ]


def prose(page: Path) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def spans(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


def typed(page: Path) -> Iterator[str]:
    """Yield everything that a reader may type, without what is announced as missing."""
    text = re.sub(rf"^{NOT_YET}$.*?(?=^## )", "", prose(page), flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"`([^`\n]+)`", text)
    for block in blocks(page):
        if block.language in ("sh", "console"):
            yield from block.text.splitlines()


def rows(page: str, first: str) -> list[list[str]]:
    """Return the cells of the table whose first column has this head."""
    lines = (ROOT / page).read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first} |")) + 2
    table = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# ---- links, paths, commands


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path) if path else page
        assert found.exists(), f"{target}: no such file"
        assert found.resolve().is_relative_to(ROOT), f"{target}: outside the repository"
        if anchor:
            assert anchor in anchors(found), f"{target}: no such heading"


@each_page
def test_files_that_are_named_exist(page: Path) -> None:
    for span in spans(page):
        path = span.partition(":")[0]
        if path.partition("/")[0] in FOLDERS and "/" in path and re.fullmatch(r"[\w./*-]+", path):
            assert list(ROOT.glob(path.rstrip("/"))), f"{span}: no such file"


@each_page
def test_no_merge_is_left_open(page: Path) -> None:
    assert not re.search(r"^[<>]{7} ", page.read_text(), re.MULTILINE)


def test_classes_and_tables_that_recipes_name_are_in_the_code() -> None:
    page = ROOT / "docs" / "contributing" / "how-to-add.md"
    named = {span for span in spans(page) if re.fullmatch(r"[A-Z][A-Za-z]+|[A-Z_]{4,}", span)}
    code = "\n".join(path.read_text() for top in ("extender", "tests") for path in (ROOT / top).rglob("*.py"))
    defined = set(re.findall(r"^class (\w+)|^([A-Z_]+)(?=[ :])", code, re.MULTILINE))
    assert named - {name for names in defined for name in names} == set()


@each_page
def test_tasks_and_commands_exist(page: Path) -> None:
    tasks = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in typed(page):
        for task in re.findall(r"^(?:\$ )?make ([a-z][\w-]*)", line):
            assert task in tasks, f"make {task}: the Makefile has {sorted(tasks)}"
        for command in re.findall(r"^(?:\$ )?muster ([a-z][\w-]*)", line):
            assert command in main.commands, f"muster {command}: there are {sorted(main.commands)}"


def commands(start: click.Command) -> Iterator[click.Command]:
    """Yield this command and all below it."""
    yield start
    if isinstance(start, click.Group):
        for command in start.commands.values():
            yield from commands(command)


@each_page
def test_settings_that_are_named_exist(page: Path) -> None:
    flags = {option for command in commands(main) for param in command.params for option in param.opts}
    for span in spans(page):
        if match := re.match(r"--[a-z][a-z-]*", span):
            assert match[0] in flags, f"{match[0]}: not a flag of any command"
        if match := re.match(r"MUSTER_[A-Z_]+$", span):
            assert match[0] in {each.variable for each in SETTINGS} | {"MUSTER_CONFIG"}


@each_page
def test_names_of_ours_are_those_of_the_code(page: Path) -> None:
    ours = {text for text in vars(keys).values() if isinstance(text, str)}
    known = {*ours, *keys.MARKERS, LOCAL_QUEUES.version}
    for name in re.findall(r"(?<![\w.-])kube-muster\.io/[\w-]+", page.read_text()):
        assert name in known, f"{name}: the code knows {sorted(known)}"


def test_the_readme_has_the_test_command() -> None:
    assert any("make test" in line for line in typed(ROOT / "README.md"))


def test_every_page_for_users_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    folders = ("tutorials", "how-to", "reference", "explanation")
    pages = {f"{folder}/{page.name}" for folder in folders for page in (ROOT / "docs" / folder).glob("*.md")}
    linked = set(re.findall(rf"\]\(((?:{'|'.join(folders)})/[\w-]+\.md)", index.read_text()))
    assert linked == pages
    assert "](docs/README.md)" in (ROOT / "README.md").read_text()


def test_the_changelog_has_this_version() -> None:
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()


@each_of(*sorted((ROOT / "docs").rglob("*.svg")))
def test_pictures_are_well_formed_and_say_what_they_show(picture: Path) -> None:
    svg = ElementTree.parse(picture).getroot()
    assert svg.find("{http://www.w3.org/2000/svg}title") is not None
    assert "prefers-color-scheme: dark" in picture.read_text()


# ---- tables in step with the code


def test_reasons_are_those_of_the_code() -> None:
    documented = [(code(name)[0], *texts) for name, *texts in rows("docs/reference/reasons.md", "code")]
    assert documented == [(str(each), each.meaning, REMEDIES[each]) for each in Reason]


def test_metrics_are_those_of_the_code() -> None:
    head, _, _ = prose(ROOT / "docs" / "reference" / "metrics.md").partition("| metric |")
    (histograms,) = re.findall(r"Histograms are ([^;]*);", head)
    documented = {
        code(name)[0]: (code(name)[0] in code(histograms), tuple(code(labels)), meaning)
        for name, labels, meaning in rows("docs/reference/metrics.md", "metric")
    }
    assert documented == {
        metric._name + ("_total" if metric._type == "counter" else ""): (
            metric._type == "histogram",
            tuple(metric._labelnames),
            metric._documentation,
        )
        for metric in vars(metrics).values()
        if isinstance(metric, MetricWrapperBase)
    }


def test_queries_ask_for_metrics_that_are_there() -> None:
    known = {code(cells[0])[0] for cells in rows("docs/reference/metrics.md", "metric")}
    for page in PAGES:
        for name in re.findall(r"\bmuster_[a-z_]+", " ".join(spans(page))):
            assert name in known or name.removesuffix("_bucket") in known, name


def test_debug_pages_are_those_of_the_code() -> None:
    documented = [(code(path)[0], help) for path, help in rows("docs/reference/debug.md", "path")]
    assert documented == [
        ("/debug/", "this list"),
        *((f"/debug/{each.path}", each.help) for each in ENDPOINTS),
    ]


def test_layers_are_in_the_layout() -> None:
    layout = blocks(ROOT / "CONTRIBUTING.md")[0].text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = " ".join(project["tool"]["importlinter"]["contracts"][0]["layers"])
    for name in re.findall(r"extender\.(\w+)", layers):
        assert re.search(rf"^  {name}/ ", layout, re.MULTILINE), f"CONTRIBUTING.md lacks extender/{name}"


def test_layers_are_those_of_the_architecture() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    documented = [set(code(names)) for names, _ in rows("docs/explanation/architecture.md", "layer")]
    assert documented == [set(re.findall(r"extender\.(\w+)", names)) for names in layers]


def test_what_the_layout_names_is_there() -> None:
    parents = [""]  # of the line, by how far it is indented
    for line in blocks(ROOT / "CONTRIBUTING.md")[0].text.splitlines():
        name, depth = line.split()[0], (len(line) - len(line.lstrip())) // 2
        if name.endswith("/"):
            parents[depth + 1 :] = [parents[depth] + name]
            assert (ROOT / parents[-1]).is_dir(), parents[-1]
        for module in re.findall(r"\b\w+\.py\b", line):
            assert (ROOT / parents[-1] / module).is_file(), f"{parents[-1]}{module}"


# ---- YAML and JSON


@each_page
def test_json_blocks_are_json(page: Path) -> None:
    for block in blocks(page):
        if block.language == "json":
            json.loads(block.text)


def test_the_readme_gang_is_whole() -> None:
    (text,) = [block.text for block in blocks(ROOT / "README.md") if block.language == "yaml"]
    job = yaml.safe_load(text)
    row = WORKLOADS[job["apiVersion"], job["kind"]]
    gang = gang_of(row, job, {part.role: part.count for part in pod_sets(job)})
    assert gang_size_of(gang, "", Defaults(), waits=False).members == job["spec"]["parallelism"] > 1
    assert job["spec"]["template"]["spec"]["schedulerName"] in Configuration().scheduler_names


def test_the_first_gang_example_is_larger_than_its_nodes() -> None:
    """Compare the example with its head: 18 cpu for nodes of 12, and no gang alone is too large."""
    pods = [
        each
        for each in yaml.safe_load_all((ROOT / "examples" / "first-gang.yaml").read_text())
        if each["kind"] == "Pod"
    ]
    asked: Counter[str] = Counter()
    for pod in pods:
        cpu = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        asked[pod["metadata"]["annotations"][keys.GROUP_ANNOTATION]] += int(cpu)
    assert asked.total() == 18
    assert max(asked.values()) <= 12


@each_of(
    (
        "explanation/concepts",
        "is reserved for it, for ten minutes at a time",
        Limits().capacity_reserved,
        600.0,
    ),
    (
        "explanation/concepts",
        "**When:** after two minutes, or `spec.preemption.after`",
        records.RECLAIM_AFTER,
        120.0,
    ),
    (
        "explanation/concepts",
        "After 15 minutes, or `spec.preemption.atMost`",
        records.RECLAIM_AT_MOST,
        900.0,
    ),
    ("explanation/concepts", "reserved for at most five minutes", Limits().reclaim_deadline, 300.0),
    (
        "explanation/concepts",
        "for the same group at most once an hour",
        Limits().reclaim_memory,
        3600.0,
    ),
    ("reference/queues", "for `spec.reserveAfter` (default 2h)", records.RESERVE_AFTER, 7200.0),
    (
        "reference/queues",
        "All reservations together keep a tenth of the cluster",
        Configuration().reservations,
        0.1,
    ),
    ("reference/jobs", "`spec.startTimeout` (default 5 minutes)", records.START_TIMEOUT, 300.0),
)
def test_numbers_of_sharing_are_those_of_the_code(
    page: str, sentence: str, default: float, said: float
) -> None:
    assert sentence in " ".join((ROOT / "docs" / f"{page}.md").read_text().split())
    assert default == said
