"""The smallest change that would start a group, by the reason for which it waits. Each is tried out."""

from collections.abc import Callable, Mapping, Sequence

from extender.domain.explanation import endings, group_changes, passing, queue_changes
from extender.domain.explanation.case import StartChange, WaitingCase
from extender.domain.explanation.more_nodes import nodes
from extender.domain.model.reasons import Reason

_ROOM = (endings.ends_for_room, nodes)
_FINDERS: Mapping[Reason, Sequence[Callable[[WaitingCase], StartChange | None]]] = {
    Reason.NO_ROOM: _ROOM,
    Reason.FRAGMENTED: _ROOM,
    Reason.REFUSED_BY_SCHEDULER: _ROOM,
    Reason.QUEUE_CEILING: (queue_changes.limit, endings.ends_in_queue, queue_changes.capability),
    Reason.QUEUE_SHARE: (endings.claims_end, nodes),
    Reason.BEHIND_OTHERS: (endings.those_ahead,),
    Reason.RESERVED: (group_changes.run_time, endings.reservations_end, nodes),
    Reason.RECLAIMING: (endings.victims_gone,),
    Reason.WINDOW_FULL: (passing.window_clears,),
    Reason.TOO_LARGE_FOR_WINDOW: (passing.window_grows,),
    Reason.NEVER_FITS: (queue_changes.limit, queue_changes.capability, group_changes.requests, nodes),
    Reason.BACKING_OFF: (passing.time,),
    Reason.NOT_ENOUGH_MEMBERS: (group_changes.members,),
    Reason.HELD: (group_changes.resumed,),
    Reason.QUEUE_STOPPED: (queue_changes.queue_resumed, group_changes.local_queue_resumed),
    Reason.NAMESPACE_NOT_ALLOWED: (queue_changes.namespace_allowed,),
}


def smallest_change(case: WaitingCase) -> StartChange | None:
    """The first that works, of those that its reason suggests, from the smallest on."""
    reason = case.decision.reason
    finders = _FINDERS.get(reason, ()) if reason is not None else ()
    return next((change for find in finders if (change := find(case)) is not None), None)
