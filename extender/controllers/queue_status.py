"""Telling Queues what was decided: state, what they hold and deserve, how many of their groups do what.

A queue is written when that differs from what the API has, and at most once a second; those of which only
numbers moved share a budget, so that a cluster of a thousand queues is not written once a second. The mark of
a queue that its parent keeps shut is written before its state: without it, nobody could tell after a restart
that the queue was open. Each write is good for the version that we saw only; one that was refused is made
again on the next.

While pods are left to Volcano's scheduler, numbers are its to write: it counts no pods of ours and we none of
its, and each would put the other right once a second.
"""

from collections.abc import Iterator, Mapping
from functools import partial

from extender.api.keys import CLOSED_BY_PARENT
from extender.api.objects import Queue
from extender.controllers.controller import ControllerContext
from extender.controllers.event_recorder import NORMAL, WARNING, EventRecorder
from extender.controllers.object_store import ObjectStore, QueueCopy
from extender.controllers.paced import PacedController
from extender.controllers.queue_patch import Json, news
from extender.controllers.references import of_queue
from extender.domain.decisions.decisions import Decisions, QueueDecision
from extender.domain.decisions.queue_conditions import conditions_of
from extender.domain.model.reasons import EventReason
from extender.domain.queues.queue_states import Mark, QueueState
from extender.telemetry.logs import logger

log = logger(__name__)

_PACE = 1.0  # seconds of one queue between two writes
_HAPPENED = {
    QueueState.OPEN: (NORMAL, EventReason.QUEUE_OPENED),
    QueueState.CLOSING: (NORMAL, EventReason.QUEUE_CLOSING),
    QueueState.CLOSED: (NORMAL, EventReason.QUEUE_CLOSED),
    QueueState.UNKNOWN: (WARNING, EventReason.QUEUE_UNKNOWN),
}


class QueueStatusController(PacedController[str]):
    name = "queue-status"
    rate, burst = 2.0, 20

    def __init__(
        self, context: ControllerContext, recorder: EventRecorder, copies: ObjectStore[str, QueueCopy]
    ) -> None:
        super().__init__(context)
        self._recorder = recorder
        self._copies = copies
        copies.listen(self._see)

    def prepare(self) -> None:
        super().prepare()
        self._judged: Mapping[str, QueueDecision] = {}
        self._next: dict[str, float] = {}  # from when on a queue may be written
        self._shared = False  # whether somebody else writes numbers

    def _see(self, name: str) -> None:
        self._parked.pop(name, None)
        if self._copies.get(name) is None:
            self._queue.forget(name)
            self._next.pop(name, None)
        else:
            self._queue.add(name)

    def rest(self) -> None:
        super().rest()
        self._judged = {}
        self._next.clear()

    # ---- what is due

    def due(self, decisions: Decisions) -> Iterator[str]:
        before, self._judged = self._judged, decisions.queues
        if self._shared is not self._ledger.leaving:
            self._shared, before = self._ledger.leaving, {}
            self._parked.clear()
        for name, decision in decisions.queues.items():
            if before.get(name) is not decision and not self._is_parked(name, _state(decision)):
                yield name

    # ---- one queue

    def reconcile(self, name: str) -> None:
        """What was decided before the copy was known may be what the copy has put right: it waits."""
        copy, decision = self._copies.get(name), self._decisions.queues.get(name)
        if copy is None or decision is None or not self._differs(copy.queue, decision):
            return
        pause = self._next.get(name, 0.0) - self._clock()
        if pause > 0.0 or self._decisions.version < copy.known_at:
            self._queue.add(name, max(0.0, pause))
        elif self._turns(copy.queue, decision) or self._budget.take(self._clock()):
            self._next[name] = self._clock() + _PACE
            self.write(name, partial(self._write, name))
        else:
            self._park(name, _state(decision), 0.0)

    def _write(self, name: str) -> None:
        """Write the newest decision on the newest copy, whatever they were when this was asked for."""
        copy, decisions = self._copies.get(name), self._ledger.decisions
        decision = decisions.queues.get(name)
        if copy is None or decision is None or not self._differs(copy.queue, decision):
            return
        if decisions.version < copy.known_at:
            self._queue.add(name)
            return
        self._patch(copy.queue, decision)

    def _patch(self, queue: Queue, decision: QueueDecision) -> None:
        meta = queue.metadata
        version = {"resourceVersion": meta.resource_version}
        if decision.mark is not Mark.KEEP:
            marks = {CLOSED_BY_PARENT: "true" if decision.mark is Mark.PUT else None}
            marking = {"metadata": {**version, "annotations": marks}}
            return self._cluster.patch_queue(meta.name, meta.uid, marking)
        changes = self._news(queue, decision)
        turned = changes.pop("state", None)
        if turned is not None:
            version["resourceVersion"] = self._cluster.set_queue_status_state(
                meta.name, meta.uid, turned, meta.resource_version
            )
            self._tell(queue, decision)
        if changes:
            self._cluster.patch_queue_status(meta.name, {"metadata": version, "status": changes})

    def _tell(self, queue: Queue, decision: QueueDecision) -> None:
        """That a new queue is open is no news."""
        meta, before = queue.metadata, queue.status.state
        log.info("a queue's state changed", queue=meta.name, before=before, now=decision.state)
        if before or decision.state != QueueState.OPEN:
            kind, happened = _HAPPENED[QueueState(decision.state)]
            message = next(conditions_of(decision)).message
            self._recorder.record(of_queue(meta.name, meta.uid), kind, happened, message)

    def _differs(self, queue: Queue, decision: QueueDecision) -> bool:
        """Whether anything is to be written. One made on another queue of that name says nothing."""
        if queue.metadata.uid != decision.uid:
            return False
        return decision.mark is not Mark.KEEP or bool(self._news(queue, decision))

    def _turns(self, queue: Queue, decision: QueueDecision) -> bool:
        """Whether more than numbers is to be written."""
        return decision.mark is not Mark.KEEP or bool(news(queue, decision, numbers=False))

    def _news(self, queue: Queue, decision: QueueDecision) -> Json:
        return news(queue, decision, numbers=not self._shared)


def _state(decision: QueueDecision) -> tuple[object, ...]:
    """All of a decision but its numbers."""
    return (decision.uid, decision.state, decision.mark, decision.closed_above, decision.fault)
