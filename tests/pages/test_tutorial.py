"""The tutorial's questions to the cluster that it starts have the answers that it shows."""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner

from extender.cli import main
from tests.pages.fences import ROOT, Command, File, commands, steps
from tests.pages.register import TUTORIAL, Way, way_of

PAGE = ROOT / TUTORIAL
MAX_SECONDS = 30.0  # seconds until a cluster has settled


def test_the_questions_have_the_answers_of_the_page(tmp_path: Path) -> None:
    start, *questions = [command for command in commands(PAGE) if way_of(command) is Way.TUTORIAL]
    assert questions
    with cluster(start, tmp_path / "out") as kubeconfig:
        for question in questions:
            assert question.printed
            assert answer(question, kubeconfig) == timeless(question.printed)


def test_the_files_that_it_shows_are_those_of_the_repository() -> None:
    shown = {step.path: step.text.partition("\n")[2] for step in steps(PAGE) if isinstance(step, File)}
    ours = {path: text for path, text in shown.items() if (ROOT / path).exists()}
    assert ours == {path: (ROOT / path).read_text() for path in ours}
    assert ours


@contextmanager
def cluster(start: Command, output: Path) -> Iterator[str]:
    """Yield the kubeconfig of a run. Without a terminal the run ends by itself, after its pods."""
    with output.open("w") as out:
        arguments = [str(Path(sys.executable).parent / "muster"), *shlex.split(start.text)[1:]]
        process = subprocess.Popen(arguments, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield _kubeconfig(output, process)
    finally:
        process.terminate()
        process.wait()


def _kubeconfig(output: Path, process: "subprocess.Popen[bytes]") -> str:
    until = time.monotonic() + MAX_SECONDS
    while time.monotonic() < until and process.poll() is None:
        if found := re.search(r"^export KUBECONFIG=(\S+)$", output.read_text(), re.MULTILINE):
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"names no kubeconfig: {output.read_text()}")


def answer(question: Command, kubeconfig: str) -> str:
    """Return the answer, once it is that of the page or the time is over."""
    until = time.monotonic() + MAX_SECONDS
    while True:
        found = timeless(_ask(question, kubeconfig))
        if found == timeless(question.printed or "") or time.monotonic() > until:
            return found
        time.sleep(0.2)


def _ask(question: Command, kubeconfig: str) -> str:
    arguments = shlex.split(question.text)[1:]
    return CliRunner().invoke(main, arguments, env={"KUBECONFIG": kubeconfig}).output


def timeless(text: str) -> str:
    return re.sub(r"\b\d+s\b", "…s", text)
