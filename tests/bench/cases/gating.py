"""Rate at which the gates of one admitted group open: no scheduler runs, so that only the opener is at work.

All members but one are there and wait behind their gates; the last one completes the group. Each gate is two
writes, the nomination of the planned node and the opening itself.
"""

import json
import time
from collections.abc import Iterator

from tests.bench.fleet import Fleet, pods
from tests.bench.line import Line
from tests.bench.load import create
from tests.bench.report import Row
from tests.bench.sizes import Bench
from tests.e2e.harness import objects
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.policy import in_force
from tests.e2e.harness.resources import POD_GROUPS, PODS
from tests.e2e.harness.waiting import wait_for

_PATIENCE = 120.0


def gates(bench: Bench) -> Iterator[Row]:
    with Fleet(bench.sizes.most_nodes) as fleet:
        namespace = fleet.namespace()
        policy = in_force(fleet.cluster.admin, namespace, "gates/admission-policy.yaml")
        with policy, fleet.muster() as muster:
            yield _opened(fleet, muster, namespace, bench.sizes.held)


def _opened(fleet: Fleet, muster: Muster, namespace: str, size: int) -> Row:
    group = objects.pod_group("gang", namespace=namespace, min_member=size)
    *members, last = pods(namespace, "gang", size, group="gang", cpu="0.1")
    create(fleet.access, [(POD_GROUPS, group), *members])
    muster.wait_decision(namespace, "gang", detail=f"{size - 1} of {size} members exist")
    started = create(fleet.access, [last])
    wait_for(lambda: muster.metric("muster_gates_opened_total") == size, _PATIENCE, "all gates open")
    seconds = time.monotonic() - started
    return {
        "nodes": fleet.size,
        "gates": size,
        "seconds": seconds,
        "gates/s": size / seconds,
        "open": _open(fleet, namespace),
    }


def _open(fleet: Fleet, namespace: str) -> int:
    """Count the pods without gates by a list, as a second way to count."""
    listed = json.loads(Line.to(fleet.access).want("GET", PODS.path(namespace)))["items"]
    return sum(not pod["spec"].get("schedulingGates") for pod in listed)
