"""decide(): which pods may start on which nodes, and why each other group waits.

decide() is a pure function of the snapshot. The `previous` decisions only save work: inadmissible groups are
not evaluated until a change requeues them (inadmissible.py). All decisions are the same as if all groups were
evaluated.
"""

from msgspec.structs import replace

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.scheduling import consolidation, gang_admission, members, reclaim, victims
from extender.domain.scheduling.backoff import undo_decision
from extender.domain.scheduling.cycle import Cycle, Guard
from extender.domain.scheduling.inadmissible import InadmissibleGroups
from extender.domain.scheduling.lending import Lending
from extender.domain.scheduling.memory import Evaluation, read_facts
from extender.domain.scheduling.obstacles import (
    blocking_decision,
    competing_groups,
    missing_group_message,
    state_decision_now,
    waiting_decision,
)
from extender.domain.scheduling.order import Strategies, advance_rotation
from extender.domain.scheduling.plans import keep_plans
from extender.domain.scheduling.reservation import Reservations
from extender.domain.scheduling.results import decisions_of
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.phases import State, state_of
from extender.domain.snapshot.snapshot import Snapshot


def decide(snapshot: Snapshot, previous: Decisions | None = None) -> Decisions:
    """Return the decisions on all groups.

    Results of the previous cycle are reused where they are still valid.
    """
    carried_facts = None if previous is None else read_facts(previous)
    if previous is not None and carried_facts is not None and carried_facts.is_current(snapshot, previous):
        return replace(previous, serial=previous.serial + 1, changed_groups=(), renumbered_groups=())
    inadmissible = InadmissibleGroups(snapshot, previous, carried_facts)
    while True:
        cycle = Cycle(snapshot, inadmissible.active_groups, inadmissible.decisions, inadmissible.budget)
        evaluation = evaluate(cycle, inadmissible)
        if not inadmissible.requeue_after(evaluation):
            return decisions_of(evaluation, inadmissible)


def evaluate(cycle: Cycle, inadmissible: InadmissibleGroups) -> Evaluation:
    """Evaluate all groups, in the numbered steps of a cycle.

    A guard surrounds the evaluation of each group: if an evaluation raises an error, only its group waits.
    """
    lending, strategies = Lending(cycle), Strategies(cycle)
    reservations = Reservations(cycle, strategies)
    admission = gang_admission.Admission(cycle, lending, reservations, strategies, inadmissible.requeue_equal)

    # 1. Groups are sorted by state. The groups that are not evaluated get their decisions.
    groups = _sort_by_state(cycle)
    competitors = competing_groups(cycle, strategies, groups[State.WAITING])

    # 2. Pods that are being started keep their planned nodes.
    starting_plans = members.keep_starts(cycle, groups[State.STARTING]) if groups[State.STARTING] else []
    replacing_groups = sorted(groups[State.REPLACING], key=lambda group: group.order)
    replacements = keep_plans(cycle, replacing_groups) if replacing_groups else []
    growing_groups = sorted(groups[State.GROWING], key=lambda group: group.order)
    growing_plans = keep_plans(cycle, growing_groups) if growing_groups else []
    running_groups = (active.group for active in (*replacements, *growing_plans))
    cycle.budget.window.reserve_places(competitors, running_groups, cycle.is_due)
    if cycle.snapshot.moves:
        reservations.reserve_for_moved()
    waiting_groups = reclaim.reserve_reclaimed(cycle, competitors) if cycle.reclaims else competitors

    # 3. Starts under way, or interrupted by a crash, are completed. Then replacements get capacity.
    if starting_plans:
        members.complete(cycle, starting_plans)
    started_replacements = members.reserve(cycle, replacements) if replacements else []

    # 4. The capacity of reservations is withheld from all other groups.
    reservations.begin(waiting_groups)
    old_allocation_count = cycle.budget.allocation_count
    competitors += inadmissible.requeue_changed(cycle, reservations.withheld_by_group)

    # 5. Gangs at or below their queue's deserved share are admitted, queue by queue in order of share.
    above_share = admission.admit(competitors)

    # 6. Groups above their queue's share borrow capacity that no group of step 5 claims.
    reservations.is_lending = True
    if above_share:
        lending.begin()
        admission.admit(above_share)
    advance_rotation(cycle, strategies, competitors)

    # 7. Replacements start, up to the free places in the window.
    if started_replacements:
        members.start_replacements(cycle, started_replacements)

    # 8. Elastic members start one by one, first within their queue's share, then above that share.
    if growing_plans:
        members.grow(cycle, growing_plans, lending, reservations)

    # 9. The next pending group gets a reservation, and capacity is reclaimed for starved groups.
    reservations.make_reservations()
    is_any_pending = any(decision.verdict is Verdict.WAITING for decision in cycle.decisions.values())
    may_starve = is_any_pending or inadmissible.memory is not None
    starving = reclaim.begin_reclaims(cycle, lending, reservations) if may_starve else reclaim.NONE_STARVES

    # 10. Queues are drained. A group restarts as a whole if its domain has no capacity for lost members.
    if cycle.draining_groups:
        victims.drain_queues(cycle)
    candidates = [active.group for active, _ in started_replacements if active.group.spec.restarts]
    if candidates and not cycle.has_begun_reclaim:  # a reclaim reserves its capacity only in the next cycle
        ordered, _ = reclaim.turn_order(candidates, int(cycle.snapshot.now) * consolidation.MAX_RESTARTS)
        consolidation.begin_restarts(cycle, ordered, reservations.unreserved_capacity)

    has_allocated = cycle.budget.allocation_count > old_allocation_count or bool(replacements)
    uses_any = has_allocated or _reserves_any(cycle, lending, reservations)
    depends_on_others = _depends_on_others(cycle)
    lines, heads = admission.lines, admission.heads
    return Evaluation(cycle, strategies, reservations, starving, lines, heads, uses_any, depends_on_others)


def _reserves_any(cycle: Cycle, lending: Lending, reservations: Reservations) -> bool:
    """Return whether lending or a reservation withholds capacity or headroom from other groups."""
    capacity = cycle.budget.planner.capacity
    is_claimed = bool(reservations.withheld_by_group) and any(map(capacity.total, lending.claimed_shapes))
    return lending.reserves_any or is_claimed


def _depends_on_others(cycle: Cycle) -> bool:
    """Return whether decisions on one group depend on other groups beyond the budget.

    Decisions depend on other groups in these cases:

    - Running groups may be evicted.
    - The scheduler refuses pods. Equal pods share the refusals.
    - A group waits for places in the window.
    """
    is_refused = cycle.snapshot.refused_rows or cycle.budget.planner.capacity.is_refused_anywhere
    return bool(cycle.evicts_groups or is_refused or cycle.budget.window.has_waiting_groups)


def _sort_by_state(cycle: Cycle) -> dict[State, list[GroupInfo]]:
    """Return the groups to evaluate by state, and decide on all other groups."""
    groups: dict[State, list[GroupInfo]] = {state: [] for state in State}
    are_any_evicted = bool(cycle.draining_groups or cycle.group_by_victim)
    for group in cycle.groups.values():
        with Guard(cycle, group):
            decision = None
            if are_any_evicted:
                decision = consolidation.continue_restart(cycle, group) or victims.gang_eviction(cycle, group)
            decision = decision or state_decision_now(cycle, group) or _blocked_decision(cycle, group)
            if decision is None:
                groups[state_of(group)].append(group)
            else:
                cycle.decisions[group.key] = decision
    return groups


def _blocked_decision(cycle: Cycle, group: GroupInfo) -> GroupDecision | None:
    """Return the decision on a group that cannot be evaluated. None means that the group can be evaluated.

    Running members of a group without a PodGroup or queue continue to run.
    """
    state = state_of(group)
    is_running = group.is_on_nodes and state is not State.WAITING
    if not is_running and (fault := blocking_decision(cycle, group)) is not None:
        return undo_decision(cycle, group) or fault
    if not group.exists and state in (State.GROWING, State.REPLACING):
        # Without a PodGroup, members on nodes keep running, but no other members join them.
        return GroupDecision(
            group.key, group.queue, Verdict.RUNNING, Reason.GROUP_NOT_FOUND, missing_group_message(group)
        )
    text = "the group has no members: it needs at least one to start"
    return waiting_decision(group, Reason.NOT_ENOUGH_MEMBERS, text) if state is State.EMPTY else None
