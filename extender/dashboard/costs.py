"""What one viewer may cost: pages are made in the process that decides, so nobody may keep it busy by asking
for them."""

import time
from collections.abc import Callable
from threading import Lock

from cachetools import LRUCache
from flask import Flask, g
from werkzeug.exceptions import TooManyRequests
from werkzeug.wrappers import Response

from extender.kube.writers import TokenBucket

_SHARE, _AT_ONCE = 0.25, 10.0  # of a core, and seconds of one
_MOST = 4096  # viewers


def limit_costs(
    app: Flask,
    spent: Callable[[], float] = time.thread_time,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Whoever has used up their share of the processor gets 429 until they have some again. `spent`: the
    seconds that this thread has used."""
    left: LRUCache[str, TokenBucket] = LRUCache(_MOST)
    lock = Lock()

    @app.before_request
    def begin() -> None:
        g.began = spent()
        if (viewer := g.get("viewer")) is None:
            return
        with lock:
            bucket = left.setdefault(viewer.name, TokenBucket(_SHARE, _AT_ONCE, clock()))
            if bucket.left(clock()) < _SHARE:
                raise TooManyRequests("You have asked for very much: wait a moment", retry_after=2)

    @app.after_request
    def end(answer: Response) -> Response:
        viewer, began = g.get("viewer"), g.get("began")  # nothing has begun for whom the door refused
        with lock:
            if viewer and began is not None and (bucket := left.get(viewer.name)):
                bucket.take(clock(), min(spent() - began, bucket.left(clock())))
        return answer
