"""Administrator who follows a page of docs/ with a shell, the repository's files, and an overlay."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.e2e import build
from tests.e2e.harness import installs
from tests.e2e.harness.access import ADMIN
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.muster import PROGRAM


class Administrator:
    """Administrator of a cluster, who runs the commands of a page.

    `components` are the overlay's components.
    """

    def __init__(self, cluster: ControlPlane, home: Path, page: Path, components: Sequence[str] = ()) -> None:
        self.home = home
        self._page = page
        program_folders = (cluster.binaries, installs.helm().parent, PROGRAM.parent)
        self._env = {
            **os.environ,
            "KUBECONFIG": str(cluster.kubeconfig(ADMIN)),
            "PATH": os.pathsep.join((*map(str, program_folders), os.environ["PATH"])),
            "HOME": str(home),
        }
        release = build.release(cluster.kubernetes)
        installs.overlay(home, "sidecar", components, release)
        for name in ("install", "manifests", "scheduler-config"):
            shutil.copytree(installs.ROOT / name, home / "kube-muster" / name)

    def run(self, command: str, *, exit_code: int = 0) -> str:
        """Run a command, and return its output. Fail if the exit code is not `exit_code`."""
        completed = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", command],
            cwd=self.home,
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert completed.returncode == exit_code, f"{command}\n{completed.stdout}\n{completed.stderr}"
        return completed.stdout

    def step(self, number: int) -> str:
        """Run the commands of one step of the page, and return their output."""
        return self.run(commands(self._page, number))


def commands(page: Path, number: int) -> str:
    """Return the shell commands under the heading with this number."""
    (section,) = re.findall(rf"^## {number}\. .*?(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^( *)```sh\n(.*?)^\1```$", section, re.MULTILINE | re.DOTALL)
    return "\n".join(re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in blocks)
