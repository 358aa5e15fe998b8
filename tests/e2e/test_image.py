"""The image is built, and what is in it serves a real scheduler. Most is skipped where nothing can build."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from extender import __version__
from tests.e2e.harness import image
from tests.e2e.harness.access import User, write_kubeconfig
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.image import Image
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.stage import Stage
from tools import image as tool
from tools.check_release import PLATFORMS

ROOT = Path(__file__).parents[2]
# The first test's time has the build in it.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def built() -> Iterator[Image]:
    with image.built() as found:
        yield found


@pytest.fixture
def contained(stage: Stage, built: Image, muster_user: User, tmp_path: Path) -> Muster:
    """Return Muster in a container that shares the loopback of the API server and the scheduler."""
    name = stage.cluster.folder.name
    program = built.command(name, _access(stage.cluster, muster_user, tmp_path / "access"))
    muster = Muster(stage.cluster, image.FOLDER / "kubeconfig", program=program)
    stage.started.callback(built.remove, name)
    stage.started.push(muster)
    muster.start()
    return muster


def _access(cluster: ControlPlane, user: User, folder: Path) -> Path:
    """Write a kubeconfig that is valid in the container, and the CA.

    Users other than the server's cannot read them.
    """
    folder.mkdir()
    shutil.copy(cluster.certificate, folder / "ca.pem")
    seen = replace(cluster.access(user), authority=image.FOLDER / "ca.pem")
    write_kubeconfig(folder / "kubeconfig", user, seen)
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)
    return folder


def test_the_image_has_its_programs_and_runs_as_nobody(built: Image) -> None:
    assert built.output("version") == f"muster {__version__}\n"
    assert built.output("version", program="kubectl-muster") == f"muster {__version__}\n"
    assert built.output("-u", program="id") == "65532\n"


def test_a_gang_starts_with_muster_in_its_image(stage: Stage, contained: Muster, muster_user: User) -> None:
    assert contained.live()
    assert contained.ready()
    stage.start_sidecar(contained, user=muster_user)
    stage.nodes(3, cpu="1")
    stage.wait_bound(stage.gang("a", 3, gated=True))
    assert contained.metric("muster_bindings_total", outcome="bound") == 3
    assert contained.stop() == 0


@pytest.mark.parametrize("platform", PLATFORMS)
def test_each_package_has_a_wheel_of_a_known_hash(platform: str, tmp_path: Path) -> None:
    """The image installs nothing else; no engine here builds for a foreign platform."""
    names = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
    (python,) = re.findall(r"python:(3\.\d+)", tool.base())
    command = [
        str(Path(sys.executable).with_name("uv")),
        *("pip", "install", "--dry-run", f"--target={tmp_path}", "--only-binary=:all:", "--require-hashes"),
        *(f"--python-platform={names[platform]}-manylinux_2_28", f"--python-version={python}"),
        f"--requirement={ROOT / 'image' / 'requirements.txt'}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
