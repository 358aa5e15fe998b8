"""Faults of processes: Muster, the scheduler and the API server are killed, stopped or frozen.

Only the campaign's thread starts processes again (see `leash` in the harness). Another thread thaws them,
since the campaign's thread may be waiting for a frozen API server.
"""

import threading
import time
from functools import partial

from tests.e2e.harness.process import Process
from tests.storm.faults.fault import FaultContext, Inflict, InflictedFault, mark_down
from tests.storm.storm_cluster import StormCluster

LONGEST_STOP = 10.0  # seconds


def _kill(name: str, context: FaultContext) -> InflictedFault:
    part, process = _take_down(context, name)
    process.kill()
    return InflictedFault(f"kill -9 of {part}", partial(revive, context.storm_cluster, part))


def _stop(name: str, context: FaultContext) -> InflictedFault:
    part, process = _take_down(context, name)
    process.stop(LONGEST_STOP)
    return InflictedFault(f"{part} stopped", partial(revive, context.storm_cluster, part))


def _freeze(name: str, context: FaultContext) -> InflictedFault:
    part, process = _take_down(context, name)
    process.freeze()
    timer = threading.Timer(context.lasting, process.thaw)
    timer.daemon = True
    timer.start()
    return InflictedFault(
        f"{part} frozen for {context.lasting:.1f} s", partial(_is_back, context.storm_cluster, part)
    )


def _take_down(context: FaultContext, name: str) -> tuple[str, Process]:
    """Mark a process as down: that of the leading pair, if there are two."""
    part = context.storm_cluster.part(name)
    mark_down(context, part)
    context.storm_cluster.undisturbed_time.begin(part)
    return part, context.storm_cluster.processes()[part]


def revive(storm_cluster: StormCluster, part: str) -> bool:
    process = storm_cluster.processes()[part]
    if part in storm_cluster.down and not process.alive():
        process.start()
        return False
    is_back = _is_back(storm_cluster, part)
    if is_back and part.startswith("muster"):
        storm_cluster.restarts.append(time.monotonic())
    return is_back


def _is_back(storm_cluster: StormCluster, part: str) -> bool:
    """Return whether a part is ready, or has ended by itself, which the campaign reports."""
    if storm_cluster.processes()[part].alive() and not storm_cluster.is_ready(part):
        return False
    storm_cluster.mark_up([part])
    return True


FAULTS: dict[str, Inflict] = {
    **{f"kill-{part}": partial(_kill, part) for part in ("muster", "scheduler", "apiserver")},
    **{f"freeze-{part}": partial(_freeze, part) for part in ("muster", "scheduler", "apiserver")},
    "stop-muster": partial(_stop, "muster"),
}
