"""decide(): which pods may start and where, and why each other group waits.

A pure function of the snapshot; `previous` only saves work. The steps of a round are numbered below. Each
group is judged inside a guard: if judging it raises, it waits, and the others are not affected.
"""

from msgspec.structs import replace

from extender.domain.decisions.decisions import Decisions, GroupDecision
from extender.domain.lifecycle.state import State, state_of
from extender.domain.model.reasons import Reason
from extender.domain.scheduling import draining, elastic, gangs, reclaiming, replacing, starting, starving
from extender.domain.scheduling.carry_over import carry_over
from extender.domain.scheduling.giving_back import giving_back
from extender.domain.scheduling.kept_plans import keep_all
from extender.domain.scheduling.lending import Lending
from extender.domain.scheduling.lost_turns import lose_turns
from extender.domain.scheduling.memory import memory_of
from extender.domain.scheduling.obstacles import at_rest, obstacle, runs_without_its_group, waits
from extender.domain.scheduling.positions import positions_of
from extender.domain.scheduling.readiness import ready
from extender.domain.scheduling.reserving import Reserving
from extender.domain.scheduling.results import decisions_of
from extender.domain.scheduling.round import Round
from extender.domain.scheduling.strategies import Strategies
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.snapshot import Snapshot

NO_MEMBERS = "the group needs one member to start, and none is there"


def decide(snapshot: Snapshot, previous: Decisions | None = None) -> Decisions:
    memory = memory_of(previous)
    if previous is not None and memory is not None:
        if memory.holds(snapshot, previous):
            return replace(previous, serial=previous.serial + 1, turned=())
        if (carried := carry_over(snapshot, previous, memory)) is not None:
            return carried
    round_ = Round(snapshot, memory.totals, memory.shares) if memory is not None else Round(snapshot)
    lending, reserving, strategies = Lending(round_), Reserving(round_), Strategies(round_)
    admission = gangs.Admission(round_, lending, reserving, strategies)

    # 1. Groups by their state. Those at rest, and those that cannot be judged, are settled.
    groups = _by_state(round_)
    in_line = ready(round_, strategies, groups[State.WAITING])

    # 2. Whatever is on its way keeps what was planned for it.
    starts = starting.keep_starts(round_, groups[State.STARTING])
    replacements = replacing.keep_replacements(round_, groups[State.REPLACING])
    standing = keep_all(round_, groups[State.STANDING])
    waiting = reclaiming.keep(round_, in_line)

    # 3. Starts under way, or left short by a crash, are completed.
    starting.complete(round_, starts)

    # 4. Replacements have the first claim on room.
    reserved = replacing.reserve(round_, replacements)

    # 5. On reserved nodes, room is kept for the groups that have waited too long.
    reserving.begin(waiting)

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
    hungry = elastic.hungry(round_, standing)
    if hungry:
        lending.suspend()
        elastic.grow(round_, hungry, is_lent=False)
        lending.begin()
        elastic.grow(round_, hungry, is_lent=True)
    elastic.settle(round_, standing, lending)

    # 10. The next group that has waited too long gets a reservation.
    reserving.make()

    # 11. Room is taken back for groups that starve.
    starving.begin(round_, lending)
    draining.drain(round_)

    # These depend on room, too: then any change of it needs a round, and nothing is carried over.
    if reserving.mattered or replacements or any(kept.unplanned for kept in (*starts, *standing)):
        round_.shortages.are_all = False
    return decisions_of(round_, previous, positions_of(round_, strategies, admission.lines))


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
    """What runs already is left alone, whatever became of its PodGroup and queue."""
    state = state_of(group)
    goes_on = group.is_on_nodes and state is not State.WAITING
    if not goes_on and (fault := obstacle(round_, group)) is not None:
        return fault
    if not group.exists and state in (State.STANDING, State.REPLACING):
        return runs_without_its_group(group)
    return waits(group, Reason.NOT_ENOUGH_MEMBERS, NO_MEMBERS) if state is State.EMPTY else None
