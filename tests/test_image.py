"""Which engine builds the image, what it is told, and what people hear when none answers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from extender import __version__
from tools import image

ROOT = Path(__file__).parents[1]
DEAF = "echo warning >&2; echo 'Cannot connect to the daemon' >&2; exit 1"


def engine(folder: Path, name: str, script: str = 'echo "$0" "$@"') -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def make_image(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The tool with this folder's engines and no others."""
    command = [sys.executable, "-m", "tools.image", *arguments]
    environment = {**os.environ, "PATH": str(folder)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_the_first_that_answers_builds(tmp_path: Path) -> None:
    engine(tmp_path, "docker", DEAF)
    engine(tmp_path, "podman")
    engine(tmp_path, "buildah")
    done = make_image(tmp_path)
    assert done.returncode == 0
    assert done.stdout == f"{tmp_path}/podman build --tag kube-muster:{__version__} {ROOT}\n"


def test_builder_base_and_tag_can_be_chosen(tmp_path: Path) -> None:
    engine(tmp_path, "docker")
    engine(tmp_path, "buildah")
    done = make_image(tmp_path, "--builder=buildah", "--base=mine/python:3", "--tag=mine/muster:1")
    assert (
        done.stdout == f"{tmp_path}/buildah build --tag mine/muster:1 --build-arg=BASE=mine/python:3 {ROOT}\n"
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((), {"docker", "podman", "buildah"}), (("--builder=docker",), {"docker"})],
    ids=["any", "one"],
)
def test_where_none_answers_each_is_told_with_its_reason(
    tmp_path: Path, arguments: tuple[str, ...], named: set[str]
) -> None:
    engine(tmp_path, "docker", DEAF)
    done = make_image(tmp_path, *arguments)
    assert done.returncode == 2
    reasons, _, allowed = done.stderr.partition("), ")
    assert {each for each in image.BUILDERS if f"{each}: " in reasons} == named
    assert "docker: Cannot connect to the daemon" in reasons
    assert allowed == "allowed: one of docker, podman, buildah that works\n"


def test_a_build_that_fails_fails(tmp_path: Path) -> None:
    engine(tmp_path, "docker", 'test "$1" = info')
    assert make_image(tmp_path).returncode == 1


def test_the_stand_in_is_for_the_image_that_ours_stands_on() -> None:
    assert f" - {image.base()}\n" in (ROOT / "tools" / "base-image.sh").read_text()
