"""Faults of the machine under Muster: its clock steps, its memory is short or used up, its disk is full."""

import os
import resource
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.bench.slices import MemoryGroup, NoSlices
from tests.storm.arena import Arena
from tests.storm.faults.fault import Broken, Field, Inflict, NoVictim, takes_down
from tests.storm.faults.on_processes import revive

LITTLE = (1 << 18, 1 << 20)  # bytes
STUCK = 20.0  # seconds in which it may recover
STEPS = (-3600.0, -300.0, -30.0, 30.0, 300.0, 3600.0)  # seconds
# A tmpfs of one page, which is taken.
FULL = 'mount -t tmpfs -o size=4k none "$0"; head -c 4096 /dev/zero > "$0/full"; exec "$@"'


def _clock_steps(field: Field) -> Broken:
    """Step the clock, and back again: both are steps."""
    clock = field.arena.clock
    if not clock.can_step:
        raise NoVictim
    takes_down(field, "clock")
    step = field.rng.choice(STEPS)
    clock.step(step)
    return Broken(f"the clock of Muster steps by {step:g} s", partial(_clock_back, field.arena))


def _clock_back(arena: Arena) -> None:
    arena.clock.step(0)
    arena.give_back(["clock"])


def _memory_short(field: Field) -> Broken:
    """Limit memory: a process that asks for more fails in the middle of its work; it may end."""
    arena, part = field.arena, field.arena.part("muster")
    takes_down(field, part)
    arena.calm.begin(part)
    parent = arena.muster.process.pid
    worker = field.one(_children(parent))
    pages = int(Path(f"/proc/{worker}/statm").read_text().split()[0])
    _, hard = resource.prlimit(worker, resource.RLIMIT_AS)
    resource.prlimit(worker, resource.RLIMIT_AS, (pages * resource.getpagesize(), hard))
    arena.muster_wire.cut()  # so that it lists the cluster again, and needs some
    until = time.monotonic() + field.lasting + STUCK
    return Broken("memory of Muster is short", partial(_memory_back, arena, part, (parent, worker), until))


def _memory_back(arena: Arena, part: str, pids: tuple[int, int], until: float) -> bool:
    parent, worker = pids
    _restart_if_stuck(arena, part, parent, until)
    with suppress(ProcessLookupError):  # it has ended
        resource.prlimit(worker, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return revive(arena, part)


def _out_of_memory(field: Field) -> Broken:
    """Limit memory to a little more than now, so that the kernel kills its worker, as that has most."""
    arena, part = field.arena, field.arena.part("muster")
    takes_down(field, part)
    try:
        group = MemoryGroup(f"muster-storm-{os.getpid()}")
    except NoSlices as why:
        raise NoVictim(str(why)) from None
    arena.calm.begin(part)
    parent = arena.muster.process.pid
    group.limit(field.rng.choice(LITTLE))
    group.take([parent, *_children(parent)])
    arena.muster_wire.cut()
    until = time.monotonic() + field.lasting + STUCK
    return Broken(
        "the kernel kills Muster for its memory", partial(_limit_lifted, arena, part, parent, group, until)
    )


def _limit_lifted(arena: Arena, part: str, parent: int, group: MemoryGroup, until: float) -> bool:
    """Lift the memory limit when a process was killed, or none asked for more in a while."""
    if group.kills() == 0 and time.monotonic() < until:
        return False
    group.limit(None)
    _restart_if_stuck(arena, part, parent, until)
    if not revive(arena, part):
        return False
    group.dissolve()
    return True


def _restart_if_stuck(arena: Arena, part: str, parent: int, until: float) -> None:
    """Kill a stuck process, as a kubelet does by /livez, which waits for minutes."""
    process = arena.processes()[part]
    is_same = process.alive() and process.pid == parent
    if is_same and time.monotonic() > until and not arena.is_ready(part):
        process.kill()


def _children(parent: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def _disk_full(field: Field) -> Broken:
    """Fill the disk: Muster is killed, and finds no space for the files of its proxy when it starts again."""
    arena, folder = field.arena, field.arena.muster.view_folder
    if not arena.through_muster:
        raise NoVictim
    part = arena.part("muster")
    takes_down(field, part)
    arena.calm.begin(part)
    arena.muster.process.kill()
    within = ("unshare", "--map-root-user", "--mount", "sh", "-ec", FULL, str(folder))
    arena.muster.process.start(within=within)
    return Broken("kill -9 of Muster, whose disk is full then", partial(_disk_back, arena, part))


def _disk_back(arena: Arena, part: str) -> bool:
    """Free the disk when the process without space has ended with its error, or serves nevertheless."""
    process = arena.processes()[part]
    if process.within and process.alive():
        if not arena.is_ready(part):
            return False
        process.kill()
    return revive(arena, part)


FAULTS: dict[str, Inflict] = {
    "clock-steps": _clock_steps,
    "memory-short": _memory_short,
    "out-of-memory": _out_of_memory,
    "disk-full": _disk_full,
}
