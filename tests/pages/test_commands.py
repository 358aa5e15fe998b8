"""Every command of README and docs/ is run by a test, and prints what its page says."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.desk import Desk
from tests.pages.fences import PAGES, ROOT, Command, File, commands, steps
from tests.pages.register import REGISTER, Entry, Way, entry_of, way_of
from tests.pages.town import settle

ALL = [command for page in PAGES for command in commands(page)]
IN_TOWN = [page for page in PAGES if any(way_of(each) is Way.TOWN for each in commands(page))]


@pytest.mark.parametrize("command", ALL, ids=str)
def test_each_command_is_run_in_some_way(command: Command) -> None:
    entry = entry_of(command)
    assert entry, f"{command.text!r} is run by no test: tests/pages/register.py says how to change that"
    assert entry.way is not Way.ELSEWHERE or entry.why


@pytest.mark.parametrize("entry", REGISTER, ids=lambda entry: entry.pattern)
def test_no_entry_is_left_over(entry: Entry) -> None:
    assert entry in [entry_of(each) for each in ALL]


class Run(NamedTuple):
    """What came of a command in a folder of its own."""

    text: str
    folder: Path
    done: "subprocess.CompletedProcess[str]"


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Command, "Future[Run]"]]:
    """Those of the chosen tests, two at a time: most of them wait more than they work."""
    chosen: list[Any] = [
        each for each in request.session.items if each.name.startswith("test_it_runs_alone[")
    ]
    commands = [each.callspec.params["command"] for each in chosen]
    with ThreadPoolExecutor(2) as pool:
        yield {each: pool.submit(run_alone, each, tmp_path_factory.mktemp("alone")) for each in commands}
        pool.shutdown(cancel_futures=True)


def run_alone(command: Command, folder: Path) -> Run:
    """With the files of its page, a hundredth of the pods of a large one, and pods that run fast."""
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "queues.yaml").symlink_to(ROOT / "examples" / "first-gang.yaml")
    (folder / "monday.csv").symlink_to(ROOT / "examples" / "trace.csv")
    for file in (step for step in steps(ROOT / command.page) if isinstance(step, File)):
        if not (folder / file.path).exists():
            (folder / file.path).parent.mkdir(exist_ok=True)
            (folder / file.path).write_text(file.text)
    text = re.sub(r" --speed \d+", "", command.text.replace("100000", "1000"))
    text = text.replace("muster run", "muster run --speed 1000")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    arguments = ["bash", "-euc", text]
    done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return Run(text, folder, done)


@pytest.mark.parametrize("command", [each for each in ALL if way_of(each) is Way.ALONE], ids=str)
def test_it_runs_alone(command: Command, runs: dict[Command, "Future[Run]"]) -> None:
    text, folder, done = runs[command].result()
    assert (done.returncode, done.stderr) == (0, "")
    assert command.printed in (None, done.stdout)
    for drawn in re.findall(r"--gantt (\S+)", text):
        assert (folder / drawn).exists()


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    desk.server.start()
    settle(desk)
    desk.store.keeps_queues = True
    yield desk
    desk.server.stop()


@pytest.mark.parametrize("page", IN_TOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_it_runs_in_the_town(page: Path, town: Desk) -> None:
    """From the top of the page to its end."""
    for command in commands(page):
        if way_of(command) is Way.TOWN:
            arguments = shlex.split(command.text.removeprefix("kubectl ").removeprefix("muster "))
            result = town.muster(*arguments)
            assert result.exit_code == 0, f"{command}: {result.output}"
            assert command.printed in (None, result.stdout), str(command)


@pytest.mark.parametrize(
    "text", ["helm install another chart", "muster destroy everything", "kubectlx get pods"]
)
def test_an_unknown_command_is_found(text: str) -> None:
    assert entry_of(Command("docs/new.md", text)) is None
