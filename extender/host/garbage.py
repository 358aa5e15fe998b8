"""Garbage collection in a process that holds a copy of a whole cluster.

A decision makes tens of thousands of objects that are gone right after, so with Python's defaults, half the
time of a busy cycle goes into looking for garbage: collections are made fewer. A full one looks at each
object, with all threads stopped: a quarter of a second for 10,000 groups on 5,000 nodes. What the watches
read at first mostly stays, and nothing in it refers to itself, so it is left out.
"""

import gc
from collections.abc import Callable

_THRESHOLDS = (50_000, 20, 20)  # as gc.set_threshold takes them


def collect_less_often() -> None:
    gc.set_threshold(*_THRESHOLDS)


class LongLived:
    """`synced`, which says whether the watches have read everything once. When it is true for the first time,
    all that is there by then is left out of further collections."""

    def __init__(self, synced: Callable[[], bool]) -> None:
        self._synced = synced
        self._is_left_out = False

    def __call__(self) -> bool:
        if not self._synced():
            return False
        if not self._is_left_out:
            self._is_left_out = True
            gc.freeze()
        return True
