"""Telling PodGroups what was decided: phase, conditions, how many members do what, and durably that they
stood whole and which queue took them in.

Written only on change. What changes a group's course is written at once; numbers that merely moved wait their
turn, and so does a group whose members are coming: most are whole before they were told that they are not.
A write on an outdated copy is refused by the API server and made again on the new one.
"""

import threading
from functools import partial

from extender.api.objects import PodGroup
from extender.controllers.actor import Actor
from extender.controllers.group_status import Report, patch, report_of, reported
from extender.controllers.insistence import Insistence
from extender.domain.decisions.decisions import Decisions, GroupDecision
from extender.domain.model.reasons import Reason
from extender.domain.model.records import GroupKey, Origin
from extender.kube.errors import ApiError
from extender.kube.resources import NATIVE_POD_GROUPS, PLUGINS_POD_GROUPS

_OTHERS = {Origin.PLUGINS: PLUGINS_POD_GROUPS, Origin.NATIVE: NATIVE_POD_GROUPS}
_PACE = 5.0  # seconds between two writes of numbers
_SETTLING = 1.0  # seconds from a turn to the first of them: members come and start one after the other


class Reporter(Actor):
    """Also the sink's second ear for PodGroups: the newest copy of each is kept for its version."""

    def prepare(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[GroupKey, PodGroup] = {}
        self._due: set[GroupKey] = set()
        self._left: set[GroupKey] = set()  # those that may be Volcano's: due when it has ended
        self._numbers_at: dict[GroupKey, float] = {}
        self._insistence = Insistence(self._clock)

    def see(self, group: PodGroup) -> None:
        with self._lock:
            self._groups[_key(group)] = group
            self._due.add(_key(group))

    def forget(self, key: GroupKey) -> None:
        with self._lock:
            self._groups.pop(key, None)
            self._due.discard(key)
            self._left.discard(key)
            self._numbers_at.pop(key, None)
            self._insistence.forget(key)

    def look(self, decisions: Decisions) -> None:
        """Write what differs from what the API has. Groups of which nothing changed are passed over; what
        changes while another leads stays due."""
        with self._lock:
            self._due.update(self._turns.of(decisions))
            if self._left and not self._ledger.leaving:
                self._due |= self._left
                self._left.clear()
            if not self._leads():
                return
            due, self._due = self._due, set()
        for key in due:
            if (decision := decisions.groups.get(key)) is not None:
                self._report(key, decision)

    def _report(self, key: GroupKey, decision: GroupDecision) -> None:
        group = self._groups.get(key)
        if group is None:
            return self._note_on_others(key)
        if self._ledger.may_be_left(key):
            with self._lock:
                self._left.add(key)
            return
        written = reported(group)
        wanted = self._wanted(key, decision, written)
        if wanted == written:
            return
        if not self._may_write(key, wanted, written):
            with self._lock:
                self._due.add(key)
            return
        self._writers.submit(("report", key), lambda: self._write(key), lambda fault: self._ended(key, fault))

    def _note_on_others(self, key: GroupKey) -> None:
        """The status of a PodGroup of another kind is its owner's: that it stood whole is noted beside it."""
        record = self._ledger.group_record(key)
        if record is None or record.origin not in _OTHERS or record.stood_whole:
            return
        if self._ledger.history(key)[0]:
            kind = _OTHERS[record.origin]
            write = partial(self._cluster.note_stood_whole, kind, record.namespace, record.name, record.uid)
            self._writers.submit(("report", key), write, lambda fault: self._ended(key, fault))

    def _ended(self, key: GroupKey, fault: ApiError | None) -> None:
        """What failed for a passing reason stays due, however often it was tried, and so does what the fence
        dropped. After a conflict the watch brings the copy to write on."""
        if fault is not None and fault.transient:
            with self._lock:
                self._due.add(key)

    def _may_write(self, key: GroupKey, wanted: Report, written: Report) -> bool:
        now = self._clock()
        if wanted.course != written.course and not self._is_filling(key, wanted):
            self._numbers_at[key] = max(self._numbers_at.get(key, 0.0), now + _SETTLING)
            return self._insistence.may_say(key, wanted.course)
        if now < self._numbers_at.setdefault(key, now + _SETTLING):
            return False
        self._numbers_at[key] = now + _PACE
        return True

    def _is_filling(self, key: GroupKey, wanted: Report) -> bool:
        """Members are coming, and more are needed. Before the first one the phase is what some operator waits
        for, so that is not held up."""
        lacks_members = not wanted.scheduled and wanted.reason == Reason.NOT_ENOUGH_MEMBERS
        return lacks_members and self._ledger.has_members(key)

    def _wanted(self, key: GroupKey, decision: GroupDecision, written: Report) -> Report:
        return report_of(decision, *self._ledger.history(key), written)

    def _write(self, key: GroupKey) -> None:
        """Write the newest decision on the newest copy, whatever they were when this was asked for."""
        group, decision = self._groups.get(key), self._ledger.decisions.groups.get(key)
        if group is None or decision is None:
            return
        written = reported(group)
        wanted = self._wanted(key, decision, written)
        if wanted != written:
            meta = group.metadata
            answer = self._cluster.patch_group(meta.namespace, meta.name, meta.uid, patch(group, wanted))
            self._keep(key, group, answer)

    def _keep(self, key: GroupKey, written_on: PodGroup, answer: PodGroup) -> None:
        """The next write need not wait until the watch shows this one; if that showed another, it counts."""
        with self._lock:
            if self._groups.get(key) is written_on:
                self._groups[key] = answer


def _key(group: PodGroup) -> GroupKey:
    return GroupKey(f"{group.metadata.namespace}/{group.metadata.name}")
