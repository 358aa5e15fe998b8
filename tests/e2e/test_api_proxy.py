"""Muster reaches the API server through an HTTP proxy, for itself and for the scheduler behind its proxy."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import loopback
from tests.e2e.harness.access import User
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.tunnels import TunnelProxy
from tests.e2e.harness.waiting import wait_for

pytestmark = pytest.mark.view
PROXIED_HOST, PORT = "kubernetes.example", 6443  # a name that only the proxy knows


@pytest.fixture
def tunnels(stage: Stage) -> Iterator[TunnelProxy]:
    with TunnelProxy() as proxy:
        proxy.route(PROXIED_HOST, PORT, int(stage.cluster.server.rpartition(":")[2]))
        yield proxy


def _kubeconfig(stage: Stage, user: User, **cluster: str) -> Path:
    """Return the kubeconfig of a remote API server."""
    near = stage.cluster.kubeconfig(user)
    config = json.loads(near.read_text())
    at = {"server": f"https://{PROXIED_HOST}:{PORT}", "tls-server-name": loopback.host()}
    config["clusters"][0]["cluster"] |= at
    config["clusters"][0]["cluster"] |= cluster
    far = near.with_name(f"far-{near.name}")
    far.write_text(json.dumps(config))
    return far


@pytest.mark.parametrize("said_by", ["kubeconfig", "environment"])
def test_gangs_start_behind_a_proxy_that_is_closed_for_a_while(
    stage: Stage, muster_user: User, tunnels: TunnelProxy, said_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler has its watches back afterwards, and is the same process."""
    if said_by == "environment":
        monkeypatch.setenv("HTTPS_PROXY", tunnels.url)
        kubeconfig = _kubeconfig(stage, muster_user)
    else:
        kubeconfig = _kubeconfig(stage, muster_user, **{"proxy-url": tunnels.url})
    muster = Muster(stage.cluster, kubeconfig, view=True)
    stage.started.push(muster)
    muster.start()
    scheduler = stage.start_sidecar(muster, user=muster_user)
    stage.nodes(3, cpu="4")
    stage.wait_phase(stage.gang("before", 3, cpu="2"))
    tunnels.closed = True
    assert tunnels.cut() > 0
    during = stage.gang("during", 3, cpu="2")
    wait_for(lambda: tunnels.turned_away >= 5, what="all ask for a tunnel in vain")
    assert stage.bound(during) == {}
    tunnels.closed = False
    stage.wait_phase(during)
    scheduler.wait_agrees()
