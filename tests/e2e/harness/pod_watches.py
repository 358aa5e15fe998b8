"""Faults of watches of pods. Behind a proxy there are two: the scheduler's through Muster, and Muster's own.

The fault proxy distinguishes them by the program that asks.
"""

import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from queue import SimpleQueue
from typing import Any

from tests.e2e.harness.faults import OFTEN, Fault, Pieces

THE_SCHEDULERS, MUSTERS = "kube-scheduler/", "kube-muster/"
_VERSION = re.compile(r"resourceVersion=\d+")


def pod_watch(agent: str, **fields: Any) -> Fault:
    """Return a fault of the next watch of pods of this program."""
    return Fault("GET", r"/pods$", asked="watch=", agent=agent, **fields)


def begins_too_early(agent: str, before: Callable[[], object]) -> Fault:
    """Return a fault for a watch from a version that the API server has forgotten.

    It is answered as the API server does that: by an event that is an error with code 410.
    """
    return pod_watch(
        agent, before=before, instead=lambda target: _VERSION.sub("resourceVersion=1", target, count=1)
    )


def is_refused_as_too_old(agent: str, before: Callable[[], object]) -> Fault:
    """Return the same fault as the status of the answer."""
    return pod_watch(agent, before=before, status=410)


def stands_still(agent: str, passing: threading.Event) -> Fault:
    """Return a fault that passes nothing while the event is not set."""

    def passed(pieces: Pieces) -> Pieces:
        for piece in pieces:
            passing.wait()
            yield piece

    return pod_watch(agent, pieces=passed, times=OFTEN)


def is_late(agent: str, seconds: float) -> Fault:
    """Return a fault that passes everything, so much later."""

    def passed(pieces: Pieces) -> Pieces:
        on_the_way: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

        def read() -> None:
            with suppress(OSError, HTTPException, AttributeError):  # the last: who asked has hung up
                for piece in pieces:
                    on_the_way.put((time.monotonic() + seconds, piece))
            on_the_way.put((0.0, b""))

        threading.Thread(target=read, name="late-watch", daemon=True).start()
        while (arriving := on_the_way.get())[1]:
            due, piece = arriving
            time.sleep(max(due - time.monotonic(), 0.0))
            yield piece

    return pod_watch(agent, pieces=passed, times=OFTEN)
