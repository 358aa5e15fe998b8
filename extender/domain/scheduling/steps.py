"""The steps of a round, in their order.

Each group is judged inside a guard: if judging it raises, it waits, and the others are not affected.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from extender.domain.model.reasons import Reason
from extender.domain.model.records import GroupKey
from extender.domain.scheduling import elastic, gangs, reclaim, starting, victims
from extender.domain.scheduling import starting as replacing
from extender.domain.scheduling.backoff import undone
from extender.domain.scheduling.budget import Budget, Sums
from extender.domain.scheduling.flavors import Amounts
from extender.domain.scheduling.lending import Lending
from extender.domain.scheduling.obstacles import at_rest, obstacle, ready, runs_without_its_group, waits
from extender.domain.scheduling.order import Strategies, lose_turns
from extender.domain.scheduling.plans import keep_all
from extender.domain.scheduling.reservation import InForce, Reserving
from extender.domain.scheduling.round import Round
from extender.domain.scheduling.shares import Standing
from extender.domain.scheduling.victims import giving_back
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.nodes import AmountRows, Rows
from extender.domain.snapshot.phases import State, state_of

# ---- What the groups of a round are judged by besides themselves: its means, once all are judged.
#
# Where two rounds took nothing from their means and these are alike, they say the same of the same
# group, as long as it is on the same side of what its queue deserves.


class Means(msgspec.Struct, frozen=True, eq=False):
    """Never changed."""

    room: AmountRows
    """What is left on nodes."""
    shares: Standing
    """What queues deserve, may hold and hold."""
    flavors: Amounts
    """What they hold of their flavors."""
    running: Sums
    """What runs of that on which they have limits."""
    places: int
    """In the window."""
    in_force: InForce
    """The reservations."""

    @classmethod
    def of(cls, budget: Budget, reserving: Reserving) -> "Means":
        return cls(
            budget.planner.capacity.left,
            budget.shares.standing,
            budget.flavors.amounts,
            budget.running.sums,
            budget.window.left,
            reserving.in_force,
        )

    def are_alike(self, other: "Means") -> bool:
        """Whether all is the same but for what queues deserve."""
        return (
            self.places == other.places
            and self.flavors == other.flavors
            and self.running == other.running
            and self.in_force == other.in_force
            and np.array_equal(self.room, other.room)
            and self.shares.is_alike(other.shares)
        )

    def with_room(self, rows: Rows, more: AmountRows) -> "Means":
        """The same with `more` room on some rows."""
        room = self.room.copy()
        room[rows] += more
        return replace(self, room=room)


# ---- The steps of a round, in their order.
#
# Each group is judged inside a guard: if judging it raises, it waits, and the others are not affected.

NO_MEMBERS = "the group needs one member to start, and none is there"


class Judged(msgspec.Struct, frozen=True, eq=False):
    """A round in which all has been decided."""

    round_: Round
    strategies: Strategies
    lines: Mapping[str, Sequence[GroupView]]
    """By queue all groups that were to be judged, in their order."""
    means: Means | None
    """What was left when gangs were judged, to the last of them as to the first; None where one of them took
    something, or where what one does may matter to others in another way."""
    foremost: frozenset[GroupKey]
    """Groups that were asked for others: for a reservation the one of their queue that has waited the
    longest, for victims the first of their kind."""
    same_until: float
    """Until when all groups may pass the same reservations."""


def judge_all(round_: Round) -> Judged:
    lending, reserving, strategies = Lending(round_), Reserving(round_), Strategies(round_)
    admission = gangs.Admission(round_, lending, reserving, strategies)

    # 1. Groups by their state. Those at rest, and those that cannot be judged, are settled.
    groups = _by_state(round_)
    in_line = ready(round_, strategies, groups[State.WAITING])

    # 2. Whatever is on its way keeps what was planned for it.
    starts = starting.keep_starts(round_, groups[State.STARTING])
    replacements = replacing.keep_replacements(round_, groups[State.REPLACING])
    standing = keep_all(round_, groups[State.STANDING])
    waiting = reclaim.keep(round_, in_line)

    # 3. Starts under way, or left short by a crash, are completed.
    starting.complete(round_, starts)

    # 4. Replacements have the first claim on room.
    reserved = replacing.reserve(round_, replacements)

    # 5. On reserved nodes, room is kept for the groups that have waited too long.
    reserving.begin(waiting)
    takings = round_.budget.takings

    # 6. Gangs at or below their queue's deserved share, queue by queue in order of share.
    above_share = admission.admit(in_line)

    # 7. Lending: those above it, with the room on which no group of step 6 has a claim.
    reserving.lend()
    if above_share:
        lending.begin()
        admission.admit(above_share)
    lose_turns(round_, strategies, in_line)

    # 8. Replacements start, as many as there are places in the window.
    replacing.replace(round_, reserved)

    # 9. Elastic members one by one, within their queue's share and then above it.
    elastic.grow(round_, standing, lending)

    # 10. The next group that has waited too long gets a reservation.
    reserving.make()

    # 11. Room is taken back for groups that starve.
    first = reclaim.begin(round_, lending)
    victims.drain(round_)

    # These depend on room, too: then any change of it needs a round, and nothing is carried over.
    if reserving.mattered or replacements or any(kept.unplanned for kept in (*starts, *standing)):
        round_.shortages.are_all = False
    took_nothing = round_.budget.takings == takings and not replacements
    return Judged(
        round_,
        strategies,
        admission.lines,
        Means.of(round_.budget, reserving) if took_nothing and _is_calm(round_, lending) else None,
        frozenset(group.key for group in (*first, *reserving.longest_waiting)),
        reserving.same_until,
    )


def _is_calm(round_: Round, lending: Lending) -> bool:
    """Whether no gang that waits keeps anything from others: room that is taken back or kept for it, or the
    last places in the window. And what one says of refusals, others of the same kind repeat."""
    is_refused = round_.snapshot.refused or round_.budget.planner.capacity.is_refused_anywhere
    takes_back = round_.has_begun_reclaim or round_.reclaims
    return not (takes_back or is_refused or round_.budget.window.is_full) and lending.keeps_nothing


def _by_state(round_: Round) -> dict[State, list[GroupView]]:
    """The groups to be judged."""
    groups: dict[State, list[GroupView]] = {state: [] for state in State}
    for group in round_.snapshot.groups.values():
        state = round_.judge(_sort_in, group)
        if state is not None:
            groups[state].append(group)
    return groups


def _sort_in(round_: Round, group: GroupView) -> State | None:
    """The state of a group that has to be judged; None for one that is settled."""
    decision = giving_back(round_, group) or at_rest(group) or _cannot_be_judged(round_, group)
    if decision is not None:
        round_.settle(decision)
        return None
    return state_of(group)


def _cannot_be_judged(round_: Round, group: GroupView) -> GroupDecision | None:
    """What runs already is left alone, whatever became of its PodGroup and queue. What never stood whole is
    not."""
    state = state_of(group)
    goes_on = group.is_on_nodes and state is not State.WAITING
    if not goes_on and (fault := obstacle(round_, group)) is not None:
        return undone(round_, group) or fault
    if not group.exists and state in (State.STANDING, State.REPLACING):
        return runs_without_its_group(group)
    return waits(group, Reason.NOT_ENOUGH_MEMBERS, NO_MEMBERS) if state is State.EMPTY else None
