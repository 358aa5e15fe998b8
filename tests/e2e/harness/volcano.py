"""Parts of Volcano for the tests: the command line `vcctl`, and the manifests of a release."""

import subprocess
from pathlib import Path
from typing import Any

from extender.shipped import read
from tests.e2e import build
from tests.e2e.harness.access import User
from tests.e2e.harness.controlplane import ControlPlane

Json = dict[str, Any]
MODULE = Path(__file__).parents[1] / "volcano"
TIMEOUT = 30  # seconds


class Vcctl:
    """Command vcctl as one user: `vcctl("queue", "get", "--name=a")` returns the output."""

    def __init__(self, cluster: ControlPlane, user: User) -> None:
        self._program = str(build.tool(MODULE, "volcano.sh/volcano/cmd/cli"))
        self._kubeconfig_flag = f"--kubeconfig={cluster.kubeconfig(user)}"

    def __call__(self, *arguments: str) -> str:
        """Run vcctl, and return its output. Raise CalledProcessError if vcctl fails."""
        command = [self._program, *arguments, self._kubeconfig_flag]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        if completed.returncode:
            raise subprocess.CalledProcessError(
                completed.returncode, command, completed.stdout, completed.stderr
            )
        return completed.stdout


def crds(*plurals: str) -> list[Json]:
    """Return the CRDs of Volcano that have these plurals, such as `crds("queues", "podgroups")`."""
    folder = build.sources("volcano.sh/volcano", MODULE)
    documents = read(sorted(folder.glob("config/crd/*/bases/*.yaml")))
    return [document for document in documents if document["spec"]["names"]["plural"] in plurals]


def release(module: Path) -> list[Json]:
    """Return the objects of the file that installs the pinned release of Volcano without Helm."""
    folder = build.sources("volcano.sh/volcano", module)
    return read([folder / "installer" / "volcano-development.yaml"])
