"""Telling PodGroups what was decided: phase, conditions, and durably that they stood whole.

Written only on change. What changes a group's course is written at once; a detail whose numbers merely
moved waits its turn. Conditions of others stay as they are; a write on an outdated copy is refused by the API
server and made again on the new one.
"""

import threading
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from extender.api.keys import SCHEDULED, STOOD_WHOLE
from extender.api.objects import Condition, PodGroup
from extender.controllers.actor import Actor
from extender.domain.decisions import Decisions, GroupDecision
from extender.domain.reasons import Verdict
from extender.domain.records import GroupKey
from extender.kube.errors import ApiError

_PHASES = {Verdict.WAITING: "Pending", Verdict.STARTING: "Inqueue", Verdict.RUNNING: "Running"}
_DETAIL_PACE = 5.0


class Report(msgspec.Struct, frozen=True):
    """What a PodGroup's status is to say."""

    phase: str
    reason: str
    detail: str
    stood_whole: bool

    @property
    def course(self) -> tuple[str, str, bool]:
        return (self.phase, self.reason, self.stood_whole)


class Reporter(Actor):
    """Also the sink's second ear for PodGroups: the newest copy of each is kept for its version."""

    def prepare(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[GroupKey, PodGroup] = {}
        self._due: set[GroupKey] = set()
        self._judged: dict[GroupKey, tuple[GroupDecision, bool]] = {}
        self._detail_at: dict[GroupKey, float] = {}

    def see(self, group: PodGroup) -> None:
        with self._lock:
            self._groups[_key(group)] = group
            self._due.add(_key(group))

    def forget(self, key: GroupKey) -> None:
        with self._lock:
            self._groups.pop(key, None)
            self._due.discard(key)
            self._detail_at.pop(key, None)

    def look(self, decisions: Decisions) -> None:
        """Write what differs from what the API has. Groups of which nothing changed are passed over."""
        if not self._leads():
            self._judged = {}  # the fence may have dropped what was not written yet
            return
        with self._lock:
            due, self._due = self._due, set()
        for key, decision in decisions.groups.items():
            judged = (decision, self._ledger.stood_whole(key))
            if key in due or self._judged.get(key) != judged:
                self._judged[key] = judged
                self._report(key, decision)
        if len(self._judged) > len(decisions.groups):
            self._judged = {key: each for key, each in self._judged.items() if key in decisions.groups}

    def _report(self, key: GroupKey, decision: GroupDecision) -> None:
        group = self._groups.get(key)
        if group is None:
            return
        wanted, written = self._wanted(key, decision), reported(group)
        if wanted == written:
            return
        if wanted.course == written.course and not self._detail_is_due(key):
            with self._lock:
                self._due.add(key)
            return
        self._writers.submit(("report", key), lambda: self._write(key))

    def _detail_is_due(self, key: GroupKey) -> bool:
        now = self._clock()
        if now < self._detail_at.get(key, 0.0):
            return False
        self._detail_at[key] = now + _DETAIL_PACE
        return True

    def _wanted(self, key: GroupKey, decision: GroupDecision) -> Report:
        reason = str(decision.reason or decision.verdict)
        return Report(_PHASES[decision.verdict], reason, decision.detail, self._ledger.stood_whole(key))

    def _write(self, key: GroupKey) -> None:
        """Write the newest decision on the newest copy, whatever they were when this was asked for."""
        group, decision = self._groups.get(key), self._ledger.decisions.groups.get(key)
        if group is None or decision is None:
            return
        wanted = self._wanted(key, decision)
        if wanted != reported(group):
            self._patch(key, group, wanted)

    def _patch(self, key: GroupKey, group: PodGroup, wanted: Report) -> None:
        """A write that failed for a passing reason stays due, however often it was tried. After a conflict
        the watch brings the copy to write on."""
        meta = group.metadata
        try:
            self._cluster.patch_group(meta.namespace, meta.name, meta.uid, patch(group, wanted))
        except ApiError as fault:
            if fault.transient:
                with self._lock:
                    self._due.add(key)
            raise


def reported(group: PodGroup) -> Report:
    """What a PodGroup's status says now."""
    conditions = {each.type: each for each in group.status.conditions or ()}
    scheduled = conditions.get(SCHEDULED)
    whole = conditions.get(STOOD_WHOLE)
    return Report(
        group.status.phase,
        scheduled.reason if scheduled else "",
        scheduled.message if scheduled else "",
        whole is not None and whole.status == "True",
    )


def patch(group: PodGroup, report: Report) -> dict[str, Any]:
    """The merge patch that makes `group` say `report`, good for this version of it only."""
    runs = report.phase == _PHASES[Verdict.RUNNING]
    ours = [Condition(SCHEDULED, "True" if runs else "False", report.reason, report.detail)]
    if report.stood_whole:
        ours.append(Condition(STOOD_WHOLE, "True", "AllMembersStarted"))
    before = {each.type: each for each in group.status.conditions or ()}
    ours = [replace(each, last_transition_time=_since(each, before.get(each.type))) for each in ours]
    others = [each for each in before.values() if each.type not in (SCHEDULED, STOOD_WHOLE)]
    return {
        "metadata": {"resourceVersion": group.metadata.resource_version},
        "status": {"phase": report.phase, "conditions": msgspec.to_builtins([*others, *ours])},
    }


def _since(condition: Condition, before: Condition | None) -> str:
    """Since when a condition has its status."""
    if before is not None and before.status == condition.status and before.last_transition_time:
        return before.last_transition_time
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _key(group: PodGroup) -> GroupKey:
    return GroupKey(f"{group.metadata.namespace}/{group.metadata.name}")
