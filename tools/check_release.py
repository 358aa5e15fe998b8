"""Check of a release: all names, versions and digests agree in its files and its registry.

    python -m tools.check_release [--dist FOLDER] [--registry NAME] [--url URL] [--published]

`python -m tools.publish` has pushed the image and the chart to the registry. The check reads them as an
anonymous user. If the registry has a loopback address, the check uses plain HTTP.
"""

import argparse
import io
import json
import re
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from extender import __version__
from tools import packages, release
from tools.addresses import Addresses, Unusable, addresses
from tools.registry import NoAnswer, Repository, read, sha256

PLATFORMS = ("linux/amd64", "linux/arm64")
FILES = {
    *(manifest.name for manifest in release.MANIFESTS),
    *release.JOBS,
    *(packages.CHART, packages.PLUGIN, packages.KREW, packages.WHEEL, release.CHECKSUMS),
}
SCRIPT = "kubectl-muster"
CHART_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
# Errors that a file or an answer with an unexpected form may raise.
MALFORMED = (
    *(AttributeError, KeyError, IndexError, TypeError, ValueError, EOFError, zlib.error, OSError),
    *(tarfile.TarError, zipfile.BadZipFile, yaml.YAMLError),
)
Files = Mapping[str, bytes]  # content of files, by name


class Fact(NamedTuple):
    """Fact about a name, version or digest. `where` is a file, or an address in the registry."""

    where: str
    field: str
    found: object
    expected: object

    def __str__(self) -> str:
        return f"{self.where}: {self.field}: found {_shown(self.found)}, expected {_shown(self.expected)}"


Facts = Iterator[Fact]


def facts(files: Files, own_addresses: Addresses) -> Facts:
    """Yield all facts of a release."""
    missing = sorted(FILES - files.keys())
    yield Fact("dist", "missing files", missing, [])
    if missing:
        return
    yield from _read(release.CHECKSUMS, _checksums(files))
    yield from (_heading(files, name) for name in release.JOBS)
    yield from _read(packages.KREW, _krew(files, own_addresses))
    yield from _read(packages.PLUGIN, _plugin(files))
    yield from _read(packages.WHEEL, _wheel(files))
    yield from _read(f"{own_addresses.charts}/muster:{__version__}", _pushed_chart(files, own_addresses))
    yield from _read(f"{own_addresses.image}:{__version__}", _image(files, own_addresses))


def published_facts(files: Files, own_addresses: Addresses) -> Facts:
    """Yield the facts of the files at the URL."""
    for name in sorted(FILES):
        address = f"{own_addresses.url}/{name}"
        try:
            yield Fact(address, "digest", sha256(read(address)), sha256(files[name]))
        except NoAnswer as fault:
            yield Fact(address, "content", str(fault), sha256(files[name]))


def _read(where: str, facts_there: Facts) -> Facts:
    """Yield `facts_there`. If the content at `where` cannot be read, yield a fact about that."""
    try:
        yield from facts_there
    except NoAnswer as fault:
        yield Fact(where, "answer", str(fault), "a manifest")
    except MALFORMED as fault:
        yield Fact(where, "content", f"{type(fault).__name__}: {fault}", "a file of its kind")


def _checksums(files: Files) -> Facts:
    lines = files[release.CHECKSUMS].decode().splitlines()
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    contents = {name: content for name, content in files.items() if name != release.CHECKSUMS}
    yield Fact(release.CHECKSUMS, "files without a digest", sorted(contents.keys() - listed.keys()), [])
    yield Fact(release.CHECKSUMS, "digests without a file", sorted(listed.keys() - contents.keys()), [])
    for name in sorted(listed.keys() & contents.keys()):
        yield Fact(release.CHECKSUMS, f"digest of {name}", f"sha256:{listed[name]}", sha256(contents[name]))


def _image(files: Files, own_addresses: Addresses) -> Facts:
    """Yield the facts of the image, and of the files that name the image by its digest."""
    repository, where = Repository(own_addresses.image), f"{own_addresses.image}:{__version__}"
    index = repository.manifest(__version__)
    yield Fact(where, "digest as stated by the registry", index.stated, index.digest)
    for manifest in release.MANIFESTS:
        yield from _read(manifest.name, _rendered(files, manifest, f"{own_addresses.image}@{index.digest}"))
    yield from _read(packages.CHART, _chart(files, own_addresses, f"{__version__}@{index.digest}"))
    entries = index.document.get("manifests", [])
    digests = {_platform(entry["platform"]): entry["digest"] for entry in entries}
    platforms = [platform for platform in PLATFORMS if platform in digests]
    yield Fact(where, "platforms", platforms, [*PLATFORMS])
    for platform in platforms:
        address = f"{own_addresses.image}@{digests[platform]}"
        image = repository.manifest(digests[platform])
        yield Fact(address, f"digest of the image for {platform}", image.digest, digests[platform])
        yield Fact(address, "platform", _platform(repository.config(image.document)), platform)


def _platform(described: Mapping[str, Any]) -> str:
    return f"{described['os']}/{described['architecture']}"


def _rendered(files: Files, manifest: release.Manifest, image: str) -> Facts:
    yield _heading(files, manifest.name)
    scheduler = f"registry.k8s.io/kube-scheduler:{manifest.scheduler or release.SCHEDULER}"
    expected = {image, scheduler} if manifest.install == "sidecar" else {image}
    images: set[str] = set()
    for document in yaml.safe_load_all(files[manifest.name]):
        pod = document.get("spec", {}).get("template", {}).get("spec", {})
        containers = [*pod.get("initContainers", []), *pod.get("containers", [])]
        images |= {container["image"] for container in containers}
    yield Fact(manifest.name, "images", sorted(images), sorted(expected))


def _heading(files: Files, name: str) -> Fact:
    heading = re.match(rb"# Muster ([\w.+-]+?):? ", files[name])
    return Fact(name, "version in the first line", heading[1].decode() if heading else "none", __version__)


def _chart(files: Files, own_addresses: Addresses, tag: str) -> Facts:
    contents = _unpacked(files[packages.CHART])
    described = yaml.safe_load(contents["muster/Chart.yaml"])
    for field, expected in _chart_names().items():
        yield Fact(packages.CHART, f"{field} in Chart.yaml", described[field], expected)
    image = yaml.safe_load(contents["muster/values.yaml"])["image"]
    yield Fact(packages.CHART, "image.repository in values.yaml", image["repository"], own_addresses.image)
    yield Fact(packages.CHART, "image.tag in values.yaml", image["tag"], tag)


def _chart_names() -> dict[str, str]:
    return {"name": "muster", "version": __version__, "appVersion": __version__}


def _pushed_chart(files: Files, own_addresses: Addresses) -> Facts:
    where = f"{own_addresses.charts}/muster:{__version__}"
    repository = Repository(f"{own_addresses.charts}/muster")
    chart = repository.manifest(__version__)
    yield Fact(where, "digest as stated by the registry", chart.stated, chart.digest)
    layers = [layer["digest"] for layer in chart.document["layers"] if layer["mediaType"] == CHART_CONTENT]
    yield Fact(where, f"digest of {packages.CHART}", layers, [sha256(files[packages.CHART])])
    described = repository.config(chart.document)
    for field, expected in _chart_names().items():
        yield Fact(where, f"{field} in its configuration", described[field], expected)


def _krew(files: Files, own_addresses: Addresses) -> Facts:
    spec = yaml.safe_load(files[packages.KREW])["spec"]
    yield Fact(packages.KREW, "spec.version", spec["version"], f"v{__version__}")
    for number, platform in enumerate(spec["platforms"]):
        field, expected = f"spec.platforms[{number}]", sha256(files[packages.PLUGIN])
        yield Fact(packages.KREW, f"{field}.uri", platform["uri"], f"{own_addresses.url}/{packages.PLUGIN}")
        yield Fact(packages.KREW, f"{field}.sha256", f"sha256:{platform['sha256']}", expected)
        yield Fact(packages.KREW, f"{field}.bin", platform["bin"], SCRIPT)


def _plugin(files: Files) -> Facts:
    required = set(re.findall(r"kube-muster==(\S+)", _unpacked(files[packages.PLUGIN])[SCRIPT].decode()))
    yield Fact(packages.PLUGIN, f"versions of kube-muster in {SCRIPT}", sorted(required), [__version__])


def _wheel(files: Files) -> Facts:
    folder = f"kube_muster-{__version__}.dist-info"
    with zipfile.ZipFile(io.BytesIO(files[packages.WHEEL])) as opened:
        metadata = opened.read(f"{folder}/METADATA").decode()
        scripts = opened.read(f"{folder}/entry_points.txt").decode()
    for field, expected in (("Name", "kube-muster"), ("Version", __version__)):
        values = re.findall(rf"^{field}: (.*)$", metadata, re.MULTILINE)
        yield Fact(packages.WHEEL, f"{field} in METADATA", values, [expected])
    found_scripts = re.findall(rf"^{SCRIPT}\b", scripts, re.MULTILINE)
    yield Fact(packages.WHEEL, "scripts that the plugin runs", found_scripts, [SCRIPT])


def _unpacked(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        streams = {member.name: opened.extractfile(member) for member in opened}
        return {name: stream.read() for name, stream in streams.items() if stream is not None}


def _shown(value: object) -> str:
    return json.dumps(value) if isinstance(value, list) else str(value)


def check(folder: Path, own_addresses: Addresses, checks_url: bool = False) -> int:
    """Print the facts that differ from the expected values; return the exit code.

    `checks_url` says whether the published files are checked, too.
    """
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    all_facts = list(facts(files, own_addresses))
    if checks_url and files.keys() >= FILES:
        all_facts += published_facts(files, own_addresses)
    unexpected = [fact for fact in all_facts if fact.found != fact.expected]
    sys.stderr.write("".join(f"error: {fact}\n" for fact in unexpected))
    as_expected = len(all_facts) - len(unexpected)
    sys.stdout.write(f"{as_expected} of {len(all_facts)} names, versions and digests are as expected\n")
    return 1 if unexpected else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.check_release",
        description="Check a release against its registry.",
    )
    parser.add_argument("--dist", type=Path, default=release.ROOT / "dist", help="its files (default: dist)")
    parser.add_argument("--registry", default="", help="HOST[:PORT][/PATH] (default: that of pyproject.toml)")
    parser.add_argument("--url", default="", help="folder of its files (default: that of pyproject.toml)")
    parser.add_argument("--published", action="store_true", help="check the files at the URL as well")
    chosen = parser.parse_args()
    try:
        own_addresses = addresses(chosen.registry, chosen.url)
        if not chosen.dist.is_dir():
            raise Unusable(f"--dist: invalid value {str(chosen.dist)!r}: must be the folder of a release")
    except Unusable as fault:
        sys.stderr.write(f"error: {fault}\n")
        return 2
    return check(chosen.dist, own_addresses, chosen.published)


if __name__ == "__main__":
    sys.exit(main())
