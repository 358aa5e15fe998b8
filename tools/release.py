"""Builder of the files of a release: installs for `kubectl apply`, a chart, a plugin, and checksums.

    python3 -m tools.release --image registry.example/kube-muster:0.1.0 [--out dist] [--kubectl PATH]

kustomize, which is part of kubectl, builds each file from an overlay in the form that users write. Apart from
kubectl, this program needs only Python.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from extender import __version__
from tools import packages
from tools.addresses import URL, Unusable, host
from tools.chart_changes import FURTHER_JOBS

ROOT = Path(__file__).parents[1]
SCHEDULER = "v1.36.3"  # the kube-scheduler that the manifests run
OLDEST_SCHEDULER = "v1.34.4"  # a scheduler runs with its own minor release of Kubernetes and the next
CHECKSUMS = "SHA256SUMS"
# Form of the name of an image, as registries and kubelets read it.
_PART, _HOST = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*", r"[A-Za-z0-9]+(?:[.-]+[A-Za-z0-9]+)*(?::\d{1,5})?"
IMAGE = rf"((?:{_HOST}/)?{_PART}(?:/{_PART})*)(?::(\w[\w.-]{{0,127}}))?(?:@(sha256:[0-9a-f]{{64}}))?"
_MAX_NAME_LENGTH = 255  # maximum characters of an image's name


class Manifest(NamedTuple):
    """Rendered file of an install.

    Attributes:
        name: The name of the file.
        install: The name of a folder in install/.
        kubernetes: The versions of Kubernetes for which the file is meant, as text.
        components: The names of folders in manifests/ that the install adds.
        scheduler: The release of the second kube-scheduler; empty means the release in the manifests.
    """

    name: str
    install: str
    kubernetes: str
    components: tuple[str, ...] = ()
    scheduler: str = ""


CURRENT, BEFORE = "1.36 or newer", "1.34 and 1.35"
MANIFESTS = (
    Manifest("muster-sidecar.yaml", "sidecar", CURRENT),
    Manifest("muster-sidecar-before-1.36.yaml", "sidecar", BEFORE, ("older-kubernetes",), OLDEST_SCHEDULER),
    Manifest("muster-default-scheduler.yaml", "default-scheduler", CURRENT),
    Manifest("muster-default-scheduler-before-1.36.yaml", "default-scheduler", BEFORE, ("older-kubernetes",)),
)


JOBS = {f"muster-jobs-{name}.yaml": (name,) for name in FURTHER_JOBS} | {"muster-jobs-all.yaml": FURTHER_JOBS}


class Image(NamedTuple):
    name: str
    tag: str
    digest: str


def image(text: str) -> Image:
    """Return an image: a name with a tag, a digest or both.

    Raises:
        Unusable: The text is no name of an image, or has neither a tag nor a digest.
    """
    match = re.fullmatch(IMAGE, text, re.ASCII)
    if not match or not (match[2] or match[3]) or len(match[1]) > _MAX_NAME_LENGTH:
        allowed = "NAME:TAG or NAME@sha256:..., with a NAME in lower case"
        raise Unusable(f"--image: invalid value {text!r:.300}: must be {allowed}")
    return Image(match[1], match[2] or "", match[3] or "")


def overlay(manifest: Manifest, image: Image, root_path: str) -> str:
    """Return a kustomization.yaml. `root_path` is the path from the folder of the file to the repository."""
    version = {"newTag": image.tag} if not image.digest else {"digest": image.digest}
    images = [{"name": "kube-muster", "newName": image.name, **version}]
    if manifest.scheduler:
        images.append({"name": "registry.k8s.io/kube-scheduler", "newTag": manifest.scheduler})
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{root_path}/install/{manifest.install}"],
        "components": [f"{root_path}/manifests/{component}" for component in manifest.components],
        "images": images,
    }
    return json.dumps(document)


def render(manifest: Manifest, image: Image, kubectl: str) -> str:
    """Return the text of the rendered file.

    Raises:
        Unusable: kustomize fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        root_path = os.path.relpath(ROOT, Path(folder).resolve())  # kustomize accepts no absolute paths
        (Path(folder) / "kustomization.yaml").write_text(overlay(manifest, image, root_path))
        command = [kubectl, "kustomize", folder]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        raise Unusable(f"{' '.join(command)}: {completed.stderr.strip()}")
    if f"image: {image.name}" not in completed.stdout:
        raise Unusable(f"--kubectl: invalid value {kubectl!r}: must be a kubectl: its output lacks the image")
    return f"{_heading(manifest)}{completed.stdout}"


def _heading(manifest: Manifest) -> str:
    added = "".join(f" with manifests/{component}" for component in manifest.components)
    return (
        f"# Muster {__version__} for Kubernetes {manifest.kubernetes}: install/{manifest.install}{added},\n"
        "# rendered by make release. docs/how-to/install.md says how it is applied.\n"
    )


def rights(folders: tuple[str, ...]) -> str:
    """Return the text of a file with the rights to manage jobs. Users apply the file after an install.

    `folders` are names of folders in manifests/jobs/.
    """
    heading = f"# Muster {__version__}: {', '.join(f'manifests/jobs/{name}' for name in folders)}.\n"
    texts = ((ROOT / "manifests" / "jobs" / name / "rbac.yaml").read_text() for name in folders)
    return heading + "---\n".join(texts)


def contents(image: Image, kubectl: str, url: str = "") -> dict[str, bytes]:
    """Return the contents of all files, by name.

    `url` is the URL of the folder in which the files will be published. If it is empty, the result lacks the
    plugin and the Python package.

    Raises:
        Unusable: A file cannot be made.
    """
    rendered = {manifest.name: render(manifest, image, kubectl) for manifest in MANIFESTS}
    rendered |= {name: rights(folders) for name, folders in JOBS.items()}
    files = {name: text.encode() for name, text in rendered.items()}
    files[packages.CHART] = packages.chart(*image)
    if url:
        files |= packages.plugin(url)
        files[packages.WHEEL] = wheel()
    return files


def wheel() -> bytes:
    """Build the Python package, which the plugin runs.

    Raises:
        Unusable: uv is not found, or fails.
    """
    places = (str(Path(sys.executable).parent), os.environ.get("PATH", ""))
    uv = shutil.which("uv", path=os.pathsep.join(places))
    if uv is None:
        raise Unusable("--url: needs uv for the Python package, which is not found; make release brings it")
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "setup.cfg"
        # a new folder has no modules of earlier builds
        settings.write_text(f"[build]\nbuild_base = {folder}/build\n")
        command = [uv, "build", "--quiet", "--wheel", f"--out-dir={folder}", str(ROOT)]
        environment = {**os.environ, "DIST_EXTRA_CONFIG": str(settings)}
        completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if completed.returncode != 0:
            raise Unusable(f"{' '.join(command)}: {completed.stderr.strip()}")
        return (Path(folder) / packages.WHEEL).read_bytes()


def checksums(files: Mapping[str, bytes]) -> bytes:
    """Return the digests of all files in the format of sha256sum."""
    lines = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
    return "".join(lines).encode()


def write(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write all files and their checksums to `folder`; return the paths of `files` and of the checksums.

    Files of an earlier release that this release lacks are removed.
    """
    everything, earlier = {**files, CHECKSUMS: checksums(files)}, folder / CHECKSUMS
    folder.mkdir(parents=True, exist_ok=True)
    if earlier.exists():
        for line in earlier.read_text().splitlines():
            name = line.partition("  ")[2]
            if name not in everything and Path(name).name == name and (folder / name).is_file():
                (folder / name).unlink()
    for name, content in everything.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in everything]


def require(flag: str, program: str, reason: str) -> None:
    """Raise an error if a program is not on PATH.

    Raises:
        Unusable: The program is not found.
    """
    if shutil.which(program) is None:
        raise Unusable(f"--{flag}: invalid value {program!r}: must be a program on PATH; {reason}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description="Render what is released.")
    parser.add_argument(
        "--image", default="", help="where clusters get Muster's image: NAME:TAG or NAME@DIGEST"
    )
    parser.add_argument("--url", default="", help="the folder in which the files will be published, for krew")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="(default: dist)")
    parser.add_argument(
        "--kubectl", default="kubectl", help="the program that has kustomize (default: %(default)s)"
    )
    chosen = parser.parse_args()
    try:
        own_image = image(chosen.image)
        if chosen.url:
            host("--url", chosen.url, URL)
        if chosen.out.exists() and not chosen.out.is_dir():
            raise Unusable(f"--out: invalid value {str(chosen.out)!r}: must be a folder")
        require("kubectl", chosen.kubectl, "kustomize is part of it")
        paths = write(chosen.out, contents(own_image, chosen.kubectl, chosen.url))
    except Unusable as fault:
        sys.stderr.write(f"error: {fault}\n")
        return 2
    sys.stdout.write("".join(f"{path}\n" for path in paths))
    return 0


if __name__ == "__main__":
    sys.exit(main())
