"""`muster simulate` as it is typed."""

import json
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from extender.cli import main
from extender.sim.virtual.trace import COLUMNS
from tests.sim.requests import GPU_POD
from tests.sim_virtual.test_objects import group, pod

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGE = (ROOT / "docs" / "how-to" / "simulate.md").read_text()


def muster(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


Given = Callable[..., Result]


@pytest.fixture
def simulated_text(tmp_path: Path) -> Given:
    """Return a function that simulates a file with this text."""
    path = tmp_path / "given.yaml"

    def simulated(text: str, *flags: str) -> Result:
        path.write_text(text)
        return muster("-f", path, *flags)

    return simulated


def test_the_example_as_a_table() -> None:
    result = muster("--trace", EXAMPLES / "trace.csv", "--nodes", "4", "--node-cpu", "8")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith("51 pods, 6 gangs, 2 other groups, 3 queues, 4 nodes, ")
    assert "started      6 of 6 gangs, 6 done" in lines
    assert "one by one   2 of 2 groups started, 2 done" in lines
    assert max(map(len, lines)) <= 80


def test_json_and_yaml_say_the_same() -> None:
    in_json = muster("-f", EXAMPLES / "first-gang.yaml", "-o", "json")
    in_yaml = muster("-f", EXAMPLES / "first-gang.yaml", "-o", "yaml")
    report = json.loads(in_json.output)
    assert report == yaml.safe_load(in_yaml.output)
    assert (report["makespan"], report["waits"]["max"], report["neverStarted"]) == (60.0, 40.0, [])


def test_pods_that_start_one_by_one_are_no_gang(simulated_text: Given) -> None:
    text = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\nspec:\n  parallelism: 4\n  template:\n"
        "    spec: {schedulerName: muster, restartPolicy: Never, containers: [{name: c, image: x}]}\n"
    )
    printed = simulated_text(text).output.splitlines()
    assert printed[0].startswith("4 pods, 1 other group, 1 queue, ")
    assert any(line.startswith("one by one ") for line in printed)
    assert not any(line.startswith("started") for line in printed)
    counts = {"groups": 1, "started": 1, "done": 0}
    assert json.loads(simulated_text(text, "-o", "json").output)["oneByOne"] == counts


def test_a_chart_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    result = muster("--synthetic", "10", "--gantt", tmp_path / "none" / "chart.svg")
    assert result.exit_code == 2
    assert f"{tmp_path}/none/chart.svg: " in result.output


def test_a_broken_line_ends_with_2(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival,group,cpu\n0,a,1\n1,b,much\n")
    result = muster("--trace", path)
    assert result.exit_code == 2
    assert f"{path}:3: cpu: invalid value 'much': must be a quantity such as 500m, 2 or 16Gi" in result.output


def test_a_file_and_a_trace_go_together(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival,group,queue,cpu,seconds\n0,a,research,1,5\n")
    result = muster("-f", EXAMPLES / "first-gang.yaml", "--trace", path, "-o", "json")
    assert json.loads(result.output)["groups"] == 4


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ([], "nothing to simulate"),
        (["-f", "none.yaml"], "none.yaml: cannot be read"),
        (["--synthetic", "5", "--node-cpu", "lots"], "must be a quantity above 0"),
        (["--synthetic", "0"], "'--synthetic': '0': must be a whole number from 1 to 1000000"),
        (["--nodes", "x"], "'--nodes': 'x': must be a whole number from 1 to 20000"),
        (["--window", "0"], "'--window': '0': must be a whole number of at least 1"),
        (
            ["--run-seconds", "nan"],
            "'--run-seconds': 'nan': must be a number of seconds from 0 to",
        ),
        (["--gantt", "x.png"], "'--gantt': 'x.png': must be an SVG file, such as chart.svg"),
        (["-o", "xml"], "'--output': 'xml' is not one of 'table', 'json', 'yaml'."),
    ],
)
def test_what_makes_no_sense_is_an_error(arguments: list[str], printed: str) -> None:
    result = muster(*arguments)
    assert (result.exit_code, printed in result.output) == (2, True)


def test_gpus_of_nodes(simulated_text: Given) -> None:
    assert "NeverFits: no node has nvidia.com/gpu\n" in simulated_text(GPU_POD).output
    report = json.loads(simulated_text(GPU_POD, "--node-gpu", "1", "-o", "json").output)
    assert report["neverStarted"] == []


def test_unstarted_groups_are_reported_in_the_status_and_with_the_intended_name(
    simulated_text: Given,
) -> None:
    """A group without pods is one of them, as in `muster run`."""
    pods = [pod("a", "trian"), pod("b", "trian"), pod("c", "fit")]
    fit = group("fit", 1).replace("minMember: 1", "minMember: 1, queue: defualt")
    result = simulated_text("---\n".join([group("train", 2), fit, *pods]))
    assert result.exit_code == 3
    started = "started      0 of 1 gang, 0 done\none by one   0 of 2 groups started, 0 done\n"
    assert f"{started}utilisation  nothing ran\n" in result.output
    lines = result.output.partition("never started:\n")[2].splitlines()
    assert {tuple(line.strip().split(": ")[:2]) for line in lines} == {
        ("default/train", "NotEnoughMembers"),
        ("default/trian", "GroupNotFound"),
        ("default/fit", "QueueNotFound"),
    }
    assert ("mean train?" in result.output, "mean default?" in result.output) == (True, True)


def test_a_gang_without_end_that_starts_last_counts_as_run(simulated_text: Given) -> None:
    result = simulated_text(group("fit", 1) + "---\n" + pod("p", "fit"))
    assert result.exit_code == 0
    assert "utilisation  not measured: no time passed\n" in result.output


@pytest.mark.parametrize("suspended", ["false", "true"])
def test_a_jobset_is_named_and_not_one_of_its_jobs(simulated_text: Given, suspended: str) -> None:
    container = "{name: c, image: x, resources: {requests: {cpu: 3}}}"
    pods = f"{{spec: {{schedulerName: muster, restartPolicy: Never, containers: [{container}]}}}}"
    text = (
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n"
        "metadata: {name: js, annotations: {scheduling.volcano.sh/queue-name: default}}\n"
        f"spec:\n  suspend: {suspended}\n  replicatedJobs:\n"
        f"  - {{name: leader, replicas: 1, template: {{spec: {{template: {pods}}}}}}}\n"
        f"  - {{name: workers, replicas: 2, template: {{spec: {{template: {pods}}}}}}}\n"
    )
    result = simulated_text(text, "--nodes", "2")
    assert result.exit_code == 3
    assert "  default/jobset/js: NeverFits: " in result.output


def test_pods_that_request_nothing_leave_the_utilisation_unmeasured(simulated_text: Given) -> None:
    spec = "{schedulerName: muster, containers: [{name: c, image: x}]}"
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {spec}\n"
    result = simulated_text(text, "--run-seconds", "60")
    assert "makespan     1m00s\n" in result.output
    assert "utilisation  not measured: no resources were held for any time\n" in result.output


PLAIN = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  suspend: NO
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}
"""


@pytest.mark.parametrize("suspended", ["true", "false"])
def test_where_nothing_is_for_muster_to_start_nothing_has_started(
    simulated_text: Given, suspended: str
) -> None:
    result = simulated_text(PLAIN.replace("NO", suspended))
    assert result.exit_code == 3
    assert "schedulerName: muster" in result.stderr
    assert "\nnothing in there is for Muster to start\n" in result.output


def test_fields_of_other_projects_are_reported_as_such(simulated_text: Given, tmp_path: Path) -> None:
    for text, reported in (
        (
            "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: a}\n",
            f':2: ClusterQueue "a": skipped, it is Kueue\'s; muster migrate kueue -f {tmp_path}/given.yaml',
        ),
        ("a: {{ .Values.a }}\n", ":1: not YAML: found unhashable key; it is a template of a Helm chart"),
    ):
        result = simulated_text(text)
        assert (result.exit_code, reported in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize(
    ("spec", "reported"),
    [
        ('weight: "3"', "invalid value '3': must be a whole number; write it without quotes"),
        ("capability: {mem: 8Gi}", "no node has a resource mem; did you mean memory?"),
        ("capability: {gpu: 4}", "no node has a resource gpu; did you mean nvidia.com/gpu?"),
        ("capability: {memory: 128MB}", "such as 500m, 2 or 1.5Gi; did you mean 128M or 128Mi?"),
        ("capability: {memory: 8gib}", "did you mean 8Gi?"),
    ],
)
def test_misspelt_fields_are_reported_with_the_right_name(
    simulated_text: Given, spec: str, reported: str
) -> None:
    head = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: a}\n"
    result = simulated_text(f"{head}spec: {{{spec}}}\n")
    assert (result.exit_code, reported in result.stderr) == (2, True), result.stderr


def test_names_are_whole_and_every_column_has_its_heading(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    queue = "research-of-the-vision-team-in-the-north"
    path.write_text(f"arrival,group,queue,gpu,seconds\n0,a,{queue},1,5\n")
    lines = muster("--trace", path, "--node-gpu", "2").output.splitlines()
    for title in ("time that groups waited", "shares of nvidia.com/gpu, on average"):
        head, row = lines[lines.index(title) + 1 :][:2]
        assert (head.split()[0], row.split()[0]) == ("queue", queue)
        assert len(head.split()) == len(row.split())
        assert len(head) == len(row)


def test_progress_shows_from_the_beginning_on_a_terminal() -> None:
    own_end, program_end = pty.openpty()
    termios.tcsetwinsize(program_end, (40, 100))
    command = [str(Path(sys.executable).with_name("muster")), "simulate", "--synthetic", "100"]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=program_end, env=environment) as run:
        os.close(program_end)
        shown = "".join(_chunks(own_end))
    os.close(own_end)
    assert run.returncode == 0
    assert shown.index("reading the workload") < shown.index("starting pods in virtual time")


def _chunks(terminal: int) -> Iterator[str]:
    with suppress(OSError):  # how a terminal says that no process writes to it any more
        while chunk := os.read(terminal, 65536):
            yield chunk.decode(errors="replace")


# ---- docs/how-to/simulate.md


def test_the_page_shows_what_is_drawn(tmp_path: Path) -> None:
    """Print one of the pictures of tests/pages/pictures.py."""
    drawn = tmp_path / "chart.svg"
    arguments = ("--trace", EXAMPLES / "trace.csv", "--nodes", "4", "--node-cpu", "8", "--gantt", drawn)
    assert muster(*arguments).exit_code == 0
    assert drawn.read_text() == (ROOT / "docs" / "drawings" / "simulate.svg").read_text()


def test_the_page_names_the_columns() -> None:
    documented = re.findall(r"^\| (`.*?`) \|", PAGE.partition("## Traces")[2], re.MULTILINE)
    assert {name for cell in documented for name in re.findall(r"`(\w+)`", cell)} == set(COLUMNS)
