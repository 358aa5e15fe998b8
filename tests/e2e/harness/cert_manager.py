"""The real cert-manager: CRDs, controllers, and the injector that writes CAs into webhook configurations."""

from pathlib import Path
from typing import Any

from extender.shipped import read
from tests.e2e import build
from tests.e2e.harness.access import ADMIN
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.process import Process
from tests.e2e.harness.resources import Resource

Json = dict[str, Any]
MODULE = Path(__file__).parents[1] / "cert-manager"
RELEASE = "github.com/cert-manager/cert-manager"
CERTIFICATES = Resource("/apis/cert-manager.io/v1", "certificates")
SECRETS_SELECTOR = "controller.cert-manager.io/fao=true"


def crds(*kinds: str) -> list[Json]:
    """Return the CRDs of these kinds in the API group cert-manager.io, from the pinned release.

    Without `kinds`, return all CRDs of the group. The webhook that converts between versions does not run.
    """
    folder = build.sources(RELEASE, MODULE) / "deploy" / "crds"
    documents = read(sorted(folder.glob("cert-manager.io_*.yaml")))
    return [document for document in documents if not kinds or document["spec"]["names"]["kind"] in kinds]


def process(cluster: ControlPlane, gates: str = "") -> Process:
    """Return a process of cert-manager. The process is not started yet.

    cert-manager has all rights, because its rights are not under test. `gates` is the value of
    --feature-gates.
    """
    program = build.tool(MODULE, "kube-muster.io/cert-manager")
    environment = {"KUBECONFIG": str(cluster.kubeconfig(ADMIN)), "FEATURE_GATES": gates}
    return Process("cert-manager", [str(program)], cluster.folder / "cert-manager.log", env=environment)
