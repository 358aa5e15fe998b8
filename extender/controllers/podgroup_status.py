"""Writes decisions to PodGroups: phase, conditions, numbers of members, and durable records.

There are four lanes. A change of a group's state is written at once; then numbers of members that run or
have ended; then the first places of each queue; and then messages in which only other numbers changed: one
other pod may change those of ten thousand groups. All numbers share a budget. A group whose members are still
being created waits, too: most are complete before it is worth reporting that they are not. So does the record
of the queue that a group has entered: it goes with the next write, or at once when the queue closes.

A PodGroup that Muster makes says from the beginning why its group waits.

Conditions of other controllers stay as they are. A patch is valid for only one version of its group: a write
on an outdated copy is refused by the API server and made again on the new one.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from extender.api.keys import INITIALLY_SCHEDULED, SCHEDULED, START_TIMEOUTS, STOOD_WHOLE
from extender.api.objects.base import Condition, Meta, condition
from extender.api.objects.queues import Estimate, GroupHolder, PodGroup, Raise, WaitingStatus
from extender.controllers.controller import AT_ONCE, ControllerContext, PacedController
from extender.controllers.estimates import Estimates
from extender.controllers.events import StartChanges
from extender.controllers.objects import GROUP_KINDS, ObjectStore, timestamp, with_transition_time
from extender.controllers.provisioning import ProvisioningRequests
from extender.domain.explain.explain import WhyGroup
from extender.domain.model import wire_records as markers
from extender.domain.model.ownership import group_name_of
from extender.domain.model.queue_of_group import entry_annotation, recorded_queue
from extender.domain.model.reasons import Outcome, Reason, Verdict
from extender.domain.model.records import GroupKey, GroupRecord, Origin
from extender.domain.model.resources import quantities
from extender.domain.model.shared_maps import changed_keys
from extender.domain.queues.states import QueueState
from extender.domain.snapshot.decisions import Decisions, GroupDecision, QueueDecision, message_of
from extender.domain.snapshot.phases import Phase

_COUNTS, _FRONT, _DETAIL = 1, 2, 3  # lanes of numbers
_PACE = {_COUNTS: 5.0, _FRONT: 5.0, _DETAIL: 15.0}  # seconds between two such writes for one group
_COST = {_COUNTS: 5.0, _FRONT: 1.0, _DETAIL: 5.0}  # tokens of one write: one start renumbers many in front
_FIRST_PLACES = 9  # of each queue, which are exact
_SETTLING = 1.0  # seconds from a change of state to its first numbers: members start one by one
_PASSING_REASONS = (None, Reason.WINDOW_FULL, Reason.NOT_ENOUGH_MEMBERS)
_PASSING = 5.0  # seconds before a new group reports that it waits for the window
_LONGEST = 30.0  # seconds between two writes of the same value
_MOST_HOLDERS = 5  # holders named in a status
_FORGOTTEN = 120.0  # seconds without a write after which the next one counts as the first


class ReportedStatus(msgspec.Struct, frozen=True):
    """Status and annotations that Muster writes on a PodGroup."""

    phase: str  # one of Volcano's
    scheduled: bool  # the status of the Scheduled condition
    reason: str  # the reason of that condition
    detail: str  # the message of that condition
    ran_with: int | None  # number of members that it needed when it ran fully; None: it never did
    numbers: tuple[int, int, int]  # members that run, have succeeded, have failed
    queue_uid: str  # the queue that it has entered; empty: none
    admitted: bool  # its start was admitted and is not complete yet
    start_timeouts: int  # how often in a row its start was undone
    waiting: WaitingStatus | None  # details, except since when it waits; None: it does not wait
    lost_work: int  # the seconds of its work that evictions have cost it
    is_full: bool  # its annotations are full: Muster's own stay as they are

    @property
    def state(self) -> tuple[object, ...]:
        """Return the part of the status whose changes are written at once."""
        return self.phase, self.reason, self.ran_with, self.admitted, self.start_timeouts


def report_of(
    decision: GroupDecision,
    why: WhyGroup | None,
    ran_with: int | None,
    queue_uid: str,
    admitted: bool,
    timeouts: int | None,
    lost_work: int,
    written: ReportedStatus,
    estimate: Estimate | None = None,
) -> ReportedStatus:
    """Return the status to write for a decision.

    The UID of the queue that the group has entered stays recorded after the queue is gone: its groups are
    found by it. Lost work stays lost.

    Args:
        decision: The newest decision on the group.
        why: The reason of its wait, if it is computed.
        ran_with: The number of members needed when all had nodes; None: it never was so.
        queue_uid: The queue that the group is in now.
        admitted: Whether its start was admitted and is not complete.
        timeouts: How many starts in a row failed; None if the job counts them.
        lost_work: Seconds of work lost to evictions.
        written: The status in the API server.
        estimate: The new estimate; without one, the written one of another process stays.
    """
    life = decision.life
    change = why.change.sentence if why and why.change else ""
    known = estimate or (written.waiting.estimate if written.waiting else None)
    if written.is_full:
        queue_uid, admitted, timeouts = written.queue_uid, written.admitted, written.start_timeouts
        lost_work = written.lost_work
    return ReportedStatus(
        phase=life.phase,
        scheduled=life.phase is Phase.RUNNING or life.outcome is Outcome.COMPLETED,
        reason=str(decision.reason or life.outcome or decision.verdict),
        detail=message_of(decision, why.outlook if why else ""),
        ran_with=ran_with,
        numbers=(life.running, life.succeeded, life.failed),
        queue_uid=queue_uid or written.queue_uid,
        admitted=admitted,
        start_timeouts=written.start_timeouts if timeouts is None else timeouts,
        waiting=waiting_of(decision, why, change, known) if decision.reason is not None else None,
        lost_work=max(lost_work, written.lost_work),
        is_full=written.is_full,
    )


def waiting_of(
    decision: GroupDecision, why: WhyGroup | None, remedy: str, estimate: Estimate | None = None
) -> WaitingStatus:
    """Return how a group waits, for programs. Without `why` only its position is known."""
    if why is None:
        return WaitingStatus(position=decision.position, estimate=estimate)
    holders = []
    for holder in why.holders[:_MOST_HOLDERS]:
        namespace, _, name = holder.name.partition("/")
        kind = "PodGroup" if holder.group else "Pod"
        holds = quantities(holder.amounts)
        departure = holder.deleting, holder.overdue or None
        holders.append(GroupHolder(kind, namespace, name, holder.queue, holder.pods, holds, *departure))
    queue, capability = (why.change.queue, quantities(why.change.capability)) if why.change else ("", {})
    return WaitingStatus(
        position=decision.position,
        ahead=list(why.ahead),
        holders=holders,
        remedy=remedy,
        capability=[Raise(queue, resource, amount) for resource, amount in capability.items()],
        estimate=estimate,
    )


def reported(group: PodGroup) -> ReportedStatus:
    """Return what the status and the records of a PodGroup say."""
    status = group.status
    scheduled, stood_whole = (condition(status.conditions, kind) for kind in (SCHEDULED, STOOD_WHOLE))
    return ReportedStatus(
        phase=status.phase,
        scheduled=scheduled is not None and scheduled.status == "True",
        reason=scheduled.reason if scheduled else "",
        detail=scheduled.message if scheduled else "",
        ran_with=markers.whole_members(stood_whole, group.metadata.uid) if stood_whole else None,
        numbers=(status.running, status.succeeded, status.failed),
        queue_uid=recorded_queue(group.metadata),
        admitted=markers.records_admitted(group.metadata),
        start_timeouts=markers.recorded_timeouts(group.metadata),
        waiting=status.waiting and replace(status.waiting, since=None),
        lost_work=markers.recorded_lost(group.metadata),
        is_full=markers.leaves_no_space(group.metadata.annotations or {}),
    )


def patch(group: PodGroup, report: ReportedStatus) -> dict[str, Any]:
    """Return the merge patch that writes `report` on `group`, valid only for this version of it."""
    uid = group.metadata.uid
    ours = [Condition(SCHEDULED, str(report.scheduled), report.reason, report.detail)]
    if report.ran_with is not None:
        ours.append(markers.whole_condition(uid, report.ran_with))
    before = {condition.type: condition for condition in group.status.conditions or ()}
    dated_ours = [with_transition_time(condition, before.pop(condition.type, None)) for condition in ours]
    before.pop(STOOD_WHOLE, None)
    annotations: dict[str, str | None] = {}  # None removes one
    if report.queue_uid:
        annotations.update(entry_annotation(report.queue_uid, uid))
    if report.admitted is not markers.records_admitted(group.metadata):
        annotations.update(markers.admitted_record(uid, report.admitted))
    if report.start_timeouts != markers.recorded_timeouts(group.metadata):
        annotations[START_TIMEOUTS] = str(report.start_timeouts) if report.start_timeouts else None
    if report.lost_work != markers.recorded_lost(group.metadata):
        annotations.update(markers.lost_record(uid, report.lost_work))
    recorded = {"annotations": annotations} if annotations else {}
    waiting: dict[str, Any] | None = None  # null removes the field
    if report.waiting is not None:  # all fields, since a merge patch keeps those that it does not name
        written, scheduled = group.status.waiting, condition(group.status.conditions, SCHEDULED)
        is_same = written is not None and scheduled is not None and scheduled.reason == report.reason
        since = (written.since if written is not None and is_same else None) or timestamp(datetime.now(UTC))
        waiting = dict.fromkeys(WaitingStatus.__struct_encode_fields__)
        waiting |= msgspec.to_builtins(replace(report.waiting, since=since))
        if report.waiting.estimate is not None:
            waiting["estimate"] = dict.fromkeys(Estimate.__struct_encode_fields__) | waiting["estimate"]
    running, succeeded, failed = report.numbers
    return {
        "metadata": {"resourceVersion": group.metadata.resource_version, **recorded},
        "status": {
            "phase": report.phase,
            "waiting": waiting,
            "conditions": msgspec.to_builtins([*before.values(), *dated_ours]),
            "running": running,
            "succeeded": succeeded,
            "failed": failed,
        },
    }


def first_status(decision: GroupDecision | None) -> dict[str, Any]:
    """Return the status with which Muster makes the PodGroup of a pending group: it saves a further write.

    The status is empty for other groups, and for groups that are likely to start at once.
    """
    if decision is None or decision.verdict is not Verdict.WAITING or decision.reason in _PASSING_REASONS:
        return {}
    group = PodGroup(Meta())
    empty = reported(group)
    published = report_of(
        decision, None, ran_with=None, queue_uid="", admitted=False, timeouts=None, lost_work=0, written=empty
    )
    status: dict[str, Any] = patch(group, published)["status"]
    waiting = {name: value for name, value in status["waiting"].items() if value is not None}
    return {"phase": published.phase, "waiting": waiting, "conditions": status["conditions"]}


class WriteBackoff:
    """Growing pauses between writes of the same value. `clock` is monotonic, in seconds.

    A value that another controller overwrites is corrected at once. But one that keeps overwriting it, as
    Volcano's scheduler does on every PodGroup that it sees, would be answered once a second, endlessly.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Last written value, number of repetitions, and time of the next one.
        self._written: dict[Hashable, tuple[Hashable, int, float]] = {}

    def pause(self, obj: Hashable, value: Hashable) -> float:
        """Return the seconds until `value` may be written to the object `obj`; 0 counts as written now.

        Anything other than the last written value may be written at once.
        """
        now = self._clock()
        before, times, until = self._written.get(obj, (None, 0, 0.0))
        if before != value or now > until + _FORGOTTEN:
            self._written[obj] = value, 0, now
            return 0.0
        if now < until:
            return until - now
        self._written[obj] = value, times + 1, now + min(_LONGEST, 2.0**times)
        return 0.0

    def forget(self, obj: Hashable) -> None:
        self._written.pop(obj, None)


def _front_place(decision: GroupDecision) -> int:
    """Return the position of a group if it is one of the first; else 0."""
    return decision.position if decision.position <= _FIRST_PLACES else 0


def _lane(wanted: ReportedStatus, written: ReportedStatus) -> int:
    """Return the lane of the numbers that have changed: members first, then the first places of a queue."""
    if wanted.numbers != written.numbers:
        return _COUNTS
    places = [report.waiting.position if report.waiting else 0 for report in (wanted, written)]
    moves_in_front = places[0] != places[1] and 0 < min(places) <= _FIRST_PLACES
    return _FRONT if moves_in_front else _DETAIL


def _is_open(name: str, queues: Mapping[str, QueueDecision]) -> bool:
    queue = queues.get(name)
    return queue is not None and queue.state == QueueState.OPEN


class PodGroupStatusController(PacedController[GroupKey]):
    name = "podgroup-status"
    lanes, rate, burst = 4, 15.0, 50

    def __init__(
        self,
        context: ControllerContext,
        copies: ObjectStore[GroupKey, PodGroup],
        provisioning: ProvisioningRequests,
        changes: StartChanges,
        estimates: Estimates,
    ) -> None:
        super().__init__(context)
        self._estimates = estimates
        self._copies = copies
        self._provisioning = provisioning
        self._changes = changes
        copies.listen(self._on_change)
        provisioning.listen(lambda key, _: self._on_change(key))
        estimates.listen(self._on_change)

    def prepare(self) -> None:
        super().prepare()
        self._numbers_at: dict[GroupKey, float] = {}  # when a group's numbers may be written next
        self._drops_waiting = False  # whether the cluster's PodGroups lack that field: Volcano's own do
        self._possibly_foreign: set[GroupKey] = set()  # due once the scheduler of Volcano has ended
        self._filling: dict[GroupKey, float] = {}  # end of the pause while members are created
        self._published: Mapping[str, QueueDecision] = {}  # queues, at the last look
        self._renumbered: dict[GroupKey, None] = {}  # groups with other numbers, compared a few per look
        self._numbered = -1  # the serial of the decisions that renumbered them
        self._backoff = WriteBackoff(self._clock)

    def _on_change(self, key: GroupKey) -> None:
        if self._copies.get(key) is None:
            self._forget(key)
        self._parked.pop(key, None)
        self._queue.add(key)

    def _forget(self, key: GroupKey) -> None:
        self._queue.forget(key)
        self._changes.forget(key)
        self._backoff.forget(key)
        self._numbers_at.pop(key, None)
        self._filling.pop(key, None)
        self._possibly_foreign.discard(key)

    def on_stopped_leading(self) -> None:
        super().on_stopped_leading()
        self._numbers_at.clear()
        self._filling.clear()
        self._possibly_foreign.clear()
        self._renumbered.clear()
        self._backoff = WriteBackoff(self._clock)

    def due_keys(self, decisions: Decisions) -> Iterator[GroupKey]:
        for key in self._changed_groups.since_last_call(decisions):
            decision = decisions.groups.get(key)
            if decision is None or not self._is_parked(key, self._state_of(key, decision)):
                yield key
        yield from self._with_other_numbers(decisions)
        if self._possibly_foreign and not self._ledger.pods.unmanaged:
            yield from self._possibly_foreign
            self._possibly_foreign.clear()
        before, self._published = self._published, decisions.queues
        changed = changed_keys(decisions.queues, before)
        closed = {name for name in changed if _is_open(name, before) and not _is_open(name, decisions.queues)}
        if closed:
            yield from (key for key, decision in decisions.groups.items() if decision.queue in closed)

    def _with_other_numbers(self, decisions: Decisions) -> Iterator[GroupKey]:
        """Return groups with changed numbers, a few per call.

        One start may renumber all pending groups; the first positions are written first.
        """
        groups = decisions.groups
        if decisions.serial != self._numbered:
            self._numbered = decisions.serial
            front = (key for key in decisions.renumbered if key in groups and _front_place(groups[key]))
            self._renumbered = dict.fromkeys((*front, *self._renumbered, *decisions.renumbered))
        for key in list(islice(self._renumbered, AT_ONCE)):
            del self._renumbered[key]
            if key in groups and not self._is_parked(key, self._state_of(key, groups[key])):
                yield key

    def _state_of(self, key: GroupKey, decision: GroupDecision) -> tuple[object, ...]:
        """Return a decision without its detail. If it changes, a parked write of numbers is reconsidered."""
        place = _front_place(decision)
        return (decision.verdict, decision.reason, decision.life, place, *self._ledger.groups.history(key))

    def _may_begin_numbers(self) -> bool:
        """Return whether there are tokens for a write of any lane."""
        return super()._may_begin_numbers() and self._budget.available(self._clock()) >= _COST[_DETAIL]

    def reconcile(self, key: GroupKey) -> None:
        decision, group = self._decisions.groups.get(key), self._copies.get(key)
        if decision is None:
            return self._forget(key)
        if group is None:
            return self._record_on_others(key, decision)
        if self._ledger.groups.may_be_foreign(key):
            return self._possibly_foreign.add(key)
        written = reported(group)
        wanted = self._desired_status(key, decision, written)
        if wanted != written or self._changes.is_due(self._decisions, decision):
            self._write_in_turn(key, decision, wanted, written)

    def _pause_before(
        self, key: GroupKey, wanted: ReportedStatus, written: ReportedStatus, now: float
    ) -> float:
        """Return the seconds until a change of state is written: another one may follow at once."""
        pause = 0.0
        if self._is_filling(key, wanted, written):
            pause = self._filling.setdefault(key, now + _SETTLING) - now
        if wanted.reason == Reason.WINDOW_FULL and not written.reason:  # most get a place before
            pause = self._numbers_at[key] - _SETTLING + _PASSING - now
        return pause if pause > 0.0 else self._backoff.pause(key, (*wanted.state, wanted.queue_uid))

    def _write_in_turn(
        self, key: GroupKey, decision: GroupDecision, wanted: ReportedStatus, written: ReportedStatus
    ) -> None:
        """Write a change of the group's state after a short pause, and its numbers in their lane."""
        now = self._clock()
        due = self._numbers_at.setdefault(key, now + _SETTLING)
        lane = _lane(wanted, written)
        if lane == _FRONT:  # it follows sooner after details than other details do
            due -= _PACE[_DETAIL] - _PACE[_FRONT]
        is_open = _is_open(decision.queue, self._decisions.queues)
        queue_is_lost = wanted.queue_uid != written.queue_uid and not is_open
        if wanted.state != written.state or queue_is_lost:
            if (pause := self._pause_before(key, wanted, written, now)) > 0.0:
                return self._queue.add(key, pause)
            self._filling.pop(key, None)
            self._numbers_at[key] = max(due, now + _SETTLING)
            self.write(key, partial(self._patch, key))
        elif now >= due and self._budget.take(now, _COST[lane]):
            self._changes.compute(self._decisions, decision)
            if self._desired_status(key, decision, written) != written:
                self._numbers_at[key] = now + _PACE[lane]
                self.write(key, partial(self._patch, key))
        else:
            self._park(key, self._state_of(key, decision), due - now, lane)

    def _is_filling(self, key: GroupKey, wanted: ReportedStatus, written: ReportedStatus) -> bool:
        """Return whether members are being created, so that the report of missing members can wait.

        Without members, the phase is written at once: some operators wait for it. A new job waits, since it
        may start at once, and a starting job until its first pod.
        """
        if self._ledger.registry.has_job(key):
            record, pods = self._ledger.groups.record(key), self._ledger.groups.members(key)
            is_ours = record is not None and record.name == group_name_of(record.owner)
            if wanted.phase == Phase.INQUEUE and is_ours and not pods:
                return True
            if wanted.phase == Phase.PENDING and not written.reason:
                return True
        lacks_members = not wanted.scheduled and wanted.reason == Reason.NOT_ENOUGH_MEMBERS
        return lacks_members and self._ledger.groups.has_members(key)

    def _record_on_others(self, key: GroupKey, decision: GroupDecision) -> None:
        """Write records on a PodGroup of another API as annotations: its controller owns the status.

        The scheduler of Kubernetes' own PodGroups says whether they have ever been scheduled.
        """
        record = self._ledger.groups.record(key)
        if record is None or record.origin is Origin.VOLCANO:
            return
        members, _, admitted, timeouts, lost_work = self._ledger.groups.history(key)
        annotations: dict[str, str | None] = {}
        if members is not None and members != record.ran_with:
            annotations.update(markers.whole_record(record.uid, members))
        if admitted is not record.admitted:
            annotations.update(markers.admitted_record(record.uid, admitted))
        if timeouts is not None and timeouts != record.start_timeouts:
            annotations[START_TIMEOUTS] = str(timeouts) if timeouts else None
        if lost_work > record.lost_work:
            annotations.update(markers.lost_record(record.uid, lost_work))
        if annotations:
            kind, annotate = GROUP_KINDS[record.origin], self._cluster.record_on_group
            self.write(key, partial(annotate, kind, record.namespace, record.name, record.uid, annotations))
        self._report_native(key, record, decision, members is not None, record.fault)
        for child, is_whole in self._ledger.groups.child_groups(key):
            self._report_native(key, child, decision, members is not None and is_whole, record.fault)

    def _report_native(
        self, key: GroupKey, record: GroupRecord, decision: GroupDecision, is_whole: bool, fault: str
    ) -> None:
        """Write the condition of a group of Kubernetes, or of one in its tree."""
        reason = SCHEDULED if is_whole else str(decision.reason or record.last_reason)
        has_one = record.origin in (Origin.NATIVE, Origin.COMPOSITE)
        if not has_one or record.last_reason in (reason, SCHEDULED):
            return
        published = markers.native_condition(record, reason, fault)
        if reason == SCHEDULED or not record.last_reason:
            published["lastTransitionTime"] = timestamp(datetime.now(UTC))
        set_condition, kind = self._cluster.set_group_condition, GROUP_KINDS[record.origin]
        write = partial(set_condition, kind, record.namespace, record.name, record.uid, published)
        self.write(key, write, target=(INITIALLY_SCHEDULED, record.key))

    def _desired_status(
        self, key: GroupKey, decision: GroupDecision, written: ReportedStatus
    ) -> ReportedStatus:
        """Return the status that the decision on a group calls for."""
        why, history = self._changes.known(decision), self._ledger.groups.history(key)
        report = report_of(decision, why, *history, written, self._estimates.get(key))
        if self._drops_waiting:
            report = replace(report, waiting=None)
        failure = self._provisioning.failure(key)
        return replace(report, detail=f"{report.detail}; {failure}") if failure else report

    def _patch(self, key: GroupKey) -> None:
        """Write the latest decision on the latest copy, not those of the time of submission."""
        group, decision = self._copies.get(key), self._ledger.decisions.groups.get(key)
        if group is None or decision is None:
            return
        written = reported(group)
        wanted = self._desired_status(key, decision, written)
        if wanted != written:
            meta = group.metadata
            answer = self._cluster.patch_group(meta.namespace, meta.name, meta.uid, patch(group, wanted))
            self._copies.record_write(key, group, answer)
            self._drops_waiting |= wanted.waiting is not None and answer.status.waiting is None
