"""Time for which the scheduler is busy with a gang that can no longer start.

One member uses a volume claim that does not exist, so the scheduler never binds this member. The bind calls
of all other members wait in Muster. Then the member is deleted, and Muster answers all waiting calls with an
error. For each error, the scheduler sends a patch. Then a single pod is created, and the time until its
binding is measured. The case runs with scheduling gates, and with the scheduler proxy.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

from tests.bench.fleet import Fleet, Side, pods
from tests.bench.load import BoundWatch, count_bound, create
from tests.bench.report import Row, show
from tests.bench.sizes import Bench
from tests.e2e.harness import objects
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.policy import in_force
from tests.e2e.harness.resources import POD_GROUPS, PODS
from tests.e2e.harness.waiting import wait_for

BLOCKED_MEMBER = "gang-never"
_HOLD_TIMEOUT = 90.0  # seconds
_ABORT_TIMEOUT = 60.0  # seconds
_UNKNOWN_CLAIM = [{"name": "lost", "persistentVolumeClaim": {"claimName": "does-not-exist"}}]


def abort(bench: Bench) -> Iterator[Row]:
    """Yield a row for the scheduler with gates, and a row for the scheduler with the scheduler proxy."""
    with Fleet(bench.sizes.most_nodes) as fleet:
        for view in (False, True):
            namespace = fleet.namespace()
            with (
                _with_gates(fleet, namespace, view=view),
                fleet.with_muster(view=view) as side,
                BoundWatch(fleet.access, namespace) as bound,
            ):
                row = _measure_abort(fleet, side, namespace, bound, bench.sizes.aborted_members)
                yield {"scheduler": "view" if view else "gated", **row}
            fleet.clear(namespace)


def _with_gates(fleet: Fleet, namespace: str, *, view: bool) -> AbstractContextManager[None]:
    """Return a context in which new pods get gates. With the scheduler proxy, pods need no gates."""
    if view:
        return nullcontext()
    return in_force(fleet.cluster.admin, namespace, "gates/admission-policy.yaml")


def _measure_abort(fleet: Fleet, side: Side, namespace: str, bound: BoundWatch, size: int) -> Row:
    """Create a gang that waits for its last member, delete this member, and measure the abort."""
    assert side.muster is not None
    _seconds_to_bind_one_pod(fleet, namespace, bound, "warm-up")
    idle_seconds = _seconds_to_bind_one_pod(fleet, namespace, bound, "idle")
    _create_blocked_gang(fleet, side.muster, namespace, size)
    show(f"{size - 1} binds are held, their last member goes")
    deleted_at = time.monotonic()
    fleet.cluster.admin.delete(PODS, BLOCKED_MEMBER, namespace, grace=0)
    wait_for(lambda: _has_aborted(side.muster), _ABORT_TIMEOUT, "the abort")
    abort_seconds = time.monotonic() - deleted_at
    busy = _seconds_to_bind_one_pod(fleet, namespace, bound, "next")
    return {
        "gang": size,
        "held": size - 1,
        "delete to abort s": abort_seconds,
        "abort to next pod bound s": busy,
        "idle s": idle_seconds,
        "ratio": busy / idle_seconds,
        "members bound": count_bound(fleet.access, namespace) - 3,
    }


def _create_blocked_gang(fleet: Fleet, muster: Muster, namespace: str, size: int) -> None:
    """Create a gang with one member that cannot be bound, and wait until Muster holds all other binds."""
    group = objects.pod_group("gang", namespace=namespace, min_member=size)
    unschedulable_pod = objects.pod(BLOCKED_MEMBER, namespace=namespace, group="gang", volumes=_UNKNOWN_CLAIM)
    members = pods(namespace, "gang", size - 1, group="gang", cpu="0.1")
    create(fleet.access, [(POD_GROUPS, group), (PODS, unschedulable_pod), *members])
    wait_for(lambda: muster.metric("muster_held_binds") == size - 1, _HOLD_TIMEOUT, f"{size - 1} binds held")


def _has_aborted(muster: Muster | None) -> bool:
    return muster is not None and muster.metric("muster_barrier_aborts_total") > 0


def _seconds_to_bind_one_pod(fleet: Fleet, namespace: str, bound: BoundWatch, name: str) -> float:
    """Create a pod, and return the seconds until the pod is bound."""
    created_at = create(fleet.access, pods(namespace, name, 1, cpu="0.1"))
    wait_for(lambda: f"{name}-0" in bound.bound_at, 60, f"pod {name}-0 bound")
    return bound.bound_at[f"{name}-0"] - created_at
