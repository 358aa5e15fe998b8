"""Admission of pending gangs: a gang starts as a whole, or gets the one reason why it waits.

First, all groups at or below their queue's deserved share are admitted. Then, while capacity is lent, groups
above that share are admitted. A gang is checked against the limits, the ceiling and the share of its queue,
then against capacity, and last against the window. Groups of one queue with the same needs are evaluated only
once, until one of them starts.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from extender.domain.model.reasons import CAPACITY_REASONS, Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.placement.planner import Planner, ReadTopics
from extender.domain.scheduling.backfill import ReservedCapacity
from extender.domain.scheduling.backoff import back_off
from extender.domain.scheduling.budget import Scope
from extender.domain.scheduling.cycle import Cycle, Guard
from extender.domain.scheduling.flavors import Cause, NeedKey, choose_flavors, role_key, with_flavors
from extender.domain.scheduling.lending import Lending
from extender.domain.scheduling.obstacles import excess_decision, explain, waiting_decision, why_never_fits
from extender.domain.scheduling.order import Strategies, TurnOrder, lines_by_queue
from extender.domain.scheduling.reservation import RESERVABLE_REASONS, Reservations
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.wholeness import Missing, Signature, members_to_start, missing

# Key of equal groups: missing members, usable reservations, binding limits, and whether their claim is lent.
ClassKey = tuple[tuple[Signature, NeedKey | None], tuple[GroupKey, ...], tuple[object, ...], bool]
Counts = Mapping[str, int]  # members by role; a job with partial starts has one role, with an empty name
# Groups with these reasons block no other groups. InvalidSpec is about a flavor here.
_LASTING_REASONS = (Reason.INVALID_SPEC, Reason.NEVER_FITS, Reason.TOO_LARGE_FOR_WINDOW, Reason.TOO_COMPLEX)

HEAD_TOPIC = "behind"  # topic of reads of groups behind the head of their queue


class BehindHead(NamedTuple):
    """Equivalence class of the groups behind the head of a queue."""

    scope: Scope


def behind_message(head: GroupKey, queue: str) -> str:
    """Return the message for a group that waits behind the head of its queue."""
    return f"{head} goes first in queue {queue}"


# Some capacity is free with these reasons, so the reason can change when another group is placed.
_CHANGING_REASONS = (Reason.FRAGMENTED, Reason.NO_DOMAIN, Reason.QUEUE_SHARE)


class Admission:
    """Admission of gangs, one after the other.

    A decision of None means that the group is above its queue's share. Such a group is evaluated again once
    capacity is lent.
    """

    def __init__(
        self,
        cycle: Cycle,
        lending: Lending,
        reservations: Reservations,
        strategies: Strategies,
        requeue_equal: Callable[[GroupInfo], GroupInfo | None],
    ) -> None:
        """Begin the admission of a cycle.

        `requeue_equal` requeues and returns the next inadmissible group that is equal to a starting
        group, if any.
        """
        self._cycle = cycle
        self._budget = cycle.budget
        self._lending = lending
        self._reservations = reservations
        self._strategies = strategies
        self._requeue_equal = requeue_equal
        self.lines: Mapping[str, list[GroupInfo]] = {}  # all groups to evaluate, by queue, in order
        self.heads: dict[Scope, GroupKey] = {}  # groups that block others, by scope
        # By signature, in this pass: why members have no capacity, the allocation count then, and the reads.
        self._known_causes: dict[Signature | None, tuple[Cause, int, ReadTopics]] = {}
        self._decisions: dict[tuple[str, ClassKey], GroupDecision | None] = {}  # decisions of this pass

    def admit(self, groups: Iterable[GroupInfo]) -> list[GroupInfo]:
        """Evaluate `groups` in order.

        Return the groups that would exceed their queue's share. The result is empty if groups may borrow. If
        no group may pass a waiting group, the later groups of its queue wait, too.
        """
        strategies, budget = self._strategies, self._budget
        lines = lines_by_queue(groups, lambda group: group, strategies.rank)
        self.lines = self.lines or {queue: list(line) for queue, line in lines.items()}
        self._known_causes.clear()
        self._decisions.clear()
        above_share: list[GroupInfo] = []
        for _, line in TurnOrder(budget.shares, self._cycle.snapshot.queues, lines, lambda group: group):
            old_allocation_count = budget.allocation_count
            # It is the queue's turn until one of its groups gets capacity.
            while line and budget.allocation_count == old_allocation_count:
                group = line.popleft()
                with Guard(self._cycle, group):
                    decision = self._decide(group)
                    if decision is not None:
                        self._cycle.record(decision)
                        if decision.verdict is Verdict.STARTING:
                            self._queue_next_equal(group, line)
                        continue
                    above_share.append(group)
                    if self._blocks_others(group):
                        above_share += line
                        line.clear()
        return above_share

    def _queue_next_equal(self, group: GroupInfo, line: deque[GroupInfo]) -> None:
        """Requeue the next group that equals the starting `group`, and add it to the line of its queue."""
        if (next_group := self._requeue_equal(group)) is not None:
            insort(line, next_group, key=self._strategies.rank)
            insort(self.lines[group.queue], next_group, key=self._strategies.rank)

    def _decide(self, group: GroupInfo) -> GroupDecision | None:
        """Decide on a group. If it waits, record the groups that it blocks and the capacity that it claims.

        Returns:
            The decision. None means that the group is evaluated later in the cycle, when it may borrow
            capacity.
        """
        if (earlier_decision := self._cycle.decisions.get(group.key)) is not None:  # a reclaim continues
            return self._record_blocker(group, earlier_decision)
        if self.heads and not self._reservations.is_promised(group):
            scopes = self._budget.running.scopes(group)
            scope = next((scope for scope, _ in scopes if scope in self.heads), None)
            if scope is not None:
                self._cycle.reads.set_class(group.key, BehindHead(scope))
                self._cycle.reads.record(HEAD_TOPIC)
                return waiting_decision(
                    group, Reason.BEHIND_OTHERS, behind_message(self.heads[scope], group.queue)
                )
        backs_off = self._strategies.strategy_of(group).backs_off(group)
        decision = back_off(self._cycle, group) if backs_off else self._evaluate(group)
        if group.job.min_partial_size and decision is not None and decision.verdict is Verdict.WAITING:
            group, decision = self._shrink(group, decision)
        if decision is None or decision.verdict is not Verdict.WAITING:
            return decision
        if decision.reason is Reason.WINDOW_FULL:
            self._budget.window.waiting_queues.add(group.queue)
        decision = self._record_blocker(group, decision)
        need = missing(group)
        if decision.reason in CAPACITY_REASONS and self._budget.flavors.flavors_of(group.queue):
            need = with_flavors(self._budget.flavors, group, need, decision.flavors)
        has_reservation, reason = self._reservations.has_reservation(group), decision.reason
        claims_capacity = not has_reservation and self._lending.record_claim(group, need, reason)
        decision = self._reservations.with_reservation(group, decision)
        return replace(decision, claims_capacity=True) if claims_capacity else decision

    def _record_blocker(self, group: GroupInfo, decision: GroupDecision) -> GroupDecision:
        """Record a waiting group that no other group may pass: it blocks its queue.

        If it waits at the limit of a user or a namespace, it blocks only the groups of that user or
        namespace.
        """
        waits_in_line = decision.verdict is Verdict.WAITING and decision.reason not in _LASTING_REASONS
        if waits_in_line and self._blocks_others(group):
            scope = Scope(group.queue)
            if decision.reason in (Reason.QUEUE_CEILING, Reason.RESERVED):
                excess = self._budget.running.excess(group, len(missing(group).members))
                scope = excess.scope if excess is not None else scope
            self.heads.setdefault(scope, group.key)
        return decision

    def _blocks_others(self, group: GroupInfo) -> bool:
        """Return whether no other group may pass this group.

        A group that could not start on empty nodes never blocks other groups.
        """
        if not self._strategies.strategy_of(group).lets_none_pass(group):
            return False
        need, budget = missing(group), self._budget
        if budget.shares.never_fits(group.queue, need.requests):
            return False
        could_start = group.compute(has_spares) or self._cycle.fits_empty_cluster(need)
        return could_start and len(need.members) <= budget.window.size

    def _shrink(self, group: GroupInfo, whole: GroupDecision) -> tuple[GroupInfo, GroupDecision | None]:
        """Return the largest partial start of a job that allows partial starts.

        `whole` is the decision on the whole job. If no part of the job can start now, the decision has the
        obstacle of the whole job. However, if the whole job can never start, it has the obstacle of the
        smallest part. If the job lacks only places in the window, it waits for these places.
        """
        if whole.reason in (Reason.BACKING_OFF, Reason.WINDOW_FULL):  # the size does not matter here
            return group, whole

        def try_start(size: int) -> tuple[GroupInfo, GroupDecision | None]:
            smaller_group = replace(group, min_member=size)
            decision = self._evaluate(smaller_group)
            if decision is not None and decision.verdict is Verdict.STARTING:
                self._budget.release(smaller_group, decision.plan)
            return smaller_group, decision

        def can_start(sizes: Counts) -> bool:
            _, decision = try_start(sizes[""])
            return decision is not None and (
                decision.verdict is Verdict.STARTING or decision.reason is Reason.WINDOW_FULL
            )

        smallest_job, decision = try_start(group.job.min_partial_size)
        if decision is None or decision.verdict is not Verdict.STARTING:
            return (smallest_job, decision) if whole.reason in _LASTING_REASONS else (group, whole)
        largest_start = largest_fitting({"": group.min_member}, {"": group.job.min_partial_size}, can_start)
        size = group.job.min_partial_size if largest_start is None else largest_start[""]
        decision = self._evaluate(replace(group, min_member=size))
        is_start = decision is not None and decision.verdict is Verdict.STARTING
        return group, replace(decision, reduced_to=size) if decision is not None and is_start else decision

    def _evaluate(self, group: GroupInfo) -> GroupDecision | None:
        """Evaluate a group with its reservation or as backfill. Groups of one class share the result.

        Returns:
            The decision. None means that the group is evaluated later in the cycle, when it may borrow
            capacity.
        """
        reservations = self._reservations
        own, passable_capacities = reservations.own_capacities(group), reservations.passable_capacities(group)
        signature = None if group.compute(has_spares) else _signature(self._budget.planner, missing(group))
        class_key: tuple[str, ClassKey] | None = None
        if not own and signature is not None and not self._budget.window.has_reserved_places(group):
            need_key = (signature, role_key(group) if self._budget.flavors.flavors_of(group.queue) else None)
            backfilled_keys = tuple(capacity.group.key for capacity in passable_capacities)
            limits = self._budget.running.class_key(group)
            class_key = group.queue, (need_key, backfilled_keys, limits, self._lending.is_claim_lent(group))
            self._cycle.reads.set_class(group.key, class_key)
            if class_key in self._decisions:
                shared_decision = self._decisions[class_key]
                return None if shared_decision is None else replace(shared_decision, key=group.key)
        decision = self._evaluate_with(group, own) if own else self._evaluate_now(group)
        is_start = decision is not None and decision.verdict is Verdict.STARTING
        # Partial starts are trials.
        if decision is not None and is_start and not (own or group.job.min_partial_size):
            reservations.use_reserved(group, decision.plan)
        if decision is not None and decision.reason in RESERVABLE_REASONS and not own:
            if passable_capacities:
                decision = self._evaluate_with(group, passable_capacities)
            if decision is not None and decision.reason in RESERVABLE_REASONS:
                need = self._members_to_start(group)
                blockers = reservations.blockers_text(group, need, decision.reason)
                decision = waiting_decision(group, Reason.RESERVED, blockers) if blockers else decision
        is_start = decision is not None and decision.verdict is Verdict.STARTING
        if class_key is not None and not is_start:  # each start has its own nodes
            self._decisions[class_key] = decision
        return decision

    def _evaluate_with(self, group: GroupInfo, capacities: list[ReservedCapacity]) -> GroupDecision | None:
        """Evaluate a group as if the reserved `capacities` were free.

        If the group starts, end its reservation.
        """
        outer_causes, self._known_causes = self._known_causes, {}
        with self._reservations.make_usable(capacities):
            decision = self._evaluate_now(group)
        self._known_causes = outer_causes
        if decision is not None and decision.verdict is Verdict.STARTING:
            self._reservations.end(group)
            self._decisions.clear()  # the unused reserved capacity becomes free
        return decision

    def _evaluate_now(self, group: GroupInfo) -> GroupDecision | None:
        """Evaluate a group with the capacity that is free and not reserved.

        Returns:
            The decision. None means that the group is evaluated later in the cycle, when it may borrow
            capacity.
        """
        need, budget = self._members_to_start(group), self._budget
        if (limit_decision := self._limit_decision(group, need)) is not None:
            return limit_decision
        if not self._lending.has_begun and budget.shares.needs_borrowing(group.queue, need.requests):
            return None
        if budget.flavors.flavors_of(group.queue):  # each role may only use nodes of one flavor
            checks = partial(self._why_no_capacity, group), partial(why_never_fits, self._cycle)
            choice = choose_flavors(budget.flavors, group, need.members, {}, self._lending.has_begun, *checks)
            if choice.is_above_share:
                return None
            if choice.obstacles:
                decision = waiting_decision(group, *choice.cause())
                return replace(decision, flavors=choice.flavor_by_role, exceeds_queue=choice.exceeds_queue)
            need = choice.need
        signature, size = _signature(budget.planner, need), len(need.members)
        if (cached_reason := self._known_reason(signature)) is not None:
            return self._waits_for_nodes(group, need, cached_reason)
        is_short = budget.planner.capacity.is_short_for(need.shapes)
        if not is_short and budget.window.has_places_for(group, size):
            if (plan := budget.place(group, need.members)) is not None:
                return GroupDecision(group.key, group.queue, Verdict.STARTING, plan=plan)
        elif not is_short and budget.planner.could_place(need):
            return waiting_decision(group, Reason.WINDOW_FULL, budget.window.describe_wait(group, size))
        return self._waits_for_nodes(group, need, self._explain(group, need, signature))

    def _waits_for_nodes(self, group: GroupInfo, need: Missing, cause: Cause) -> GroupDecision:
        """Return the decision on members without a placement.

        If the group never fits, but each member alone fits on an empty node, more nodes would help.
        """
        decision, capacity = waiting_decision(group, *cause), self._cycle.empty_planner.capacity
        if decision.reason is not Reason.NEVER_FITS or not all(map(capacity.total, need.shapes)):
            return decision
        return replace(decision, exceeds_cluster=True)

    def _members_to_start(self, group: GroupInfo) -> Missing:
        """Return the members to start.

        A group with more members than it needs starts without the members that do not fit.
        """
        need, planner = missing(group), self._budget.planner
        if not group.compute(has_spares) or planner.could_place(need):
            return need
        return members_to_start(group, planner.fitting_pods(group.waiting_pods))

    def _limit_decision(self, group: GroupInfo, need: Missing) -> GroupDecision | None:
        """Return the decision if limits, the ceiling or the size of the window prevent a start; else None."""
        shares, window = self._budget.shares, self._budget.window
        queue, size = group.queue, len(need.members)
        if (excess := self._budget.running.excess(group, size)) is not None:
            if excess.is_lasting:
                return excess_decision(group, f"too large for a limit: {excess.text}")
            return waiting_decision(group, Reason.QUEUE_CEILING, excess.text)
        if excess_text := shares.ceiling_excess(queue, need.requests):
            if shares.never_fits(queue, need.requests):
                return excess_decision(group, f"too large for the ceiling of queue {queue}: {excess_text}")
            if claims_text := self._lending.headroom_claims_text(group, need):
                return waiting_decision(group, Reason.QUEUE_SHARE, claims_text)
            return waiting_decision(group, Reason.QUEUE_CEILING, f"queue {queue}: {excess_text}")
        if size > window.size:
            return waiting_decision(
                group, Reason.TOO_LARGE_FOR_WINDOW, f"{size} members, window {window.size}"
            )
        return None

    def _why_no_capacity(self, group: GroupInfo, need: Missing) -> Cause | None:
        """Return why members have no capacity on the nodes of a flavor. None means that they have."""
        planner = self._budget.planner
        signature = _signature(planner, need)
        if (cached_reason := self._known_reason(signature)) is not None:
            return cached_reason
        if planner.could_place(need):
            return None
        return self._explain(group, need, signature)

    def _known_reason(self, signature: Signature | None) -> Cause | None:
        """Return why members of a signature have no capacity, if this pass has found that before.

        The reason must still be valid. None means that there is no valid reason.
        """
        if signature not in self._known_causes:
            return None
        cause, old_allocation_count, read_topics = self._known_causes[signature]
        if cause[0] in _CHANGING_REASONS and old_allocation_count < self._budget.allocation_count:
            return None
        self._cycle.reads.share_reads(read_topics)
        return cause

    def _explain(self, group: GroupInfo, need: Missing, signature: Signature | None) -> Cause:
        """Return why members have no capacity, and cache the reason for their signature during this pass."""
        planner, unclaimed_capacity = self._budget.planner, self._lending.unclaimed_capacity
        if unclaimed_capacity is not None and unclaimed_capacity.could_place(need):
            cause = Reason.QUEUE_SHARE, self._lending.claims_text()
        else:
            cause = explain(self._cycle, unclaimed_capacity or planner, group, need)
        if signature is not None:
            self._known_causes[signature] = (
                cause,
                self._budget.allocation_count,
                self._cycle.reads.current or {},
            )
        return cause


def largest_fitting(counts: Counts, min_counts: Counts, fits: Callable[[Counts], bool]) -> Counts | None:
    """Return the largest numbers of members that fit, by role.

    As in Kueue, all roles give up the same fraction of their spare members, rounded down. The result has the
    smallest such fraction with which the remaining members fit. A role that is not in `min_counts` gives up
    no members. The result is None if no role has spare members, or if not even `min_counts` fits.
    """
    spare_counts = {role: max(n - min_counts.get(role, n), 0) for role, n in counts.items()}
    spare_total = sum(spare_counts.values())

    def reduce_counts(given_up_count: int) -> Counts:
        return {role: n - spare_counts[role] * given_up_count // spare_total for role, n in counts.items()}

    if not spare_total:
        return None
    min_given_up = bisect_left(range(spare_total + 1), True, key=lambda number: fits(reduce_counts(number)))
    return reduce_counts(min_given_up) if min_given_up <= spare_total else None


def has_spares(group: GroupInfo) -> bool:
    """Return whether a group has more members than it needs, and it matters which of them start."""
    has_spare = len(missing(group).members) < len(group.waiting_pods)
    return has_spare and len({pod.shape for pod in group.waiting_pods}) > 1


def _signature(planner: Planner, need: Missing) -> Signature | None:
    """Return a key of members. Members with equal keys fit on the same nodes.

    None means that there is no such key, since the labels of a member matter.
    """
    return None if planner.affinity.is_any_interdependent(need) else need.signature
