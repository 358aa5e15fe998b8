"""Ageing: what a group gains in priority while it waits, in a queue with `spec.ageing`.

All groups of a queue gain as much in an hour, from their creation on. So two of them never change places by
waiting: the older one is ahead by what it gained before the other was created.
"""

from datetime import datetime
from math import inf

from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.snapshot import Snapshot

_HOUR = 3600.0


def rank(group: GroupView, ageing: int) -> float:
    """Smallest first: in the order of priority, with what was gained, at any moment."""
    return ageing * group.once(_created_at) / _HOUR - group.priority if ageing else -group.priority


def reaches_at(group: GroupView, ageing: int, priority: int, snapshot: Snapshot) -> float:
    """When, on the ledger's clock, its aged priority reaches `priority`; inf: never."""
    lacks = priority - group.priority
    return snapshot.moment(group.created) + lacks * _HOUR / ageing if ageing else inf


def _created_at(group: GroupView) -> float:
    """Seconds since 1970; inf where that cannot be read, as if it had been created last."""
    try:
        return datetime.fromisoformat(group.created).timestamp()
    except (ValueError, OverflowError):
        return inf
