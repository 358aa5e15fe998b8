"""Conditions of reasons, as extender/domain/model/reasons.py and docs/ define them.

A condition is checked at the turn of a group, independently of decide().
"""

from collections.abc import Callable, Mapping

from extender.domain.model.reasons import Reason
from tests.oracle.admission import Turn

Condition = Callable[[Turn], bool]


def never_fits(turn: Turn) -> bool:
    return turn.can_never_start


def queue_ceiling(turn: Turn) -> bool:
    return (turn.is_at_limit or turn.is_above_ceiling) and not turn.is_reserved_for_others


def queue_share(turn: Turn) -> bool:
    """Return whether the group has capacity, except for reservations for groups within their share."""
    if turn.is_reserved_for_others:
        return turn.is_above_share
    return turn.is_above_share and turn.lends and turn.has_capacity and bool(turn.claimants)


def behind_others(turn: Turn) -> bool:
    return turn.behind != ""


def no_capacity(turn: Turn) -> bool:
    """Return whether the group does not fit, and suitable nodes have less than its requests in sum."""
    return not turn.has_capacity and not turn.has_sums


def fragmented(turn: Turn) -> bool:
    """Return whether the group does not fit, although suitable nodes have its requests in sum."""
    return not turn.has_capacity and turn.has_sums


def reclaiming(turn: Turn) -> bool:
    """Return whether the group lacks capacity, share or headroom. Its victims are checked in evictions.py."""
    return not (turn.behind or turn.can_never_start) and not (turn.may_start and not turn.claimants)


def window_full(turn: Turn) -> bool:
    return turn.has_capacity and turn.group.needed > turn.places and turn.group.needed <= turn.state.window


def backing_off(turn: Turn) -> bool:
    return turn.backs_off


def too_large_for_window(turn: Turn) -> bool:
    return turn.group.needed > turn.state.window


CONDITIONS: Mapping[Reason, Condition] = {
    Reason.NEVER_FITS: never_fits,
    Reason.QUEUE_CEILING: queue_ceiling,
    Reason.QUEUE_SHARE: queue_share,
    Reason.BEHIND_OTHERS: behind_others,
    Reason.NO_ROOM: no_capacity,
    Reason.FRAGMENTED: fragmented,
    Reason.RECLAIMING: reclaiming,
    Reason.BACKING_OFF: backing_off,
    Reason.WINDOW_FULL: window_full,
    Reason.TOO_LARGE_FOR_WINDOW: too_large_for_window,
}
