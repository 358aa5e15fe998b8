"""Faults of the leading one of two Musters with their schedulers: it fails, hangs, or loses the Lease."""

import threading
import time
from datetime import UTC, datetime
from functools import partial

from tests.e2e.harness.resources import LEASES
from tests.e2e.harness.scheduler import load
from tests.storm.arena import Arena
from tests.storm.faults.fault import Broken, Field, Inflict, NoVictim, takes_down
from tests.storm.sidecar import TERM, Sidecar

SOMEBODY = "somebody-else"


def _lose_leader(field: Field) -> Broken:
    """Kill the leader with its whole machine, which comes back when the other pair leads."""
    leader, parts = _take_down(field)
    for part in parts:
        field.arena.processes()[part].kill()
    return Broken(f"the machine of {leader.name} fails", partial(_machine_back, field.arena, leader))


def _machine_back(arena: Arena, sidecar: Sidecar) -> bool:
    if not arena.is_led:
        return False
    parts = _parts(sidecar)
    for part in parts:
        if not arena.processes()[part].alive():
            arena.processes()[part].start()
    if not sidecar.muster.ready():
        return False
    arena.give_back(parts)
    return True


def _freeze_leader(field: Field) -> Broken:
    """Freeze the leader's whole machine until after the end of its Lease; then it continues."""
    leader, parts = _take_down(field)
    processes = [field.arena.processes()[part] for part in parts]
    for process in processes:
        process.freeze()
        timer = threading.Timer(TERM + field.lasting, process.thaw)
        timer.daemon = True
        timer.start()
    thawed = time.monotonic() + TERM + field.lasting
    title = f"the machine of {leader.name} frozen for {TERM + field.lasting:.1f} s"
    return Broken(title, partial(_thawed, field.arena, leader, thawed))


def _thawed(arena: Arena, sidecar: Sidecar, at: float) -> bool:
    """Return whether it is over: its scheduler has ended itself, or leads again."""
    if time.monotonic() < at or not (arena.is_led and sidecar.muster.ready()):
        return False
    arena.give_back(_parts(sidecar))
    return True


def _lose_lease(field: Field) -> Broken:
    """Give the Lease to a holder that does not renew it. The leader continues until it notices."""
    arena = field.arena
    if len(arena.sidecars) < 2:
        raise NoVictim
    takes_down(field, "lease")
    arena.calm.begin("lease")
    lease = load("sidecar.yaml")["leaderElection"]
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    spec = {"holderIdentity": SOMEBODY, "renewTime": now, "leaseDurationSeconds": TERM}
    arena.api.patch(LEASES, lease["resourceName"], {"spec": spec}, lease["resourceNamespace"])
    return Broken(f"{arena.leading.name} loses its Lease", partial(_lease_back, arena))


def _lease_back(arena: Arena) -> bool:
    lease = load("sidecar.yaml")["leaderElection"]
    stored = arena.api.get(LEASES, lease["resourceName"], lease["resourceNamespace"])
    if stored["spec"]["holderIdentity"] == SOMEBODY or not arena.is_led:
        return False
    arena.give_back(["lease"])
    return True


def _take_down(field: Field) -> tuple[Sidecar, list[str]]:
    """Take down both of the leading pair."""
    arena, leader = field.arena, field.arena.leading
    if len(arena.sidecars) < 2:
        raise NoVictim
    parts = _parts(leader)
    for part in parts:
        takes_down(field, part)
    for part in parts:
        arena.calm.begin(part)
    return leader, parts


def _parts(sidecar: Sidecar) -> list[str]:
    return [sidecar.part("muster"), sidecar.part("scheduler")]


FAULTS: dict[str, Inflict] = {
    "lose-leader": _lose_leader,
    "freeze-leader": _freeze_leader,
    "lose-lease": _lose_lease,
}
