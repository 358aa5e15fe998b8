"""Packages of a release for package managers without a registry: a Helm chart, a krew plugin.

The plugin is a script. With uv or pipx, the script runs the Python package of the same version. An archive of
the same files always has the same bytes.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from extender import __version__

ROOT = Path(__file__).parents[1]
CHART = f"muster-{__version__}.tgz"
WHEEL = f"kube_muster-{__version__}-py3-none-any.whl"
PLUGIN, KREW = "kubectl-muster.tar.gz", "krew-muster.yaml"
_SCRIPT = f"""\
#!/bin/sh
# kubectl muster: the command of the Python package kube-muster, which uv or pipx keeps.
if command -v uvx > /dev/null; then
  exec uvx --from kube-muster=={__version__} kubectl-muster "$@"
elif command -v pipx > /dev/null; then
  exec pipx run --spec kube-muster=={__version__} kubectl-muster "$@"
fi
echo "kubectl muster needs uv or pipx on PATH: https://docs.astral.sh/uv/" >&2
exit 127
"""
_REPOSITORY_LINE, _TAG = "  repository: kube-muster\n", '  tag: ""\n'


def chart(name: str, tag: str, digest: str = "") -> bytes:
    """Return the archive that `helm push` takes; its values name the image of the release.

    Templates put a colon between name and tag. An image without a tag therefore gets the tag of this version.
    If the image has a digest, container runtimes ignore the tag.
    """
    tag = "@".join(filter(None, (tag or __version__, digest)))
    folder = ROOT / "install" / "chart"
    files = {f"muster/{path.relative_to(folder)}": path.read_bytes() for path in _files(folder)}
    values = files["muster/values.yaml"].decode()
    for old, new in ((_REPOSITORY_LINE, f"  repository: {name}\n"), (_TAG, f"  tag: {json.dumps(tag)}\n")):
        assert old in values, f"install/chart/values.yaml: lacks {old.strip()!r}"
        values = values.replace(old, new, 1)
    return _archive({**files, "muster/values.yaml": values.encode()})


def plugin(url: str) -> dict[str, bytes]:
    """Return the archive of the plugin, and its manifest for krew, by name of the file.

    `url` is the folder from which krew downloads the archive.
    """
    files = {"kubectl-muster": _SCRIPT.encode(), "LICENSE": (ROOT / "LICENSE").read_bytes()}
    archive = _archive(files, programs=("kubectl-muster",))
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "muster"},
        "spec": {
            "version": f"v{__version__}",
            "homepage": url,
            "shortDescription": "Tells why gangs wait, and manages queues",
            "description": "Why a gang waits, what is ahead of it, and what helps; queues and their shares.",
            "caveats": "Needs uv or pipx.",
            "platforms": [
                {
                    "selector": {
                        "matchExpressions": [{"key": "os", "operator": "In", "values": ["darwin", "linux"]}]
                    },
                    "uri": f"{url.rstrip('/')}/{PLUGIN}",
                    "sha256": hashlib.sha256(archive).hexdigest(),
                    "bin": "kubectl-muster",
                    "files": [{"from": name, "to": "."} for name in ("kubectl-muster", "LICENSE")],
                }
            ],
        },
    }
    return {PLUGIN: archive, KREW: f"{json.dumps(manifest, indent=2)}\n".encode()}


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _archive(files: Mapping[str, bytes], programs: tuple[str, ...] = ()) -> bytes:
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755 if name in programs else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
