"""Faults of watches of pods: Muster's own watch, and the scheduler's through the scheduler proxy.

The fault proxy distinguishes the two by the User-Agent.
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

SCHEDULER_AGENT, MUSTER_AGENT = "kube-scheduler/", "kube-muster/"
_VERSION = re.compile(r"resourceVersion=\d+")


def pod_watch(agent: str, **fields: Any) -> Fault:
    """Return a fault for the next watch of pods by a program."""
    return Fault("GET", r"/pods$", query="watch=", agent=agent, **fields)


def begins_too_early(agent: str, before: Callable[[], object]) -> Fault:
    """Return a fault that replaces the version by an expired one: the answer is an event with code 410."""
    return pod_watch(
        agent, before=before, instead=lambda target: _VERSION.sub("resourceVersion=1", target, count=1)
    )


def is_refused_as_too_old(agent: str, before: Callable[[], object]) -> Fault:
    """Return a fault for an expired version whose answer has the status 410."""
    return pod_watch(agent, before=before, status=410)


def stands_still(agent: str, passing: threading.Event) -> Fault:
    """Return a fault that passes no events until `passing` is set."""

    def delayed(pieces: Pieces) -> Pieces:
        for piece in pieces:
            passing.wait()
            yield piece

    return pod_watch(agent, pieces=delayed, times=OFTEN)


def is_late(agent: str, seconds: float) -> Fault:
    """Return a fault that delays all events by some seconds."""

    def delayed(pieces: Pieces) -> Pieces:
        on_the_way: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

        def read() -> None:
            with suppress(OSError, HTTPException, AttributeError):  # AttributeError: the caller has hung up
                for piece in pieces:
                    on_the_way.put((time.monotonic() + seconds, piece))
            on_the_way.put((0.0, b""))

        threading.Thread(target=read, name="late-watch", daemon=True).start()
        while True:
            due, piece = on_the_way.get()
            if not piece:
                return
            time.sleep(max(due - time.monotonic(), 0.0))
            yield piece

    return pod_watch(agent, pieces=delayed, times=OFTEN)
