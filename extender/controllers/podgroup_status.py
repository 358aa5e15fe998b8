"""Writes to PodGroups what was decided: phase, conditions, numbers of members, and durably that they stood
whole and which queue took them in.

Statuses are written only when they change, in three lanes. A change of a group's course is written at once.
Numbers of members that run or have ended wait for their turn, and after them messages in which only numbers
changed: one other pod may change those of ten thousand groups. All of these share a budget, and a group that
waits for it is not looked at again before its turn. A group whose members are still being created waits too:
most are complete before it is worth reporting that they are not. A write on an outdated copy is refused by
the API server and made again on the new one.
"""

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from extender.api.objects.groups import PodGroup
from extender.controllers.controller import ControllerContext
from extender.controllers.object_store import ObjectStore
from extender.controllers.paced import PacedController
from extender.controllers.podgroup_patch import ReportedStatus, patch, report_of, reported
from extender.controllers.provisioning_objects import ProvisioningRequests
from extender.controllers.references import GROUP_KINDS
from extender.controllers.start_changes import StartChanges
from extender.controllers.write_backoff import WriteBackoff
from extender.domain.decisions.decisions import Decisions, GroupDecision
from extender.domain.model.life import Phase
from extender.domain.model.marks import admitted_note, whole_note
from extender.domain.model.reasons import Reason
from extender.domain.model.records import GroupKey, Origin

_COUNTS, _DETAIL = 1, 2  # lanes of numbers
_PACE = {_COUNTS: 5.0, _DETAIL: 15.0}  # seconds between two such writes for one group
_SETTLING = 1.0  # seconds from a change of course to the first of them: members start one after the other


class PodGroupStatusController(PacedController[GroupKey]):
    name = "podgroup-status"
    lanes, rate, burst = 3, 3.0, 10

    def __init__(
        self,
        context: ControllerContext,
        copies: ObjectStore[GroupKey, PodGroup],
        provisioning: ProvisioningRequests,
        changes: StartChanges,
    ) -> None:
        super().__init__(context)
        self._copies = copies
        self._provisioning = provisioning
        self._changes = changes
        copies.listen(self._see)
        provisioning.listen(lambda key, _: self._see(key))

    def prepare(self) -> None:
        super().prepare()
        self._numbers_at: dict[GroupKey, float] = {}  # when a group's numbers may be written next
        self._left: set[GroupKey] = set()  # groups that may be Volcano's: due once its scheduler has ended
        self._backoff = WriteBackoff(self._clock)

    def _see(self, key: GroupKey) -> None:
        if self._copies.get(key) is None:
            self._forget(key)
        self._parked.pop(key, None)
        self._queue.add(key)

    def _forget(self, key: GroupKey) -> None:
        self._queue.forget(key)
        self._changes.forget(key)
        self._backoff.forget(key)
        self._numbers_at.pop(key, None)
        self._left.discard(key)

    def rest(self) -> None:
        super().rest()
        self._numbers_at.clear()
        self._left.clear()
        self._backoff.clear()

    # ---- what is due

    def due(self, decisions: Decisions) -> Iterator[GroupKey]:
        for key in self._changed_groups.of(decisions):
            decision = decisions.groups.get(key)
            if decision is None or not self._is_parked(key, self._course(key, decision)):
                yield key
        if self._left and not self._ledger.leaving:
            yield from self._left
            self._left.clear()

    def _course(self, key: GroupKey, decision: GroupDecision) -> tuple[object, ...]:
        """Everything of a decision but its detail, cheaply: a group that waits to have its detail written is
        looked at again if anything else changes."""
        return (decision.verdict, decision.reason, decision.life, *self._ledger.history(key))

    # ---- one group

    def reconcile(self, key: GroupKey) -> None:
        decision, group = self._decisions.groups.get(key), self._copies.get(key)
        if decision is None:
            return self._forget(key)
        if group is None:
            return self._note_on_others(key)
        if self._ledger.may_be_left(key):
            return self._left.add(key)
        written = reported(group)
        wanted = self._wanted(key, decision, written)
        if wanted != written or self._changes.is_due(self._decisions, decision):
            self._write_in_turn(key, decision, wanted, written)

    def _write_in_turn(
        self, key: GroupKey, decision: GroupDecision, wanted: ReportedStatus, written: ReportedStatus
    ) -> None:
        now = self._clock()
        due = self._numbers_at.setdefault(key, now + _SETTLING)
        if wanted.course != written.course:
            filling = due - now if self._is_filling(key, wanted, written) else 0.0
            self._write_course(key, wanted, filling)
        elif now >= due and self._budget.take(now):
            self._changes.work_out(self._decisions, decision)
            if self._wanted(key, decision, written) != written:
                self._numbers_at[key] = now + _PACE[_lane(wanted, written)]
                self._write(key)
        else:
            self._park(key, self._course(key, decision), due - now, _lane(wanted, written))

    def _write_course(self, key: GroupKey, wanted: ReportedStatus, filling: float) -> None:
        """`filling`: seconds for which more members are awaited before the write."""
        pause = filling if filling > 0.0 else self._backoff.pause(key, wanted.course)
        if pause > 0.0:
            return self._queue.add(key, pause)
        self._numbers_at[key] = max(self._numbers_at[key], self._clock() + _SETTLING)
        self._write(key)

    def _is_filling(self, key: GroupKey, wanted: ReportedStatus, written: ReportedStatus) -> bool:
        """Whether members are being created and more are needed. Before the first one, some operators wait
        for the phase, so it is not delayed. A job that has just come may start at once."""
        if not written.reason and wanted.phase == Phase.PENDING and self._ledger.has_job(key):
            return True
        lacks_members = not wanted.scheduled and wanted.reason == Reason.NOT_ENOUGH_MEMBERS
        return lacks_members and self._ledger.has_members(key)

    def _note_on_others(self, key: GroupKey) -> None:
        """The status of a PodGroup of another API belongs to its own controller, so marks are annotations."""
        record = self._ledger.group_record(key)
        if record is None or record.origin is Origin.VOLCANO:
            return
        members, _, admitted = self._ledger.history(key)
        notes: dict[str, str | None] = {}
        if members is not None and members != record.stood_with:
            notes.update(whole_note(record.uid, members))
        if admitted is not record.admitted:
            notes.update(admitted_note(record.uid, admitted))
        if notes:
            kind, note = GROUP_KINDS[record.origin], self._cluster.note_on_group
            self.write(key, partial(note, kind, record.namespace, record.name, record.uid, notes))

    def _wanted(self, key: GroupKey, decision: GroupDecision, written: ReportedStatus) -> ReportedStatus:
        report = report_of(decision, self._changes.known(decision), *self._ledger.history(key), written)
        failure = self._provisioning.failure(key)
        return replace(report, detail=f"{report.detail}; {failure}") if failure else report

    def _write(self, key: GroupKey) -> None:
        self.write(key, partial(self._patch, key))

    def _patch(self, key: GroupKey) -> None:
        """Write the newest decision on the newest copy, whatever they were when the write was submitted."""
        group, decision = self._copies.get(key), self._ledger.decisions.groups.get(key)
        if group is None or decision is None:
            return
        written = reported(group)
        wanted = self._wanted(key, decision, written)
        if wanted != written:
            meta = group.metadata
            answer = self._cluster.patch_group(meta.namespace, meta.name, meta.uid, patch(group, wanted))
            self._copies.follow(key, group, answer)


def _lane(wanted: ReportedStatus, written: ReportedStatus) -> int:
    return _DETAIL if wanted.numbers == written.numbers else _COUNTS
