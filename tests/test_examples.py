"""All pods of the examples start, and the pages lead to each example."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from extender.cli import main
from tests.rows import each_of

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


@pytest.mark.parametrize("example", FRAMEWORKS, ids=lambda path: path.name)
def test_all_of_it_starts_on_the_nodes_that_muster_run_makes(example: Path) -> None:
    done = CliRunner().invoke(main, ["simulate", "-f", str(example), "-o", "json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["pods"], report["neverStarted"]) == (PODS[example.stem], [])


@each_of(*FRAMEWORKS)
def test_it_says_how_it_is_tried(example: Path) -> None:
    path = example.relative_to(ROOT)
    comments = [line for line in example.read_text().splitlines() if line.startswith("#")]
    assert f"# Without a cluster: muster run -f {path}" in comments


def test_the_page_leads_to_each_and_to_no_other() -> None:
    linked = re.findall(r"\]\(\.\./\.\./examples/frameworks/([\w-]+\.yaml)\)", INDEX.read_text())
    assert sorted(linked) == [path.name for path in FRAMEWORKS]
