"""Tokens expire: Muster and its proxy show the new one at once, and /readyz reports refusals."""

import base64
import json
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import loopback
from tests.e2e.harness.access import User, issued, signed, write_kubeconfig
from tests.e2e.harness.client import Client
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import NODES, SECRETS
from tests.e2e.harness.secret_volume import update
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
# `muster` that reports refusals after a second.
IMPATIENT = """
import extender.cli
import extender.host.feed
extender.host.feed._REFUSED = 1.0
extender.cli.main()
"""
SOON, LATER = 12, 24  # seconds until a token expires; one that was accepted is for ten more without a look
REFUSED = 45.0  # seconds within which one is refused


def start(stage: Stage, volume: Path) -> Muster:
    port = stage.cluster.server.rpartition(":")[2]
    where = (f"KUBERNETES_SERVICE_HOST={loopback.host()}", f"KUBERNETES_SERVICE_PORT={port}")
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
        user = signed(cluster.admin, cluster.signing_key, muster_user, seconds)
        files = {"token": user.token.encode(), "ca.crt": cluster.certificate.read_bytes()}
        update({"data": {name: base64.b64encode(data) for name, data in files.items()}}, tmp_path)
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
    wait_for(lambda: "[-]credentials failed" in muster.readyz(), what="the refusal is reported")
    assert stage.bound(late) == {}
    rotate(3600)
    stage.wait_phase(late)
    wait_for(muster.ready, what="ready again")


def put(path: Path, text: str) -> None:
    """Replace a file atomically, as programs that rotate credentials do."""
    other = path.with_suffix(".new")
    other.write_text(text)
    other.chmod(0o600)
    other.replace(path)


@pytest.mark.parametrize("form", ["token", "tokenFile"])
def test_the_token_of_a_kubeconfig_is_changed_after_it_was_refused(
    stage: Stage, muster_user: User, tmp_path: Path, form: str
) -> None:
    cluster, (account, name) = stage.cluster, muster_user.name.split(":")[2:]
    kubeconfig, token = tmp_path / "kubeconfig", tmp_path / "token"

    def rotate(secret: str) -> User:
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": account}}
        cluster.admin.create(SECRETS, made)
        user = issued(cluster.admin, account, name, until_gone=secret)
        config = json.loads(write_kubeconfig(tmp_path / "whole", user, cluster.access(user)).read_text())
        if form == "tokenFile":
            put(token, user.token)
            config["users"][0]["user"] = {"tokenFile": str(token)}
        put(kubeconfig, json.dumps(config))
        return user

    first = rotate(f"first-{form.lower()}")
    program = (sys.executable, "-c", IMPATIENT)
    muster = stage.start_muster("--kubeconfig", str(kubeconfig), user=None, view=True, program=program)
    stage.start_sidecar(muster, user=muster_user)
    stage.nodes(3, cpu="2")
    cluster.admin.delete(SECRETS, f"first-{form.lower()}", account)
    wait_for(lambda: is_refused(cluster, first), REFUSED, "the first token is refused")
    group = stage.gang("late", 3)
    wait_for(lambda: "[-]credentials failed" in muster.readyz(), what="the refusal is reported")
    assert stage.bound(group) == {}
    rotate(f"second-{form.lower()}")
    stage.wait_phase(group)
    wait_for(muster.ready, what="ready again")
