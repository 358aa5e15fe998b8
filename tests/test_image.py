"""Engine that builds the image: the choice, its arguments, and the message when none answers."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from extender import __version__
from tools import image

ROOT = Path(__file__).parents[1]
UNREACHABLE_DAEMON = "echo warning >&2; echo 'Cannot connect to the daemon' >&2; exit 1"


def engine(folder: Path, name: str, script: str = 'echo "$0" "$@"') -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def make_image(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the tool with this folder's engines and no others."""
    command = [sys.executable, "-m", "tools.image", *arguments]
    environment = {**os.environ, "PATH": str(folder)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_the_first_that_answers_builds(tmp_path: Path) -> None:
    engine(tmp_path, "docker", UNREACHABLE_DAEMON)
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
def test_where_no_builder_answers_each_is_reported_with_its_reason(
    tmp_path: Path, arguments: tuple[str, ...], named: set[str]
) -> None:
    engine(tmp_path, "docker", UNREACHABLE_DAEMON)
    done = make_image(tmp_path, *arguments)
    assert done.returncode == 2
    reasons, _, allowed = done.stderr.partition("), ")
    assert {each for each in image.BUILDERS if f"{each}: " in reasons} == named
    assert "docker: Cannot connect to the daemon" in reasons
    assert allowed == "allowed: one of docker, podman, buildah that works\n"


@pytest.mark.parametrize(
    ("name", "arguments", "typed"),
    [
        ("docker", (), ["build --tag r/m:1 ROOT", "push r/m:1"]),
        ("docker", ("--platforms=a,b",), ["buildx build --platform a,b --tag r/m:1 --push ROOT"]),
        (
            "podman",
            ("--platforms=a,b",),
            ["build --platform a,b --manifest r/m:1 ROOT", "manifest push --all r/m:1 docker://r/m:1"],
        ),
    ],
)
def test_an_image_is_pushed_for_one_platform_or_several(
    tmp_path: Path, name: str, arguments: tuple[str, ...], typed: list[str]
) -> None:
    engine(tmp_path, name)
    done = make_image(tmp_path, "--tag=r/m:1", "--push", *arguments)
    wanted = [f"{tmp_path}/{name} {each}".replace("ROOT", str(ROOT)) for each in typed]
    assert (done.returncode, done.stdout.splitlines()) == (0, wanted)


def test_what_was_not_built_is_not_pushed(tmp_path: Path) -> None:
    engine(tmp_path, "docker", 'echo "$@"; test "$1" != build')
    done = make_image(tmp_path, "--tag=r/m:1", "--push")
    assert (done.returncode, "push" in done.stdout) == (1, False)


def test_a_build_that_fails_fails(tmp_path: Path) -> None:
    engine(tmp_path, "docker", 'test "$1" = info')
    assert make_image(tmp_path).returncode == 1


def test_the_stand_in_is_for_the_image_that_ours_stands_on() -> None:
    assert f" - {image.base()}\n" in (ROOT / "tools" / "base-image.sh").read_text()


# ---- what is shipped is what was looked at


def test_a_release_stands_on_a_digest(tmp_path: Path) -> None:
    engine(tmp_path, "docker")
    done = make_image(tmp_path, "--release")
    assert done.returncode == 2
    assert f"--base: got {image.base()}; a release allows a digest" in done.stderr
    fixed = f"docker.io/library/python@sha256:{'0' * 64}"
    assert f"--build-arg=BASE={fixed}" in make_image(tmp_path, "--release", f"--base={fixed}").stdout


def locked(name: str) -> dict[str, list[str]]:
    """Return the versions by package of a file that `make hashes` writes, with the hashes of each."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "image" / name).read_text().splitlines():
        if match := re.match(r"([\w.-]+)==([^ ]+)", line):
            hashes = found.setdefault(f"{match[1].lower()}=={match[2]}", [])
        elif match := re.match(r"    --hash=sha256:[0-9a-f]{64}", line):
            hashes.append(match[0].strip())
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_image_installs_what_the_tests_ran_with_by_hash() -> None:
    """`make hashes` after a change of constraints.txt or of the dependencies."""
    pinned = {normal(line) for line in (ROOT / "constraints.txt").read_text().split()}
    there = locked("requirements.txt")
    assert {normal(each) for each in there} <= pinned
    assert all(there.values())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {normal(re.split(r"[<>=]", each)[0]) for each in project["dependencies"]}
    assert wanted <= {normal(each.partition("==")[0]) for each in there}


def test_what_builds_it_is_known_by_hash() -> None:
    (name, hashes), *_ = locked("build-requirements.txt").items()
    assert name.startswith("setuptools==")
    assert hashes
    dockerfile = (ROOT / "Dockerfile").read_text()
    installs = re.findall(r"pip [^\n\\]* install [^\n\\]*", dockerfile)
    assert installs
    assert all("--require-hashes" in install or "--no-index" in install for install in installs)
