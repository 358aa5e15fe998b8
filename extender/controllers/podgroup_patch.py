"""The status that a PodGroup should have, the one that it has, and the patch from the latter to the former.

Conditions of other controllers stay as they are. A patch is valid for only one version of its group, so that
it never overwrites what was written meanwhile.
"""

from typing import Any

import msgspec

from extender.api.conditions import condition
from extender.api.keys import SCHEDULED, STOOD_WHOLE
from extender.api.objects.base import Condition
from extender.api.objects.groups import PodGroup
from extender.controllers.conditions import dated
from extender.domain.decisions.decisions import GroupDecision
from extender.domain.decisions.wording import message_of
from extender.domain.model.life import Phase
from extender.domain.model.marks import admitted_note, notes_admitted, whole_condition, whole_members
from extender.domain.model.queue_notes import note, noted_queue
from extender.domain.model.reasons import Outcome


class ReportedStatus(msgspec.Struct, frozen=True):
    """What Muster writes on a PodGroup: its status, and its marks."""

    phase: str  # one of Volcano's
    scheduled: bool  # the status of the Scheduled condition
    reason: str  # the reason of that condition
    detail: str  # the message of that condition
    stood_with: int | None  # how many members it needed when it stood whole; None: it never did
    numbers: tuple[int, int, int]  # members that run, have succeeded, have failed
    queue_uid: str  # the queue that took it in; empty if none did
    admitted: bool  # its start was admitted and is not whole yet

    @property
    def course(self) -> tuple[str, str, int | None, str, bool]:
        """What is written at once when it changes."""
        return (self.phase, self.reason, self.stood_with, self.queue_uid, self.admitted)


def report_of(
    decision: GroupDecision,
    change: str,
    stood_with: int | None,
    queue_uid: str,
    admitted: bool,
    written: ReportedStatus,
) -> ReportedStatus:
    """What to write for a decision. `change`: what would start the group, as a sentence. The UID of the queue
    that took the group in stays noted after the queue is gone: that is how its groups are found."""
    life = decision.life
    return ReportedStatus(
        phase=life.phase,
        scheduled=life.phase is Phase.RUNNING or life.outcome is Outcome.COMPLETED,
        reason=str(decision.reason or life.outcome or decision.verdict),
        detail=message_of(decision, change),
        stood_with=stood_with,
        numbers=(life.running, life.succeeded, life.failed),
        queue_uid=queue_uid or written.queue_uid,
        admitted=admitted,
    )


def reported(group: PodGroup) -> ReportedStatus:
    """What is written on a PodGroup now."""
    status = group.status
    scheduled, whole = (condition(status.conditions, kind) for kind in (SCHEDULED, STOOD_WHOLE))
    return ReportedStatus(
        phase=status.phase,
        scheduled=scheduled is not None and scheduled.status == "True",
        reason=scheduled.reason if scheduled else "",
        detail=scheduled.message if scheduled else "",
        stood_with=whole_members(whole, group.metadata.uid) if whole else None,
        numbers=(status.running, status.succeeded, status.failed),
        queue_uid=noted_queue(group.metadata),
        admitted=notes_admitted(group.metadata),
    )


def patch(group: PodGroup, report: ReportedStatus) -> dict[str, Any]:
    """The merge patch that writes `report` on `group`, valid only for this version of it."""
    ours = [Condition(SCHEDULED, str(report.scheduled), report.reason, report.detail)]
    if report.stood_with is not None:
        ours.append(whole_condition(group.metadata.uid, report.stood_with))
    before = {each.type: each for each in group.status.conditions or ()}
    ours = [dated(each, before.get(each.type)) for each in ours]
    others = [each for each in before.values() if each.type not in (SCHEDULED, STOOD_WHOLE)]
    noted = {"annotations": annotations} if (annotations := _notes(group, report)) else {}
    running, succeeded, failed = report.numbers
    return {
        "metadata": {"resourceVersion": group.metadata.resource_version, **noted},
        "status": {
            "phase": report.phase,
            "conditions": msgspec.to_builtins([*others, *ours]),
            "running": running,
            "succeeded": succeeded,
            "failed": failed,
        },
    }


def _notes(group: PodGroup, report: ReportedStatus) -> dict[str, str | None]:
    """The annotations to write; None removes one."""
    uid, notes = group.metadata.uid, dict[str, str | None]()
    if report.queue_uid:
        notes.update(note(report.queue_uid, uid))
    if report.admitted is not notes_admitted(group.metadata):
        notes.update(admitted_note(uid, report.admitted))
    return notes
