"""`muster simulate` as it is typed."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from click.testing import CliRunner, Result

from extender.cli import main
from extender.sim.virtual.trace import COLUMNS

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGE = (ROOT / "docs" / "simulate.md").read_text()


def muster(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


def test_the_example_as_a_table() -> None:
    result = muster("--trace", EXAMPLES / "trace.csv", "--nodes", "4", "--node-cpu", "8")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith("54 pods, 8 gangs, 3 queues, 4 nodes, ")
    assert "done         8 of 8 gangs" in lines
    assert max(map(len, lines)) <= 80


def test_json_and_yaml_say_the_same() -> None:
    in_json = muster("-f", EXAMPLES / "first-gang.yaml", "-o", "json")
    in_yaml = muster("-f", EXAMPLES / "first-gang.yaml", "-o", "yaml")
    report = json.loads(in_json.output)
    assert report == yaml.safe_load(in_yaml.output)
    assert (report["makespan"], report["waits"]["max"], report["neverStarted"]) == (60.0, 40.0, [])


def test_the_chart_is_written(tmp_path: Path) -> None:
    path = tmp_path / "chart.svg"
    assert muster("--synthetic", "200", "--nodes", "5", "--gantt", path).exit_code == 0
    assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_a_chart_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    result = muster("--synthetic", "10", "--gantt", tmp_path / "none" / "chart.svg")
    assert result.exit_code == 2
    assert "chart.svg: cannot be written: No such file or directory" in result.output


def test_a_broken_line_ends_with_2(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival,group,cpu\n0,a,1\n1,b,much\n")
    result = muster("--trace", path)
    assert result.exit_code == 2
    assert f"{path}:3: cpu: got 'much'; allowed is a quantity such as 500m, 2 or 16Gi" in result.output


def test_a_file_and_a_trace_go_together(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival,group,queue,cpu,seconds\n0,a,research,1,5\n")
    result = muster("-f", EXAMPLES / "first-gang.yaml", "--trace", path, "-o", "json")
    assert json.loads(result.output)["groups"] == 4


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "nothing to simulate"),
        (["-f", "none.yaml"], "none.yaml: cannot be read"),
        (["--synthetic", "5", "--node-cpu", "lots"], "allowed is a quantity above 0"),
        (["--synthetic", "0"], "0 is not in the range"),
    ],
)
def test_what_makes_no_sense_is_told(arguments: list[str], told: str) -> None:
    result = muster(*arguments)
    assert (result.exit_code, told in result.output) == (2, True)


# ---- docs/simulate.md


def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^```text\n(.*?)```$", PAGE, re.MULTILINE | re.DOTALL)
    drawn = tmp_path / "chart.svg"
    arguments = ("--trace", EXAMPLES / "trace.csv", "--nodes", "4", "--node-cpu", "8", "--gantt", drawn)
    assert muster(*arguments).output == shown
    assert drawn.read_text() == (ROOT / "docs" / "simulate.svg").read_text()


def test_the_page_names_the_columns() -> None:
    documented = re.findall(r"^\| (`.*?`) \|", PAGE.partition("## Traces")[2], re.MULTILINE)
    assert {name for cell in documented for name in re.findall(r"`(\w+)`", cell)} == set(COLUMNS)
