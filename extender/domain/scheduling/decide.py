"""decide(): which pods may start and where, and why each other group waits.

A pure function of the snapshot; `previous` only saves work (incremental.py):

    nothing has changed ──────────────────────────► the same
    room changed, and nothing can start with it ──► the same, with other numbers
    few groups changed ───────────────────────────► a round without those that only wait
    all else ─────────────────────────────────────► a round
"""

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling import elastic, gangs, reclaim, starting, victims
from extender.domain.scheduling.backoff import undone
from extender.domain.scheduling.incremental import decide_again
from extender.domain.scheduling.lending import Lending
from extender.domain.scheduling.memory import Judged, Remaining, memory_of
from extender.domain.scheduling.obstacles import at_rest, obstacle, ready, runs_without_its_group, waits
from extender.domain.scheduling.order import Strategies, advance_rotation
from extender.domain.scheduling.plans import keep_all
from extender.domain.scheduling.reservation import Reservations
from extender.domain.scheduling.results import decisions_of, positions_of
from extender.domain.scheduling.round import Guard, Round
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.phases import State, state_of
from extender.domain.snapshot.snapshot import Snapshot

NO_MEMBERS = "the group needs one member to start, and none is there"


def decide(snapshot: Snapshot, previous: Decisions | None = None) -> Decisions:
    memory = memory_of(previous)
    if previous is None or memory is None:
        round_ = Round(snapshot)
    elif (known := decide_again(snapshot, previous, memory, judge_all)) is not None:
        return known
    else:
        round_ = Round(snapshot, memory.totals, memory.shares)
    judged = judge_all(round_)
    return decisions_of(judged, previous, positions_of(judged))


def judge_all(round_: Round) -> Judged:
    """The steps of a round, in their order. Each group is judged inside a guard: if judging it raises, it
    waits, and the others are not affected."""
    lending, reservations, strategies = Lending(round_), Reservations(round_), Strategies(round_)
    admission = gangs.Admission(round_, lending, reservations, strategies)

    # 1. Groups by their state. Those at rest, and those that cannot be judged, are settled.
    groups = _by_state(round_)
    in_line = ready(round_, strategies, groups[State.WAITING])

    # 2. Whatever is on its way keeps what was planned for it.
    starts = starting.keep_starts(round_, groups[State.STARTING]) if groups[State.STARTING] else []
    replacing = sorted(groups[State.REPLACING], key=lambda group: group.order)
    replacements = keep_all(round_, replacing) if replacing else []
    standing = keep_all(round_, groups[State.STANDING]) if groups[State.STANDING] else []
    one_by_one = (kept.group for kept in (*replacements, *standing))
    round_.budget.window.begin(in_line, one_by_one, round_.is_due)
    waiting = reclaim.keep(round_, in_line) if round_.reclaims else in_line

    # 3. Starts under way, or left short by a crash, are completed; then replacements have the first claim.
    if starts:
        starting.complete(round_, starts)
    replaced = starting.reserve(round_, replacements) if replacements else []

    # 4. On reserved nodes, room is kept for the groups that have waited too long.
    reservations.begin(waiting)
    takings = round_.budget.takings

    # 5. Gangs at or below their queue's deserved share, queue by queue in order of share.
    above_share = admission.admit(in_line)

    # 6. Lending: those above it, with the room on which no group of step 5 has a claim.
    reservations.lend()
    if above_share:
        lending.begin()
        admission.admit(above_share)
    advance_rotation(round_, strategies, in_line)

    # 7. Replacements start, as many as there are places in the window.
    if replaced:
        starting.replace(round_, replaced)

    # 8. Elastic members one by one, within their queue's share and then above it.
    if standing:
        elastic.grow(round_, standing, lending)

    # 9. Of those that wait, the next one gets a reservation, and room is taken back for those that starve.
    reservations.make()
    first = _take_back(round_, lending)

    # These depend on room, too: then any change of it needs a round, and nothing is carried over.
    if reservations.mattered or replacements or any(kept.unplanned for kept in (*starts, *standing)):
        round_.shortages.are_all = False
    is_same = round_.budget.takings == takings and not replacements and _is_calm(round_, lending)
    return Judged(
        round_,
        strategies,
        admission.lines,
        Remaining.of(round_.budget, reservations.in_force) if is_same else None,
        frozenset(group.key for group in (*first, *reservations.longest_waiting)),
        reservations.same_until,
    )


def _take_back(round_: Round, lending: Lending) -> list[GroupView]:
    """Begin reclaims, and evict groups of drained queues. Returns those that were asked for others."""
    does_any_wait = any(decision.verdict is Verdict.WAITING for decision in round_.decided.values())
    first = reclaim.begin(round_, lending) if does_any_wait else []
    if round_.draining:
        victims.drain(round_)
    return first


def _is_calm(round_: Round, lending: Lending) -> bool:
    """Whether no gang that waits keeps anything from others: room that is taken back or kept for it, or
    places in the window. And what one says of refusals, others of the same kind repeat."""
    is_refused = round_.snapshot.refused or round_.budget.planner.capacity.is_refused_anywhere
    takes_back = round_.has_begun_reclaim or round_.reclaims
    return not (takes_back or is_refused or round_.budget.window.is_waited_for) and lending.keeps_nothing


def _by_state(round_: Round) -> dict[State, list[GroupView]]:
    """The groups to be judged; the others are settled."""
    groups: dict[State, list[GroupView]] = {state: [] for state in State}
    are_any_evicted = bool(round_.draining or round_.promised)
    for group in round_.snapshot.groups.values():
        with Guard(round_, group):
            decision = victims.evicted_whole(round_, group) if are_any_evicted else None
            decision = decision or at_rest(group) or _cannot_be_judged(round_, group)
            if decision is None:
                groups[state_of(group)].append(group)
            else:
                round_.decided[group.key] = decision
    return groups


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
