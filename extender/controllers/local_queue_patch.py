"""The status that a LocalQueue should have, and how it differs from the one that it has."""

from collections.abc import Mapping

import msgspec

from extender.api.objects.base import Condition
from extender.api.objects.queues import LocalQueue
from extender.controllers.conditions import dated
from extender.controllers.queue_patch import Json, patched, written
from extender.domain.decisions.queue_counts import ADMITTED, WAITING
from extender.domain.model.resources import Resources
from extender.domain.queues.local_queue_activity import Activity

ACTIVE = "Active"
_CONDITIONS = "conditions"


class LocalQueueReport(msgspec.Struct, frozen=True):
    """What is to be told of one LocalQueue."""

    activity: Activity
    waiting: int  # groups
    admitted: int
    reserved: Resources  # what its groups hold


def report_of(
    key: str, activity: Activity, counts: Mapping[tuple[str, str], int], reserved: Resources
) -> LocalQueueReport:
    """`counts`: those of the decisions, by LocalQueue and column."""
    return LocalQueueReport(activity, counts.get((key, WAITING), 0), counts.get((key, ADMITTED), 0), reserved)


def report_changes(local: LocalQueue, report: LocalQueueReport, *, numbers: bool = True) -> Json:
    """The fields of its status that have to change, as a merge patch. Without `numbers`, only conditions."""
    before = local.status
    wanted: Json = {
        "waiting": report.waiting,
        "admitted": report.admitted,
        "reserved": written(report.reserved),
        _CONDITIONS: _conditions(local, report.activity),
    }
    return {
        name: patched(getattr(before, name), value)
        for name, value in wanted.items()
        if getattr(before, name) != value and (numbers or name == _CONDITIONS)
    }


def _conditions(local: LocalQueue, activity: Activity) -> list[Condition]:
    """Conditions of other controllers stay as they are."""
    by_type = {each.type: each for each in local.status.conditions or ()}
    now = Condition(ACTIVE, str(activity.is_active), activity.reason, activity.message)
    by_type[ACTIVE] = dated(now, by_type.get(ACTIVE))
    return list(by_type.values())
