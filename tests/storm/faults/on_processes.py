"""Muster, the scheduler and the API server die, are told to stop, or hang.

Starting is left to the campaign's own thread (see the harness's `leash`); thawing is not, because that thread
may well be the one that waits for a frozen API server.
"""

import threading
import time
from collections.abc import Callable
from functools import partial

from tests.storm.arena import Arena
from tests.storm.faults.fault import Broken, Field, Inflict, takes_down

LONGEST_STOP = 10.0


def _ready(arena: Arena, part: str) -> bool:
    """Ready, or dead again by itself: that is for the watch over the processes to say."""
    ready: Callable[[], bool] = {
        "muster": arena.muster.ready,
        "scheduler": arena.scheduler._ready,
        "apiserver": arena.cluster._ready,
    }[part]
    return not arena.processes()[part].alive() or ready()


def _kill(part: str, field: Field) -> Broken:
    takes_down(field, part)
    field.arena.calm.begin(part)
    field.arena.processes()[part].kill()
    return Broken(f"kill -9 of {part}", partial(revive, field.arena, part))


def _stop(part: str, field: Field) -> Broken:
    takes_down(field, part)
    field.arena.calm.begin(part)
    field.arena.processes()[part].stop(LONGEST_STOP)
    return Broken(f"{part} told to stop", partial(revive, field.arena, part))


def revive(arena: Arena, part: str) -> bool:
    process = arena.processes()[part]
    if part in arena.down and not process.alive():
        process.start()
        return False
    is_back = _is_back(arena, part)
    if is_back and part == "muster":
        arena.restarts.append(time.monotonic())
    return is_back


def _is_back(arena: Arena, part: str) -> bool:
    if not _ready(arena, part):
        return False
    arena.give_back([part])
    return True


def _freeze(part: str, field: Field) -> Broken:
    takes_down(field, part)
    field.arena.calm.begin(part)
    process = field.arena.processes()[part]
    process.freeze()
    timer = threading.Timer(field.lasting, process.thaw)
    timer.daemon = True
    timer.start()
    return Broken(f"{part} frozen for {field.lasting:.1f} s", partial(_is_back, field.arena, part))


FAULTS: dict[str, Inflict] = {
    **{f"kill-{part}": partial(_kill, part) for part in ("muster", "scheduler", "apiserver")},
    **{f"freeze-{part}": partial(_freeze, part) for part in ("muster", "scheduler", "apiserver")},
    "stop-muster": partial(_stop, "muster"),
}
