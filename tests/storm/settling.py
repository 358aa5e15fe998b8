"""After the faults: everything is mended, and what can run has a bounded time to run."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from tests.e2e.harness.resources import NODES, POD_GROUPS, PODS, QUEUES
from tests.storm.arena import Arena
from tests.storm.judges import Picture, complaints

Json = dict[str, Any]
LONGEST = 150.0  # what the scheduler's own rules refused is tried again after a minute
QUIET = 5.0  # seconds without a complaint and without a change on any pod
PAUSE = 1.0
IN_A_ROW = 4


def picture(arena: Arena) -> Picture:
    """Return a picture with Muster's pages last: Muster has had time to learn of the older objects."""
    api, namespace = arena.api, arena.namespace
    return Picture(
        list(api.items(NODES)),
        list(api.items(PODS, namespace)),
        list(api.items(POD_GROUPS, namespace)),
        list(api.items(QUEUES)),
        arena.muster.debug("/debug/nodes"),
        arena.muster.debug("/debug/podgroups"),
    )


def settle(arena: Arena, tend: Callable[[], None], longest: float = LONGEST) -> list[str]:
    """Return the violations of the cluster once it rests; at the latest after so many seconds.

    A picture is not atomic, so only a violation in several of them in a row counts.
    """
    end, since, before = time.monotonic() + longest, time.monotonic(), ""
    recent = deque[list[str]](maxlen=IN_A_ROW)
    while True:
        tend()
        current = picture(arena)
        believed = arena.scheduler.dump().complaints(current.pods)
        recent.append([*complaints(current), *believed, *arena.stage.observer.in_pieces()])
        now, state = time.monotonic(), _state(current)
        if state != before or recent[-1]:
            before, since = state, now
        if now - since > QUIET:
            return []
        if now > end:
            return _lasting(recent) or [f"the cluster did not settle within {longest:g} s"]
        time.sleep(PAUSE)


def _lasting(recent: Iterable[list[str]]) -> list[str]:
    first, *others = recent
    return [each for each in first if all(each in other for other in others)]


def _state(current: Picture) -> str:
    """Return the state that changes while anything moves."""
    return repr(sorted(map(_where, current.pods), key=str))


def _where(pod: Json) -> tuple[str, str | None, str | None]:
    return pod["metadata"]["uid"], pod["spec"].get("nodeName"), pod["status"].get("phase")
