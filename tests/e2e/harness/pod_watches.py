"""Faults of two watches of pods: Muster's own watch, and the scheduler's watch through the scheduler proxy.

The fault proxy distinguishes these watches by the User-Agent.
"""

import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from queue import SimpleQueue
from typing import Any

from tests.e2e.harness.faults import ALL_REQUESTS, Fault, Pieces

SCHEDULER_AGENT, MUSTER_AGENT = "kube-scheduler/", "kube-muster/"
_VERSION = re.compile(r"resourceVersion=\d+")


def pod_watch(agent: str, **fields: Any) -> Fault:
    """Return a fault for the next watch of pods by the program whose User-Agent begins with `agent`."""
    return Fault("GET", r"/pods$", query="watch=", agent=agent, **fields)


def begins_too_early(agent: str, before: Callable[[], object]) -> Fault:
    """Return a fault that replaces the resourceVersion of a watch by an expired version.

    The API server answers the watch with an event with code 410.
    """
    return pod_watch(
        agent, before=before, instead=lambda target: _VERSION.sub("resourceVersion=1", target, count=1)
    )


def is_refused_as_too_old(agent: str, before: Callable[[], object]) -> Fault:
    """Return a fault that refuses a watch with the status 410, as for an expired resourceVersion."""
    return pod_watch(agent, before=before, status=410)


def stands_still(agent: str, passing: threading.Event) -> Fault:
    """Return a fault that delays all events of a watch until `passing` is set."""

    def delayed(pieces: Pieces) -> Pieces:
        for piece in pieces:
            passing.wait()
            yield piece

    return pod_watch(agent, pieces=delayed, times=ALL_REQUESTS)


def is_late(agent: str, seconds: float) -> Fault:
    """Return a fault that delays each event of a watch by some seconds."""

    def delayed(pieces: Pieces) -> Pieces:
        delayed_pieces: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

        def read() -> None:
            # AttributeError means that the caller has hung up.
            with suppress(OSError, HTTPException, AttributeError):
                for piece in pieces:
                    delayed_pieces.put((time.monotonic() + seconds, piece))
            delayed_pieces.put((0.0, b""))

        threading.Thread(target=read, name="late-watch", daemon=True).start()
        while True:
            passed_on_at, piece = delayed_pieces.get()
            if not piece:
                return
            time.sleep(max(passed_on_at - time.monotonic(), 0.0))
            yield piece

    return pod_watch(agent, pieces=delayed, times=ALL_REQUESTS)
