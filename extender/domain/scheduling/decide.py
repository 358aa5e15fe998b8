"""decide(): which pods may start and where, and why each other group waits.

A pure function of the snapshot. `previous` only saves work: groups that rest or wait sleep until something
wakes them (sleepers.py), and the others are judged by the same rules as if all were awake.
"""

from msgspec.structs import replace

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling import gangs, members, reclaim, victims
from extender.domain.scheduling.lending import Lending
from extender.domain.scheduling.memory import Judged, notes_of
from extender.domain.scheduling.obstacles import no_group, obstacle, ready, settled, undone, waits
from extender.domain.scheduling.order import Strategies, advance_rotation
from extender.domain.scheduling.plans import keep_all
from extender.domain.scheduling.reservation import Reservations
from extender.domain.scheduling.results import decisions_of
from extender.domain.scheduling.round import Guard, Round
from extender.domain.scheduling.sleepers import Sleepers
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.phases import State, state_of
from extender.domain.snapshot.snapshot import Snapshot


def decide(snapshot: Snapshot, previous: Decisions | None = None) -> Decisions:
    notes = None if previous is None else notes_of(previous)
    if previous is not None and notes is not None and notes.is_current(snapshot, previous):
        return replace(previous, serial=previous.serial + 1, turned=(), renumbered=())
    sleepers = Sleepers(snapshot, previous, notes)
    while True:
        round_ = Round(snapshot, sleepers.awake, sleepers.decisions, sleepers.budget)
        judged = judge(round_, sleepers)
        if not sleepers.wake_after(judged):
            return decisions_of(judged, sleepers)


def judge(round_: Round, sleepers: Sleepers) -> Judged:
    """Evaluate all groups, in the numbered steps of a cycle.

    Each group is evaluated inside a guard: if that raises, the group waits, and the others are not
    affected.
    """
    lending, strategies = Lending(round_), Strategies(round_)
    reservations = Reservations(round_, strategies)
    admission = gangs.Admission(round_, lending, reservations, strategies, sleepers.next_equal)

    # 1. Groups by their state. Those at rest, and those that cannot be judged, are settled.
    groups = _by_state(round_)
    in_line = ready(round_, strategies, groups[State.WAITING])

    # 2. Whatever is on its way keeps what was planned for it.
    starts = members.keep_starts(round_, groups[State.STARTING]) if groups[State.STARTING] else []
    replacing = sorted(groups[State.REPLACING], key=lambda group: group.order)
    replacements = keep_all(round_, replacing) if replacing else []
    stands = sorted(groups[State.STANDING], key=lambda group: group.order)
    standing = keep_all(round_, stands) if stands else []
    one_by_one = (kept.group for kept in (*replacements, *standing))
    round_.budget.window.begin(in_line, one_by_one, round_.is_due)
    if round_.snapshot.moves:
        reservations.keep_for_moved()
    waiting = reclaim.keep(round_, in_line) if round_.reclaims else in_line

    # 3. Starts under way, or left short by a crash, are completed; then replacements have the first claim.
    if starts:
        members.complete(round_, starts)
    replaced = members.reserve(round_, replacements) if replacements else []

    # 4. On reserved nodes, room is kept for the groups that have waited too long.
    reservations.begin(waiting)
    takings = round_.budget.takings
    in_line += sleepers.stir(round_, reservations.in_force)

    # 5. Gangs at or below their queue's deserved share, queue by queue in order of share.
    above_share = admission.admit(in_line)

    # 6. Lending: those above it, with the room on which no group of step 5 has a claim.
    reservations.is_lent = True
    if above_share:
        lending.begin()
        admission.admit(above_share)
    advance_rotation(round_, strategies, in_line)

    # 7. Replacements start, as many as there are places in the window.
    if replaced:
        members.replace(round_, replaced)

    # 8. Elastic members one by one, within their queue's share and then above it.
    if standing:
        members.grow(round_, standing, lending, reservations)

    # 9. Of those that wait, the next one gets a reservation, and room is taken back for those that starve.
    reservations.make()
    does_any_wait = any(decision.verdict is Verdict.WAITING for decision in round_.decided.values())
    may_any_starve = does_any_wait or sleepers.then is not None
    starving = reclaim.begin(round_, lending, reservations) if may_any_starve else reclaim.NOBODY_STARVES
    if round_.draining:
        victims.drain(round_)

    has_taken = round_.budget.takings > takings or bool(replacements)
    takes = has_taken or _keeps_any(round_, lending, reservations)
    concerns_all = _concerns_all(round_)
    lines, heads = admission.lines, admission.heads
    return Judged(round_, strategies, reservations, starving, lines, heads, takes, concerns_all)


def _keeps_any(round_: Round, lending: Lending, reservations: Reservations) -> bool:
    """Return whether capacity or headroom is kept for claimants, also where a reservation has it."""
    capacity = round_.budget.planner.capacity
    is_claimed = reservations.in_force and any(map(capacity.total, lending.claims))
    return bool(lending.keeps_any or is_claimed)


def _concerns_all(round_: Round) -> bool:
    """Return whether decisions of one group depend on others beyond the budget.

    They depend on running groups that may have to go, on refusals that groups of one kind repeat, and on
    places that a group waits for.
    """
    is_refused = round_.snapshot.refused or round_.budget.planner.capacity.is_refused_anywhere
    return bool(round_.takes_back or is_refused or round_.budget.window.is_waited_for)


def _by_state(round_: Round) -> dict[State, list[GroupView]]:
    """Return the groups to be evaluated; the others are settled."""
    groups: dict[State, list[GroupView]] = {state: [] for state in State}
    are_any_evicted = bool(round_.draining or round_.promised)
    for group in round_.groups.values():
        with Guard(round_, group):
            decision = victims.evicted_whole(round_, group) if are_any_evicted else None
            decision = decision or settled(round_, group) or _cannot_be_judged(round_, group)
            if decision is None:
                groups[state_of(group)].append(group)
            else:
                round_.decided[group.key] = decision
    return groups


def _cannot_be_judged(round_: Round, group: GroupView) -> GroupDecision | None:
    """Return the decision on a group without PodGroup or queue: running ones are left alone."""
    state = state_of(group)
    goes_on = group.is_on_nodes and state is not State.WAITING
    if not goes_on and (fault := obstacle(round_, group)) is not None:
        return undone(round_, group) or fault
    if not group.exists and state in (State.STANDING, State.REPLACING):
        # Members on nodes whose PodGroup is gone keep running, and no others join them.
        return GroupDecision(group.key, group.queue, Verdict.RUNNING, Reason.GROUP_NOT_FOUND, no_group(group))
    lacks_all = "the group needs one member to start, and none is there"
    return waits(group, Reason.NOT_ENOUGH_MEMBERS, lacks_all) if state is State.EMPTY else None
