"""Telling Queues what was decided: state, what they hold and deserve, how many of their groups do what.

A queue is written when that differs from what the API has, and at most once a second. The mark of a queue
that its parent keeps shut is written before its state: without it, nobody could tell after a restart that
the queue was open. Each write is good for the version that we saw only; one that was refused is made again
on the next.

While pods are left to Volcano's scheduler, numbers are its to write: it counts no pods of ours and we none of
its, and each would put the other right once a second.
"""

import threading
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from extender.api.keys import CLOSED_BY_PARENT
from extender.api.objects import Queue
from extender.controllers.actor import Teller
from extender.controllers.queue_status import Json, news
from extender.controllers.recording import NORMAL, WARNING
from extender.controllers.references import of_queue
from extender.domain.decisions.decisions import Decisions, QueueDecision
from extender.domain.decisions.queue_conditions import conditions_of
from extender.domain.model.reasons import Happening
from extender.domain.queues.queue_states import Mark, QueueState
from extender.kube.errors import ApiError
from extender.telemetry.logs import logger

log = logger(__name__)

_PACE = 1.0
_HAPPENED = {
    QueueState.OPEN: (NORMAL, Happening.QUEUE_OPENED),
    QueueState.CLOSING: (NORMAL, Happening.QUEUE_CLOSING),
    QueueState.CLOSED: (NORMAL, Happening.QUEUE_CLOSED),
    QueueState.UNKNOWN: (WARNING, Happening.QUEUE_UNKNOWN),
}


class Copy(NamedTuple):
    """A queue as the API server has it. `known_at`: the version of the ledger that knows all that it says."""

    queue: Queue
    known_at: int


class QueueReporter(Teller):
    """Also the sink's second ear for Queues: the newest copy of each is kept."""

    def prepare(self) -> None:
        self._lock = threading.Lock()
        self._copies: dict[str, Copy] = {}
        self._due: set[str] = set()
        self._judged: Mapping[str, QueueDecision] = {}
        self._next: dict[str, float] = {}
        self._shared = False  # whether somebody else writes numbers

    def see(self, queue: Queue) -> None:
        """After the ledger has seen it."""
        with self._lock:
            self._copies[queue.metadata.name] = Copy(queue, self._ledger.version)
            self._due.add(queue.metadata.name)

    def forget(self, name: str) -> None:
        with self._lock:
            self._copies.pop(name, None)
            self._next.pop(name, None)

    def look(self, decisions: Decisions) -> None:
        """Queues of which nothing changed are passed over."""
        if not self._leads():
            return
        with self._lock:
            due, self._due = self._due, set()
        before, self._judged = self._judged, decisions.queues
        if self._shared is not self._ledger.leaving:
            self._shared, before = self._ledger.leaving, {}
        for name, decision in decisions.queues.items():
            if name in due or before.get(name) is not decision:
                self._report(name, decision, decisions.version)

    def _report(self, name: str, decision: QueueDecision, version: int) -> None:
        """What was decided before the copy was known may be what the copy has put right: it waits."""
        copy = self._copies.get(name)
        if copy is None or not self._differs(copy.queue, decision):
            return
        now = self._clock()
        if version < copy.known_at or now < self._next.get(name, 0.0):
            self._again(name)
            return
        self._next[name] = now + _PACE
        self._writers.submit(("queue", name), partial(self._write, name), partial(self._ended, name))

    def _ended(self, name: str, fault: ApiError | None) -> None:
        """What was not written is due again."""
        if fault is not None:
            self._again(name)

    def _again(self, name: str) -> None:
        with self._lock:
            self._due.add(name)

    def _write(self, name: str) -> None:
        """Write the newest decision on the newest copy, whatever they were when this was asked for."""
        copy, decisions = self._copies.get(name), self._ledger.decisions
        decision = decisions.queues.get(name)
        if copy is None or decision is None or not self._differs(copy.queue, decision):
            return
        if decisions.version < copy.known_at:
            self._again(name)
            return
        self._patch(copy.queue, decision)

    def _patch(self, queue: Queue, decision: QueueDecision) -> None:
        meta = queue.metadata
        version = {"resourceVersion": meta.resource_version}
        if decision.mark is not Mark.KEEP:
            marks = {CLOSED_BY_PARENT: "true" if decision.mark is Mark.PUT else None}
            marking = {"metadata": {**version, "annotations": marks}}
            return self._cluster.patch_queue(meta.name, meta.uid, marking)
        said = self._news(queue, decision)
        turned = said.pop("state", None)
        if turned is not None:
            version["resourceVersion"] = self._cluster.set_queue_status_state(
                meta.name, meta.uid, turned, meta.resource_version
            )
            self._tell(queue, decision)
        if said:
            self._cluster.patch_queue_status(meta.name, {"metadata": version, "status": said})

    def _tell(self, queue: Queue, decision: QueueDecision) -> None:
        """That a new queue is open is no news."""
        meta, before = queue.metadata, queue.status.state
        log.info("a queue's state changed", queue=meta.name, before=before, now=decision.state)
        if before or decision.state != QueueState.OPEN:
            kind, happened = _HAPPENED[QueueState(decision.state)]
            said = next(conditions_of(decision)).message
            self._recorder.tell(of_queue(meta.name, meta.uid), kind, happened, said)

    def _differs(self, queue: Queue, decision: QueueDecision) -> bool:
        """Whether anything is to be written. One made on another queue of that name says nothing."""
        if queue.metadata.uid != decision.uid:
            return False
        return decision.mark is not Mark.KEEP or bool(self._news(queue, decision))

    def _news(self, queue: Queue, decision: QueueDecision) -> Json:
        return news(queue, decision, numbers=not self._shared)
