"""The examples per framework hold together, all their pods start, and the pages lead to each."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from extender.api import keys
from extender.api.configuration import Configuration
from extender.cli import main
from extender.shipped import read

ROOT = Path(__file__).parents[1]
FRAMEWORKS = sorted((ROOT / "examples" / "frameworks").glob("*.yaml"))
INDEX = ROOT / "docs" / "how-to" / "run-frameworks.md"

PODS = {
    "argo": 3,  # of its first step
    "deployment": 3,
    "job": 3,
    "jobset": 5,
    "mpi": 3,
    "pytorch": 4,
    "ray": 4,
    "spark": 4,
}

each_example = pytest.mark.parametrize("example", FRAMEWORKS, ids=lambda path: path.name)


def documents(example: Path) -> list[dict[str, Any]]:
    return read([example])


def named(kind: str, found: list[dict[str, Any]]) -> set[str]:
    return {each["metadata"]["name"] for each in found if each["kind"] == kind}


def values(key: str, value: Any) -> Iterator[Any]:
    """All that an object has under this key, at any depth."""
    if isinstance(value, dict):
        yield from (each for name, each in value.items() if name == key)
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from values(key, each)


@each_example
def test_what_its_pods_name_is_in_the_file(example: Path) -> None:
    found = documents(example)
    assert set(values(keys.GROUP_ANNOTATION, found)) == named("PodGroup", found)
    queues = set(values("queue", found)) | set(values(keys.QUEUE, found))
    assert queues == named("Queue", found)


@each_example
def test_its_pods_are_for_a_scheduler_of_ours(example: Path) -> None:
    schedulers = set(values("schedulerName", documents(example)))
    assert schedulers
    assert schedulers <= set(Configuration().scheduler_names)


@each_example
def test_all_of_it_starts_on_the_nodes_that_muster_run_makes(example: Path) -> None:
    done = CliRunner().invoke(main, ["simulate", "-f", str(example), "-o", "json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["pods"], report["neverStarted"]) == (PODS[example.stem], [])


@each_example
def test_it_says_how_it_is_tried(example: Path) -> None:
    path = example.relative_to(ROOT)
    comments = [line for line in example.read_text().splitlines() if line.startswith("#")]
    assert f"# Without a cluster: muster run -f {path}" in comments


def test_the_page_leads_to_each_and_to_no_other() -> None:
    linked = re.findall(r"\]\(\.\./\.\./examples/frameworks/([\w-]+\.yaml)\)", INDEX.read_text())
    assert sorted(linked) == [path.name for path in FRAMEWORKS]
