"""Takes the steps of the Dockerfile without a container engine, and starts what comes of them.

Not a build: base images, users and layers stay untried. But what is copied, run and started is what the
Dockerfile says, read from it. So a file that .dockerignore keeps out, a dependency without a wheel, or a
program that needs to write where it may not, shows here.

    python -m tools.image    needs a network, for the wheels
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
SHIPPED = "/opt/muster"  # the folder that the second stage takes from the first
NOBODY = 65532
TRIED = (
    "muster version",
    "muster serve --help",
    "python -c 'from extender.shipped import EXAMPLE, RIGHTS; EXAMPLE.read_text(), RIGHTS.read_text()'",
)


class Step(NamedTuple):
    """One instruction of the Dockerfile, on one line."""

    word: str
    rest: str


def steps() -> Iterator[Step]:
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    for line in re.sub(r"\\\n", "", text).splitlines():
        word, _, rest = line.partition(" ")
        if word:
            yield Step(word, rest.strip())


def context(target: Path) -> None:
    """The tree as a builder is sent it: what .dockerignore lets through, and nothing else."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    dropped = shutil.ignore_patterns(*(line.removeprefix("**/") for line in lines if line.startswith("**/")))
    for kept in (line.removeprefix("!") for line in lines if line.startswith("!")):
        _copy(ROOT / kept, target / kept, dropped)


def build(folder: Path) -> None:
    """The first stage's COPY and RUN, with this folder for the root of its file system."""
    venv.create(folder / "base", with_pip=True)  # in place of the base image's Python
    os.environ["PIP_QUIET"] = "1"
    source = folder / "src"
    source.mkdir()
    first = [each.word for each in steps()].index("USER")
    for step in list(steps())[:first]:
        if step.word == "COPY" and "--from" not in step.rest:
            *copied, target = step.rest.split()
            for each in copied:
                into = source / target / Path(each).name if target.endswith("/") else source / target
                _copy(folder / "context" / each, into)
        elif step.word == "RUN":
            _run(step.rest.replace(SHIPPED, f"{folder}{SHIPPED}"), source, folder / "base" / "bin")


def start(folder: Path) -> None:
    """The second stage's program, with a home that cannot be written, as nobody where that can be had."""
    empty = folder / "empty"
    empty.mkdir(mode=0o555)
    nobody = _can_be_nobody(Path(f"{folder}{SHIPPED}/bin/python"))
    for command in TRIED:
        _run(f"{command} > /dev/null", empty, Path(f"{folder}{SHIPPED}/bin"), nobody=nobody)


def _can_be_nobody(python: Path) -> bool:
    """Only root may become somebody else, and root's own Python may be where nobody comes."""
    if os.geteuid() != 0:
        return False
    done = subprocess.run(
        ["sh", "-c", f"{python} -c pass"],
        user=NOBODY,
        group=NOBODY,
        cwd="/",
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode == 0


def _copy(source: Path, target: Path, ignore: Callable[[Any, list[str]], set[str]] | None = None) -> None:
    """Links stay links, as with a builder: one that leads out of the context leads nowhere."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=ignore, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def _run(command: str, where: Path, programs: Path, *, nobody: bool = False) -> None:
    """With nothing of this environment but the way to the network."""
    environment = {name: value for name, value in os.environ.items() if re.match("(?i)pip_|.*_proxy$", name)}
    environment |= {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(where)}
    who = NOBODY if nobody else None
    done = subprocess.run(
        ["sh", "-euc", command], cwd=where, env=environment, check=False, user=who, group=who
    )
    if done.returncode:
        sys.exit(f"{command}\nended with {done.returncode}")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="muster-image-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        context(folder / "context")
        build(folder)
        start(folder)
        size = sum(each.stat().st_size for each in Path(f"{folder}{SHIPPED}").rglob("*") if each.is_file())
    sys.stdout.write(f"the steps of the Dockerfile work; {size / 1e6:.0f} MB on top of the base image\n")


if __name__ == "__main__":
    main()
