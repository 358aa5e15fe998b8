"""The rendered files of a release are what the overlays give, and an API server takes them."""

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender import shipped
from extender.api.keys import QUEUE
from tests.e2e import build
from tests.e2e.conftest import KUBERNETES
from tests.e2e.harness import installs, objects, webhooks
from tests.e2e.harness.access import ADMIN, issued
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.kubelet import Kubelet
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.policy import WITHOUT_POLICIES
from tests.e2e.harness.resources import JOBS, NODES, PODS, QUEUES
from tests.e2e.harness.scheduler import KubeScheduler, beside
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.webhooks import Port
from tests.pages.fences import ROOT, fences
from tools import packages, release

FOLDER = Path(shipped.__file__).parent
JOBS_PAGE = ROOT / "docs" / "reference" / "jobs.md"
IMAGE = "registry.example/kube-muster:0.1.0"
ALWAYS_REPLACED = "poddisruptionbudget.policy/muster configured"  # its selector is replaced, not merged
SERVED_AS = release.BEFORE if KUBERNETES in WITHOUT_POLICIES else release.CURRENT
SERVED = [each for each in release.MANIFESTS if each.kubernetes == SERVED_AS]


@pytest.fixture(scope="module")
def own() -> Iterator[ControlPlane]:
    """One that has nothing of Muster's."""
    with ControlPlane(kubernetes=KUBERNETES) as started:
        yield started


@pytest.fixture(scope="module")
def dist(own: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "dist"
    kubectl = own.binaries / "kubectl"
    command = [sys.executable, "-m", "tools.release", f"--image={IMAGE}", f"--out={folder}"]
    subprocess.run([*command, f"--kubectl={kubectl}"], cwd=installs.ROOT, check=True, timeout=120)
    return folder


@pytest.mark.parametrize("manifest", release.MANIFESTS, ids=lambda each: each.name)
def test_a_generated_file_equals_the_rendered_overlay(
    own: ControlPlane, dist: Path, tmp_path: Path, manifest: release.Manifest
) -> None:
    scheduler = manifest.scheduler or release.SCHEDULER
    folder = installs.overlay(tmp_path, manifest.install, manifest.components, scheduler)
    overlay = folder / "kustomization.yaml"
    document = yaml.safe_load(overlay.read_text())
    document["images"][0]["newTag"] = IMAGE.rpartition(":")[2]
    overlay.write_text(yaml.safe_dump(document))
    found = list(yaml.safe_load_all((dist / manifest.name).read_text()))
    assert found == installs.kustomized(own.binaries / "kubectl", folder)


def test_the_checksums_are_those_of_the_files(dist: Path) -> None:
    files = (path for path in dist.iterdir() if path.name != release.CHECKSUMS)
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    listed = [line.split("  ") for line in (dist / release.CHECKSUMS).read_text().splitlines()]
    assert {name: digest for digest, name in listed} == sums


def test_helm_installs_the_packed_chart(dist: Path) -> None:
    release_of = f"--kube-version={build.release(KUBERNETES)}"
    command = [str(installs.helm()), "template", "muster", str(dist / packages.CHART), release_of]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    (workload,) = [each for each in yaml.safe_load_all(done.stdout) if each and each["kind"] == "Deployment"]
    assert workload["spec"]["template"]["spec"]["initContainers"][0]["image"] == IMAGE


def test_the_python_package_has_its_scripts_and_their_dependencies(tmp_path: Path) -> None:
    """Install it as pipx and uvx do: links are files there."""
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "build", "--quiet", "--wheel", f"--out-dir={tmp_path}"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=240)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        (entries,) = [name for name in opened.namelist() if name.endswith("/entry_points.txt")]
        scripts = opened.read(entries).decode().split()
        assert {"muster", "kube-muster", "kubectl-muster"} <= {*scripts}
        for path in shipped.CRDS:
            link = next(each for each in FOLDER.iterdir() if each.resolve() == path)
            assert opened.read(f"extender/shipped/{link.name}") == path.read_bytes()


@pytest.mark.parametrize(
    "name", [*(each.name for each in SERVED), *(name for name in release.JOBS if "all" not in name)]
)
def test_one_apply_installs_each_release_file(
    own: ControlPlane, dist: Path, tmp_path: Path, name: str
) -> None:
    """Apply both installs, one after the other, and the rights for further kinds of jobs.

    The second finds the common objects as they should be.
    """
    done = apply(own, dist / name, tmp_path)
    created = len(done.splitlines())
    assert created == len(list(yaml.safe_load_all((dist / name).read_text())))
    again = [
        line for line in apply(own, dist / name, tmp_path).splitlines() if not line.endswith(" unchanged")
    ]
    assert set(again) <= {ALWAYS_REPLACED}


def apply(cluster: ControlPlane, file: Path, home: Path) -> str:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig(ADMIN)), "HOME": str(home)}
    command = [str(cluster.binaries / "kubectl"), "apply", "-f", str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def alone() -> Iterator[ControlPlane]:
    """One on which nothing else was installed: the other install marks pods for a scheduler of its own."""
    with ControlPlane(kubernetes=KUBERNETES) as started:
        yield started


def test_the_suspended_job_of_the_pages_starts(alone: ControlPlane, dist: Path, tmp_path: Path) -> None:
    """Start it with one installed file alone.

    Muster and its scheduler show the token of their account, and the webhooks judge Muster's writes.
    """
    (file,) = [each.name for each in SERVED if each.install == "sidecar"]
    apply(alone, dist / file, tmp_path)
    port, account = Port(), issued(alone.admin, "kube-muster", "muster")
    flags = port.flags("self-signed", "--webhook-secret=kube-muster/muster-webhook-certificate")
    webhooks.move_to_loopback(alone.admin, port)
    alone.start_controller_manager()
    with ExitStack() as stack:
        options: dict[str, Any] = {"arguments": flags, "leader_elect": "follow", "view": True}
        muster = stack.enter_context(Muster(alone, alone.kubeconfig(account), **options))
        options = {**beside(muster), "user": account, "leader_elect": True}
        stack.enter_context(KubeScheduler(alone, **options))
        stack.enter_context(Kubelet(alone.admin))
        webhooks.wait_in_force(alone.admin)
        alone.admin.create(QUEUES, objects.queue("research"))
        alone.admin.create(NODES, objects.node("n0", cpu="32", memory="64Gi"))
        job = yaml.safe_load(next(text for _, text in fences(JOBS_PAGE) if "suspend: true" in text))
        assert (job["spec"]["suspend"], job["metadata"]["annotations"]) == (True, {QUEUE: "research"})
        alone.admin.create(JOBS, job | {"metadata": {**job["metadata"], "namespace": "default"}})
        wait_for(lambda: running(alone) == job["spec"]["parallelism"], what="all pods of the job run")


def running(cluster: ControlPlane) -> int:
    return sum(pod["status"]["phase"] == "Running" for pod in cluster.admin.items(PODS, "default"))
