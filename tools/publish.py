"""Publisher of the release of a tag: image, files in dist/ and chart, in this order, then a check.

    python -m tools.publish --base NAME@sha256:... [--registry NAME] [--url URL] [--builder podman] ...

Image and chart go to the registry. You upload the files of dist/ yourself (docs/contributing/releasing.md).
"""

import argparse
import subprocess
import sys
from pathlib import Path

from extender import __version__
from tools import check_release, image, packages, release
from tools.addresses import Addresses, Unusable, addresses
from tools.registry import NoAnswer, Repository, is_loopback

TAG = f"v{__version__}"


class Failed(Exception):
    """Error: a step failed. The message names the step."""


def require_tag() -> None:
    """Raise an error unless the working tree equals the commit with the tag of this version.

    Raises:
        Unusable: HEAD does not have the tag, or files of the working tree differ from HEAD.
    """
    tags = _git("tag", "--points-at", "HEAD").split()
    if TAG not in tags:
        raise Unusable(f"HEAD: invalid tags {tags}: must have {TAG}, the version of extender/__init__.py")
    if changed := _git("status", "--porcelain"):
        raise Unusable(f"working tree: invalid changes: must be that of {TAG}\n{changed.rstrip()}")


def _git(*arguments: str) -> str:
    completed = subprocess.run(
        ["git", *arguments], cwd=release.ROOT, capture_output=True, text=True, check=False
    )
    if completed.returncode != 0:
        raise Unusable(f"git {' '.join(arguments)}: {completed.stderr.strip()}")
    return completed.stdout


def require_new(own_addresses: Addresses) -> None:
    """Raise an error if this version is published, since users may rely on its digests.

    Raises:
        Unusable: The registry has the chart of this version. A release pushes the chart last.
    """
    chart = f"{own_addresses.charts}/muster"
    try:
        Repository(chart).manifest(__version__)
    except NoAnswer:
        return
    raise Unusable(f"--registry: {chart}:{__version__} is published; raise the version, or delete it there")


def publish(own_addresses: Addresses, folder: Path, engine: str, base: str, kubectl: str, helm: str) -> int:
    """Publish image and chart, and write the files to `folder`; return the exit code of the check.

    Raises:
        Failed: A step failed.
        Unusable: A file cannot be made.
    """
    tag = f"{own_addresses.image}:{__version__}"
    if image.build(engine, tag, base, push=True, platforms=",".join(check_release.PLATFORMS)):
        raise Failed(f"{engine} did not build and push {tag}")
    try:
        digest = Repository(own_addresses.image).manifest(__version__).digest
    except NoAnswer as fault:
        raise Failed(f"{tag} is pushed, but anonymous users cannot read it: {fault}") from None
    ours = release.Image(own_addresses.image, __version__, digest)
    release.write(folder, release.contents(ours, kubectl, own_addresses.url))
    command = [helm, "push", str(folder / packages.CHART), f"oci://{own_addresses.charts}"]
    if is_loopback(own_addresses.registry.partition("/")[0]):
        command.append("--plain-http")
    if subprocess.run(command, check=False).returncode:
        raise Failed(" ".join(command))
    return check_release.check(folder, own_addresses)


def main() -> int:
    chosen = _arguments()
    try:
        own_addresses = addresses(chosen.registry, chosen.url)
        if not image.is_fixed(chosen.base):
            raise Unusable(f"--base: invalid value {chosen.base!r}: must have a digest, NAME@sha256:...")
        if chosen.out.exists() and not (chosen.out.is_dir() and not any(chosen.out.iterdir())):
            raise Unusable(f"--out: invalid value {str(chosen.out)!r}: must be a new or empty folder")
        release.require("kubectl", chosen.kubectl, "kustomize is part of it")
        release.require("helm", chosen.helm, "it pushes the chart")
        engine = image.builder([chosen.builder] if chosen.builder else image.BUILDERS)
        require_tag()
        require_new(own_addresses)
        return publish(own_addresses, chosen.out, engine, chosen.base, chosen.kubectl, chosen.helm)
    except (Unusable, image.NoBuilder) as fault:
        sys.stderr.write(f"error: {fault}\n")
        return 2
    except Failed as fault:
        sys.stderr.write(f"error: {fault}\n")
        return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.publish", description=f"Publish {TAG}.")
    parser.add_argument("--base", default="", help="base image of the release: NAME@sha256:...")
    parser.add_argument("--registry", default="", help="HOST[:PORT][/PATH] (default: that of pyproject.toml)")
    parser.add_argument("--url", default="", help="folder of its files (default: that of pyproject.toml)")
    parser.add_argument("--out", type=Path, default=release.ROOT / "dist", help="(default: dist)")
    parser.add_argument("--builder", help=f"instead of the first of {', '.join(image.BUILDERS)} that answers")
    parser.add_argument("--kubectl", default="kubectl", help="(default: %(default)s)")
    parser.add_argument("--helm", default="helm", help="(default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
