"""Registry of images and charts on loopback, and a fake container engine that pushes images."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e import build
from tests.e2e.harness.process import Process, free_ports
from tests.e2e.harness.waiting import wait_for

MODULE = Path(__file__).parents[1] / "registry"
# Fake engine. It pushes an index with one image for each platform; each image has one small layer.
ENGINE = """\
#!/bin/sh
# docker info | docker buildx build --platform LIST --tag NAME ... --push FOLDER
set -eu
test "$1" != info || exit 0
test "$1 $2 $3 $5" = "buildx build --platform --tag"
platforms=$4 tag=$6 images=
for platform in $(echo "$platforms" | tr , ' '); do
  image=$tag-${{platform#*/}}
  {crane} append --oci-empty-base --new_layer {layer} --new_tag "$image"
  {crane} mutate --set-platform "$platform" --tag "$image" "$image"
  images="$images --manifest $image"
done
{crane} index append $images --tag "$tag"
"""


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Start an empty registry in memory, and yield its address.

    The registry's log is written into `folder`.
    """
    (port,) = free_ports(1)
    command = [str(_crane()), "registry", "serve", f"--address=127.0.0.1:{port}"]
    with _running_server(Process("registry", command, folder / "registry.log"), f"127.0.0.1:{port}", "/v2/"):
        yield f"127.0.0.1:{port}"


@contextmanager
def files(folder: Path, log: Path) -> Iterator[str]:
    """Start a server of the files in a folder, and yield its URL."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "http.server", "--bind=127.0.0.1", f"--directory={folder}", str(port)]
    with _running_server(Process("files", command, log), f"127.0.0.1:{port}", "/"):
        yield f"http://127.0.0.1:{port}"


def write_engine(folder: Path, layer: Path) -> None:
    """Write the fake engine as the program `docker`. `layer` is a tar file, the only layer of each image."""
    program = folder / "docker"
    program.write_text(ENGINE.format(crane=_crane(), layer=layer))
    program.chmod(0o755)


def tag(image: str, name: str) -> None:
    """Add a tag to an image of the registry. An existing tag then refers to this image."""
    subprocess.run([_crane(), "tag", image, name], check=True, capture_output=True, timeout=60)


def _crane() -> Path:
    """Return the path of crane, built if necessary."""
    return build.tool(MODULE, *build.TOOLS["registry"])


@contextmanager
def _running_server(process: Process, address: str, path: str) -> Iterator[None]:
    """Start a server, wait until it answers, and kill it when the context ends."""

    def answers() -> bool:
        process.require_alive()
        try:
            urllib.request.urlopen(f"http://{address}{path}", timeout=5).close()
        except OSError:
            return False
        return True

    process.start()
    try:
        wait_for(answers, what=f"an answer of {process.name}")
        yield
    finally:
        process.kill()
