"""Conditions as statuses have them, with the time of their last transition."""

from datetime import UTC, datetime

from msgspec.structs import replace

from extender.api.objects.base import Condition


def timestamp(moment: datetime) -> str:
    """In UTC and to the second, as Kubernetes writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def dated(now: Condition, before: Condition | None) -> Condition:
    """`now` with a time of transition: that of `before` if the status is the same, otherwise the current
    one."""
    same = before is not None and before.status == now.status
    since = before.last_transition_time if before is not None and same else None
    return replace(now, last_transition_time=since or timestamp(datetime.now(UTC)))
