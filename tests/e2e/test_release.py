"""The rendered files of a release are what the overlays give, and an API server takes them."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e import build
from tests.e2e.conftest import KUBERNETES
from tests.e2e.harness import installs
from tests.e2e.harness.access import ADMIN
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.policy import WITHOUT_POLICIES
from tools import release

IMAGE = "registry.example/kube-muster:0.1.0"
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
def test_a_file_is_what_the_overlay_gives(
    own: ControlPlane, dist: Path, tmp_path: Path, manifest: release.Manifest
) -> None:
    scheduler = manifest.scheduler or build.release()
    folder = installs.overlay(tmp_path, manifest.install, manifest.components, scheduler)
    overlay = folder / "kustomization.yaml"
    document = yaml.safe_load(overlay.read_text())
    document["images"][0]["newTag"] = IMAGE.rpartition(":")[2]
    overlay.write_text(yaml.safe_dump(document))
    found = list(yaml.safe_load_all((dist / manifest.name).read_text()))
    assert found == installs.kustomized(own.binaries / "kubectl", folder)


def test_the_checksums_are_those_of_the_files(dist: Path) -> None:
    sums = {
        each.name: hashlib.sha256((dist / each.name).read_bytes()).hexdigest() for each in release.MANIFESTS
    }
    listed = [line.split("  ") for line in (dist / release.CHECKSUMS).read_text().splitlines()]
    assert {name: digest for digest, name in listed} == sums


@pytest.mark.parametrize("manifest", SERVED, ids=lambda each: each.name)
def test_one_apply_installs_it(
    own: ControlPlane, dist: Path, tmp_path: Path, manifest: release.Manifest
) -> None:
    """Both installs, one after the other: the second finds what they share as it should be."""
    environment = {**os.environ, "KUBECONFIG": str(own.kubeconfig(ADMIN)), "HOME": str(tmp_path)}
    command = [str(own.binaries / "kubectl"), "apply", "-f", str(dist / manifest.name)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    created = len(done.stdout.splitlines())
    assert created == len(list(yaml.safe_load_all((dist / manifest.name).read_text())))
