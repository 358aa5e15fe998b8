"""Faults of the leading pair of Muster and scheduler: it fails, hangs, or loses the Lease."""

import threading
import time
from datetime import UTC, datetime
from functools import partial

from tests.e2e.harness.resources import LEASES
from tests.e2e.harness.scheduler import load
from tests.storm.faults.fault import FaultContext, Inflict, InflictedFault, NoVictim, mark_down
from tests.storm.sidecar import TERM, Sidecar
from tests.storm.storm_cluster import StormCluster

OTHER_HOLDER = "somebody-else"


def _lose_leader(context: FaultContext) -> InflictedFault:
    """Kill both processes of the leading pair; they start again once the other pair leads."""
    leader, parts = _take_down(context)
    for part in parts:
        context.storm_cluster.processes()[part].kill()
    return InflictedFault(
        f"the machine of {leader.name} fails", partial(_restart_pair, context.storm_cluster, leader)
    )


def _restart_pair(storm_cluster: StormCluster, sidecar: Sidecar) -> bool:
    if not storm_cluster.is_led:
        return False
    parts = _parts(sidecar)
    for part in parts:
        if not storm_cluster.processes()[part].alive():
            storm_cluster.processes()[part].start()
    if not sidecar.muster.ready():
        return False
    storm_cluster.mark_up(parts)
    return True


def _freeze_leader(context: FaultContext) -> InflictedFault:
    """Freeze both processes of the leading pair until its Lease has expired."""
    leader, parts = _take_down(context)
    processes = [context.storm_cluster.processes()[part] for part in parts]
    for process in processes:
        process.freeze()
        timer = threading.Timer(TERM + context.lasting, process.thaw)
        timer.daemon = True
        timer.start()
    thawed = time.monotonic() + TERM + context.lasting
    title = f"the machine of {leader.name} frozen for {TERM + context.lasting:.1f} s"
    return InflictedFault(title, partial(_is_thawed, context.storm_cluster, leader, thawed))


def _is_thawed(storm_cluster: StormCluster, sidecar: Sidecar, at: float) -> bool:
    """Return whether the thawed pair is ready, and one of the pairs leads."""
    if time.monotonic() < at or not (storm_cluster.is_led and sidecar.muster.ready()):
        return False
    storm_cluster.mark_up(_parts(sidecar))
    return True


def _lose_lease(context: FaultContext) -> InflictedFault:
    """Give the Lease to a holder that does not renew it. The leader continues until it notices that."""
    storm_cluster = context.storm_cluster
    if len(storm_cluster.sidecars) < 2:
        raise NoVictim
    mark_down(context, "lease")
    storm_cluster.undisturbed_time.begin("lease")
    lease = load("sidecar.yaml")["leaderElection"]
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    spec = {"holderIdentity": OTHER_HOLDER, "renewTime": now, "leaseDurationSeconds": TERM}
    storm_cluster.api.patch(LEASES, lease["resourceName"], {"spec": spec}, lease["resourceNamespace"])
    return InflictedFault(
        f"{storm_cluster.leading.name} loses its Lease", partial(_is_lease_restored, storm_cluster)
    )


def _is_lease_restored(storm_cluster: StormCluster) -> bool:
    lease = load("sidecar.yaml")["leaderElection"]
    stored = storm_cluster.api.get(LEASES, lease["resourceName"], lease["resourceNamespace"])
    if stored["spec"]["holderIdentity"] == OTHER_HOLDER or not storm_cluster.is_led:
        return False
    storm_cluster.mark_up(["lease"])
    return True


def _take_down(context: FaultContext) -> tuple[Sidecar, list[str]]:
    """Mark both processes of the leading pair as down."""
    storm_cluster, leader = context.storm_cluster, context.storm_cluster.leading
    if len(storm_cluster.sidecars) < 2:
        raise NoVictim
    parts = _parts(leader)
    for part in parts:
        mark_down(context, part)
    for part in parts:
        storm_cluster.undisturbed_time.begin(part)
    return leader, parts


def _parts(sidecar: Sidecar) -> list[str]:
    return [sidecar.part("muster"), sidecar.part("scheduler")]


FAULTS: dict[str, Inflict] = {
    "lose-leader": _lose_leader,
    "freeze-leader": _freeze_leader,
    "lose-lease": _lose_lease,
}
