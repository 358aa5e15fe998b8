"""Writes of decisions to queues: state, allocated and deserved amounts, and numbers of groups.

A queue is written if its status differs, at most once a second. Queues of which only numbers changed share a
budget. Three rules apply:

- If a parent keeps a queue closed, the annotation about this is written before the state. Otherwise a restart
  would forget that the queue was open.
- A write is valid only for the version that Muster has seen. If the API server refuses the write, the
  controller writes again on the next version.
- A reclaim is written before the victims are evicted, whatever the budget.

The status of a LocalQueue says whether its queue exists, how many groups it has, and which amounts these
groups have allocated. The ledger reports changed LocalQueues. A changed condition is written at once.

While pods are left to Volcano's scheduler, Muster leaves the numbers to Volcano's scheduler, too. Each
scheduler counts only its own pods, so both would correct each other once a second.
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
_STATE_FIELDS = ("state", "conditions")  # status fields that are written at once
_MIN_PERIOD = 1.0  # least seconds between two writes of one object
_STATE_EVENTS = {
    QueueState.OPEN: (NORMAL, EventReason.QUEUE_OPENED),
    QueueState.CLOSING: (NORMAL, EventReason.QUEUE_CLOSING),
    QueueState.CLOSED: (NORMAL, EventReason.QUEUE_CLOSED),
    QueueState.UNKNOWN: (WARNING, EventReason.QUEUE_UNKNOWN),
}


def status_changes(queue: Queue, decision: QueueDecision, *, numbers: bool = True) -> Json:
    """Return the changes of a queue's status, as a merge patch.

    If `numbers` is false, only the fields about the queue's state are compared.
    """
    written, reserved = queue.status, decision.reservation
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
        "borrowed": as_quantities(decision.borrowed) or ({} if written.borrowed else None),
        "usage": decision.usage,
        "share": round(decision.share, 3),
        **decision.counts,
        "reclaimed": reclaims(decision) or None,
        "reservation": reserved and QueueReservation(reserved.node_names, as_quantities(reserved.requests)),
    }
    known_types = {condition.type for condition in written.conditions or ()}
    conditions = (
        Condition(report.type, str(report.holds), report.reason, report.message)
        for report in conditions_of(decision)
        if report.holds or report.type in (OPEN, VALID) or report.type in known_types
    )
    return changes_from(written, status, conditions, numbers)


def reclaims(decision: QueueDecision) -> list[QueueReclaimed]:
    """Return the reclaims of the last hour in the form of a queue's status."""
    return [
        QueueReclaimed(key.queue, entry.group, entry.at, entry.in_vain, entry.unused)
        for key, entry in sorted(decision.reclaimed.items())
    ]


def record_reclaims(ledger: Ledger, cluster: ApiClient, loser: str) -> None:
    """Write the decided reclaims from the queue `loser` into the statuses of the queues that gain capacity.

    The status is written before the first eviction, so that Muster recognizes unused reclaims after a
    restart. If the API server refuses the status, the reclaim continues.

    Raises:
        ApiError: The API server does not answer.
    """
    if ledger.pods.unmanaged_schedulers:
        return
    for name, decision in ledger.decisions.queues.items():
        entries = {(key, by.group, by.at) for key, by in decision.reclaimed.items() if key.queue == loser}
        record = ledger.registry.queues.get(name) if entries else None
        if record is None or entries <= {(key, by.group, by.at) for key, by in record.reclaimed.items()}:
            continue
        changes = {"reclaimed": msgspec.to_builtins(reclaims(decision))}
        try:
            cluster.patch_queue_status(name, {"metadata": {"uid": decision.uid}, "status": changes})
        except Refused as fault:
            log.warning("cannot record what a queue reclaims", queue=name, error=str(fault))


def changes_from(old_status: Any, wanted: Json, own_conditions: Iterable[Condition], numbers: bool) -> Json:
    """Return the fields of a status that differ. Conditions of other controllers stay as they are.

    Args:
        old_status: The status in the API server.
        wanted: The wanted fields, without conditions.
        own_conditions: Muster's conditions.
        numbers: Whether fields with mere numbers are compared, too.
    """
    conditions = {condition.type: condition for condition in old_status.conditions or ()}
    for own in own_conditions:
        conditions[own.type] = with_transition_time(own, conditions.get(own.type))
    return {
        name: amounts_patch(getattr(old_status, name), value)
        for name, value in (wanted | {"conditions": list(conditions.values())}).items()
        if getattr(old_status, name) != value and (numbers or name in _STATE_FIELDS)
    }


def amounts_patch(old_value: Any, value: Any) -> Any:
    """Return a merge patch of amounts. Nulls in the patch remove resources that are gone."""
    if isinstance(value, QueueReservation):
        old_amounts = old_value.resource if old_value else None
        return {"nodes": value.nodes, "resource": amounts_patch(old_amounts, value.resource)}
    nulls = dict.fromkeys(old_value or ()) if isinstance(value, dict) else {}
    return nulls | value if nulls else msgspec.to_builtins(value)


def as_quantities(amounts: Mapping[str, float]) -> dict[str, str | int]:
    """Return amounts as quantities of Kubernetes. Amounts of 0 are left out."""
    return {name: text for name, text in quantities(amounts).items() if text != "0"}


class QueueController(PacedController[str], Generic[T]):
    """Base class of the controllers that write the status of queues and LocalQueues."""

    rate, burst = 2.0, 20

    def __init__(self, context: ControllerContext, copies: ObjectStore[str, T]) -> None:
        super().__init__(context)
        self._copies = copies
        copies.listen(self._on_change)

    def prepare(self) -> None:
        super().prepare()
        self._next_write_at: dict[str, float] = {}  # when an object may be written next

    def on_stopped_leading(self) -> None:
        super().on_stopped_leading()
        self._next_write_at.clear()

    def _on_change(self, key: str) -> None:
        """Make a changed object due; forget an object that is gone."""
        self._parked.pop(key, None)
        if self._copies.get(key) is None:
            self._queue.forget(key)
            self._next_write_at.pop(key, None)
        else:
            self._queue.add(key)

    def _pause(self, key: str) -> float:
        """Return the seconds until an object may be written again."""
        return max(0.0, self._next_write_at.get(key, 0.0) - self._clock())

    def _write_in_turn(
        self, key: str, state: object, write: WriteJob, *, is_urgent: Callable[[], object]
    ) -> None:
        """Submit `write` if `is_urgent` returns a true value or the budget allows; else park the object."""
        if (pause := self._pause(key)) > 0.0:
            self._queue.add(key, pause)
        elif is_urgent() or self._take_turn():
            self._next_write_at[key] = self._clock() + _MIN_PERIOD
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
        self._seen_queues: Mapping[str, QueueDecision] = {}
        self._volcano_writes_numbers = False

    def on_stopped_leading(self) -> None:
        super().on_stopped_leading()
        self._seen_queues = {}

    def due_keys(self, decisions: Decisions) -> Iterator[str]:
        """Yield the queues with changed decisions that are not parked.

        When Volcano's scheduler starts or stops to write numbers, yield all queues.
        """
        before, self._seen_queues = self._seen_queues, decisions.queues
        volcano_writes = bool(self._ledger.pods.unmanaged_schedulers)
        if self._volcano_writes_numbers is not volcano_writes:
            self._volcano_writes_numbers, before = volcano_writes, {}
            self._parked.clear()
        for name in changed_keys(decisions.queues, before):
            decision = decisions.queues.get(name)
            if decision is not None and not self._is_parked(name, _state(decision)):
                yield name

    def reconcile(self, name: str) -> None:
        """Write the status of a queue, unless the copy of the queue is newer than the decision."""
        copy, decision = self._copies.get(name), self._decisions.queues.get(name)
        if copy is None or decision is None or not self._differs(copy.queue, decision):
            return
        if self._decisions.version < copy.ledger_version:
            return self._queue.add(name, self._pause(name))
        is_urgent = partial(self._differs, copy.queue, decision, numbers=False)
        self._write_in_turn(name, _state(decision), partial(self._write, name), is_urgent=is_urgent)

    def _write(self, name: str) -> None:
        """Write the latest decision on the latest copy, both of which may be newer than the submission."""
        copy, decisions = self._copies.get(name), self._ledger.decisions
        decision = decisions.queues.get(name)
        if copy is None or decision is None or not self._differs(copy.queue, decision):
            return
        if decisions.version < copy.ledger_version:
            return self._queue.add(name)
        queue, meta = copy.queue, copy.queue.metadata
        version = {"resourceVersion": meta.resource_version}
        if decision.mark is not AnnotationStep.KEEP:
            annotations = {CLOSED_BY_PARENT: "true" if decision.mark is AnnotationStep.ADD else None}
            patch = {"metadata": {**version, "annotations": annotations}}
            return self._cluster.patch_queue(meta.name, meta.uid, patch)
        changes = status_changes(queue, decision, numbers=not self._volcano_writes_numbers)
        state = changes.pop("state", None)
        if state is not None:
            set_state, version_before = self._cluster.set_queue_status_state, meta.resource_version
            version["resourceVersion"] = set_state(meta.name, meta.uid, state, version_before)
            log.info("a queue's state changed", queue=meta.name, before=queue.status.state, now=state)
            if queue.status.state or state != QueueState.OPEN:  # no Event for a new queue that is open
                kind, reason = _STATE_EVENTS[QueueState(state)]
                message = next(conditions_of(decision)).message
                self._recorder.record(queue_reference(meta.name, meta.uid), kind, reason, message)
        if changes:
            self._cluster.patch_queue_status(meta.name, {"metadata": version, "status": changes})
            self._report_unmet(queue, decision)

    def _report_unmet(self, queue: Queue, decision: QueueDecision) -> None:
        """Record an Event when the guarantee of a queue can no longer be met."""
        before = condition(queue.status.conditions, GUARANTEE_UNMET)
        wanted = next(each for each in conditions_of(decision) if each.type == GUARANTEE_UNMET)
        if wanted.holds and (before is None or before.status != "True"):
            reference = queue_reference(queue.metadata.name, queue.metadata.uid)
            self._recorder.record(reference, WARNING, EventReason.GUARANTEE_UNMET, wanted.message)

    def _differs(self, queue: Queue, decision: QueueDecision, *, numbers: bool = True) -> bool:
        """Return whether a queue has to be written; False if the name belongs to another queue now.

        If `numbers` is false, a queue whose numbers alone have changed need not be written.
        """
        if queue.metadata.uid != decision.uid:
            return False
        changes = status_changes(queue, decision, numbers=numbers and not self._volcano_writes_numbers)
        return bool(changes) or decision.mark is not AnnotationStep.KEEP


def _state(decision: QueueDecision) -> tuple[object, ...]:
    """Return the parts of a decision that are not numbers."""
    state = (decision.uid, decision.state, decision.mark, decision.closed_above, decision.deleting)
    return (*state, decision.fault, *decision.unmet, *decision.missing_flavors, decision.above_nodes)


ACTIVE = "Active"  # condition of a LocalQueue that names an existing queue


class LocalQueueReport(msgspec.Struct, frozen=True):
    activity: Activity
    waiting: int  # number of waiting groups
    admitted: int
    reserved: Resources  # allocation of the LocalQueue's groups


def local_queue_report(ledger: Ledger, key: str) -> LocalQueueReport | None:
    """Return the report on a LocalQueue; None if the LocalQueue is unknown."""
    activity = ledger.queues.local_queue_activity(key)
    if activity is None:
        return None
    counts, reserved = ledger.decisions.local_counts, ledger.queues.local_queue_allocation(key)
    return LocalQueueReport(activity, counts.get((key, WAITING), 0), counts.get((key, ADMITTED), 0), reserved)


def local_queue_changes(local: LocalQueue, report: LocalQueueReport, *, numbers: bool = True) -> Json:
    """Return the status fields of a LocalQueue that differ, as a merge patch.

    If `numbers` is false, only conditions are compared.
    """
    activity, quantities = report.activity, as_quantities(report.reserved)
    counts = {"waiting": report.waiting, "admitted": report.admitted}
    own_condition = Condition(ACTIVE, str(activity.is_active), activity.reason, activity.message)
    return changes_from(local.status, {**counts, "reserved": quantities}, [own_condition], numbers)


class LocalQueueStatusController(QueueController[LocalQueue]):
    """Controller of the statuses of LocalQueues, keyed by `namespace/name`."""

    name = "local-queue-status"

    def prepare(self) -> None:
        super().prepare()
        self._has_listed_all = False  # whether all have been due since this replica began to lead
        self._seen_decisions = Decisions()

    def on_stopped_leading(self) -> None:
        super().on_stopped_leading()
        self._has_listed_all = False
        self._seen_decisions = Decisions()
        self._ledger.queues.take_changed_local_queues()

    def due_keys(self, decisions: Decisions) -> Iterator[str]:
        """Yield the LocalQueues with changed groups or a changed state that are not parked."""
        before, self._seen_decisions = self._seen_decisions, decisions
        changed_keys = set(self._ledger.queues.take_changed_local_queues())
        if not self._has_listed_all:
            self._has_listed_all = True
            changed_keys = self._ledger.queues.local_queue_keys()
        for group in decisions.changed_since(before):
            for version in (before, decisions):
                if (decision := version.groups.get(group)) is not None and decision.life.local_queue:
                    changed_keys.add(decision.life.local_queue)
        for key in changed_keys:
            report = local_queue_report(self._ledger, key)
            if report is not None and not self._is_parked(key, report.activity):
                yield key

    def reconcile(self, key: str) -> None:
        copy, report = self._copies.get(key), local_queue_report(self._ledger, key)
        if copy is None or report is None or not local_queue_changes(copy, report):
            return
        is_urgent = partial(local_queue_changes, copy, report, numbers=False)
        self._write_in_turn(key, report.activity, partial(self._write, key), is_urgent=is_urgent)

    def _write(self, key: str) -> None:
        """Write the current state on the latest copy, both of which may be newer than the submission."""
        copy, report = self._copies.get(key), local_queue_report(self._ledger, key)
        changes = local_queue_changes(copy, report) if copy is not None and report is not None else {}
        if copy is not None and changes:
            meta = copy.metadata
            version = {"uid": meta.uid, "resourceVersion": meta.resource_version}
            patch = {"metadata": version, "status": changes}
            self._cluster.patch_local_queue_status(meta.namespace, meta.name, patch)
