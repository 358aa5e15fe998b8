"""Tokens expire: Muster and its view show the new one at once, and /readyz tells of refusals."""

import base64
import sys
from pathlib import Path

from tests.e2e.harness.access import User, signed
from tests.e2e.harness.client import Client
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import NODES
from tests.e2e.harness.secret_volume import bring
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError

# `muster` in a pod that has the volume of its account where the first argument says.
IN_A_POD = """
import base64
import sys
from pathlib import Path
from kubernetes.config import incluster_config
import extender.cli
import extender.host.feed
volume = Path(sys.argv.pop(1))
incluster_config.SERVICE_TOKEN_FILENAME = str(volume / "token")
incluster_config.SERVICE_CERT_FILENAME = str(volume / "ca.crt")
extender.host.feed._REFUSED = 1.0
extender.cli.main()
"""
SOON, LATER = 12, 24  # seconds until a token expires; one that was accepted is for ten more without a look
REFUSED = 45.0  # seconds within which one is refused


def start(stage: Stage, volume: Path) -> Muster:
    host, port = stage.cluster.server.removeprefix("https://").split(":")
    where = (f"KUBERNETES_SERVICE_HOST={host}", f"KUBERNETES_SERVICE_PORT={port}")
    program = ("env", "-u", "KUBECONFIG", *where, sys.executable, "-c", IN_A_POD, str(volume))
    return stage.start_muster(user=None, view=True, program=program)


def is_refused(cluster: ControlPlane, user: User) -> bool:
    with Client(cluster.access(user)) as client:
        try:
            client.items(NODES)
        except ApiError as fault:
            return fault.status == 401
    return False


def test_tokens_of_a_pod_expire_one_after_the_other(stage: Stage, muster_user: User, tmp_path: Path) -> None:
    cluster = stage.cluster

    def rotate(seconds: int) -> User:
        user = signed(cluster.admin, cluster.key, muster_user, seconds)
        files = {"token": user.token.encode(), "ca.crt": cluster.certificate.read_bytes()}
        bring({"data": {name: base64.b64encode(data) for name, data in files.items()}}, tmp_path)
        return user

    first = rotate(SOON)
    muster = start(stage, tmp_path)
    stage.start_sidecar(muster, user=muster_user)
    stage.nodes(3, cpu="2")
    second = rotate(LATER)
    wait_for(lambda: is_refused(cluster, first), REFUSED, "the first token is refused")
    stage.wait_phase(stage.gang("in-time", 3))
    wait_for(lambda: is_refused(cluster, second), REFUSED, "the second token is refused")
    late = stage.gang("late", 3)
    wait_for(lambda: "[-]credentials failed: refused by the API server" in muster.readyz(), what="it tells")
    assert stage.bound(late) == {}
    rotate(3600)
    stage.wait_phase(late)
    wait_for(muster.ready, what="ready again")
