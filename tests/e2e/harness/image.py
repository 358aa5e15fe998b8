"""Muster's image, and the command that starts it as in a pod.

buildah is not used: it does not start containers like those of pods.
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
# As in the manifests: the user `nobody` of the image, and a small /tmp as the only writable folder.
AS_IN_A_POD = (
    "--read-only",
    "--tmpfs=/tmp:size=64m",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--network=host",
)


class Image:
    """Image that one engine has built from this tree."""

    def __init__(self, engine: str) -> None:
        self._engine = engine

    def command(self, name: str, folder: Path) -> list[str]:
        """Return the command that starts a container. `folder` is mounted as FOLDER."""
        mount = f"--volume={folder}:{FOLDER}:ro"
        return [self._engine, "run", "--rm", f"--name={name}", *AS_IN_A_POD, mount, TAG]

    def output(self, *arguments: str, program: str = "muster") -> str:
        """Return the output of a command in the image."""
        command = [self._engine, "run", "--rm", *AS_IN_A_POD, f"--entrypoint={program}", TAG, *arguments]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_RUN, check=False)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    def remove(self, name: str) -> None:
        """Remove a container, which continues if the engine's command is killed."""
        _run_silently([self._engine, "rm", "--force", name])


@contextmanager
def built() -> Iterator[Image]:
    """Yield the built image.

    Skips the test if no engine answers or the base image is not available.
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
    try:
        return image.builder(RUNNERS)
    except image.NoBuilder as error:
        pytest.skip(str(error))


def _run_silently(command: list[str]) -> None:
    subprocess.run(command, capture_output=True, timeout=LONGEST_RUN, check=False)
