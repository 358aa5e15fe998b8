"""The end of a storm: all faults are repaired, and pods that can start get a limited time to start."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from tests.e2e.harness.resources import NODES, POD_GROUPS, PODS, QUEUES
from tests.storm.judges import ClusterState, violations
from tests.storm.storm_cluster import StormCluster

Json = dict[str, Any]
MAX_SECONDS = 150.0  # seconds; kube-scheduler retries unschedulable pods after a minute
QUIET = 5.0  # seconds without a violation and without a change on any pod
CHECK_SECONDS = 1.0  # seconds
IN_A_ROW = 4  # states with the same violation


def cluster_state(storm_cluster: StormCluster) -> ClusterState:
    """Return the state. Muster's pages are read last, so that Muster has seen the objects before."""
    api, namespace = storm_cluster.api, storm_cluster.namespace
    return ClusterState(
        list(api.items(NODES)),
        list(api.items(PODS, namespace)),
        list(api.items(POD_GROUPS, namespace)),
        list(api.items(QUEUES)),
        storm_cluster.muster.debug("/debug/nodes"),
        storm_cluster.muster.debug("/debug/podgroups"),
    )


def settle(
    storm_cluster: StormCluster, act_as_owners: Callable[[], None], longest: float = MAX_SECONDS
) -> list[str]:
    """Return the violations that remain once nothing changes any more, or after `longest` seconds.

    A state is not read atomically, so a violation counts only if several consecutive states have it.
    """
    end, since, former_states = time.monotonic() + longest, time.monotonic(), ""
    recent = deque[list[str]](maxlen=IN_A_ROW)
    while True:
        act_as_owners()
        current = cluster_state(storm_cluster)
        cache_faults = storm_cluster.scheduler.dump().differences(current.pods)
        recent.append([*violations(current), *cache_faults, *storm_cluster.stage.observer.incomplete_gangs()])
        now, pod_states = time.monotonic(), _pod_states(current)
        if pod_states != former_states or recent[-1]:
            former_states, since = pod_states, now
        if now - since > QUIET:
            return []
        if now > end:
            return _common_violations(recent) or [f"the cluster did not settle within {longest:g} s"]
        time.sleep(CHECK_SECONDS)


def _common_violations(recent: Iterable[list[str]]) -> list[str]:
    first, *others = recent
    return [violation for violation in first if all(violation in other for other in others)]


def _pod_states(current: ClusterState) -> str:
    """Return a text that differs if any pod has changed its node or phase."""
    return repr(sorted(map(_pod_state, current.pods), key=str))


def _pod_state(pod: Json) -> tuple[str, str | None, str | None]:
    return pod["metadata"]["uid"], pod["spec"].get("nodeName"), pod["status"].get("phase")
