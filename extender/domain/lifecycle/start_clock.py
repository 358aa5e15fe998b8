"""The clock of a start: from its first opened gate, while we lead and the scheduler asks.

Gates that are not open yet, a time without a leader or without a scheduler are no failure of the group.
"""

from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.snapshot import Snapshot


def start_begun(group: GroupView, snapshot: Snapshot) -> float | None:
    """Since when a start has been under way as far as its deadline goes; None: its clock does not run.

    A start that nobody remembers, left by a crash, begins now.
    """
    attention = snapshot.attention
    shown = (*group.expected_since.values(), *group.bound_since.values())
    if attention.leading_since is None or not (shown or group.pinned):
        return None
    admitted = snapshot.now if group.start.admitted_at is None else group.start.admitted_at
    begun = max(admitted, min(shown, default=admitted), attention.leading_since)
    return attention.since(begun) if _depends_on_the_scheduler(group, begun) else begun


def in_pieces_since(group: GroupView, snapshot: Snapshot) -> float | None:
    """Since when a group that nobody admitted has had members on nodes; None: not now, or we do not lead."""
    leading = snapshot.attention.leading_since
    if leading is None or not (group.is_on_nodes and group.bound_since):
        return None
    return max(leading, min(group.bound_since.values()))


def _depends_on_the_scheduler(group: GroupView, begun: float) -> bool:
    """Whether members are open for the scheduler, and it has not shown yet that it is there."""
    if group.pinned or any(refusal.at >= begun for refusal in group.refusals.values()):
        return False
    return any(pod.uid in group.planned and pod.uid in group.expected_since for pod in group.waiting)
