"""Muster needs each right that manifests/rbac.yaml grants it, and no other.

It runs here as next to the cluster's own scheduler, because in the sidecar install its account is also the
second scheduler's and has that one's rights, too.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.api.keys import QUEUE_UID, STOOD_WHOLE_NOTE
from extender.api.workloads.table import WORKLOADS
from tests.e2e.harness import manifests, objects, rights
from tests.e2e.harness.access import User
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.faults import lose_answer
from tests.e2e.harness.resources import (
    COMMANDS,
    EVENTS,
    LOCAL_QUEUES,
    PLUGINS_POD_GROUPS,
    POD_GROUPS,
    PODS,
    QUEUES,
)
from tests.e2e.harness.rights import Right
from tests.e2e.harness.scheduler import load
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

LEASE = "kube-scheduler"
# The lease of the sidecar install is not read here.
GRANTED = [each for each in rights.granted(rights.OWN) if each.name != "muster-scheduler"]
# A short deadline, because a start has to be undone twice here.
TIMES = ("--bind-deadline", "2s", "--start-backoff", "1s")
FLAGS = ("--lease", f"kube-system/{LEASE}", *TIMES, "--podgroups-for-plain-pods", "always")
LOST = "lost"
OPTIONAL = (
    "localqueues",
    "resourceflavors",
    "topologies",
    "replicasets",
    "statefulsets",
    "daemonsets",
    *(row.plural for row in WORKLOADS.values() if row.makes_groups),
    "podgroups.scheduling.x-k8s.io",
)
PLUGINS = Path(__file__).parent / "data" / "scheduler-plugins-podgroups.yaml"


pytestmark = pytest.mark.usefixtures("no_scheduler_rights")


@pytest.fixture(scope="module", autouse=True)
def groups_of_others(cluster: ControlPlane) -> Iterator[None]:
    """Install the PodGroup of scheduler-plugins, as released."""
    written = manifests.install(cluster.admin, list(yaml.safe_load_all(PLUGINS.read_text())))
    yield
    manifests.remove(cluster.admin, written)


class Life:
    """Life of Muster: all of its actions, brought about over and over."""

    def __init__(self, stage: Stage, proxy: FaultProxy, user: User) -> None:
        self.stage = stage
        self.proxy = proxy
        self.muster = stage.start_muster(
            *FLAGS, user=user, server=proxy.server, leader_elect="follow", wait=False
        )
        config = load("sidecar-gates.yaml")
        config["leaderElection"]["resourceName"] = LEASE
        stage.start_scheduler(config, muster=self.muster.address, leader_elect=True)
        stage.nodes(3, cpu="4")
        # One answer to a binding is lost, so that the pod is looked up.
        proxy.inject(lose_answer())
        stage.queue("team")
        self.gang = stage.gang("whole", 2, queue="team", gated=True)
        # One member of this gang is refused by its kubelet, so that the start is undone; and again.
        stage.kubelet.refuse(lambda pod: pod["metadata"]["name"].startswith(LOST))
        stage.group("short", 2)
        self._tries = 0
        # One Command for a queue, and one for a queue that is another by now.
        queue = stage.queue("ordered")
        self._command("obeyed", queue)
        self._command("lost", {**queue, "metadata": {"name": "ordered", "uid": "another"}}, owned=False)
        # A pod without a group, and a group of scheduler-plugins.
        self.plain = stage.pods("plain", 1, gated=True)
        theirs = objects.pod_group("theirs", namespace=stage.namespace, min_member=1)
        theirs |= {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "spec": {"minMember": 1}}
        stage.api.create(PLUGINS_POD_GROUPS, theirs)
        stage.pods("theirs", 1, labels={"scheduling.x-k8s.io/pod-group": "theirs"}, gated=True)
        # The status of a LocalQueue reports whether its queue exists.
        local = objects.local_queue("door", namespace=stage.namespace, queue="team")
        stage.api.create(LOCAL_QUEUES, local)
        # This group will lose its queue.
        stage.queue("going")
        stage.group("orphan", 1, queue="going")

    def _command(self, name: str, queue: dict[str, Any], *, owned: bool = True) -> None:
        """Create a command; the garbage collector, if it runs, would remove one with a missing owner."""
        target = {"apiVersion": queue["apiVersion"], "kind": "Queue", "controller": True}
        target |= {key: queue["metadata"][key] for key in ("name", "uid")}
        kind = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command"}
        metadata = {
            "name": name,
            "namespace": self.stage.namespace,
            "ownerReferences": [target] if owned else [],
        }
        self.stage.api.create(
            COMMANDS, {**kind, "metadata": metadata, "action": "CloseQueue", "target": target}
        )

    def go_on(self) -> None:
        """Restart each gang that ended short, and delete the queue `going` once its group was recorded."""
        self._restart_gangs()
        orphan = self.stage.api.find(POD_GROUPS, "orphan", self.stage.namespace)
        recorded = orphan is not None and QUEUE_UID in orphan["metadata"].get("annotations", {})
        if recorded and self.stage.api.find(QUEUES, "going"):
            self.stage.api.delete(QUEUES, "going")

    def _restart_gangs(self) -> None:
        there = self.stage.api.items(PODS, self.stage.namespace)
        standing = [each for each in there if each["metadata"]["name"].startswith(("short", LOST))]
        if not [each for each in standing if each["status"].get("phase") != "Failed"]:
            for name in ("short", LOST):
                self.stage.pods(name, 1, first=self._tries, group="short", gated=True)
            self._tries += 1

    def misses(self, right: Right) -> bool:
        """Return whether a request was refused for want of this right."""
        self.go_on()
        return any(right.covers(need) for need in rights.refused(self.proxy.calls))

    def used(self) -> set[Right]:
        self.go_on()
        return rights.used(self.proxy.calls, GRANTED)


@pytest.fixture
def life(stage: Stage, proxy: FaultProxy, muster_user: User) -> Callable[[], Life]:
    return lambda: Life(stage, proxy, muster_user)


@pytest.mark.gates
@pytest.mark.gang_deadline(60)
def test_each_right_is_needed_and_they_suffice(stage: Stage, life: Callable[[], Life]) -> None:
    lived = life()
    wanted = {right for right in GRANTED if rights.is_served(stage.api, right)}
    try:
        wait_for(lambda: lived.used() >= wanted)
    except TimeoutError:
        raise AssertionError(f"granted and never used: {sorted(map(str, wanted - lived.used()))}") from None
    assert rights.refused(lived.proxy.calls) == set()


@pytest.fixture
def served(cluster: ControlPlane, right: Right) -> None:
    """Serve the kind of a right before the stage begins, as this API server may lack it."""
    if not rights.is_served(cluster.admin, right):
        pytest.skip(f"this API server has no {right.resource} of {right.group}")


@pytest.mark.gates
@pytest.mark.gang_deadline(60)
@pytest.mark.parametrize("right", GRANTED, ids=str)
def test_without_a_right_something_is_missing(
    served: None, stage: Stage, life: Callable[[], Life], right: Right
) -> None:
    with rights.without_right(stage.api, right):
        lived = life()
        wait_for(lambda: lived.misses(right), what=f"the want of the right to {right} noticed")
        missing = MISSING.get(str(right)) or BY_VERB.get(right.verb, lambda _: True)
        wait_for(lambda: missing(lived), what=f"what {right} is for missing")


def _unready(lived: Life) -> bool:
    """Return whether Muster is not ready: without a list of a kind it knows too little of the cluster."""
    return not lived.muster.ready()


def _is_reported(lived: Life) -> bool:
    """Return whether the log says why a watch is missing, long before Muster is not ready."""
    return "forbidden" in lived.muster.process.tail(1000)


def _not_bound(lived: Life) -> bool:
    return not lived.stage.bound(lived.gang)


def _not_nominated(lived: Life) -> bool:
    return not any("nominatedNodeName" in lived.stage.pod(name)["status"] for name in lived.gang)


def _not_undone(lived: Life) -> bool:
    return lived.stage.phases(["short-0"]) == {"Running"}


def _unwritten(lived: Life) -> bool:
    return "phase" not in lived.stage.pod_group("whole").get("status", {})


def _queue_unwritten(lived: Life) -> bool:
    return all("allocated" not in each.get("status", {}) for each in lived.stage.api.items(QUEUES))


def _local_queue_unwritten(lived: Life) -> bool:
    return all("status" not in each for each in lived.stage.api.items(LOCAL_QUEUES, lived.stage.namespace))


def _no_events(lived: Life) -> bool:
    return _events(lived) == []


def _no_event_counted(lived: Life) -> bool:
    return all(event["count"] == 1 for event in _events(lived))


def _not_leading(lived: Life) -> bool:
    return lived.muster.metric("muster_leader") == 0


def _no_queue_made(lived: Life) -> bool:
    return lived.stage.api.find(QUEUES, "default") is None


def _queue_not_closed(lived: Life) -> bool:
    return "state" not in lived.stage.api.get(QUEUES, "ordered")["spec"]


def _commands_left(lived: Life) -> bool:
    return bool(lived.stage.api.items(COMMANDS, lived.stage.namespace))


def _orphan_left(lived: Life) -> bool:
    return lived.stage.api.find(POD_GROUPS, "orphan", lived.stage.namespace) is not None


def _no_group_made(lived: Life) -> bool:
    name = lived.stage.own_group(lived.plain[0])
    return lived.stage.api.find(POD_GROUPS, name, lived.stage.namespace) is None


def _not_recorded(lived: Life) -> bool:
    found = lived.stage.api.get(PLUGINS_POD_GROUPS, "theirs", lived.stage.namespace)
    return STOOD_WHOLE_NOTE not in found["metadata"].get("annotations", {})


def _events(lived: Life) -> list[dict[str, Any]]:
    found = lived.stage.api.items(EVENTS, lived.stage.namespace)
    return [each for each in found if each["source"].get("component") == "muster"]


# What is not as it should be without a right; of one that is not listed, being refused is all that is asked.
BY_VERB: dict[str, Callable[[Life], bool]] = {"list": _unready, "watch": _is_reported}
MISSING: dict[str, Callable[[Life], bool]] = {
    "get leases kube-scheduler": _not_leading,
    "get pods": _not_undone,
    "patch pods": _not_bound,
    "patch pods/status": _not_nominated,
    "create pods/binding": _not_bound,
    "create pods/eviction": _not_undone,
    "patch podgroups": _unwritten,
    "patch queues/status": _queue_unwritten,
    "patch localqueues/status": _local_queue_unwritten,
    "delete podgroups": _orphan_left,
    "create queues": _no_queue_made,
    "get queues": _commands_left,
    "patch queues": _queue_not_closed,
    "list commands": _commands_left,
    "create podgroups": _no_group_made,
    "patch podgroups.scheduling.x-k8s.io": _not_recorded,
    **{f"list {kind}": _is_reported for kind in OPTIONAL},
    "delete commands": _commands_left,
    "create events": _no_events,
    "patch events": _no_event_counted,
}
