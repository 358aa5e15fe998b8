"""Members on nodes of a group that never stood whole and is not being started: a binding that ended after its
start did, or pods that were created with the name of a node.

They have as long as a start may take. Then they are undone, whatever else keeps the group waiting.
"""

from extender.domain.decisions.decisions import GroupDecision
from extender.domain.lifecycle.start_clock import in_pieces_since
from extender.domain.scheduling.backoff import TOO_LATE, back_off, fail
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView


def undone(round_: Round, group: GroupView) -> GroupDecision | None:
    """The decision on a group whose members on nodes are undone; None where they are not, or not yet."""
    since = in_pieces_since(group, round_.snapshot)
    if since is None:
        return None
    if round_.snapshot.now < group.start.retry_at:
        return back_off(round_, group)
    is_late = round_.is_due(since + round_.limits.deadline(group.min_member))
    return fail(round_, group, TOO_LATE) if is_late else None
