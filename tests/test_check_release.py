"""Check of a release: each name, version or digest that differs is reported, for files and registry.

The registry and the web server are files of this test on a loopback port. tests/e2e/test_release.py has a
real registry.
"""

import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender import __version__
from tests.answering import Answering, HttpAnswer, HttpRequest
from tests.rows import each_of
from tests.test_release import unpacked
from tools import check_release, packages, release
from tools.addresses import Addresses, Unusable, addresses, settings
from tools.registry import Repository, sha256

ROOT = Path(__file__).parents[1]
OTHER = f"sha256:{'0' * 64}"
Files = dict[str, bytes]


class Server(Answering):
    """Registry and web server with fixed contents by path.

    `token`: the token without which the registry answers nothing; its blobs are elsewhere then, as with
    many registries. `stated`: the digests that it states where they are not those of the contents.
    """

    def __init__(self) -> None:
        super().__init__()
        self.contents: Files = {}
        self.stated: dict[str, str] = {}
        self.token = ""
        self.named = Addresses(f"{self.address}/team", f"{self.url}/v1")

    def answer(self, request: HttpRequest) -> HttpAnswer:
        path, authorization = request.target, request.headers.get("Authorization", "")
        if path == "/token?service=here&scope=pull":
            return HttpAnswer(200, json.dumps({"token": self.token}).encode())
        if self.token and path.startswith("/v2/") and authorization != f"Bearer {self.token}":
            challenge = f'Bearer realm="{self.url}/token",service="here",scope="pull"'
            return HttpAnswer(401, b"", {"WWW-Authenticate": challenge})
        if self.token and path.startswith("/v2/") and "/blobs/" in path:
            return HttpAnswer(307, b"", {"Location": f"{self.url}/elsewhere{path}"})
        if path.startswith("/elsewhere") and authorization:
            return HttpAnswer(400, b"")
        content = self.contents.get(path.removeprefix("/elsewhere"))
        if content is None:
            return HttpAnswer(404, b"")
        return HttpAnswer(200, content, {"Docker-Content-Digest": self.stated.get(path, sha256(content))})


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


@pytest.fixture
def files(server: Server) -> Files:
    """Return the files of a release, all of which the server has."""
    repository = "/v2/team/kube-muster"
    digest = store_index(server.contents, repository, check_release.PLATFORMS)
    made = released(server.named, digest)
    chart = {"layers": [layer(made[packages.CHART])]}
    config = json.dumps({"name": "muster", "version": __version__, "appVersion": __version__}).encode()
    store_manifest(server.contents, "/v2/team/charts/muster", chart, config, __version__)
    server.contents |= {f"/v1/{name}": content for name, content in made.items()}
    return made


def store_index(contents: Files, repository: str, platforms: tuple[str, ...]) -> str:
    """Store an image for these platforms, and return its digest."""
    entries = []
    for platform in platforms:
        described = dict(zip(("os", "architecture"), platform.split("/"), strict=True))
        config = json.dumps(described).encode()
        entries.append({"platform": described, "digest": store_manifest(contents, repository, {}, config)})
    index = json.dumps({"manifests": entries}).encode()
    contents[f"{repository}/manifests/{__version__}"] = index
    return sha256(index)


def store_manifest(contents: Files, repository: str, manifest: Any, config: bytes, tag: str = "") -> str:
    content = json.dumps({**manifest, "config": {"digest": sha256(config)}}).encode()
    contents[f"{repository}/blobs/{sha256(config)}"] = config
    contents[f"{repository}/manifests/{tag or sha256(content)}"] = content
    return sha256(content)


def layer(content: bytes) -> dict[str, str]:
    return {"mediaType": check_release.CHART_CONTENT, "digest": sha256(content)}


def released(named: Addresses, digest: str) -> Files:
    """Return the files of a release; the rendered ones have as much as is checked."""
    made = {each.name: rendered(each, f"{named.image}@{digest}") for each in release.MANIFESTS}
    made |= {name: release.rights(folders).encode() for name, folders in release.JOBS.items()}
    made[packages.CHART] = packages.chart(named.image, __version__, digest)
    made |= packages.plugin(named.url)
    made[packages.WHEEL] = wheel()
    return summed(made)


def rendered(manifest: release.Manifest, image: str) -> bytes:
    scheduler = f"registry.k8s.io/kube-scheduler:{manifest.scheduler or release.SCHEDULER}"
    pod = {"initContainers": [{"image": image}], "containers": [{"image": scheduler}]}
    if manifest.install != "sidecar":
        pod = {"containers": [{"image": image}]}
    workload = {"kind": "Deployment", "spec": {"template": {"spec": pod}}}
    documents = yaml.safe_dump_all([{"kind": "Namespace"}, workload])
    return f"# Muster {__version__} for Kubernetes {manifest.kubernetes}\n{documents}".encode()


def wheel(name: str = "kube-muster", version: str = __version__, script: str = "kubectl-muster") -> bytes:
    packed, folder = io.BytesIO(), f"kube_muster-{__version__}.dist-info"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(f"{folder}/METADATA", f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{folder}/entry_points.txt", f"[console_scripts]\n{script} = extender.cli:main\n")
    return packed.getvalue()


def summed(files: Files) -> Files:
    kept = {name: content for name, content in files.items() if name != release.CHECKSUMS}
    return {**kept, release.CHECKSUMS: release.checksums(kept)}


def swapped(old: str, new: str) -> Callable[[bytes], bytes]:
    """Replace a text in a file."""

    def change(content: bytes) -> bytes:
        assert old.encode() in content, old
        return content.replace(old.encode(), new.encode())

    return change


def repacked(name: str, old: str, new: str) -> Callable[[bytes], bytes]:
    """Replace a text in a file of an archive."""

    def change(archive: bytes) -> bytes:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as changed:
            for each, (content, _) in unpacked(archive).items():
                written = swapped(old, new)(content) if each == name else content
                entry = tarfile.TarInfo(each)
                entry.size = len(written)
                changed.addfile(entry, io.BytesIO(written))
        return packed.getvalue()

    return change


def differing(files: Files, server: Server) -> list[str]:
    found = check_release.facts(files, server.named)
    return [str(each) for each in found if each.found != each.expected]


def test_a_release_that_agrees_has_no_differences(server: Server, files: Files) -> None:
    assert differing(files, server) == []
    at_url = list(check_release.published_facts(files, server.named))
    assert len(at_url) == len(files)
    assert all(each.found == each.expected for each in at_url)


KREW_PLATFORM = f"{packages.KREW}: spec.platforms[0]"


@each_of(
    ("muster-sidecar.yaml", swapped("@sha256:", "@sha256:0"), "muster-sidecar.yaml: images: found"),
    ("muster-sidecar-before-1.36.yaml", swapped("v1.34.", "v1.36."), "1.36.yaml: images: found"),
    ("muster-default-scheduler.yaml", swapped("team/", "other/"), "r.yaml: images: found"),
    (
        "muster-sidecar.yaml",
        swapped(f"Muster {__version__}", "Muster 9.9.9"),
        f"muster-sidecar.yaml: version in the first line: found 9.9.9, expected {__version__}",
    ),
    (
        "muster-jobs-ray.yaml",
        swapped(f"Muster {__version__}", "Muster 9.9.9"),
        f"muster-jobs-ray.yaml: version in the first line: found 9.9.9, expected {__version__}",
    ),
    (
        packages.KREW,
        swapped(f'"version": "v{__version__}', '"version": "v9.9.9'),
        f"{packages.KREW}: spec.version: found v9.9.9, expected v{__version__}",
    ),
    (packages.KREW, swapped("/v1/kubectl", "/v2/kubectl"), f"{KREW_PLATFORM}.uri: found http://127.0.0.1:"),
    (packages.KREW, swapped('"sha256": "', '"sha256": "0'), f"{KREW_PLATFORM}.sha256: found sha256:0"),
    (
        packages.KREW,
        swapped('"bin": "kubectl-muster"', '"bin": "muster"'),
        f"{KREW_PLATFORM}.bin: found muster, expected kubectl-muster",
    ),
    (
        packages.WHEEL,
        lambda _: wheel(version="9.9.9"),
        f'{packages.WHEEL}: Version in METADATA: found ["9.9.9"], expected ["{__version__}"]',
    ),
    (
        packages.WHEEL,
        lambda _: wheel(name="muster"),
        f'{packages.WHEEL}: Name in METADATA: found ["muster"], expected ["kube-muster"]',
    ),
    (
        packages.WHEEL,
        lambda _: wheel(script="muster"),
        f'{packages.WHEEL}: scripts that the plugin runs: found [], expected ["kubectl-muster"]',
    ),
    (packages.WHEEL, lambda _: b"no archive", f"{packages.WHEEL}: content: found BadZipFile"),
    ("muster-sidecar.yaml", lambda content: content + b"\n- {", "muster-sidecar.yaml: content: found"),
)
def test_a_file_that_differs_is_named(
    name: str, change: Callable[[bytes], bytes], expected: str, *, server: Server, files: Files
) -> None:
    (found,) = differing(summed({**files, name: change(files[name])}), server)
    assert expected in found


@each_of(
    (
        packages.CHART,
        repacked("muster/values.yaml", "/kube-muster", "/other"),
        f"{packages.CHART}: image.repository in values.yaml: found 127.0.0.1:",
    ),
    (
        packages.CHART,
        repacked("muster/values.yaml", f"{__version__}@", "9.9.9@"),
        f"{packages.CHART}: image.tag in values.yaml: found 9.9.9@sha256:",
    ),
    (
        packages.CHART,
        repacked("muster/Chart.yaml", f"appVersion: {__version__}", "appVersion: 9.9.9"),
        f"{packages.CHART}: appVersion in Chart.yaml: found 9.9.9, expected {__version__}",
    ),
    (
        packages.PLUGIN,
        repacked("kubectl-muster", f"kube-muster=={__version__}", "kube-muster==9.9.9"),
        f'versions of kube-muster in kubectl-muster: found ["9.9.9"], expected ["{__version__}"]',
    ),
)
def test_an_archive_that_differs_is_named_with_those_that_have_its_digest(
    name: str, change: Callable[[bytes], bytes], expected: str, *, server: Server, files: Files
) -> None:
    found = differing(summed({**files, name: change(files[name])}), server)
    digests = {packages.CHART: f"digest of {packages.CHART}: ", packages.PLUGIN: f"{KREW_PLATFORM}.sha256: "}
    assert len(found) == 2
    assert any(expected in each for each in found)
    assert any(digests[name] in each for each in found)


def test_checksums_are_those_of_all_files(server: Server, files: Files) -> None:
    assert differing({**files, "old.whl": b""}, server) == [
        'SHA256SUMS: files without a digest: found ["old.whl"], expected []'
    ]
    sums = files[release.CHECKSUMS] + b"0  gone\n"
    assert differing({**files, release.CHECKSUMS: sums}, server) == [
        'SHA256SUMS: digests without a file: found ["gone"], expected []'
    ]
    sums = files[release.CHECKSUMS].replace(b"\n", b"\n0", 1)
    (found,) = differing({**files, release.CHECKSUMS: sums}, server)
    assert found.startswith(f"SHA256SUMS: digest of {release.MANIFESTS[1].name}: found sha256:0")


def test_a_file_that_is_missing_is_named(server: Server, files: Files) -> None:
    del files[packages.KREW]
    assert differing(files, server) == [f'dist: missing files: found ["{packages.KREW}"], expected []']


IMAGE = f"/v2/team/kube-muster/manifests/{__version__}"
CHART = f"/v2/team/charts/muster/manifests/{__version__}"
BOTH = 'expected ["linux/amd64", "linux/arm64"]'


@each_of(
    (IMAGE, lambda _: None, f"kube-muster:{__version__}: answer: found HTTP 404"),
    (IMAGE, lambda _: b"<html>", f"kube-muster:{__version__}: answer: found no JSON object but b'<html>'"),
    (IMAGE, swapped("arm64", "s390x"), f'platforms: found ["linux/amd64"], {BOTH}'),
    (IMAGE, swapped('"manifests"', '"layers"'), f"platforms: found [], {BOTH}"),
    (IMAGE, swapped("sha256:", "sha256:0"), f"kube-muster:{__version__}: answer: found HTTP 404"),
    (IMAGE, lambda content: content + b" ", "muster-sidecar.yaml: images: found"),
    (IMAGE, lambda content: content + b" ", f"{packages.CHART}: image.tag in values.yaml: found"),
    (CHART, lambda _: None, f"charts/muster:{__version__}: answer: found HTTP 404"),
    (CHART, swapped("layers", "manifests"), f"charts/muster:{__version__}: content: found KeyError"),
    (
        CHART,
        lambda content: json.dumps({**json.loads(content), "layers": [layer(b"another")]}).encode(),
        f"charts/muster:{__version__}: digest of {packages.CHART}: found",
    ),
)
def test_an_answer_of_the_registry_that_differs_is_named(
    path: str, change: Callable[[bytes], bytes | None], expected: str, *, server: Server, files: Files
) -> None:
    before = server.contents[path]
    answer = change(before)
    server.contents = {key: each for key, each in server.contents.items() if key != path}
    if answer is not None:
        server.contents[path] = answer
    found = differing(files, server)
    server.contents[path] = before
    assert any(expected in each for each in found), found


def test_a_digest_that_the_registry_states_is_that_of_the_content(server: Server, files: Files) -> None:
    server.stated = {IMAGE: OTHER, CHART: OTHER}
    found = differing(files, server)
    assert [each.partition(": found ")[0] for each in found] == [
        f"{server.named.charts}/muster:{__version__}: digest as stated by the registry",
        f"{server.named.image}:{__version__}: digest as stated by the registry",
    ]


def test_the_image_for_a_platform_is_one_of_it(server: Server, files: Files) -> None:
    (config,) = [path for path, each in server.contents.items() if b'"arm64"}' in each and "/blobs/" in path]
    server.contents[config] = swapped("arm64", "amd64")(server.contents[config])
    (found,) = differing(files, server)
    assert found.endswith(": platform: found linux/amd64, expected linux/arm64")


def test_the_configuration_of_the_chart_has_this_version(server: Server, files: Files) -> None:
    (config,) = [path for path in server.contents if "/charts/muster/blobs/" in path]
    change = swapped(f'"version": "{__version__}', '"version": "9.9.9')
    server.contents[config] = change(server.contents[config])
    (found,) = differing(files, server)
    assert found.endswith(f": version in its configuration: found 9.9.9, expected {__version__}")


def test_files_at_the_url_are_those_of_dist(server: Server, files: Files) -> None:
    server.contents[f"/v1/{packages.KREW}"] = b"another"
    del server.contents[f"/v1/{packages.WHEEL}"]
    found = [
        each for each in check_release.published_facts(files, server.named) if each.found != each.expected
    ]
    assert [(each.where.rpartition("/")[2], each.field) for each in found] == [
        (packages.KREW, "digest"),
        (packages.WHEEL, "content"),
    ]
    assert "HTTP 404" in str(found[1])


def test_a_registry_with_tokens_is_read_anonymously(server: Server, files: Files) -> None:
    """Blobs elsewhere, which refuse the token of the registry, are read as well."""
    server.token = "secret"
    repository = Repository(server.named.image)
    index = repository.manifest(__version__).document
    image = repository.manifest(index["manifests"][1]["digest"]).document
    assert repository.config(image) == {"os": "linux", "architecture": "arm64"}


# ---- the command


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tools.check_release", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_command_fails_with_each_difference(tmp_path: Path, server: Server, files: Files) -> None:
    kept = {name: content for name, content in files.items() if name != release.CHECKSUMS}
    release.write(tmp_path, kept)
    given = (f"--dist={tmp_path}", f"--registry={server.named.registry}", f"--url={server.named.url}")
    done = run(*given, "--published")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(" names, versions and digests are as expected\n")
    server.contents[f"/v1/{packages.KREW}"] = b"another"
    assert run(*given).returncode == 0
    done = run(*given, "--published")
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert line.startswith(f"error: {server.named.url}/{packages.KREW}: digest: found sha256:")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--registry=A/b",), "--registry: invalid value 'A/b': must be HOST[:PORT][/PATH]"),
        (("--registry=a", "--url=ftp://a"), "--url: invalid value 'ftp://a': must be http[s]://HOST"),
        (
            ("--registry=a", "--url=http://a", "--dist=not-there"),
            "--dist: invalid value 'not-there': must be",
        ),
    ],
    ids=["registry", "url", "dist"],
)
def test_wrong_use_is_a_separate_error(arguments: tuple[str, ...], named: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr


# ---- the addresses


def test_addresses_are_those_of_the_project_unless_given() -> None:
    named = settings()
    assert named.url.endswith(f"/v{__version__}")
    assert addresses("a.b:1/c", "https://d.e/f/") == Addresses("a.b:1/c", "https://d.e/f")
    if not named.registry.endswith(".example"):
        assert addresses() == named


@each_of(
    ("registry.example", "https://a.b", "--registry: invalid value 'registry.example'"),
    ("a.b", "https://x.example/y", "--url: invalid value 'https://x.example/y'"),
)
def test_a_placeholder_is_no_address(registry: str, url: str, message: str) -> None:
    with pytest.raises(Unusable, match=f"^{message}: must not be a placeholder"):
        addresses(registry, url)


@each_of(
    ("README.md", f"kubectl apply -f {settings().url}/muster-sidecar.yaml\n"),
    (
        "docs/how-to/install.md",
        f"helm install muster oci://{settings().charts}/muster --version {__version__} ",
    ),
)
def test_pages_have_the_addresses_of_the_project(page: str, command: str) -> None:
    """After a change in pyproject.toml or of the version, the pages need the same."""
    assert command in (ROOT / page).read_text()
