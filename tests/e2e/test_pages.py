"""Commands with kubectl in README and docs/, typed on a real control plane, page by page."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import KUBERNETES
from tests.e2e.harness import manifests
from tests.e2e.harness.access import ADMIN
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.muster import PROGRAM
from tests.e2e.harness.policy import needed
from tests.e2e.harness.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from tests.pages.fences import PAGES, ROOT, Command, File, commands, steps
from tests.pages.register import Way, way_of
from tools import release

TYPED_PAGES = [page for page in PAGES if any(way_of(command) is Way.CLUSTER for command in commands(page))]
FOLDERS = ("manifests", "install", "scheduler-config", "examples")
OVERLAYS = ("overlay", "overlay-before")  # pages that come after docs/how-to/install.md have them already
STAND_INS = {" rollout status ": " rollout status --watch=false "}  # no kubelet starts pods here


@pytest.fixture(scope="module")
def own() -> Iterator[ControlPlane]:
    """Yield a control plane from which pages may delete objects."""
    with ControlPlane(kubernetes=KUBERNETES, users=manifests.service_accounts()) as started:
        started.start_controller_manager()
        yield started


@pytest.fixture
def folder(own: ControlPlane, tmp_path: Path) -> Path:
    """Return the working folder: in the repository, and next to it, whichever a page means.

    It has the overlays of the pages, and the output of `make release`.
    """
    for place in (tmp_path, tmp_path / "kube-muster"):
        for name in FOLDERS:
            if (ROOT / name).exists():
                shutil.copytree(ROOT / name, place / name)
        _add_components(place / "install" / "default-scheduler" / "kustomization.yaml")
    for name in OVERLAYS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "kustomization.yaml").write_text("resources: [../kube-muster/install/sidecar]\n")
    made = release.contents(release.image("kube-muster:0.1.0"), str(own.binaries / "kubectl"))
    release.write(tmp_path / "dist", made)
    _leave_suitable(tmp_path / "dist")
    return tmp_path


@pytest.mark.parametrize("page", TYPED_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_each_page_work(page: Path, own: ControlPlane, folder: Path) -> None:
    """Type the commands from top to end.

    The cluster has the CRDs, Muster's namespace and the objects of the first example.
    """
    for resource in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS):  # no server answers them here
        own.admin.delete_all(resource)
    manifests.apply(own.admin, "crds/*.yaml", "namespace.yaml")
    _type(own, folder, Command("the example", "kubectl apply -f examples/first-gang.yaml"))
    for step in steps(page):
        if isinstance(step, File):
            (folder / step.path).parent.mkdir(parents=True, exist_ok=True)
            (folder / step.path).write_text(step.text)
        elif way_of(step) is Way.CLUSTER:
            _type(own, folder, step)


def _add_components(file: Path) -> None:
    """Apply the steps of docs/how-to/install.md for older releases once, for every page."""
    lines = [f"  - ../../manifests/{each}\n" for each in needed(KUBERNETES)]
    if lines:
        file.write_text("".join([file.read_text(), "components:\n", *lines]))


def _leave_suitable(dist: Path) -> None:
    """Do for these files what docs/how-to/install.md says of older releases: they get the usual names."""
    if needed(KUBERNETES):
        for path in dist.glob("*-before-1.36.yaml"):
            path.replace(dist / path.name.replace("-before-1.36", ""))


def _type(cluster: ControlPlane, folder: Path, command: Command) -> None:
    text = command.text
    for typed, stand_in in STAND_INS.items():
        text = text.replace(typed, stand_in)
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig(ADMIN)),
        "PATH": f"{cluster.binaries}:{PROGRAM.parent}:{os.environ['PATH']}",
        "HOME": str(folder),  # kubectl keeps what it learnt of a cluster there
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
