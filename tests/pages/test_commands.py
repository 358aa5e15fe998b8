"""Every command of README and docs/ is run by a test, and prints what its page says."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from extender.cli import main
from extender.cli.run import run
from extender.sim.virtual.runner import SimulationOptions, simulate
from tests.cli.cluster import Cluster
from tests.pages.fences import PAGES, ROOT, Command, File, commands, steps
from tests.pages.register import REGISTER, Entry, Way, entry_of, way_of
from tests.pages.sample import add_sample
from tests.rows import each_of

SAME_FLAGS = ("create_namespaces", "nodes", "node_cpu", "node_memory", "node_gpu")  # of run and simulate
ALL = [command for page in PAGES for command in commands(page)]
IN_TOWN = [page for page in PAGES if any(way_of(each) is Way.SAMPLE for each in commands(page))]


@each_of(*ALL)
def test_each_command_is_run_in_some_way(command: Command) -> None:
    entry = entry_of(command)
    assert entry, f"{command.text!r} is run by no test: tests/pages/register.py says how to change that"
    assert entry.way is not Way.ELSEWHERE or entry.why


@each_of(*REGISTER)
def test_no_entry_is_left_over(entry: Entry) -> None:
    assert entry in [entry_of(each) for each in ALL]


@pytest.mark.parametrize("command", [command for command in ALL if way_of(command) is Way.ALONE], ids=str)
def test_a_command_that_needs_no_cluster_runs(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run it with the files of its page, 200 pods where it has very many, and pods that run fast."""
    monkeypatch.chdir(with_files_of_its_page(tmp_path, command))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    text = command.text.replace("100000", "200").replace("muster run", "muster run --speed 1000")
    if text.startswith("muster simulate "):
        result = CliRunner().invoke(main, shlex.split(text)[1:])
        status, stdout, stderr = result.exit_code, result.stdout, result.stderr
    else:
        done = subprocess.run(["bash", "-euc", text], capture_output=True, text=True, check=False)
        status, stdout, stderr = done.returncode, done.stdout, done.stderr
    assert (status, stderr) == (0, "")
    assert command.printed in (None, stdout)
    for drawn in re.findall(r"--gantt (\S+)", text):
        assert Path(drawn).exists()


@pytest.mark.parametrize("command", [command for command in ALL if way_of(command) is Way.SIMULATED], ids=str)
def test_all_objects_of_a_run_command_start(command: Command, tmp_path: Path) -> None:
    folder = with_files_of_its_page(tmp_path, command)
    given = run.make_context("run", shlex.split(command.text)[2:]).params
    options = {name: given[name] for name in SAME_FLAGS}
    files = tuple(folder / file for file in given["files"])
    report = simulate(SimulationOptions(**{**options, "files": files})).report
    assert report.started
    assert not report.never_started


def with_files_of_its_page(folder: Path, command: Command) -> Path:
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "queues.yaml").symlink_to(ROOT / "examples" / "first-gang.yaml")
    (folder / "monday.csv").symlink_to(ROOT / "examples" / "trace.csv")
    for file in (step for step in steps(ROOT / command.page) if isinstance(step, File)):
        if not (folder / file.path).exists():
            (folder / file.path).parent.mkdir(exist_ok=True)
            (folder / file.path).write_text(file.text)
    return folder


@pytest.fixture
def sample(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    cluster.server.start()
    add_sample(cluster)
    cluster.store.writes_queue_statuses = True
    yield cluster
    cluster.server.stop()


@pytest.mark.parametrize("page", IN_TOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_run_on_the_test_cluster(page: Path, sample: Cluster) -> None:
    """Run the commands from the top of the page to its end."""
    for command in commands(page):
        if way_of(command) is Way.SAMPLE:
            arguments = shlex.split(command.text.removeprefix("kubectl ").removeprefix("muster "))
            result = sample.muster(*arguments)
            assert result.exit_code == 0, f"{command}: {result.output}"
            assert command.printed in (None, result.stdout), str(command)


@each_of("helm install another chart", "muster destroy everything", "kubectlx get pods")
def test_an_unknown_command_is_found(text: str) -> None:
    assert entry_of(Command("docs/new.md", text)) is None
