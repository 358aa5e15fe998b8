"""The relay alone: a stock scheduler and kubectl reach the API server through the proxy."""

import itertools
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from extender.proxy.target import is_allowed
from tests.e2e.harness.access import User
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import EVENTS, LEASES
from tests.e2e.harness.scheduler import PLAIN, KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

pytestmark = pytest.mark.view
A_WHILE = 1.5  # seconds: a reflector lists again after a watch that brought nothing and ended within one
MAX_DIALS = 32  # the pool's connections, and those of the few watches that begin again
STOCK = "default-scheduler"
METHODS = {
    **dict.fromkeys(("get", "list", "watch"), "GET"),
    **dict.fromkeys(("delete", "deletecollection"), "DELETE"),
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
}
BEHIND_THE_BARRIER = {
    ("create", "", "pods/binding"),
    ("create", "", "bindings"),
    ("delete", "", "pods"),
    ("update", "", "pods/status"),  # it patches
    # These are asked of the authorizer only: no requests have such paths.
    ("update", "", "pods/finalizers"),
    *((verb, "resource.k8s.io", "resourceclaims/binding") for verb in ("update", "patch")),
    *((verb, "coordination.k8s.io", "leasecandidates") for verb in ("delete", "deletecollection")),
}


def test_a_scheduler_reads_posts_events_and_renews_its_lease(
    stage: Stage, muster: Muster, muster_user: User
) -> None:
    stage.nodes(3, cpu="4")
    scheduler = stage.start_sidecar(muster, user=muster_user, leader_elect=True)
    gang = stage.gang("a", 3)
    stage.wait_phase(gang)
    wait_for(lambda: len(scheduled(stage)) == 3, what="three events")
    renewed = lease(stage)
    wait_for(lambda: lease(stage) != renewed, what="the Lease is renewed")
    assert muster.metric("muster_view_streams") > 10
    assert muster.metric("muster_view_requests_total", outcome="refused") == 0
    assert muster.metric("muster_view_requests_total", outcome="failed") == 0
    assert scheduler.process.alive()


def test_events_of_many_pods_share_a_few_connections(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    """The scheduler posts each event in its own goroutine."""
    stage.nodes(3, cpu="100")
    before = muster.metric("muster_view_dials_total")
    stage.wait_bound(stage.gang("a", 200))
    wait_for(lambda: len(scheduled(stage)) == 200, what="200 events")
    assert muster.metric("muster_view_dials_total") - before <= MAX_DIALS


def test_a_scheduler_binds_nothing_behind_the_barrier(
    stage: Stage, muster: Muster, muster_user: User
) -> None:
    """Its own binding of a pod that no extender binds is refused."""
    stage.nodes(1)
    stage.start_scheduler(PLAIN, user=muster_user, kubeconfig=muster.view_kubeconfig)
    (pod,) = stage.pods("plain", 1, scheduler=STOCK)
    wait_for(lambda: refusals(stage), what="the binding refused")
    assert stage.bound([pod]) == {}


def test_kubectl_reads_nodes_and_enters_no_pod(stage: Stage, muster: Muster) -> None:
    stage.nodes(2)
    (pod,) = stage.pods("p", 1, scheduler="another")
    assert kubectl(stage, muster, "get", "nodes", "-o", "name").stdout == "node/n0\nnode/n1\n"
    assert f"{pod} " in kubectl(stage, muster, "get", "pods").stdout
    assert kubectl(stage, muster, "version").returncode == 0
    refused = kubectl(stage, muster, "exec", pod, "--", "true")
    assert (refused.returncode, refused.stderr) == (1, "error: Forbidden\n")
    for command in (
        ("delete", "pod", pod, "--wait=false"),
        ("get", "secrets"),
        ("logs", pod),
        ("run", "new", "--image=x"),
        ("create", "token", "default"),
    ):
        refused = kubectl(stage, muster, *command)
        assert refused.returncode != 0
        assert "proxy refuses" in refused.stderr, command


def test_a_scheduler_reads_on_where_it_was_when_the_worker_was_killed(
    stage: Stage, muster_behind_proxy: Muster, proxy: FaultProxy, muster_user: User
) -> None:
    """The worker's parent keeps the socket; the secret is the same."""
    scheduler = stage.start_sidecar(muster_behind_proxy, user=muster_user)
    stage.nodes(2, cpu="4")
    stage.wait_phase(stage.gang("a", 2))
    wait_of_some_age(muster_behind_proxy)
    (before,) = workers(muster_behind_proxy)
    seen = len(proxy.calls)
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: workers(muster_behind_proxy) not in ([], [before]), what="another worker")
    muster_behind_proxy.wait_ready()
    stage.wait_phase(stage.gang("b", 2))
    assert relisted(proxy, seen) == []
    assert scheduler.process.alive()


def test_a_scheduler_reads_on_where_it_was_when_the_api_server_can_be_reached_again(
    stage: Stage, proxy: FaultProxy, muster_user: User
) -> None:
    """Ask the scheduler to retry, instead of an error after which it would list all objects again."""
    wire = stage.start_wire(proxy.server)
    muster = stage.start_muster(user=muster_user, server=wire.server, view=True)
    stage.nodes(2, cpu="4")
    scheduler = stage.start_sidecar(muster, user=muster_user)
    stage.wait_phase(stage.gang("a", 2))
    wait_of_some_age(muster)
    seen = len(proxy.calls)
    wire.refuse()
    wait_for(
        lambda: muster.metric("muster_view_requests_total", outcome="gone") > 20,
        what="each reflector was asked to retry",
    )
    wire.restore()
    stage.wait_phase(stage.gang("b", 2))
    wait_for(lambda: muster.metric("muster_view_streams") > 10, what="its watches are back")
    assert relisted(proxy, seen) == []
    assert scheduler.process.alive()


@pytest.mark.gaps_allowed
def test_a_scheduler_continues_when_the_api_server_restarts(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(2, cpu="4")
    stage.wait_phase(stage.gang("a", 2))
    process = scheduler.process.pid
    stage.cluster.restart_apiserver()
    stage.wait_phase(stage.gang("b", 2))
    assert (scheduler.process.pid, scheduler.process.alive()) == (process, True)


def test_requests_allowed_to_schedulers_pass_the_proxy(stage: Stage) -> None:
    """Allow the roles of this Kubernetes, whose scheduler may do more than that of the one before."""
    rights = {right for role in ("kube-scheduler", "volume-scheduler") for right in granted(stage, role)}
    assert {right for right in rights if not is_allowed(*request_line(*right))} == BEHIND_THE_BARRIER & rights
    assert rights >= {("create", "", "pods/binding"), ("patch", "resource.k8s.io", "resourceclaims/status")}


def wait_of_some_age(muster: Muster) -> None:
    def aged() -> bool:
        watches: list[dict[str, Any]] = muster.debug("/debug/view")["watches"]
        return all(watch["seconds"] > A_WHILE for watch in watches)

    wait_for(aged, what="watches of some age")


def granted(stage: Stage, role: str) -> Iterator[tuple[str, str, str]]:
    """Yield verb, group and resource of each right in a role of the API server."""
    found = stage.api.request("GET", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/system:{role}")
    for rule in found["rules"]:
        yield from itertools.product(rule["verbs"], rule["apiGroups"], rule["resources"])


def request_line(verb: str, group: str, resource: str) -> tuple[str, str]:
    """Return the method and the path of a request for that."""
    name, _, below = resource.partition("/")
    at_one = verb in ("get", "update", "patch", "delete") or below
    prefix = f"/apis/{group}/v1" if group else "/api/v1"
    path = "/".join([prefix, "namespaces/a", name, *(["x"] if at_one else []), *([below] if below else [])])
    return METHODS[verb], path


def relisted(proxy: FaultProxy, seen: int) -> list[str]:
    """Return the paths that the scheduler has listed again after the first `seen` calls."""
    answered = [call.path for call in list(proxy.calls)[seen:] if call.status]
    return [path for path in answered if "sendInitialEvents=true" in path]


def scheduled(stage: Stage) -> list[str]:
    events = stage.api.items(EVENTS, stage.namespace)
    return [event["metadata"]["name"] for event in events if event["reason"] == "Scheduled"]


def refusals(stage: Stage) -> list[str]:
    events = stage.api.items(EVENTS, stage.namespace)
    return [event["message"] for event in events if "proxy refuses" in (event["message"] or "")]


def lease(stage: Stage) -> str:
    found: str = stage.api.get(LEASES, "muster-scheduler", "kube-system")["spec"]["renewTime"]
    return found


def kubectl(stage: Stage, muster: Muster, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [str(stage.cluster.binaries / "kubectl"), "-n", stage.namespace, *arguments]
    environment = {**os.environ, "KUBECONFIG": str(muster.view_kubeconfig)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def workers(muster: Muster) -> list[int]:
    """Return the children of the process that was started."""
    pid = muster.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
