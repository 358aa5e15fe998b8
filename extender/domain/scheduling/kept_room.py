"""The room that is kept on reserved nodes: taken out of that of the others, and given back to those who may
use it."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import msgspec
import numpy as np

from extender.domain.lifecycle.quorum import missing
from extender.domain.model.records import GroupKey
from extender.domain.model.reservation import Reservation
from extender.domain.placement.capacity import CapacityCounts
from extender.domain.placement.planner import Planner
from extender.domain.scheduling.foresight import Foresight
from extender.domain.scheduling.round import Round
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.nodes import AmountRows, Rows


class KeptRoom(msgspec.Struct, eq=False):
    """For one group."""

    group: GroupView
    reservation: Reservation
    rows: Rows
    needs: AmountRows
    """What the group will need on these rows."""
    kept: AmountRows
    """What is taken out of the others' room there now."""


def keep(round_: Round, group: GroupView, foresight: Foresight, reservation: Reservation) -> KeptRoom:
    """Take it. What the group will not need by the time it starts is left to all; of what is free already,
    all is kept once that moment has come, or if nobody knows it."""
    planner = round_.budget.planner
    rows, needs = planner.capacity.asked_on(foresight.rows(reservation, missing(group)))
    left, start = np.maximum(planner.capacity.left[rows], 0), reservation.starts_at
    is_known = start is not None and not round_.is_due(start)
    then = foresight.free_at_start(reservation, rows) if is_known else left
    kept = np.where(needs > 0, np.maximum(left - np.maximum(then - needs, 0), 0), 0)
    planner.take_amounts(rows, kept)
    return KeptRoom(group, reservation, rows, needs, kept)


GivenBackCounts = dict[frozenset[GroupKey], tuple[CapacityCounts, CapacityCounts]]
"""By whose room was given back: what was known of the room without it, and with it."""


@contextmanager
def given_back(planner: Planner, them: Collection[KeptRoom], known: GivenBackCounts) -> Iterator[None]:
    """Meanwhile the room is there for others. What these take of it is not kept afterwards. `known`: what was
    counted while it was given back before."""
    capacity, whose = planner.capacity, frozenset(each.group.key for each in them)
    outside = capacity.known
    for each in them:
        planner.take_amounts(each.rows, each.kept, -1)
    if whose in known and known[whose][0].belongs_with(outside):
        capacity.recall(known[whose][1])
    inside = capacity.known
    before = [planner.capacity.left[each.rows] for each in them]
    try:
        yield
        for each, left in zip(them, before, strict=True):
            used = np.maximum(left - planner.capacity.left[each.rows], 0)
            each.kept = np.maximum(each.kept - used, 0)
    finally:
        is_as_before = capacity.known.belongs_with(inside)
        for each in them:
            planner.take_amounts(each.rows, each.kept)
        if is_as_before:
            capacity.recall(outside)
            known[whose] = outside, inside
