"""How the process deals with memory: it looks for garbage less often, and gives back what it has freed.

With Python's defaults, half the time of a busy cycle goes into looking for garbage: collections are made
fewer. A full one looks at each object, with all threads stopped: a quarter of a second for 10,000 groups on
5,000 nodes. What the watches read at first mostly stays, so it is left out.

glibc gives each of many threads a heap of its own, and memory that is freed in one cannot be used by another:
50,000 requests made the process 250 MB larger, with two heaps only 50 MB. Once a large block has been freed,
blocks of its size come from the heap, where others keep them from being given back: set by hand, the
threshold stays, and the largest bodies leave nothing behind (`make fuzz`). And of a heap only the end is
given back by itself: once much has been freed, the rest is, too (`make hostile`).
"""

import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress
from functools import cache

from extender.kube.writers import Poller

_THRESHOLDS = (50_000, 20, 20)  # as gc.set_threshold takes them
_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3  # malloc.h
_LARGE = 256 * 1024  # bytes
_MUCH = 8 * 2**20  # bytes
_EVERY = 10.0  # seconds from one look to the next: giving back takes some milliseconds, in which others wait


def collect_less_often() -> None:
    gc.set_threshold(*_THRESHOLDS)


def long_lived(synced: Callable[[], bool]) -> Callable[[], bool]:
    """`synced`, which takes all that is there from garbage collection once it is true for the first time."""
    freeze_once = cache(gc.freeze)

    def ready() -> bool:
        if is_synced := synced():
            freeze_once()
        return is_synced

    return ready


def share_heaps() -> None:
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)


class _Heaps(ctypes.Structure):
    """`mallinfo2` of malloc.h, in bytes, of which the eighth number is read."""

    _fields_ = [(name, ctypes.c_size_t) for name in (*"abcdefg", "in_use", "i", "j")]


class FreedMemory(Poller):
    def __init__(self) -> None:
        super().__init__("memory", _EVERY, self.look)
        self._most = 0  # bytes in use since something was last given back

    def look(self) -> None:
        with suppress(OSError, AttributeError):  # another C library, or an old one
            library = ctypes.CDLL(None)
            library.mallinfo2.restype = _Heaps
            in_use = library.mallinfo2().in_use
            self._most = max(self._most, in_use)
            if in_use < self._most - _MUCH:
                library.malloc_trim(0)
                self._most = in_use
