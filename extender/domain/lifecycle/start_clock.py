"""The clock of a start: it runs from the first opened gate, while this replica leads and the scheduler asks.

Gates that are not open yet, and time without a leader or a scheduler, do not count against the group.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter

from extender.domain.lifecycle.quorum import missing
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.snapshot import Snapshot


def start_begun(group: GroupView, snapshot: Snapshot) -> float | None:
    """The moment from which a start's deadline counts; None: its clock does not run.

    For a start that was admitted before a crash, and whose admission is not remembered, that is now.
    """
    attention = snapshot.attention
    shown = (*group.expected_since.values(), *group.bound_since.values())
    if attention.leading_since is None or not (shown or group.pinned):
        return None
    admitted = snapshot.now if group.start.admitted_at is None else group.start.admitted_at
    begun = max(admitted, min(shown, default=admitted), attention.leading_since)
    return attention.since(begun) if _depends_on_the_scheduler(group, begun) else begun


def in_pieces_since(group: GroupView, snapshot: Snapshot) -> float | None:
    """Since when a group that was not admitted has had members on nodes; None: it has none, or this replica
    does not lead."""
    leading = snapshot.attention.leading_since
    if leading is None or not (group.is_on_nodes and group.bound_since):
        return None
    return max(leading, min(group.bound_since.values()))


def running_since(group: GroupView, moment: Callable[[str], float]) -> float | None:
    """Since when a group runs, by its pods' status or, without that, by when the watch showed them on nodes;
    None: it does not. `moment` reads timestamps."""
    if group.running_since:
        return moment(group.running_since)
    return min(group.bound_since.values(), default=None)


def ready_since(group: GroupView) -> str:
    """The timestamp of when all that it needs to start were there."""
    return group.once(_ready_since)


def _ready_since(group: GroupView) -> str:
    created: Iterable[str] = map(attrgetter("created"), missing(group).members)
    return max((group.created, *created))


def _depends_on_the_scheduler(group: GroupView, begun: float) -> bool:
    """Whether the start waits for a scheduler that has not shown yet that it is running: members' gates are
    open, and the scheduler has neither taken nor refused one."""
    if group.pinned or any(refusal.at >= begun for refusal in group.refusals.values()):
        return False
    return any(pod.uid in group.planned and pod.uid in group.expected_since for pod in group.waiting)
