"""Writes of decisions to PodGroups: phase, conditions, numbers of members, and durable records.

A change of a group's state is written at once (lane 0). There are three lanes for changes of numbers, because
one other pod may change the numbers of ten thousand groups:

1. Numbers of members that run or have ended.
2. The first positions of each queue.
3. Messages in which only other numbers changed.

All numbers share a budget. Two further facts are written later:

- The report that members are missing, while members are still being created. Most groups are complete before
  this report is useful.
- The record of the queue that a group has entered. It is part of the next write, or is written at once when
  the queue closes.

A PodGroup that Muster creates has a status with the reason of the wait from the beginning.

Conditions of other controllers stay as they are. A patch is valid for only one version of its PodGroup: the
API server refuses a write on an outdated copy, and the controller writes again on the new copy.
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
from extender.controllers.controller import MAX_KEYS_PER_CYCLE, ControllerContext, PacedController
from extender.controllers.estimates import Estimates
from extender.controllers.events import StartChanges
from extender.controllers.objects import GROUP_KINDS, ObjectStore, timestamp, with_transition_time
from extender.controllers.provisioning import ProvisioningRequests
from extender.domain.explain.explain import WhyGroup
from extender.domain.model import wire_records as markers
from extender.domain.model.ownership import group_name_of
from extender.domain.model.queue_of_group import entry_annotation, recorded_queue_uid
from extender.domain.model.reasons import Outcome, Reason, Verdict
from extender.domain.model.records import GroupKey, GroupRecord, Origin
from extender.domain.model.resources import quantities
from extender.domain.model.shared_maps import changed_keys
from extender.domain.queues.states import QueueState
from extender.domain.snapshot.decisions import Decisions, GroupDecision, QueueDecision, message_of
from extender.domain.snapshot.phases import Phase

_MEMBERS, _POSITIONS, _DETAILS = 1, 2, 3  # lanes of numbers
_PAUSES = {_MEMBERS: 5.0, _POSITIONS: 5.0, _DETAILS: 15.0}  # seconds between two writes for one group
_TOKENS = {_MEMBERS: 5.0, _POSITIONS: 1.0, _DETAILS: 5.0}  # tokens of a write; a start changes many positions
_EXACT_POSITION_COUNT = 9  # number of groups of each queue whose published position is exact
_SETTLE_SECONDS = 1.0  # seconds from a change of state to its first numbers, as members start one by one
_SHORT_LIVED_REASONS = (None, Reason.WINDOW_FULL, Reason.NOT_ENOUGH_MEMBERS)
_WINDOW_WAIT = 5.0  # seconds after which a new group is reported to wait for the window
_MAX_REPEAT_PAUSE = 30.0  # longest pause between two writes of the same value, in seconds
_MAX_HOLDERS = 5  # most groups and pods that a status names as users of the needed capacity
_MAX_WRITE_AGE = 120.0  # seconds without a write after which a further write counts as the first


class ReportedStatus(msgspec.Struct, frozen=True):
    """Status and annotations that Muster writes on a PodGroup."""

    phase: str  # one of Volcano's phases
    is_scheduled: bool  # the status of the Scheduled condition
    reason: str  # the reason of that condition
    detail: str  # the message of that condition
    whole_count: int | None  # number of members needed when all were on nodes; None if that never was so
    member_counts: tuple[int, int, int]  # numbers of members that run, have succeeded, have failed
    queue_uid: str  # UID of the queue that the group has entered; else empty
    is_admitted: bool  # whether the start was admitted and is not complete yet
    timeout_count: int  # how many starts in a row were undone
    waiting: WaitingStatus | None  # details of the wait, without its beginning; None if there is no wait
    lost_seconds: int  # seconds of work that the group has lost by evictions
    is_full: bool  # whether the annotations are full, so that Muster changes none of its own

    @property
    def state(self) -> tuple[object, ...]:
        """Return the fields whose changes are written at once."""
        return self.phase, self.reason, self.whole_count, self.is_admitted, self.timeout_count


def report_of(
    decision: GroupDecision,
    why: WhyGroup | None,
    written: ReportedStatus,
    whole_count: int | None = None,
    queue_uid: str = "",
    is_admitted: bool = False,
    timeout_count: int | None = None,
    lost_seconds: int = 0,
    estimate: Estimate | None = None,
) -> ReportedStatus:
    """Return the status to write for a decision.

    The UID of the entered queue stays recorded after the queue is deleted, because the groups of a deleted
    queue are found by this UID. The number of lost seconds never decreases.

    Args:
        decision: The newest decision on the group.
        why: The explanation of the group's wait, if it is computed.
        written: The status in the API server.
        whole_count: The number of members needed when all were on nodes; None if that never was so.
        queue_uid: The UID of the queue that the group is in now.
        is_admitted: Whether the group's start was admitted and is not complete.
        timeout_count: How many starts in a row failed; None if the job counts them.
        lost_seconds: Seconds of work lost to evictions.
        estimate: The new estimate. If it is None, an estimate that another process has written stays.
    """
    life = decision.life
    change = why.change.sentence if why and why.change else ""
    latest_estimate = estimate or (written.waiting.estimate if written.waiting else None)
    if written.is_full:
        queue_uid, is_admitted, timeout_count = written.queue_uid, written.is_admitted, written.timeout_count
        lost_seconds = written.lost_seconds
    return ReportedStatus(
        phase=life.phase,
        is_scheduled=life.phase is Phase.RUNNING or life.outcome is Outcome.COMPLETED,
        reason=str(decision.reason or life.outcome or decision.verdict),
        detail=message_of(decision, why.outlook if why else ""),
        whole_count=whole_count,
        member_counts=(life.running, life.succeeded, life.failed),
        queue_uid=queue_uid or written.queue_uid,
        is_admitted=is_admitted,
        timeout_count=written.timeout_count if timeout_count is None else timeout_count,
        waiting=wait_details(decision, why, change, latest_estimate) if decision.reason is not None else None,
        lost_seconds=max(lost_seconds, written.lost_seconds),
        is_full=written.is_full,
    )


def wait_details(
    decision: GroupDecision, why: WhyGroup | None, remedy: str, estimate: Estimate | None = None
) -> WaitingStatus:
    """Return the details of a group's wait, for programs. Without `why`, only the position is known."""
    if why is None:
        return WaitingStatus(position=decision.position, estimate=estimate)
    holders = []
    for holder in why.holders[:_MAX_HOLDERS]:
        namespace, _, name = holder.name.partition("/")
        kind = "PodGroup" if holder.group else "Pod"
        amounts = quantities(holder.amounts)
        departure = holder.deleting, holder.overdue or None
        holders.append(GroupHolder(kind, namespace, name, holder.queue, holder.pods, amounts, *departure))
    queue, capability = (why.change.queue, quantities(why.change.capability)) if why.change else ("", {})
    return WaitingStatus(
        position=decision.position,
        ahead=list(why.ahead),
        holders=holders,
        remedy=remedy,
        capability=[Raise(queue, resource, amount) for resource, amount in capability.items()],
        estimate=estimate,
    )


def reported_status(group: PodGroup) -> ReportedStatus:
    """Return the status and the records that a PodGroup has in the API server."""
    status = group.status
    scheduled, whole_condition = (condition(status.conditions, kind) for kind in (SCHEDULED, STOOD_WHOLE))
    return ReportedStatus(
        phase=status.phase,
        is_scheduled=scheduled is not None and scheduled.status == "True",
        reason=scheduled.reason if scheduled else "",
        detail=scheduled.message if scheduled else "",
        whole_count=markers.whole_members(whole_condition, group.metadata.uid) if whole_condition else None,
        member_counts=(status.running, status.succeeded, status.failed),
        queue_uid=recorded_queue_uid(group.metadata),
        is_admitted=markers.has_admitted_record(group.metadata),
        timeout_count=markers.recorded_timeouts(group.metadata),
        waiting=status.waiting and replace(status.waiting, since=None),
        lost_seconds=markers.recorded_lost_work(group.metadata),
        is_full=markers.leaves_no_space(group.metadata.annotations or {}),
    )


def patch_of(group: PodGroup, report: ReportedStatus) -> dict[str, Any]:
    """Return the merge patch that writes `report` on `group`, valid only for this version of `group`."""
    uid = group.metadata.uid
    own_conditions = [Condition(SCHEDULED, str(report.is_scheduled), report.reason, report.detail)]
    if report.whole_count is not None:
        own_conditions.append(markers.whole_condition(uid, report.whole_count))
    others = {condition.type: condition for condition in group.status.conditions or ()}
    dated = [with_transition_time(own, others.pop(own.type, None)) for own in own_conditions]
    others.pop(STOOD_WHOLE, None)
    annotations: dict[str, str | None] = {}  # None removes an annotation
    if report.queue_uid:
        annotations.update(entry_annotation(report.queue_uid, uid))
    if report.is_admitted is not markers.has_admitted_record(group.metadata):
        annotations.update(markers.admitted_record(uid, report.is_admitted))
    if report.timeout_count != markers.recorded_timeouts(group.metadata):
        annotations[START_TIMEOUTS] = str(report.timeout_count) if report.timeout_count else None
    if report.lost_seconds != markers.recorded_lost_work(group.metadata):
        annotations.update(markers.lost_work_record(uid, report.lost_seconds))
    meta_fields = {"annotations": annotations} if annotations else {}
    waiting: dict[str, Any] | None = None  # null removes the field
    if report.waiting is not None:  # name all fields, since a merge patch keeps unnamed fields
        written, scheduled = group.status.waiting, condition(group.status.conditions, SCHEDULED)
        is_same = written is not None and scheduled is not None and scheduled.reason == report.reason
        since = (written.since if written is not None and is_same else None) or timestamp(datetime.now(UTC))
        waiting = dict.fromkeys(WaitingStatus.__struct_encode_fields__)
        waiting |= msgspec.to_builtins(replace(report.waiting, since=since))
        if report.waiting.estimate is not None:
            waiting["estimate"] = dict.fromkeys(Estimate.__struct_encode_fields__) | waiting["estimate"]
    running, succeeded, failed = report.member_counts
    return {
        "metadata": {"resourceVersion": group.metadata.resource_version, **meta_fields},
        "status": {
            "phase": report.phase,
            "waiting": waiting,
            "conditions": msgspec.to_builtins([*others.values(), *dated]),
            "running": running,
            "succeeded": succeeded,
            "failed": failed,
        },
    }


def first_status(decision: GroupDecision | None) -> dict[str, Any]:
    """Return the status with which Muster creates the PodGroup of a pending group, to save a further write.

    The status is empty for groups that do not wait, and for groups that are likely to start at once.
    """
    if decision is None or decision.verdict is not Verdict.WAITING or decision.reason in _SHORT_LIVED_REASONS:
        return {}
    group = PodGroup(Meta())
    published = report_of(decision, None, reported_status(group))
    status: dict[str, Any] = patch_of(group, published)["status"]
    waiting = {name: value for name, value in status["waiting"].items() if value is not None}
    return {"phase": published.phase, "waiting": waiting, "conditions": status["conditions"]}


class WriteBackoff:
    """Growing pauses between repeated writes of the same value. `clock` is monotonic, in seconds.

    If another controller overwrites a value once, Muster corrects the value at once. If the other controller
    keeps overwriting it, as Volcano's scheduler does on every PodGroup, corrections without pauses would go
    on once a second, endlessly.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Last written value, number of its repetitions, and earliest time of the next repetition.
        self._written: dict[Hashable, tuple[Hashable, int, float]] = {}

    def pause(self, obj: Hashable, value: Hashable) -> float:
        """Return the seconds until `value` may be written to the object `obj`.

        If the result is 0, the caller writes the value now, and the write is counted. A value that differs
        from the last written value may be written at once.
        """
        now = self._clock()
        last_value, repetitions, until = self._written.get(obj, (None, 0, 0.0))
        if last_value != value or now > until + _MAX_WRITE_AGE:
            self._written[obj] = value, 0, now
            return 0.0
        if now < until:
            return until - now
        self._written[obj] = value, repetitions + 1, now + min(_MAX_REPEAT_PAUSE, 2.0**repetitions)
        return 0.0

    def forget(self, obj: Hashable) -> None:
        self._written.pop(obj, None)


def _first_position(decision: GroupDecision) -> int:
    """Return the position of a group if it is one of the first positions of the queue; else 0."""
    return decision.position if decision.position <= _EXACT_POSITION_COUNT else 0


def _lane_of(wanted: ReportedStatus, written: ReportedStatus) -> int:
    """Return the lane of the most important changed numbers: members, exact positions, or details."""
    if wanted.member_counts != written.member_counts:
        return _MEMBERS
    positions = [report.waiting.position if report.waiting else 0 for report in (wanted, written)]
    moves_in_front = positions[0] != positions[1] and 0 < min(positions) <= _EXACT_POSITION_COUNT
    return _POSITIONS if moves_in_front else _DETAILS


def _is_open(name: str, queues: Mapping[str, QueueDecision]) -> bool:
    queue = queues.get(name)
    return queue is not None and queue.state == QueueState.OPEN


class PodGroupStatusController(PacedController[GroupKey]):
    """Controller that writes the status of Volcano's PodGroups, and records on PodGroups of other APIs."""

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
        self._start_changes = changes
        copies.listen(self._on_change)
        provisioning.listen(lambda key, _: self._on_change(key))
        estimates.listen(self._on_change)

    def prepare(self) -> None:
        super().prepare()
        self._next_numbers_at: dict[GroupKey, float] = {}  # when the numbers of a group may be written next
        self._lacks_waiting_field = False  # whether the CRD drops status.waiting, as Volcano's own CRD does
        self._groups_left_to_volcano: set[GroupKey] = set()  # until Volcano's ends
        self._filling_until: dict[GroupKey, float] = {}  # end of the pause while members are created
        self._seen_queues: Mapping[str, QueueDecision] = {}  # queues in the previous decisions
        self._renumbered_groups: dict[GroupKey, None] = {}  # groups with changed numbers, for the next cycles
        self._numbered_serial = -1  # serial of the last decisions that _renumbered_groups covers
        self._backoff = WriteBackoff(self._clock)

    def _on_change(self, key: GroupKey) -> None:
        if self._copies.get(key) is None:
            self._forget(key)
        self._parked.pop(key, None)
        self._queue.add(key)

    def _forget(self, key: GroupKey) -> None:
        self._queue.forget(key)
        self._start_changes.forget(key)
        self._backoff.forget(key)
        self._next_numbers_at.pop(key, None)
        self._filling_until.pop(key, None)
        self._groups_left_to_volcano.discard(key)

    def on_stopped_leading(self) -> None:
        super().on_stopped_leading()
        self._next_numbers_at.clear()
        self._filling_until.clear()
        self._groups_left_to_volcano.clear()
        self._renumbered_groups.clear()
        self._backoff = WriteBackoff(self._clock)

    def due_keys(self, decisions: Decisions) -> Iterator[GroupKey]:
        """Yield the groups whose status may have to be written.

        These are changed groups that are not parked, groups with changed numbers, and the groups of queues
        that have closed. Once Volcano's scheduler has ended, the groups that were left to it are yielded,
        too.
        """
        for key in self._changed_groups.since_last_call(decisions):
            decision = decisions.groups.get(key)
            if decision is None or not self._is_parked(key, self._state_of(key, decision)):
                yield key
        yield from self._renumbered_keys(decisions)
        if self._groups_left_to_volcano and not self._ledger.pods.unmanaged_schedulers:
            yield from self._groups_left_to_volcano
            self._groups_left_to_volcano.clear()
        before, self._seen_queues = self._seen_queues, decisions.queues
        changed = changed_keys(decisions.queues, before)
        closed = {name for name in changed if _is_open(name, before) and not _is_open(name, decisions.queues)}
        if closed:
            yield from (key for key, decision in decisions.groups.items() if decision.queue in closed)

    def _renumbered_keys(self, decisions: Decisions) -> Iterator[GroupKey]:
        """Yield groups with changed numbers, a few per call.

        One start may change the positions of all pending groups. The first positions are written first.
        """
        groups = decisions.groups
        if decisions.serial != self._numbered_serial:
            self._numbered_serial = decisions.serial
            renumbered = decisions.renumbered_groups
            first = (key for key in renumbered if key in groups and _first_position(groups[key]))
            self._renumbered_groups = dict.fromkeys((*first, *self._renumbered_groups, *renumbered))
        for key in list(islice(self._renumbered_groups, MAX_KEYS_PER_CYCLE)):
            del self._renumbered_groups[key]
            if key in groups and not self._is_parked(key, self._state_of(key, groups[key])):
                yield key

    def _state_of(self, key: GroupKey, decision: GroupDecision) -> tuple[object, ...]:
        """Return the parts of a decision that make a parked group due at once when they change."""
        position = _first_position(decision)
        return (decision.verdict, decision.reason, decision.life, position, *self._ledger.groups.history(key))

    def _may_begin_numbers(self) -> bool:
        """Return whether the budget has enough tokens for a write of any lane."""
        return super()._may_begin_numbers() and self._budget.tokens_at(self._clock()) >= _TOKENS[_DETAILS]

    def reconcile(self, key: GroupKey) -> None:
        """Write the status of a group if it differs from the decision. Groups left to Volcano are skipped."""
        decision, group = self._decisions.groups.get(key), self._copies.get(key)
        if decision is None:
            return self._forget(key)
        if group is None:
            return self._record_in_annotations(key, decision)
        if self._ledger.groups.may_be_foreign(key):
            return self._groups_left_to_volcano.add(key)
        written = reported_status(group)
        wanted = self._desired_status(key, decision, written)
        if wanted != written or self._start_changes.is_due(self._decisions, decision):
            self._write_in_turn(key, decision, wanted, written)

    def _pause_before(
        self, key: GroupKey, wanted: ReportedStatus, written: ReportedStatus, now: float
    ) -> float:
        """Return the seconds until a change of state is written.

        There is a pause if another change is likely to follow at once, or if the same value is written again.
        """
        pause = 0.0
        if self._is_filling(key, wanted, written):
            pause = self._filling_until.setdefault(key, now + _SETTLE_SECONDS) - now
        if wanted.reason == Reason.WINDOW_FULL and not written.reason:  # most groups start before
            pause = self._next_numbers_at[key] - _SETTLE_SECONDS + _WINDOW_WAIT - now
        return pause if pause > 0.0 else self._backoff.pause(key, (*wanted.state, wanted.queue_uid))

    def _write_in_turn(
        self, key: GroupKey, decision: GroupDecision, wanted: ReportedStatus, written: ReportedStatus
    ) -> None:
        """Write a change of the group's state after a short pause, and changed numbers in their lane."""
        now = self._clock()
        numbers_at = self._next_numbers_at.setdefault(key, now + _SETTLE_SECONDS)
        lane = _lane_of(wanted, written)
        if lane == _POSITIONS:  # a first position waits less long after a write of details
            numbers_at -= _PAUSES[_DETAILS] - _PAUSES[_POSITIONS]
        is_open = _is_open(decision.queue, self._decisions.queues)
        needs_queue_record = wanted.queue_uid != written.queue_uid and not is_open
        if wanted.state != written.state or needs_queue_record:
            if (pause := self._pause_before(key, wanted, written, now)) > 0.0:
                return self._queue.add(key, pause)
            self._filling_until.pop(key, None)
            self._next_numbers_at[key] = max(numbers_at, now + _SETTLE_SECONDS)
            self.write(key, partial(self._patch, key))
        elif now >= numbers_at and self._budget.take(now, _TOKENS[lane]):
            self._start_changes.compute(self._decisions, decision)
            if self._desired_status(key, decision, written) != written:
                self._next_numbers_at[key] = now + _PAUSES[lane]
                self.write(key, partial(self._patch, key))
        else:
            self._park(key, self._state_of(key, decision), numbers_at - now, lane)

    def _is_filling(self, key: GroupKey, wanted: ReportedStatus, written: ReportedStatus) -> bool:
        """Return whether members are being created, so that the report of missing members can wait.

        Without members, the phase is written at once, because some operators wait for it. There are two
        exceptions: a new job, since it may start at once, and a starting job until its first pod.
        """
        if self._ledger.registry.has_job(key):
            record, pods = self._ledger.groups.record(key), self._ledger.groups.members(key)
            is_ours = record is not None and record.name == group_name_of(record.owner_uid)
            if wanted.phase == Phase.INQUEUE and is_ours and not pods:
                return True
            if wanted.phase == Phase.PENDING and not written.reason:
                return True
        lacks_members = not wanted.is_scheduled and wanted.reason == Reason.NOT_ENOUGH_MEMBERS
        return lacks_members and self._ledger.groups.has_members(key)

    def _record_in_annotations(self, key: GroupKey, decision: GroupDecision) -> None:
        """Write records on a PodGroup of another API as annotations, since its status has another owner.

        For PodGroups of Kubernetes, also write the condition that says whether the group was ever scheduled.
        """
        record = self._ledger.groups.record(key)
        if record is None or record.origin is Origin.VOLCANO:
            return
        members, _, admitted, timeouts, lost_work = self._ledger.groups.history(key)
        annotations: dict[str, str | None] = {}
        if members is not None and members != record.members_when_run:
            annotations.update(markers.whole_record(record.uid, members))
        if admitted is not record.was_admitted:
            annotations.update(markers.admitted_record(record.uid, admitted))
        if timeouts is not None and timeouts != record.start_timeouts:
            annotations[START_TIMEOUTS] = str(timeouts) if timeouts else None
        if lost_work > record.lost_work:
            annotations.update(markers.lost_work_record(record.uid, lost_work))
        if annotations:
            kind, annotate = GROUP_KINDS[record.origin], self._cluster.record_on_group
            self.write(key, partial(annotate, kind, record.namespace, record.name, record.uid, annotations))
        self._report_native(key, record, decision, members is not None, record.fault)
        for child, is_whole in self._ledger.groups.child_groups(key):
            self._report_native(key, child, decision, members is not None and is_whole, record.fault)

    def _report_native(
        self, key: GroupKey, record: GroupRecord, decision: GroupDecision, is_whole: bool, fault: str
    ) -> None:
        """Write the scheduling condition of a PodGroup of Kubernetes, or of a PodGroup in its tree."""
        reason = SCHEDULED if is_whole else str(decision.reason or record.last_reason)
        has_condition = record.origin in (Origin.NATIVE, Origin.COMPOSITE)
        if not has_condition or record.last_reason in (reason, SCHEDULED):
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
        """Return the status that results from the decision on a group."""
        why, history = self._start_changes.known_explanation(decision), self._ledger.groups.history(key)
        report = report_of(decision, why, written, *history, self._estimates.get(key))
        if self._lacks_waiting_field:
            report = replace(report, waiting=None)
        failure = self._provisioning.failure(key)
        return replace(report, detail=f"{report.detail}; {failure}") if failure else report

    def _patch(self, key: GroupKey) -> None:
        """Write the latest decision on the latest copy, both of which may be newer than the submission."""
        group, decision = self._copies.get(key), self._ledger.decisions.groups.get(key)
        if group is None or decision is None:
            return
        written = reported_status(group)
        wanted = self._desired_status(key, decision, written)
        if wanted != written:
            meta = group.metadata
            answer = self._cluster.patch_group(meta.namespace, meta.name, meta.uid, patch_of(group, wanted))
            self._copies.record_write(key, group, answer)
            self._lacks_waiting_field |= wanted.waiting is not None and answer.status.waiting is None
