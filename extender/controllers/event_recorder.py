"""Kubernetes Events, few of them: what `kubectl describe` shows under a pod, a PodGroup or a queue.

There is one Event for each object and reason: when it is recorded again, its count grows and its message is
replaced. Events beyond the allowance of an object, or of all objects together, are dropped: the conditions
and /debug have everything. Events are of the core API group, because kubectl shows the counts of those best.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from socket import gethostname
from typing import Any
from uuid import uuid4

import msgspec
from cachetools import TTLCache

from extender.api.objects.base import Reference
from extender.controllers.conditions import timestamp
from extender.domain.model.token_bucket import TokenBucket
from extender.kube.calls import ApiClient
from extender.kube.errors import Conflict, NotFound
from extender.kube.writers import Writers
from extender.telemetry import metrics

COMPONENT = "kube-muster"  # the scheduler's own events come from its profile, which is called muster
NORMAL, WARNING = "Normal", "Warning"

_LONGEST = 1024  # characters of a message
_LONGEST_NAME = 230  # characters of the object's name in the name of its Event
_REMEMBERED = 4096  # Events and objects
_MEMORY = 1800.0  # seconds; the API server deletes an Event after an hour
_OBJECT_BURST, _OBJECT_RATE = 10, 1 / 30  # Events of one object at once, and per second
_BURST, _RATE = 50, 5.0  # the same of all objects together


@dataclass(eq=False)
class _Event:
    """One Event as it is written, or will be."""

    about: Reference  # the object
    type: str  # NORMAL or WARNING
    reason: str
    name: str  # of the Event itself
    first: str  # when it was first recorded
    last: str = ""  # when it was last recorded
    message: str = ""
    count: int = 0  # how often it was recorded
    exists: bool = False  # whether the API server has it

    @property
    def namespace(self) -> str:
        return self.about.namespace or "default"


class EventRecorder:
    """`record` may be called from any thread; the writers send the Events."""

    def __init__(
        self,
        cluster: ApiClient,
        writers: Writers,
        leads: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster = cluster
        self._writers = writers
        self._leads = leads
        self._clock = clock
        self._now = now
        self._lock = threading.Lock()
        self._known: TTLCache[tuple[str, str, str], _Event] = TTLCache(_REMEMBERED, _MEMORY, clock)
        self._objects: TTLCache[str, TokenBucket] = TTLCache(_REMEMBERED, _MEMORY, clock)
        self._all = TokenBucket(_RATE, _BURST, clock())

    def has_room(self, events: int = 1) -> bool:
        """Whether so many Events may be written now. Callers that can wait ask first, and record later."""
        with self._lock:
            return self._all.left(self._clock()) >= events

    def record(self, about: Reference, type_: str, reason: str, message: str) -> None:
        """Have an Event written soon: `type_` is NORMAL or WARNING, `reason` a code of the closed list."""
        if not self._leads():
            return
        with self._lock:
            if not self._admit(about):
                metrics.events.labels("dropped").inc()
                return
            event = self._take_in(about, type_, reason, message)
        self._writers.submit(("event", event.name), lambda: self._write(event))

    def _admit(self, about: Reference) -> bool:
        now = self._clock()
        fresh = TokenBucket(_OBJECT_RATE, _OBJECT_BURST, now)
        of_object = self._objects.setdefault(_identity(about), fresh)
        return self._all.left(now) >= 1 and of_object.take(now) and self._all.take(now)

    def _take_in(self, about: Reference, type_: str, reason: str, message: str) -> _Event:
        key, at = (_identity(about), type_, reason), timestamp(self._now())
        name = f"{about.name[:_LONGEST_NAME]}.{uuid4().hex[:16]}"
        event = self._known.get(key) or _Event(about, type_, reason, name, at)
        event.last, event.message, event.count = at, message[:_LONGEST], event.count + 1
        self._known[key] = event
        return event

    def _write(self, event: _Event) -> None:
        if event.exists:
            try:
                self._cluster.patch_event(event.namespace, event.name, _repeated(event))
                metrics.events.labels("repeated").inc()
                return
            except NotFound:
                event.exists = False
        self._create(event)

    def _create(self, event: _Event) -> None:
        """An Event that exists already is our own, whose answer was lost."""
        with suppress(Conflict):
            self._cluster.create_event(_event(event))
        event.exists = True
        metrics.events.labels("created").inc()


def _identity(about: Reference) -> str:
    return about.uid or f"{about.kind}/{about.namespace}/{about.name}"


def _event(event: _Event) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event.name, "namespace": event.namespace},
        "involvedObject": msgspec.to_builtins(event.about),
        "type": event.type,
        "reason": event.reason,
        "firstTimestamp": event.first,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": gethostname(),
        **_repeated(event),
    }


def _repeated(event: _Event) -> dict[str, Any]:
    return {"lastTimestamp": event.last, "message": event.message, "count": event.count}
