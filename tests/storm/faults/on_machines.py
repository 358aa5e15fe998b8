"""Faults of the machine under Muster: its clock steps, its memory is short or used up, its disk is full."""

import os
import resource
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.bench.slices import MemoryGroup, NoSlices
from tests.storm.faults.fault import FaultContext, Inflict, InflictedFault, NoVictim, mark_down
from tests.storm.faults.on_processes import revive
from tests.storm.storm_cluster import StormCluster

SMALL_LIMITS = (1 << 18, 1 << 20)  # bytes
STUCK_SECONDS = 20.0  # seconds after which a process counts as stuck
STEPS = (-3600.0, -300.0, -30.0, 30.0, 300.0, 3600.0)  # seconds
# Mounts a tmpfs of one page, and fills it.
FULL = 'mount -t tmpfs -o size=4k none "$0"; head -c 4096 /dev/zero > "$0/full"; exec "$@"'


def _clock_steps(context: FaultContext) -> InflictedFault:
    """Set Muster's clock forward or back; the repair sets it right again."""
    clock = context.storm_cluster.clock
    if not clock.can_step:
        raise NoVictim
    mark_down(context, "clock")
    step = context.rng.choice(STEPS)
    clock.step(step)
    return InflictedFault(
        f"the clock of Muster steps by {step:g} s", partial(_restore_clock, context.storm_cluster)
    )


def _restore_clock(storm_cluster: StormCluster) -> None:
    storm_cluster.clock.step(0)
    storm_cluster.mark_up(["clock"])


def _memory_short(context: FaultContext) -> InflictedFault:
    """Limit memory: allocations beyond the limit fail, and the process may end."""
    storm_cluster, part = context.storm_cluster, context.storm_cluster.part("muster")
    mark_down(context, part)
    storm_cluster.undisturbed_time.begin(part)
    parent = storm_cluster.muster.process.pid
    worker = context.choose(_children(parent))
    pages = int(Path(f"/proc/{worker}/statm").read_text().split()[0])
    _, hard = resource.prlimit(worker, resource.RLIMIT_AS)
    resource.prlimit(worker, resource.RLIMIT_AS, (pages * resource.getpagesize(), hard))
    storm_cluster.muster_wire.cut()  # Muster lists the cluster again, which needs memory
    until = time.monotonic() + context.lasting + STUCK_SECONDS
    return InflictedFault(
        "memory of Muster is short", partial(_restore_memory, storm_cluster, part, (parent, worker), until)
    )


def _restore_memory(storm_cluster: StormCluster, part: str, pids: tuple[int, int], until: float) -> bool:
    parent, worker = pids
    _restart_if_stuck(storm_cluster, part, parent, until)
    with suppress(ProcessLookupError):  # it has ended
        resource.prlimit(worker, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return revive(storm_cluster, part)


def _out_of_memory(context: FaultContext) -> InflictedFault:
    """Limit memory to a little more than now, so that the kernel kills the worker process, the largest."""
    storm_cluster, part = context.storm_cluster, context.storm_cluster.part("muster")
    mark_down(context, part)
    try:
        group = MemoryGroup(f"muster-storm-{os.getpid()}")
    except NoSlices as error:
        raise NoVictim(str(error)) from None
    storm_cluster.undisturbed_time.begin(part)
    parent = storm_cluster.muster.process.pid
    group.limit(context.rng.choice(SMALL_LIMITS))
    group.add([parent, *_children(parent)])
    storm_cluster.muster_wire.cut()
    until = time.monotonic() + context.lasting + STUCK_SECONDS
    return InflictedFault(
        "the kernel kills Muster for its memory",
        partial(_lift_limit, storm_cluster, part, parent, group, until),
    )


def _lift_limit(
    storm_cluster: StormCluster, part: str, parent: int, group: MemoryGroup, until: float
) -> bool:
    """Lift the memory limit once a process was killed, or after a while without a kill."""
    if group.kill_count() == 0 and time.monotonic() < until:
        return False
    group.limit(None)
    _restart_if_stuck(storm_cluster, part, parent, until)
    if not revive(storm_cluster, part):
        return False
    group.dissolve()
    return True


def _restart_if_stuck(storm_cluster: StormCluster, part: str, parent: int, until: float) -> None:
    """Kill a stuck process, as a kubelet does after failures of /livez, but without waiting for minutes."""
    process = storm_cluster.processes()[part]
    is_same = process.alive() and process.pid == parent
    if is_same and time.monotonic() > until and not storm_cluster.is_ready(part):
        process.kill()


def _children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def _fill_disk(context: FaultContext) -> InflictedFault:
    """Kill Muster and fill the disk, so that it cannot write the files of its proxy when it starts again."""
    storm_cluster, folder = context.storm_cluster, context.storm_cluster.muster.view_folder
    if not storm_cluster.through_muster:
        raise NoVictim
    part = storm_cluster.part("muster")
    mark_down(context, part)
    storm_cluster.undisturbed_time.begin(part)
    storm_cluster.muster.process.kill()
    wrapper = ("unshare", "--map-root-user", "--mount", "sh", "-ec", FULL, str(folder))
    storm_cluster.muster.process.start(wrapper=wrapper)
    return InflictedFault(
        "kill -9 of Muster, whose disk is full then", partial(_free_disk, storm_cluster, part)
    )


def _free_disk(storm_cluster: StormCluster, part: str) -> bool:
    """Free the disk once the process has ended with an error, or serves nevertheless."""
    process = storm_cluster.processes()[part]
    if process.wrapper and process.alive():
        if not storm_cluster.is_ready(part):
            return False
        process.kill()
    return revive(storm_cluster, part)


FAULTS: dict[str, Inflict] = {
    "clock-steps": _clock_steps,
    "memory-short": _memory_short,
    "out-of-memory": _out_of_memory,
    "disk-full": _fill_disk,
}
