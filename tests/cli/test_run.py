"""`muster run` as users start it: a process with arguments, an output and an end."""

import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from extender.cli import main
from tests.e2e.harness.waiting import wait_for
from tests.rows import each_of
from tests.sim.requests import GPU_POD
from tests.sim_virtual.test_command import PLAIN
from tests.sim_virtual.test_objects import group, pod

PROGRAM = Path(sys.executable).with_name("muster")
EXAMPLE = Path(__file__).parents[2] / "examples" / "first-gang.yaml"


def written(folder: Path, *names: str, seconds: int | None = None) -> Path:
    """Write a file of gangs of three, which run for `seconds`, or without end."""
    declared = {"run": str(seconds)} if seconds else {}
    path = folder / "gangs.yaml"
    gangs = [
        [group(name, 3), *(pod(f"{name}-{n}", name, "2", **declared) for n in range(3))] for name in names
    ]
    path.write_text("---\n".join(document for gang in gangs for document in gang))
    return path


@pytest.fixture
def gpu_pod(tmp_path: Path) -> Path:
    path = tmp_path / "gpu.yaml"
    path.write_text(GPU_POD)
    return path


def run(*arguments: object, **options: Any) -> Result:
    """Return the result of a run in this process; runs that stay or are ended have their own process."""
    return CliRunner().invoke(main, ["run", *map(str, arguments)], **options)


def test_the_outcome_for_programs(tmp_path: Path) -> None:
    """It ends although what the queue has held lately is written again and again."""
    file = written(tmp_path, "a", "b")
    flags = ("--until-settled", "-o", "json", "--nodes", 2, "--seed", 1, "--usage-half-life", "1m")
    done = run("-f", file, *flags)
    assert done.exit_code == 3, done.stderr
    outcome = json.loads(done.stdout)
    assert set(outcome) == {"podGroups", "queues", "pods", "nodes"}
    groups = {
        group["name"]: (group["phase"], group["reason"], group["bound"]) for group in outcome["podGroups"]
    }
    assert sorted(groups.values()) == [("Pending", "NoRoom", 0), ("Running", "", 3)]
    assert sum(bool(pod["node"]) for pod in outcome["pods"]) == 3
    assert sorted(node["used"]["cpu"] for node in outcome["nodes"]) == ["2", "4"]


def test_each_gang_of_the_tutorial_has_its_own_rack(tmp_path: Path) -> None:
    text = (EXAMPLE.parent / "tutorial" / "racks" / "ring.yaml").read_text()
    endless = tmp_path / "ring.yaml"
    endless.write_text(text.replace('annotations: {sim.kube-muster.io/run-seconds: "120"}', ""))
    done = run("-f", endless, "--until-settled", "-o", "json", "--racks", "2x3")
    assert done.exit_code == 0, done.stderr
    racks = {(pod["podGroup"], pod["node"].rpartition("-")[0]) for pod in json.loads(done.stdout)["pods"]}
    assert len(racks) == len({group for group, _ in racks}) == len({rack for _, rack in racks}) == 2


def test_the_example_without_a_terminal(tmp_path: Path) -> None:
    # Pods run for 20 s: the machine may stop for four seconds, and no pod ahead has ended by then.
    done = run("--speed", 5, env={"COLUMNS": "40"})
    assert done.exit_code == 0, done.stderr
    assert "\x1b" not in done.stdout
    output = " ".join(done.stdout.split())
    assert "waits. NoRoom: " in output
    assert "(cpu: 8 needed" in output
    assert "Ahead of it: default/report, default/train." in output
    assert "export KUBECONFIG=" in output
    assert "What happened" in output
    assert "Try next" in output
    shown = (EXAMPLE.parents[1] / "README.md").read_text().partition("```text\n")[2].partition("```")[0]
    reported = re.split(r"^ +[\d.]+ s ", shown, flags=re.MULTILINE)[1:]
    assert reported
    for line in reported:  # which nodes depends on whose pods were seen first
        assert re.sub(r"node-\d", "NODE", " ".join(line.split())) in re.sub(r"node-\d", "NODE", output)


def test_piped_it_ends_when_nothing_changes_though_pods_run(tmp_path: Path, gpu_pod: Path) -> None:
    done = run("-f", written(tmp_path, "a"), "-f", gpu_pod, "--node-gpu", 1)
    assert done.exit_code == 0, done.stderr
    output = " ".join(done.stdout.split())
    assert "Pods run 4 times as fast as stated. It ends when nothing changes any more." in output
    assert "3 of 3 pods run" in output
    assert re.search(r"default/\S*learner runs", done.stdout)


def test_objects_come_at_the_seconds_that_they_state(tmp_path: Path) -> None:
    late = tmp_path / "late.yaml"
    late.write_text("---\n".join([group("b", 1, arrival="8"), pod("b-0", "b", run="4")]))
    done = run("-f", written(tmp_path, "a", seconds=4), "-f", late)
    assert done.exit_code == 0, done.stderr
    (begun,) = re.findall(r"^ +([\d.]+) s  default/b runs", done.stdout, re.MULTILINE)
    assert float(begun) >= 2.0, "pods run 4 times as fast, and so do these seconds"


def test_a_group_that_never_started_is_named_with_its_reason(tmp_path: Path, gpu_pod: Path) -> None:
    file = tmp_path / "misspelt.yaml"
    misspelt = [pod("train-0", "trian"), pod("train-1", "trian"), pod("lone", cpu="20")]
    file.write_text("---\n".join([group("train", 2), *misspelt]))
    done = run("-f", file, "-f", gpu_pod)
    assert done.exit_code == 3, done.stderr
    output = " ".join(done.stdout.split())
    assert "default/train waits. NotEnoughMembers: " in output
    assert "2 pods name trian" in output
    assert "default/train-0, default/train-1: never started. GroupNotFound: " in output
    assert re.search(r"default/\S*lone: never started\S .*NeverFits: ", output)
    assert "starts: admitted" not in output
    assert "no node has nvidia.com/gpu" in output
    assert f"run -f {file} -f {gpu_pod} --node-gpu 8\n" in done.stdout


def test_a_file_without_pods_of_muster_is_reported(tmp_path: Path) -> None:
    files = {suspended: tmp_path / f"{suspended}.yaml" for suspended in ("true", "false")}
    for suspended, path in files.items():
        path.write_text(PLAIN.replace("NO", suspended).replace("train", f"job-{suspended}"))
    done = run("-f", files["true"], "-f", files["false"])
    assert done.exit_code == 3
    for suspended, path in files.items():
        assert f'{path}:1: Job "job-{suspended}": ' in done.stderr
    assert "schedulerName: muster" in " ".join(done.stdout.split())


# ---- on a terminal


@pytest.fixture
def terminal(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator["Terminal"]:
    """Yield a run on a terminal of 100 columns, whose pods run without end.

    Parametrized: with further flags.
    """
    own_end, program_end = pty.openpty()
    termios.tcsetwinsize(program_end, (40, 100))
    command = [str(PROGRAM), "run", "-f", str(written(tmp_path, "a")), *getattr(request, "param", ())]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        command, stdin=program_end, stdout=program_end, env=environment, start_new_session=True
    ) as process:
        os.close(program_end)
        yield Terminal(process, own_end)
        process.kill()
    os.close(own_end)


SETTLED = "Nothing changes any more by itself."


class Terminal:
    """The process, and what it has written so far."""

    def __init__(self, process: "subprocess.Popen[bytes]", reader: int) -> None:
        self.process = process
        self._reader = reader
        self.text = ""

    def read_until(self, wanted: str) -> None:
        wait_for(lambda: self._read(wanted), what=f"{wanted!r} on the terminal")

    def _read(self, wanted: str) -> bool:
        if select.select([self._reader], [], [], 0.1)[0]:
            self.text += os.read(self._reader, 65536).decode(errors="replace")
        return wanted in self.text

    def read_to_the_end(self) -> None:
        with suppress(OSError):  # how a terminal says that no process writes to it any more
            while more := os.read(self._reader, 65536):
                self.text += more.decode(errors="replace")


def test_a_cluster_on_a_terminal_runs_until_it_is_interrupted(terminal: Terminal) -> None:
    terminal.read_until("3 of 3 pods")
    assert "times as fast" not in terminal.text, "people have the time to look"
    kubeconfig = re.search(r"export KUBECONFIG=([\w/.-]+)", terminal.text)
    assert kubeconfig
    assert "dashboard" not in terminal.text, "lines of a log are not for people"
    terminal.read_until(SETTLED)
    why = CliRunner().invoke(main, ["why", "podgroup/a"], env={"KUBECONFIG": kubeconfig[1]})
    assert "Running" in why.stdout
    terminal.process.send_signal(signal.SIGINT)
    terminal.read_to_the_end()
    assert terminal.process.wait(30) == 0
    assert "What happened" in terminal.text


@pytest.mark.parametrize("terminal", [("--node-cpu", "100m")], indirect=True)
def test_hung_up_while_a_gang_has_not_started_it_has_not_ended_well(terminal: Terminal) -> None:
    terminal.read_until(SETTLED)
    program = "muster" if shutil.which("muster") else PROGRAM.absolute()
    assert f"{program} why NAME" in terminal.text
    family = descendants(terminal.process.pid)
    terminal.process.send_signal(signal.SIGHUP)
    terminal.read_to_the_end()
    assert terminal.process.wait(30) == 130
    assert "What happened" in terminal.text
    assert not any(map(is_alive, family))


# ---- bad input


def refused(*arguments: str) -> str:
    """Return the message about a mistake, before there is a cluster."""
    result = CliRunner().invoke(main, ["run", *arguments])
    assert result.exit_code == 2, result.output
    return result.stderr


def test_a_fault_in_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(group("a", 3).replace("minMember", "minMembers"))
    assert "bad.yaml:4: spec.minMembers: unknown field" in refused("-f", str(tmp_path / "bad.yaml"))


@each_of(
    (["--node-cpu", "many"], "'--node-cpu': 'many': must be a quantity above 0"),
    (["--nodes", "-1"], "'--nodes': '-1': must be a whole number from 0 to 5000"),
    (["--nodes", "x"], "'--nodes': 'x': must be"),
    (["--node-gpu", "x"], "'--node-gpu': 'x': must be a whole number from 0 to 1024"),
    (["--racks", "2x0"], "'--racks': '2x0': must be RACKSxNODES or BLOCKSxRACKSxNODES, such as 2x4"),
    (["--node-devices", "gpu"], "'--node-devices': 'gpu': must be CLASS=NUMBER, such as gpu=8"),
    (["--node-devices", "gpu=129"], "'--node-devices': 'gpu=129': must be"),
    (["--racks", "8"], "'--racks': '8': must be RACKSxNODES"),
    (["--racks", "71x71"], "'--racks': '71x71': must be"),
    (["--seed", "x"], "'--seed': 'x' is not a valid integer."),
    (["--speed", "0"], "'--speed': '0': must be a number from 0.001 to 1000000, such as"),
    (["--speed", "nan"], "'--speed': 'nan': must be a number from 0.001"),
    (["--listen", "nowhere"], "'--listen': 'nowhere': must be an address"),
    (["-o", "xml"], "'--output': 'xml' is not 'json'."),
)
def test_a_fault_in_a_flag_is_named(arguments: list[str], printed: str) -> None:
    assert printed in refused(*arguments)


def test_a_port_in_use_is_named_with_its_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        printed = refused("--listen", address)
    assert f"--listen: invalid value '{address}': another process listens there" in printed


# ---- the end


@pytest.fixture
def running(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Yield a run that would go on for an hour, with its gang at work."""
    command = [str(PROGRAM), "run", "-f", str(written(tmp_path, "a", seconds=14400))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        while "default/a runs" not in process.stdout.readline():
            assert process.poll() is None
        yield process
        process.kill()


def test_a_signal_ends_it_with_its_last_words_and_no_process_is_left(
    running: "subprocess.Popen[str]",
) -> None:
    """End as after Ctrl-C on a terminal."""
    family = descendants(running.pid)
    assert len(family) >= 2
    running.terminate()
    out, _ = running.communicate(timeout=30)
    assert "What happened" in out
    assert running.returncode == 130
    assert not any(map(is_alive, family))


def test_even_killed_it_leaves_no_process(running: "subprocess.Popen[str]") -> None:
    family = descendants(running.pid)
    running.kill()
    wait_for(lambda: not any(map(is_alive, family)))


def descendants(pid: int) -> list[int]:
    """Return the ids of all descendants of a process."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in map(str.split, listed.splitlines())}
    found, new = [pid], [pid]
    while new := [child for child, parent in parents.items() if parent in new]:
        found += new
    return found[1:]


def is_alive(pid: int) -> bool:
    """Return whether the process runs; zombies do not count."""
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(shown.stdout.strip()) and not shown.stdout.startswith("Z")


# ---- objects as people write them

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: NAME, annotations: {scheduling.volcano.sh/group-min-member: "3"}}
spec:
  parallelism: 3
  template:
    metadata: {labels: {app: NAME}}
    spec:
      schedulerName: muster
      restartPolicy: Never
      containers: [{name: c, image: x, resources: {requests: {cpu: "2"}}}]
---
"""


def test_jobs_through_a_pipe_start_whole_or_not_at_all_on_the_nodes_of_the_files(tmp_path: Path) -> None:
    """Take the number of members from the owner, as in a real cluster: its pods make a group of three.

    Notes do not mix with the outcome.
    """
    nodes = tmp_path / "nodes.yaml"
    amounts = "status: {allocatable: {cpu: 6, memory: 1Gi, pods: 9}}"
    nodes.write_text(f"apiVersion: v1\nkind: Node\nmetadata: {{name: mine}}\n{amounts}\n")
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n---\n"
    jobs = JOB.replace("{name: NAME,", "{name: NAME, namespace: team,")
    text = service + jobs.replace("NAME", "a") + jobs.replace("NAME", "b")
    flags = ("--create-namespaces", "--until-settled", "-o", "json")
    done = run("-f", "-", "-f", nodes, *flags, input=text)
    assert done.exit_code == 3, done.stderr
    (note,) = done.stderr.splitlines()
    assert note.startswith('stdin:2: Service "s": skipped')
    outcome = json.loads(done.stdout)
    groups = [(each["minMember"], each["reason"], each["bound"]) for each in outcome["podGroups"]]
    assert sorted(groups) == [(3, "", 3), (3, "NoRoom", 0)]
    assert [node["name"] for node in outcome["nodes"]] == ["mine"]
    assert {(pod["namespace"], pod["node"]) for pod in outcome["pods"] if pod["node"]} == {("team", "mine")}
