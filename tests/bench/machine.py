"""Description of the machine and of the measured version, on which the figures depend."""

import os
import platform
import re
import subprocess
from pathlib import Path

import extender
from tests.bench.report import Row
from tests.e2e import build


def machine_row() -> Row:
    return {
        "machine": f"{_cores()} cores ({_model()}), {_gigabytes():.0f} GB, load {os.getloadavg()[0]:.1f}",
        "kubernetes": f"{build.folder().name} (etcd {_etcd()}), all on this machine",
        "muster": f"{extender.__version__} ({_commit()}), Python {platform.python_version()}",
    }


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _model() -> str:
    match = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return match.group(1) if match else platform.machine()


def _gigabytes() -> float:
    """Return the memory of the machine in GB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def _etcd() -> str:
    output = _output([str(build.folder() / "etcd"), "--version"])
    return output.splitlines()[0].rpartition(" ")[2] if output else "unknown"


def _commit() -> str:
    """Return the commit, with a + if the working tree has changes."""
    root = str(Path(extender.__file__).parents[1])
    return _output(["git", "-C", root, "describe", "--always", "--dirty=+"]) or "no commit"


def _output(command: list[str]) -> str:
    """Return the output of a command, or "" if the command is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
