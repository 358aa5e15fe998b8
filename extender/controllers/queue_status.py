"""Writes decisions to queues: state, allocated and deserved amounts, and numbers of groups.

A queue is written if its status differs, and at most once a second; queues of which only numbers changed
share a budget. The annotation of a queue that its parent keeps closed is written before its state: otherwise,
a restart would forget that the queue was open. A write is valid only for the version that Muster has seen; if
it is refused, it is made again on the next one. A reclaim of a queue is also written before the victims are
evicted, whatever the budget.

The status of a LocalQueue says whether its queue exists, how many groups it has, and what they hold. The
ledger reports the changed ones. A changed condition is written at once.

While pods are left to Volcano's scheduler, the numbers are left to it, too. Each of both counts only its own
pods, and would correct the other once a second.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from extender.api.keys import CLOSED_BY_PARENT
from extender.api.objects.base import Condition, condition
from extender.api.objects.queues import LocalQueue, Queue, QueueFlavorStatus, QueueReclaimed, QueueReservation
from extender.controllers.controller import ControllerContext, PacedController
from extender.controllers.events import NORMAL, WARNING, EventRecorder
from extender.controllers.objects import ObjectStore, QueueCopy, queue_reference, with_transition_time
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.reasons import EventReason
from extender.domain.model.resources import Resources, quantities
from extender.domain.model.shared_maps import changed_keys
from extender.domain.queues.local_queues import Activity
from extender.domain.queues.states import AnnotationStep, QueueState
from extender.domain.scheduling.results import ADMITTED, WAITING
from extender.domain.snapshot.decisions import (
    GUARANTEE_UNMET,
    OPEN,
    VALID,
    Decisions,
    QueueDecision,
    conditions_of,
)
from extender.kube.calls import ApiClient
from extender.kube.errors import Refused
from extender.kube.writers import WriteJob
from extender.telemetry.logs import logger

log = logger(__name__)

Json = dict[str, Any]
T = TypeVar("T")
_OF_STATE = ("state", "conditions")  # fields of a status
_PACE = 1.0  # seconds between two writes of one object
_HAPPENED = {
    QueueState.OPEN: (NORMAL, EventReason.QUEUE_OPENED),
    QueueState.CLOSING: (NORMAL, EventReason.QUEUE_CLOSING),
    QueueState.CLOSED: (NORMAL, EventReason.QUEUE_CLOSED),
    QueueState.UNKNOWN: (WARNING, EventReason.QUEUE_UNKNOWN),
}


def status_changes(queue: Queue, decision: QueueDecision, *, numbers: bool = True) -> Json:
    """Return the changes of the status, as a merge patch; without `numbers`, only those about its state."""
    before, reserved = queue.status, decision.reservation
    flavors = [
        QueueFlavorStatus(
            name, *({**as_quantities(amounts)} for amounts in (each.allocated, each.deserved, each.borrowed))
        )
        for name, each in decision.flavors.items()
    ]
    status = {
        "state": decision.state,
        "allocated": as_quantities(decision.allocated),
        "deserved": as_quantities(decision.deserved),
        "flavors": flavors or None,
        "borrowed": as_quantities(decision.borrowed) or ({} if before.borrowed else None),
        "usage": decision.usage,
        "share": round(decision.share, 3),
        **decision.counts,
        "reclaimed": reclaims(decision) or None,
        "reservation": reserved and QueueReservation(reserved.node_names, as_quantities(reserved.asks)),
    }
    known = {condition.type for condition in before.conditions or ()}
    conditions = (
        Condition(now.type, str(now.holds), now.reason, now.message)
        for now in conditions_of(decision)
        if now.holds or now.type in (OPEN, VALID) or now.type in known
    )
    return changes_from(before, status, conditions, numbers)


def reclaims(decision: QueueDecision) -> list[QueueReclaimed]:
    """Return the reclaims of the last hour, in the form of the queue's status."""
    return [
        QueueReclaimed(losing.queue, last.group, last.at, last.in_vain, last.unused)
        for losing, last in sorted(decision.reclaimed.items())
    ]


def record_reclaims(ledger: Ledger, cluster: ApiClient, losing: str) -> None:
    """Write the decided reclaims from a queue into the statuses of the queues that gain.

    The status is written before the first eviction, so that a restarted Muster recognizes unused reclaims.
    If the API server refuses the status, the reclaim continues.

    Raises:
        ApiError: The API server does not answer.
    """
    if ledger.pods.unmanaged:
        return
    for name, decision in ledger.decisions.queues.items():
        decided = {(key, by.group, by.at) for key, by in decision.reclaimed.items() if key.queue == losing}
        record = ledger.registry.queues.get(name) if decided else None
        if record is None or decided <= {(key, by.group, by.at) for key, by in record.reclaimed.items()}:
            continue
        changes = {"reclaimed": msgspec.to_builtins(reclaims(decision))}
        try:
            cluster.patch_queue_status(name, {"metadata": {"uid": decision.uid}, "status": changes})
        except Refused as fault:
            log.warning("cannot record what a queue reclaims", queue=name, error=str(fault))


def changes_from(before: Any, wanted: Json, own_conditions: Iterable[Condition], numbers: bool) -> Json:
    """Return the fields of a status that differ. Conditions of other controllers stay as they are.

    `numbers`: whether fields with mere numbers count, too.
    """
    conditions = {condition.type: condition for condition in before.conditions or ()}
    for own in own_conditions:
        conditions[own.type] = with_transition_time(own, conditions.get(own.type))
    return {
        name: amounts_patch(getattr(before, name), value)
        for name, value in (wanted | {"conditions": list(conditions.values())}).items()
        if getattr(before, name) != value and (numbers or name in _OF_STATE)
    }


def amounts_patch(before: Any, value: Any) -> Any:
    """Return a merge patch of amounts, in which nulls remove the resources that are gone."""
    if isinstance(value, QueueReservation):
        amounts_before = before.resource if before else None
        return {"nodes": value.nodes, "resource": amounts_patch(amounts_before, value.resource)}
    nulls = dict.fromkeys(before or ()) if isinstance(value, dict) else {}
    return nulls | value if nulls else msgspec.to_builtins(value)


def as_quantities(amounts: Mapping[str, float]) -> dict[str, str | int]:
    """Return amounts as quantities, without zeros."""
    return {name: text for name, text in quantities(amounts).items() if text != "0"}


class QueueController(PacedController[str], Generic[T]):
    """Base of the controllers that write the statuses of the objects in `copies`."""

    rate, burst = 2.0, 20

    def __init__(self, context: ControllerContext, copies: ObjectStore[str, T]) -> None:
        super().__init__(context)
        self._copies = copies
        copies.listen(self._on_change)

    def prepare(self) -> None:
        super().prepare()
        self._next: dict[str, float] = {}  # when an object may be written next

    def on_stopped_leading(self) -> None:
        super().on_stopped_leading()
        self._next.clear()

    def _on_change(self, key: str) -> None:
        """Queue a changed object; forget one that is gone."""
        self._parked.pop(key, None)
        if self._copies.get(key) is None:
            self._queue.forget(key)
            self._next.pop(key, None)
        else:
            self._queue.add(key)

    def _pause(self, key: str) -> float:
        """Return the seconds until an object may be written again."""
        return max(0.0, self._next.get(key, 0.0) - self._clock())

    def _write_in_turn(
        self, key: str, state: object, write: WriteJob, *, at_once: Callable[[], object]
    ) -> None:
        """Submit `write`, at once or when the budget for this object allows."""
        if (pause := self._pause(key)) > 0.0:
            self._queue.add(key, pause)
        elif at_once() or self._take_turn():
            self._next[key] = self._clock() + _PACE
            self.write(key, write)
        else:
            self._park(key, state, 0.0)


class QueueStatusController(QueueController[QueueCopy]):
    name = "queue-status"

    def __init__(
        self, context: ControllerContext, recorder: EventRecorder, copies: ObjectStore[str, QueueCopy]
    ) -> None:
        super().__init__(context, copies)
        self._recorder = recorder

    def prepare(self) -> None:
        super().prepare()
        self._published: Mapping[str, QueueDecision] = {}
        self._volcano_writes_numbers = False

    def on_stopped_leading(self) -> None:
        super().on_stopped_leading()
        self._published = {}

    def due_keys(self, decisions: Decisions) -> Iterator[str]:
        before, self._published = self._published, decisions.queues
        volcano_writes = bool(self._ledger.pods.unmanaged)
        if self._volcano_writes_numbers is not volcano_writes:
            self._volcano_writes_numbers, before = volcano_writes, {}
            self._parked.clear()
        for name in changed_keys(decisions.queues, before):
            decision = decisions.queues.get(name)
            if decision is not None and not self._is_parked(name, _state(decision)):
                yield name

    def reconcile(self, name: str) -> None:
        """Write the status of a queue, unless the decision is older than the ledger's copy."""
        copy, decision = self._copies.get(name), self._decisions.queues.get(name)
        if copy is None or decision is None or not self._differs(copy.queue, decision):
            return
        if self._decisions.version < copy.known_at:
            return self._queue.add(name, self._pause(name))
        at_once = partial(self._differs, copy.queue, decision, numbers=False)
        self._write_in_turn(name, _state(decision), partial(self._write, name), at_once=at_once)

    def _write(self, name: str) -> None:
        """Write the latest decision on the latest copy, not those of the time of submission."""
        copy, decisions = self._copies.get(name), self._ledger.decisions
        decision = decisions.queues.get(name)
        if copy is None or decision is None or not self._differs(copy.queue, decision):
            return
        if decisions.version < copy.known_at:
            return self._queue.add(name)
        queue, meta = copy.queue, copy.queue.metadata
        version = {"resourceVersion": meta.resource_version}
        if decision.mark is not AnnotationStep.KEEP:
            annotations = {CLOSED_BY_PARENT: "true" if decision.mark is AnnotationStep.PUT else None}
            patch = {"metadata": {**version, "annotations": annotations}}
            return self._cluster.patch_queue(meta.name, meta.uid, patch)
        changes = status_changes(queue, decision, numbers=not self._volcano_writes_numbers)
        state = changes.pop("state", None)
        if state is not None:
            set_state, seen = self._cluster.set_queue_status_state, meta.resource_version
            version["resourceVersion"] = set_state(meta.name, meta.uid, state, seen)
            log.info("a queue's state changed", queue=meta.name, before=queue.status.state, now=state)
            if queue.status.state or state != QueueState.OPEN:  # a new queue is open
                kind, happened = _HAPPENED[QueueState(state)]
                message = next(conditions_of(decision)).message
                self._recorder.record(queue_reference(meta.name, meta.uid), kind, happened, message)
        if changes:
            self._cluster.patch_queue_status(meta.name, {"metadata": version, "status": changes})
            self._report_unmet(queue, decision)

    def _report_unmet(self, queue: Queue, decision: QueueDecision) -> None:
        before = condition(queue.status.conditions, GUARANTEE_UNMET)
        now = next(each for each in conditions_of(decision) if each.type == GUARANTEE_UNMET)
        if now.holds and (before is None or before.status != "True"):
            reference = queue_reference(queue.metadata.name, queue.metadata.uid)
            self._recorder.record(reference, WARNING, EventReason.GUARANTEE_UNMET, now.message)

    def _differs(self, queue: Queue, decision: QueueDecision, *, numbers: bool = True) -> bool:
        """Return whether anything (without `numbers`) has to be written.

        False if another queue has the name now.
        """
        if queue.metadata.uid != decision.uid:
            return False
        changes = status_changes(queue, decision, numbers=numbers and not self._volcano_writes_numbers)
        return bool(changes) or decision.mark is not AnnotationStep.KEEP


def _state(decision: QueueDecision) -> tuple[object, ...]:
    """Return a decision without its numbers."""
    state = (decision.uid, decision.state, decision.mark, decision.closed_above, decision.deleting)
    return (*state, decision.fault, *decision.unmet, *decision.missing_flavors, decision.above_nodes)


ACTIVE = "Active"  # condition of a LocalQueue: it leads to a queue


class LocalQueueReport(msgspec.Struct, frozen=True):
    activity: Activity
    waiting: int  # groups
    admitted: int
    reserved: Resources  # allocation of its groups


def local_queue_report(ledger: Ledger, key: str) -> LocalQueueReport | None:
    activity = ledger.queues.local_queue_activity(key)
    if activity is None:
        return None
    counts, reserved = ledger.decisions.local_counts, ledger.queues.local_queue_allocation(key)
    return LocalQueueReport(activity, counts.get((key, WAITING), 0), counts.get((key, ADMITTED), 0), reserved)


def report_changes(local: LocalQueue, report: LocalQueueReport, *, numbers: bool = True) -> Json:
    """Return the status fields of a LocalQueue that differ, as a merge patch.

    Without `numbers`, only conditions count.
    """
    activity, reserved = report.activity, as_quantities(report.reserved)
    wanted: Json = {"waiting": report.waiting, "admitted": report.admitted, "reserved": reserved}
    now = Condition(ACTIVE, str(activity.is_active), activity.reason, activity.message)
    return changes_from(local.status, wanted, [now], numbers)


class LocalQueueStatusController(QueueController[LocalQueue]):
    """Controller of the statuses of LocalQueues. Keys are `namespace/name`."""

    name = "local-queue-status"

    def prepare(self) -> None:
        super().prepare()
        self._knows_all = False  # whether all LocalQueues have been due since this replica leads
        self._seen = Decisions()

    def on_stopped_leading(self) -> None:
        super().on_stopped_leading()
        self._knows_all = False
        self._seen = Decisions()
        self._ledger.queues.take_changed_local_queues()

    def due_keys(self, decisions: Decisions) -> Iterator[str]:
        before, self._seen = self._seen, decisions
        changed = set(self._ledger.queues.take_changed_local_queues())
        if not self._knows_all:
            self._knows_all = True
            changed = self._ledger.queues.local_queue_keys()
        for group in decisions.changed_since(before):
            for either in (before, decisions):
                if (decision := either.groups.get(group)) is not None and decision.life.local_queue:
                    changed.add(decision.life.local_queue)
        for key in changed:
            report = local_queue_report(self._ledger, key)
            if report is not None and not self._is_parked(key, report.activity):
                yield key

    def reconcile(self, key: str) -> None:
        copy, report = self._copies.get(key), local_queue_report(self._ledger, key)
        if copy is None or report is None or not report_changes(copy, report):
            return
        at_once = partial(report_changes, copy, report, numbers=False)
        self._write_in_turn(key, report.activity, partial(self._write, key), at_once=at_once)

    def _write(self, key: str) -> None:
        """Write the current state on the latest copy, not those of the time of submission."""
        copy, report = self._copies.get(key), local_queue_report(self._ledger, key)
        changes = report_changes(copy, report) if copy is not None and report is not None else {}
        if copy is not None and changes:
            meta = copy.metadata
            version = {"uid": meta.uid, "resourceVersion": meta.resource_version}
            patch = {"metadata": version, "status": changes}
            self._cluster.patch_local_queue_status(meta.namespace, meta.name, patch)
