"""Builder of the container image, which uses the first engine that answers.

    python -m tools.image [--builder podman] [--base NAME] [--tag NAME] [--platforms LIST] [--push] ...

The program needs only Python, so users can build the image without an installation.
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from extender import __version__

ROOT = Path(__file__).parents[1]
# These engines accept the same arguments, except for images of several platforms.
BUILDERS = ("docker", "podman", "buildah")
ANSWER_TIMEOUT = 20.0
PULL_TIMEOUT = 300.0


class NoBuilder(Exception):
    """Error: no engine can build an image. The message is for users."""


def builder(engines: Iterable[str] = BUILDERS) -> str:
    """Return the first engine of `engines` that answers.

    Raises:
        NoBuilder: No engine answers. The message has the reason for each engine.
    """
    faults = {}
    for name in engines:
        fault = _why_unusable(name)
        if not fault:
            return name
        faults[name] = fault
    reasons = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
    raise NoBuilder(f"no engine to build with ({reasons}), allowed: one of {', '.join(BUILDERS)} that works")


def base() -> str:
    """Return the base image that the Dockerfile names."""
    match = re.search(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert match, "Dockerfile: no line ARG BASE="
    return match.group(1)


def is_fixed(image: str) -> bool:
    """Return whether a name has a digest, so that the name always means the same image.

    A tag can be moved to another image.
    """
    return re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", image) is not None


def why_missing(engine: str, image: str) -> str:
    """Return why the engine cannot get an image; empty if the image is on this machine or can be pulled.

    The engine buildah lacks the needed commands.
    """
    if not _fault([engine, "image", "inspect", image], ANSWER_TIMEOUT):
        return ""
    return _fault([engine, "pull", image], PULL_TIMEOUT)


def build(engine: str, tag: str, base_image: str = "", push: bool = False, platforms: str = "") -> int:
    """Build an image; return the exit code.

    Without `base_image`, the image has the base that the Dockerfile names. `platforms` lists the platforms of
    an image for several platforms, such as linux/amd64,linux/arm64; empty means the platform of this machine.
    """
    arguments = [*([f"--build-arg=BASE={base_image}"] if base_image else []), str(ROOT)]
    push_command = [engine, "push", tag]
    if not platforms:
        build_command = [engine, "build", "--tag", tag, *arguments]
    elif engine == "docker":  # docker keeps no image for several platforms: the build pushes it
        build_command = [engine, "buildx", "build", "--platform", platforms, "--tag", tag, *arguments]
        if push:
            build_command.insert(-1, "--push")
            push = False
    else:
        build_command = [engine, "build", "--platform", platforms, "--manifest", tag, *arguments]
        push_command = [engine, "manifest", "push", "--all", tag, f"docker://{tag}"]
    code = subprocess.run(build_command, check=False).returncode
    return subprocess.run(push_command, check=False).returncode if push and not code else code


def _why_unusable(name: str) -> str:
    """Return why this engine does not answer; empty when it does."""
    if shutil.which(name) is None:
        return "not found on PATH"
    return _fault([name, "info"], ANSWER_TIMEOUT)


def _fault(command: list[str], timeout: float) -> str:
    """Return the last line of a command's error output; empty if the command succeeded."""
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if completed.returncode == 0:
        return ""
    return (completed.stderr.strip().splitlines() or [f"exit code {completed.returncode}"])[-1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.image", description="Build the container image.")
    parser.add_argument("--builder", help=f"instead of the first of {', '.join(BUILDERS)} that answers")
    parser.add_argument("--base", default="", help=f"instead of {base()}")
    parser.add_argument("--tag", default=f"kube-muster:{__version__}", help="(default: %(default)s)")
    parser.add_argument("--push", action="store_true", help="to the registry of the tag")
    parser.add_argument("--platforms", default="", help="such as linux/amd64,linux/arm64 (default: this one)")
    parser.add_argument("--release", action="store_true", help="insist on a base image by digest")
    chosen = parser.parse_args()
    base_image = chosen.base or base()
    if chosen.release and not is_fixed(base_image):
        sys.stderr.write(f"error: --base: got {base_image}; a release allows a digest: NAME@sha256:...\n")
        return 2
    try:
        engine = builder([chosen.builder] if chosen.builder else BUILDERS)
    except NoBuilder as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stderr.write(f"{engine} builds {chosen.tag}\n")
    return build(engine, chosen.tag, chosen.base, chosen.push, chosen.platforms)


if __name__ == "__main__":
    sys.exit(main())
