"""Muster, the scheduler and the API server die, stop, or hang.

Starting is left to the campaign's own thread (see the harness's `leash`); thawing is not, because that thread
may well be the one that waits for a frozen API server.
"""

import threading
import time
from functools import partial

from tests.e2e.harness.process import Process
from tests.storm.arena import Arena
from tests.storm.faults.fault import Broken, Field, Inflict, takes_down

LONGEST_STOP = 10.0


def _kill(name: str, field: Field) -> Broken:
    part, process = _take_down(field, name)
    process.kill()
    return Broken(f"kill -9 of {part}", partial(revive, field.arena, part))


def _stop(name: str, field: Field) -> Broken:
    part, process = _take_down(field, name)
    process.stop(LONGEST_STOP)
    return Broken(f"{part} stopped", partial(revive, field.arena, part))


def _freeze(name: str, field: Field) -> Broken:
    part, process = _take_down(field, name)
    process.freeze()
    timer = threading.Timer(field.lasting, process.thaw)
    timer.daemon = True
    timer.start()
    return Broken(f"{part} frozen for {field.lasting:.1f} s", partial(_is_back, field.arena, part))


def _take_down(field: Field, name: str) -> tuple[str, Process]:
    """Take a process down: of the leading pair, where there are two."""
    part = field.arena.part(name)
    takes_down(field, part)
    field.arena.calm.begin(part)
    return part, field.arena.processes()[part]


def revive(arena: Arena, part: str) -> bool:
    process = arena.processes()[part]
    if part in arena.down and not process.alive():
        process.start()
        return False
    is_back = _is_back(arena, part)
    if is_back and part.startswith("muster"):
        arena.restarts.append(time.monotonic())
    return is_back


def _is_back(arena: Arena, part: str) -> bool:
    """Return whether the part is ready, or dead again by itself, which the watch over processes reports."""
    if arena.processes()[part].alive() and not arena.is_ready(part):
        return False
    arena.give_back([part])
    return True


FAULTS: dict[str, Inflict] = {
    **{f"kill-{part}": partial(_kill, part) for part in ("muster", "scheduler", "apiserver")},
    **{f"freeze-{part}": partial(_freeze, part) for part in ("muster", "scheduler", "apiserver")},
    "stop-muster": partial(_stop, "muster"),
}
