"""Installer of the virtual environment: the packages for Muster and, with an extra, for its developers.

    python3 -m tools.environment [--extra dev] [--installer pip] [--folder .venv]

uv installs the packages within a few seconds: uv downloads in parallel and compiles no modules in advance.
(The client of Kubernetes has more than a thousand modules; Muster imports few of them.) pip installs uv from
the package index. If the index has no uv for this machine, or if uv fails, pip installs the packages instead.

The program needs only Python, because no package is installed yet when the program runs.
"""

from __future__ import annotations  # so that an older Python reaches the message that it is too old

import argparse
import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLDEST_PYTHON = (3, 11)
CONSTRAINT_FLAGS = ("--constraint", "constraints.txt")

# Settings of pip about the index, by uv's names: uv does not read pip's configuration.
UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
SECTIONS = ("global", "install", ":env:")  # sections of pip's configuration; later sections take precedence


def settings(pip_settings: str) -> dict[str, str]:
    """Return the environment variables for uv with the settings that `pip config list` printed."""
    variables: dict[str, str] = {}
    for section in SECTIONS:
        for key, value in re.findall(rf"^{section}\.([\w-]+)=(.*)$", pip_settings, re.MULTILINE):
            if key in UV_NAMES:
                separator = "," if key == "find-links" else " "
                variables[UV_NAMES[key]] = separator.join(str(ast.literal_eval(value)).split())
    if "UV_INDEX" in variables:
        # pip chooses the best version of all indexes; uv would choose the first index that has the package.
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return variables


def create(folder: Path, installer: str) -> int:
    """Create an environment; return the exit code.

    The installer, pip or uv, is the last file of an environment, so an environment with an installer is
    complete. If the running Python has pip, an environment for uv lacks pip, because unpacking pip takes
    seconds.
    """
    if any((folder / "bin" / name).exists() for name in ("pip", "uv")):
        return 0
    flags = ["--without-pip"] if installer == "uv" and find_spec("pip") else []
    return subprocess.run([sys.executable, "-m", "venv", *flags, str(folder)], check=False).returncode


def _pip(folder: Path) -> list[str]:
    own_pip = folder / "bin" / "pip"
    if own_pip.exists():
        return [str(own_pip)]
    return [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]


def install(folder: Path, package: str, installer: str) -> int:
    """Install a package; return the exit code of the last installer that ran."""
    if installer == "uv" and _get_uv(folder) and _install_by_uv(folder, package) == 0:
        return 0
    if installer == "uv":
        _show("uv is not available here or failed; pip installs instead, which takes longer")
    return _install_by_pip(folder, package)


def _get_uv(folder: Path) -> bool:
    if (folder / "bin" / "uv").exists():
        return True
    arguments = ["install", "--quiet", "--no-compile", "--only-binary=:all:", *CONSTRAINT_FLAGS, "uv"]
    return _run([*_pip(folder), *arguments]) == 0


def _install_by_uv(folder: Path, package: str) -> int:
    config = subprocess.run([*_pip(folder), "config", "list"], capture_output=True, text=True, check=False)
    target = ["--python", str(folder / "bin" / "python"), *CONSTRAINT_FLAGS, "--editable", package]
    command = [str(folder / "bin" / "uv"), "pip", "install", *_quiet_flags(), *target]
    return _run(command, {**settings(config.stdout), **os.environ})


def _install_by_pip(folder: Path, package: str) -> int:
    options = [*_quiet_flags(), "--no-compile", *CONSTRAINT_FLAGS, "--editable", package]
    return _run([*_pip(folder), "install", *options])


def _quiet_flags() -> list[str]:
    """Return the flags that hide progress outside terminals."""
    return [] if sys.stderr.isatty() else ["--quiet"]


def _run(command: list[str], environment: Mapping[str, str] = os.environ) -> int:
    """Run a command. All output goes to stderr, since stdout belongs to the make target that users run."""
    variables = {**environment, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return subprocess.run(command, cwd=ROOT, env=variables, stdout=sys.stderr, check=False).returncode


def _show(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.environment", description="Make .venv.")
    parser.add_argument("--extra", default="", help="what pyproject.toml lists under this name as well")
    parser.add_argument("--installer", choices=("uv", "pip"), default="uv", help="(default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv", help="(default: .venv)")
    return parser.parse_args()


def main() -> int:
    chosen = _arguments()
    if sys.version_info[:2] < OLDEST_PYTHON:
        found_version = ".".join(map(str, sys.version_info[:3]))
        allowed = "3.11 or newer (make PYTHON=python3.13 ...)"
        _show(f"error: {sys.executable} is Python {found_version}, allowed: {allowed}")
        return 2
    package = f".[{chosen.extra}]" if chosen.extra else "."
    _show(f"Installing {'what the tests need' if chosen.extra else 'Muster'} into {chosen.folder.name} ...")
    return create(chosen.folder, chosen.installer) or install(chosen.folder, package, chosen.installer)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
