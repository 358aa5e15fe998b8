"""Container image of Muster, and the command that starts the image as in a pod.

buildah is not used, because a container that buildah starts differs from a container of a pod.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools import image

RUNNERS = ("docker", "podman")
TAG = "localhost/kube-muster:e2e"
FOLDER = Path("/access")
LONGEST_RUN = 60.0  # seconds
# Restrictions as in the manifests. The image sets the user `nobody`; a small /tmp is the only writable
# folder.
AS_IN_A_POD = (
    "--read-only",
    "--tmpfs=/tmp:size=64m",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--network=host",
)


class Image:
    """Image that a container engine has built from this source tree."""

    def __init__(self, engine: str) -> None:
        self._engine = engine

    def command(self, name: str, folder: Path) -> list[str]:
        """Return the command that starts a container named `name`.

        The container sees `folder` read-only at the path FOLDER.
        """
        mount = f"--volume={folder}:{FOLDER}:ro"
        return [self._engine, "run", "--rm", f"--name={name}", *AS_IN_A_POD, mount, TAG]

    def output(self, *arguments: str, program: str = "muster") -> str:
        """Run a program of the image with these arguments, and return its output.

        Fail if the program fails.
        """
        command = [self._engine, "run", "--rm", *AS_IN_A_POD, f"--entrypoint={program}", TAG, *arguments]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_RUN, check=False)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    def remove(self, name: str) -> None:
        """Remove a container.

        A container continues to run when only the engine's command is killed.
        """
        _run_silently([self._engine, "rm", "--force", name])


@contextmanager
def built() -> Iterator[Image]:
    """Build the image and yield it. Remove the image afterwards.

    The test is skipped if no container engine answers, or if the base image is not available.
    """
    engine = _engine()
    if fault := image.why_missing(engine, image.base()):
        pytest.skip(f"{engine} has no {image.base()}: {fault}")
    assert image.build(engine, TAG) == 0, "the output of the build is above"
    try:
        yield Image(engine)
    finally:
        _run_silently([engine, "rmi", "--force", TAG])


def _engine() -> str:
    """Return the name of the installed container engine. Skip the test if there is no engine."""
    try:
        return image.builder(RUNNERS)
    except image.NoBuilder as error:
        pytest.skip(str(error))


def _run_silently(command: list[str]) -> None:
    """Run a command, and ignore its output and its exit code."""
    subprocess.run(command, capture_output=True, timeout=LONGEST_RUN, check=False)
