"""Environment: the program that installs, its arguments, and the case without uv."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rows import each_of
from tools.environment import settings

ROOT = Path(__file__).parents[1]
PRINTS_ITS_COMMAND = 'echo "$(basename "$0") $*"'


def program(folder: Path, name: str, script: str = PRINTS_ITS_COMMAND) -> None:
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def make(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the tool with the programs of this folder, which count as a finished environment."""
    command = [sys.executable, "-m", "tools.environment", f"--folder={folder}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def calls(done: "subprocess.CompletedProcess[str]") -> list[str]:
    """Return the calls of pip and uv without irrelevant flags."""
    lines = [line for line in done.stderr.splitlines() if line.startswith(("pip ", "uv "))]
    return [
        " ".join(word for word in line.split() if word not in ("--quiet", "--no-compile")) for line in lines
    ]


PINNED_INSTALL = "--constraint constraints.txt --editable"


def test_uv_installs_what_runs(tmp_path: Path) -> None:
    program(tmp_path, "pip")
    program(tmp_path, "uv")
    done = make(tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert calls(done) == [f"uv pip install --python {tmp_path}/bin/python {PINNED_INSTALL} ."]


def test_pip_gets_uv_and_it_installs_the_extra(tmp_path: Path) -> None:
    program(tmp_path, "there", PRINTS_ITS_COMMAND.replace("$0", "uv"))
    program(tmp_path, "pip", f'{PRINTS_ITS_COMMAND}; cp "{tmp_path}/bin/there" "{tmp_path}/bin/uv"')
    done = make(tmp_path, "--extra=dev")
    fetched, installed = calls(done)
    assert fetched == "pip install --only-binary=:all: --constraint constraints.txt uv"
    assert installed.endswith(f"{PINNED_INSTALL} .[dev]")


@pytest.mark.parametrize("uv", ["exit 1", None], ids=["fails", "cannot be had"])
def test_pip_installs_where_uv_does_not(tmp_path: Path, uv: str | None) -> None:
    program(tmp_path, "pip", f'{PRINTS_ITS_COMMAND} | grep -v "uv$"')
    if uv:
        program(tmp_path, "uv", uv)
    done = make(tmp_path)
    assert done.returncode == 0
    assert calls(done)[-1] == f"pip install {PINNED_INSTALL} ."
    assert "pip installs instead" in done.stderr


def test_pip_installs_when_asked(tmp_path: Path) -> None:
    program(tmp_path, "pip")
    program(tmp_path, "uv")
    assert calls(make(tmp_path, "--installer=pip")) == [f"pip install {PINNED_INSTALL} ."]


def test_where_nothing_can_be_installed_it_fails(tmp_path: Path) -> None:
    program(tmp_path, "pip", "exit 3")
    assert make(tmp_path).returncode == 3


def test_uv_gets_the_index_of_pip(tmp_path: Path) -> None:
    program(
        tmp_path, "pip", """[ "$1" = config ] && echo "global.index-url='https://mirror.example/simple'" """
    )
    program(tmp_path, "uv", 'echo "index: $UV_DEFAULT_INDEX"')
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    command = [sys.executable, "-m", "tools.environment", f"--folder={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert "index: https://mirror.example/simple" in done.stderr


@each_of(
    ("", {}),  # nothing
    ("global.timeout='60'\ninstall.pre='1'", {}),  # what is not its own
    (
        "global.index-url='https://a/'\n:env:.index-url='https://c/'\ninstall.index-url='https://b/'",
        {"UV_DEFAULT_INDEX": "https://c/"},
    ),  # the strongest
    (
        "global.extra-index-url='\\nhttps://a/\\nhttps://b/'",
        {"UV_INDEX": "https://a/ https://b/", "UV_INDEX_STRATEGY": "unsafe-best-match"},
    ),  # two more indexes
    ("global.find-links='/a\\n/b'\nglobal.cert='/c'", {"UV_FIND_LINKS": "/a,/b", "SSL_CERT_FILE": "/c"}),
)
def test_the_settings_of_pip_by_the_names_of_uv(listed: str, expected: dict[str, str]) -> None:
    assert settings(listed) == expected
