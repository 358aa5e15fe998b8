"""A release is published to a local registry; what users get there installs with one command."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from extender import __version__, shipped
from extender.api.keys import QUEUE
from tests.e2e import build
from tests.e2e.conftest import KUBERNETES
from tests.e2e.harness import installs, objects, registry, webhooks
from tests.e2e.harness.access import ADMIN, issued
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.kubelet import Kubelet
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.policy import WITHOUT_POLICIES
from tests.e2e.harness.resources import DEPLOYMENTS, JOBS, NODES, PODS, QUEUES
from tests.e2e.harness.scheduler import KubeScheduler, sidecar_options
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.webhooks import Port
from tests.pages.fences import ROOT, fences
from tools import packages, release
from tools.addresses import Addresses
from tools.registry import Repository

FOLDER = Path(shipped.__file__).parent
JOBS_PAGE = ROOT / "docs" / "reference" / "jobs.md"
ALWAYS_REPLACED = "poddisruptionbudget.policy/muster configured"  # its selector is replaced, not merged
BASE = f"docker.io/library/python@sha256:{'0' * 64}"
SERVED_AS = release.BEFORE if KUBERNETES in WITHOUT_POLICIES else release.CURRENT
SERVED = [each for each in release.MANIFESTS if each.kubernetes == SERVED_AS]


@pytest.fixture(scope="module")
def own() -> Iterator[ControlPlane]:
    """Yield a control plane without anything of Muster's."""
    with ControlPlane(kubernetes=KUBERNETES) as started:
        yield started


class Site(NamedTuple):
    """Repository of a maintainer, with the registry and the web server. `files`: the folder of the latter."""

    repository: Path
    files: Path
    named: Addresses
    arguments: tuple[str, ...]
    path: str

    def run(self, tool: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a tool of the repository as its make target does."""
        command = [sys.executable, "-m", f"tools.{tool}", *arguments]
        given = [f"--registry={self.named.registry}", f"--url={self.named.url}"]
        environment = {**os.environ, "PATH": self.path}
        return subprocess.run(
            [*command, *given],
            cwd=self.repository,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def publish(self) -> "subprocess.CompletedProcess[str]":
        return self.run("publish", f"--base={BASE}", *self.arguments)

    def git(self, *arguments: str) -> None:
        user = ("-c", "user.name=e2e", "-c", "user.email=e2e@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *user, *arguments], cwd=self.repository, check=True, capture_output=True)


@pytest.fixture(scope="module")
def site(own: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield a copy of this tree, of which nothing was published."""
    folder = tmp_path_factory.mktemp("release")
    for name in ("programs", "files"):
        (folder / name).mkdir()
    with tarfile.open(folder / "layer.tar", "w") as layer:
        layer.add(ROOT / "LICENSE", "LICENSE")
    registry.write_engine(folder / "programs", folder / "layer.tar")
    copy(folder / "repository")
    with (
        registry.registry(folder) as address,
        registry.files(folder / "files", folder / "files.log") as url,
    ):
        named = Addresses(f"{address}/team", f"{url}/v{__version__}")
        arguments = (f"--kubectl={own.binaries / 'kubectl'}", f"--helm={installs.helm()}")
        path = f"{folder / 'programs'}{os.pathsep}{os.environ['PATH']}"
        made = Site(folder / "repository", folder / "files", named, arguments, path)
        made.git("init", "--quiet")
        made.git("add", "--all")
        made.git("commit", "--quiet", "--message=e2e")
        yield made


def copy(folder: Path) -> None:
    """Copy the files that git knows or would add, with links as links."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)


@pytest.fixture(scope="module")
def dist(site: Site) -> Path:
    """Return the files of a release after `make publish` and the upload of its files."""
    untagged = site.publish()
    assert (untagged.returncode, "HEAD: invalid tags []: must have v" in untagged.stderr) == (2, True)
    site.git("tag", f"v{__version__}")
    done = site.publish()
    assert done.returncode == 0, done.stderr
    shutil.copytree(site.repository / "dist", site.files / f"v{__version__}")
    return site.repository / "dist"


def test_a_published_release_agrees_with_registry_and_url(site: Site, dist: Path) -> None:
    done = site.run("check_release", "--published")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_tag_that_was_moved_is_found(site: Site, dist: Path) -> None:
    image = site.named.image
    digest = Repository(image).manifest(__version__).digest
    registry.tag(f"{image}:{__version__}-arm64", __version__)
    try:
        done = site.run("check_release")
    finally:
        registry.tag(f"{image}@{digest}", __version__)
    assert done.returncode == 1
    assert f"error: {image}:{__version__}: platforms: found []" in done.stderr
    assert f'error: muster-default-scheduler.yaml: images: found ["{image}@{digest}"]' in done.stderr


def test_a_version_is_published_once_and_from_its_tag(site: Site, dist: Path) -> None:
    assert "--out: invalid value" in site.publish().stderr
    arguments = ("publish", f"--base={BASE}", *site.arguments, "--out=build/again")
    done = site.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{site.named.charts}/muster:{__version__} is published; raise the version" in done.stderr
    (site.repository / "README.md").write_text("changed")
    try:
        done = site.run(*arguments)
    finally:
        site.git("checkout", "README.md")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"must be that of v{__version__}\n M README.md\n" in done.stderr


@pytest.mark.parametrize("manifest", release.MANIFESTS, ids=lambda each: each.name)
def test_a_generated_file_equals_the_rendered_overlay(
    own: ControlPlane, site: Site, dist: Path, tmp_path: Path, manifest: release.Manifest
) -> None:
    scheduler = manifest.scheduler or release.SCHEDULER
    folder = installs.overlay(tmp_path, manifest.install, manifest.components, scheduler)
    overlay = folder / "kustomization.yaml"
    document = yaml.safe_load(overlay.read_text())
    digest = Repository(site.named.image).manifest(__version__).digest
    document["images"][0] |= {"newName": site.named.image, "digest": digest}
    overlay.write_text(yaml.safe_dump(document))
    found = list(yaml.safe_load_all((dist / manifest.name).read_text()))
    assert found == installs.kustomized(own.binaries / "kubectl", folder)


def test_a_checkout_renders_its_own_image(own: ControlPlane, tmp_path: Path) -> None:
    """Without a URL, there is nothing for krew and pipx."""
    image = f"registry.example/kube-muster:{__version__}"
    command = [sys.executable, "-m", "tools.release", f"--image={image}", f"--out={tmp_path}"]
    subprocess.run([*command, f"--kubectl={own.binaries / 'kubectl'}"], cwd=ROOT, check=True, timeout=120)
    there = {path.name for path in tmp_path.iterdir()}
    assert not there & {packages.PLUGIN, packages.KREW, packages.WHEEL}
    assert f"image: {image}\n" in (tmp_path / "muster-sidecar.yaml").read_text()
    release_of = f"--kube-version={build.release(KUBERNETES)}"
    command = [str(installs.helm()), "template", "muster", str(tmp_path / packages.CHART), release_of]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert f'image: "{image}"\n' in done.stdout


def test_helm_installs_the_chart_of_the_registry(
    alone: ControlPlane, site: Site, dist: Path, tmp_path: Path
) -> None:
    """Use the command of the README."""
    command = [str(installs.helm()), "install", "muster", f"oci://{site.named.charts}/muster"]
    options = [f"--version={__version__}", "--namespace=kube-muster", "--create-namespace", "--plain-http"]
    environment = {**os.environ, "KUBECONFIG": str(alone.kubeconfig(ADMIN)), "HOME": str(tmp_path)}
    subprocess.run([*command, *options], env=environment, check=True, timeout=120)
    pod = alone.admin.get(DEPLOYMENTS, "muster", "kube-muster")["spec"]["template"]["spec"]
    digest = Repository(site.named.image).manifest(__version__).digest
    assert pod["initContainers"][0]["image"] == f"{site.named.image}:{__version__}@{digest}"


def test_the_python_package_has_its_scripts_and_their_dependencies(dist: Path) -> None:
    """Read it as pipx and uvx do: links are files there."""
    with zipfile.ZipFile(dist / packages.WHEEL) as opened:
        (entries,) = [name for name in opened.namelist() if name.endswith("/entry_points.txt")]
        scripts = opened.read(entries).decode().split()
        assert {"muster", "kube-muster", "kubectl-muster"} <= {*scripts}
        for path in shipped.CRDS:
            link = next(each for each in FOLDER.iterdir() if each.resolve() == path)
            assert opened.read(f"extender/shipped/{link.name}") == path.read_bytes()


def test_krew_installs_the_plugin_which_runs_the_package(site: Site, dist: Path, tmp_path: Path) -> None:
    """Take the package from the folder of the release, as if PyPI had it, and what it requires from PyPI."""
    krew = build.tool(installs.ROOT / "tests" / "e2e" / "krew", *build.TOOLS["krew"])
    command = [str(krew), "install", f"--manifest={dist / packages.KREW}"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{site.path}"
    environment = {**os.environ, "KREW_ROOT": str(tmp_path), "PATH": path, "UV_FIND_LINKS": str(dist)}
    subprocess.run(command, env=environment, check=True, timeout=60, stdin=subprocess.DEVNULL)
    plugin = [str(tmp_path / "bin" / "kubectl-muster"), "version"]
    done = subprocess.run(plugin, env=environment, check=True, timeout=100, capture_output=True, text=True)
    assert done.stdout == f"muster {__version__}\n"


@pytest.mark.parametrize(
    "name", [*(each.name for each in SERVED), *(name for name in release.JOBS if "all" not in name)]
)
def test_one_apply_installs_each_release_file(
    own: ControlPlane, site: Site, dist: Path, tmp_path: Path, name: str
) -> None:
    """Apply both installs from their URLs, one after the other, and the rights for further kinds of jobs.

    The second finds the common objects as they should be.
    """
    url = f"{site.named.url}/{name}"
    created = len(apply(own, url, tmp_path).splitlines())
    assert created == len(list(yaml.safe_load_all((dist / name).read_text())))
    again = [line for line in apply(own, url, tmp_path).splitlines() if not line.endswith(" unchanged")]
    assert set(again) <= {ALWAYS_REPLACED}


def apply(cluster: ControlPlane, file: str, home: Path) -> str:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig(ADMIN)), "HOME": str(home)}
    command = [str(cluster.binaries / "kubectl"), "apply", "-f", file]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def alone() -> Iterator[ControlPlane]:
    """Yield a control plane without other installs: the other install marks pods for its own scheduler."""
    with ControlPlane(kubernetes=KUBERNETES) as started:
        yield started


def test_the_suspended_job_of_the_pages_starts(
    alone: ControlPlane, site: Site, dist: Path, tmp_path: Path
) -> None:
    """Start it with one installed file alone.

    Muster and its scheduler show the token of their account, and the webhooks review Muster's writes.
    """
    (file,) = [each.name for each in SERVED if each.install == "sidecar"]
    apply(alone, f"{site.named.url}/{file}", tmp_path)
    port, account = Port(), issued(alone.admin, "kube-muster", "muster")
    flags = port.flags("self-signed", "--webhook-secret=kube-muster/muster-webhook-certificate")
    webhooks.move_to_loopback(alone.admin, port)
    alone.start_controller_manager()
    with ExitStack() as stack:
        options: dict[str, Any] = {"arguments": flags, "leader_elect": "follow", "view": True}
        muster = stack.enter_context(Muster(alone, alone.kubeconfig(account), **options))
        options = {**sidecar_options(muster), "user": account, "leader_elect": True}
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
