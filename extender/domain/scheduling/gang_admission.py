"""Admission of pending gangs: whole, or with the one reason why they wait.

First come all groups at or below their queue's deserved share; then, if capacity is lent, those above it. A
gang is checked against its queue's limits, ceiling and share, then against capacity, and last against the
window. Groups of one queue with the same needs are evaluated once, until one of them starts.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from extender.domain.model.reasons import LACKS_CAPACITY, Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.placement.planner import Planner, Read
from extender.domain.scheduling.backfill import ReservedCapacity
from extender.domain.scheduling.backoff import back_off
from extender.domain.scheduling.budget import Scope
from extender.domain.scheduling.cycle import Cycle, Guard
from extender.domain.scheduling.flavors import Similar, Why, choose, flavored, roles_of
from extender.domain.scheduling.lending import Lending
from extender.domain.scheduling.obstacles import exceeds_queue, explain, never_fits, waiting_decision
from extender.domain.scheduling.order import Strategies, TurnOrder, in_lines
from extender.domain.scheduling.reservation import RESERVED_FROM_OTHERS, Reservations
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.wholeness import Missing, Signature, missing, missing_of

# Key of equal groups: missing members, passable reservations, limits that bind, and whether the capacity that
# they claim is lent now.
ClassKey = tuple[tuple[Signature, Similar | None], tuple[GroupKey, ...], tuple[object, ...], bool]
Members = Mapping[str, int]  # by role; a job with partial starts has one role, without a name
# Reasons of groups that block no others. InvalidSpec is about a flavor here.
_NEVER = (Reason.INVALID_SPEC, Reason.NEVER_FITS, Reason.TOO_LARGE_FOR_WINDOW, Reason.TOO_COMPLEX)

BEHIND = "behind"  # topic of reads of groups behind the head of a queue


class BehindHead(NamedTuple):
    """EquivalenceClass of the groups behind the head of a queue."""

    scope: Scope


def behind_message(head: GroupKey, queue: str) -> str:
    """Describe what a group behind the head of its queue waits for."""
    return f"{head} goes first in queue {queue}"


# Reasons that may change when another group is placed, since some free capacity is left.
_WITH_SOME_LEFT = (Reason.FRAGMENTED, Reason.NO_DOMAIN, Reason.QUEUE_SHARE)


class Admission:
    """Admission of gangs, one after the other.

    A decision of None means that the group is above its share: it is evaluated again once capacity is lent.
    """

    def __init__(
        self,
        cycle: Cycle,
        lending: Lending,
        reservations: Reservations,
        strategies: Strategies,
        next_equal: Callable[[GroupInfo], GroupInfo | None],
    ) -> None:
        """Begin a pass. `next_equal` returns the next inadmissible group of the class of a starting group."""
        self._cycle = cycle
        self._budget = cycle.budget
        self._lending = lending
        self._reservations = reservations
        self._strategies = strategies
        self._next_equal = next_equal
        self.lines: Mapping[str, list[GroupInfo]] = {}  # all groups to be evaluated, in order, by queue
        self.heads: dict[Scope, GroupKey] = {}  # groups that block others, by scope
        # In this pass, by signature: why members find no capacity, the allocations before, and the reads.
        self._unplaceable: dict[Signature | None, tuple[Why, int, Read]] = {}
        self._by_class: dict[tuple[str, ClassKey], GroupDecision | None] = {}  # of this pass, by queue

    def admit(self, groups: Iterable[GroupInfo]) -> list[GroupInfo]:
        """Evaluate `groups` in order; return those above their share (none once capacity is lent).

        Behind a group that no other may pass, the rest of its queue waits.
        """
        strategies, budget = self._strategies, self._budget
        lines = in_lines(groups, lambda group: group, strategies.rank)
        self.lines = self.lines or {queue: list(line) for queue, line in lines.items()}
        self._unplaceable.clear()
        self._by_class.clear()
        above_share: list[GroupInfo] = []
        for _, line in TurnOrder(budget.shares, self._cycle.snapshot.queues, lines, lambda group: group):
            allocations = budget.allocations
            # A queue's turn lasts until one of its groups gets capacity.
            while line and budget.allocations == allocations:
                group = line.popleft()
                with Guard(self._cycle, group):
                    decision = self._decide(group)
                    if decision is not None:
                        self._cycle.settle(decision)
                        if decision.verdict is Verdict.STARTING:
                            self._queue_next_equal(group, line)
                        continue
                    above_share.append(group)
                    if self._blocks_others(group):
                        above_share += line
                        line.clear()
        return above_share

    def _queue_next_equal(self, group: GroupInfo, line: deque[GroupInfo]) -> None:
        """Put the next group of the class of `group`, which starts, into the line of its queue."""
        if (following := self._next_equal(group)) is not None:
            insort(line, following, key=self._strategies.rank)
            insort(self.lines[group.queue], following, key=self._strategies.rank)

    def _decide(self, group: GroupInfo) -> GroupDecision | None:
        """Decide on a group, and record what it blocks or reserves if it waits.

        Returns:
            The decision; None to evaluate the group later in the cycle, when capacity may be borrowed.
        """
        if (known := self._cycle.decided.get(group.key)) is not None:  # its reclaim continues
            return self._record_blocker(group, known)
        if self.heads and not self._reservations.is_promised(group):
            scopes = self._budget.running.scopes(group)
            scope = next((scope for scope, _ in scopes if scope in self.heads), None)
            if scope is not None:
                self._cycle.reads.set_class(group.key, BehindHead(scope))
                self._cycle.reads.record(BEHIND)
                return waiting_decision(
                    group, Reason.BEHIND_OTHERS, behind_message(self.heads[scope], group.queue)
                )
        backs_off = self._strategies.traverse_of(group).backs_off(group)
        decision = back_off(self._cycle, group) if backs_off else self._evaluate(group)
        if group.job.least and decision is not None and decision.verdict is Verdict.WAITING:
            group, decision = self._shrink(group, decision)
        if decision is None or decision.verdict is not Verdict.WAITING:
            return decision
        if decision.reason is Reason.WINDOW_FULL:
            self._budget.window.waiting_queues.add(group.queue)
        decision = self._record_blocker(group, decision)
        wanted = missing(group)
        if decision.reason in LACKS_CAPACITY and self._budget.flavors.flavors_of(group.queue):
            wanted = flavored(self._budget.flavors, group, wanted, decision.flavors)
        has_reservation, reason = self._reservations.has_reservation(group), decision.reason
        claims_capacity = not has_reservation and self._lending.has_claim(group, wanted, reason)
        decision = self._reservations.record(group, decision)
        return replace(decision, claims_capacity=True) if claims_capacity else decision

    def _record_blocker(self, group: GroupInfo, decision: GroupDecision) -> GroupDecision:
        """Record a pending group that no other may pass: it blocks its queue.

        At the limit of a user or a namespace, it blocks only their groups.
        """
        waits_in_line = decision.verdict is Verdict.WAITING and decision.reason not in _NEVER
        if waits_in_line and self._blocks_others(group):
            scope = Scope(group.queue)
            if decision.reason in (Reason.QUEUE_CEILING, Reason.RESERVED):
                excess = self._budget.running.excess(group, len(missing(group).members))
                scope = excess.scope if excess is not None else scope
            self.heads.setdefault(scope, group.key)
        return decision

    def _blocks_others(self, group: GroupInfo) -> bool:
        """Return whether no group may pass this one.

        A group that could not start on empty nodes never blocks others.
        """
        if not self._strategies.traverse_of(group).lets_none_pass(group):
            return False
        wanted, budget = missing(group), self._budget
        if budget.shares.is_never_below_ceiling(group.queue, wanted.requests):
            return False
        may_stand = group.computed(has_choice) or self._cycle.fits_empty_cluster(wanted)
        return may_stand and len(wanted.members) <= budget.window.size

    def _shrink(self, group: GroupInfo, whole: GroupDecision) -> tuple[GroupInfo, GroupDecision | None]:
        """Return the largest partial start of a job that allows one. `whole`: the decision on the whole job.

        If no part can start, the result is the obstacle of the whole job or, if the whole job can never
        start, of its smallest part. If only the window lacks places, the job waits for these.
        """
        if whole.reason in (Reason.BACKING_OFF, Reason.WINDOW_FULL):  # independent of the size
            return group, whole

        def try_start(members: int) -> tuple[GroupInfo, GroupDecision | None]:
            smaller = replace(group, min_member=members)
            decision = self._evaluate(smaller)
            if decision is not None and decision.verdict is Verdict.STARTING:
                self._budget.release(smaller, decision.plan)
            return smaller, decision

        def can_start(members: Members) -> bool:
            _, decision = try_start(members[""])
            return decision is not None and (
                decision.verdict is Verdict.STARTING or decision.reason is Reason.WINDOW_FULL
            )

        smallest, decision = try_start(group.job.least)
        if decision is None or decision.verdict is not Verdict.STARTING:
            return (smallest, decision) if whole.reason in _NEVER else (group, whole)
        most = largest_fitting({"": group.min_member}, {"": group.job.least}, can_start)
        members = group.job.least if most is None else most[""]
        decision = self._evaluate(replace(group, min_member=members))
        is_start = decision is not None and decision.verdict is Verdict.STARTING
        return group, replace(decision, reduced_to=members) if decision is not None and is_start else decision

    def _evaluate(self, group: GroupInfo) -> GroupDecision | None:
        """Evaluate a group with its reservation or as backfill; groups of one class share the answer.

        Returns:
            The decision; None to evaluate the group later in the cycle, when capacity may be borrowed.
        """
        own, backfilled = self._reservations.reserved_for(group), self._reservations.may_backfill(group)
        signature = None if group.computed(has_choice) else _signature(self._budget.planner, missing(group))
        class_key: tuple[str, ClassKey] | None = None
        if not own and signature is not None and not self._budget.window.reserves_for(group):
            by_roles = roles_of(group) if self._budget.flavors.flavors_of(group.queue) else None
            similar = signature, by_roles
            backfilled_keys = tuple(capacity.group.key for capacity in backfilled)
            limits = self._budget.running.class_key(group)
            class_key = group.queue, (similar, backfilled_keys, limits, self._lending.is_claim_lent(group))
            self._cycle.reads.set_class(group.key, class_key)
            if class_key in self._by_class:
                known = self._by_class[class_key]
                return None if known is None else replace(known, key=group.key)
        decision = self._evaluate_with(group, own) if own else self._evaluate_now(group)
        is_start = decision is not None and decision.verdict is Verdict.STARTING
        if decision is not None and is_start and not (own or group.job.least):  # a partial start is a trial
            self._reservations.use_reserved(group, decision.plan)
        if decision is not None and decision.reason in RESERVED_FROM_OTHERS and not own:
            if backfilled:
                decision = self._evaluate_with(group, backfilled)
            if decision is not None and decision.reason in RESERVED_FROM_OTHERS:
                wanted = self._members_to_start(group)
                blockers = self._reservations.blocked_by(group, wanted, decision.reason)
                decision = waiting_decision(group, Reason.RESERVED, blockers) if blockers else decision
        is_start = decision is not None and decision.verdict is Verdict.STARTING
        if class_key is not None and not is_start:  # each start has nodes of its own
            self._by_class[class_key] = decision
        return decision

    def _evaluate_with(self, group: GroupInfo, reserved: list[ReservedCapacity]) -> GroupDecision | None:
        """Evaluate a group with capacity that is reserved from most other groups."""
        known, self._unplaceable = self._unplaceable, {}
        with self._reservations.given_back(reserved):
            decision = self._evaluate_now(group)
        self._unplaceable = known
        if decision is not None and decision.verdict is Verdict.STARTING:
            self._reservations.end(group)
            self._by_class.clear()  # its unused reserved capacity is free
        return decision

    def _evaluate_now(self, group: GroupInfo) -> GroupDecision | None:
        """Evaluate a group with the capacity that is free and not reserved.

        Returns:
            The decision; None to evaluate the group later in the cycle, when capacity may be borrowed.
        """
        wanted, budget = self._members_to_start(group), self._budget
        if (limited := self._limited(group, wanted)) is not None:
            return limited
        if not self._lending.has_begun and budget.shares.is_above_due(group.queue, wanted.requests):
            return None
        if budget.flavors.flavors_of(group.queue):  # each member is bound to the nodes of one flavor
            capacities = partial(self._lacks_capacity, group), partial(never_fits, self._cycle)
            choice = choose(budget.flavors, group, wanted.members, {}, self._lending.has_begun, *capacities)
            if choice.is_above_share:
                return None
            if choice.tried:
                decision = waiting_decision(group, *choice.why())
                return replace(decision, flavors=choice.flavors, exceeds_queue=choice.exceeds_queue)
            wanted = choice.wanted
        signature, size = _signature(budget.planner, wanted), len(wanted.members)
        if (known := self._known_unplaceable(signature)) is not None:
            return self._waits_for_nodes(group, wanted, known)
        is_short = budget.planner.capacity.is_short_for(wanted.shapes)
        if not is_short and budget.window.has_places_for(group, size):
            if (plan := budget.place(group, wanted.members)) is not None:
                return GroupDecision(group.key, group.queue, Verdict.STARTING, plan=plan)
        elif not is_short and budget.planner.could_place(wanted):
            return waiting_decision(group, Reason.WINDOW_FULL, budget.window.describe_wait(group, size))
        return self._waits_for_nodes(group, wanted, self._no_placement(group, wanted, signature))

    def _waits_for_nodes(self, group: GroupInfo, wanted: Missing, why: Why) -> GroupDecision:
        """Return the decision on members without a placement: more nodes help where each fits alone."""
        decision, capacity = waiting_decision(group, *why), self._cycle.empty.capacity
        if decision.reason is not Reason.NEVER_FITS or not all(map(capacity.total, wanted.shapes)):
            return decision
        return replace(decision, exceeds_cluster=True)

    def _members_to_start(self, group: GroupInfo) -> Missing:
        """Return the members to start.

        A group with more members than it needs starts without those that do not fit.
        """
        wanted, planner = missing(group), self._budget.planner
        if not group.computed(has_choice) or planner.could_place(wanted):
            return wanted
        return missing_of(group, planner.fitting(group.waiting))

    def _limited(self, group: GroupInfo, wanted: Missing) -> GroupDecision | None:
        """Return the decision of limits, the ceiling or the size of the window against a start."""
        shares, window = self._budget.shares, self._budget.window
        queue, size = group.queue, len(wanted.members)
        if (excess := self._budget.running.excess(group, size)) is not None:
            if excess.always:
                return exceeds_queue(group, f"too large for a limit: {excess.text}")
            return waiting_decision(group, Reason.QUEUE_CEILING, excess.text)
        if above := shares.above_ceiling(queue, wanted.requests):
            if shares.is_never_below_ceiling(queue, wanted.requests):
                return exceeds_queue(group, f"too large for the ceiling of queue {queue}: {above}")
            if claimed := self._lending.keeps_headroom_from(group, wanted):
                return waiting_decision(group, Reason.QUEUE_SHARE, claimed)
            return waiting_decision(group, Reason.QUEUE_CEILING, f"queue {queue}: {above}")
        if size > window.size:
            return waiting_decision(
                group, Reason.TOO_LARGE_FOR_WINDOW, f"{size} members, window {window.size}"
            )
        return None

    def _lacks_capacity(self, group: GroupInfo, wanted: Missing) -> Why | None:
        """Return why members find no capacity on the nodes of a flavor; None if they do."""
        planner = self._budget.planner
        signature = _signature(planner, wanted)
        if (known := self._known_unplaceable(signature)) is not None:
            return known
        if planner.could_place(wanted):
            return None
        return self._no_placement(group, wanted, signature)

    def _known_unplaceable(self, signature: Signature | None) -> Why | None:
        """Return why members of a signature find no capacity, if this pass found that and it still holds."""
        if signature not in self._unplaceable:
            return None
        why, allocations, read = self._unplaceable[signature]
        if why[0] in _WITH_SOME_LEFT and allocations < self._budget.allocations:
            return None
        self._cycle.reads.share_reads(read)
        return why

    def _no_placement(self, group: GroupInfo, wanted: Missing, signature: Signature | None) -> Why:
        """Return why members find no capacity, and record it for their signature during this pass."""
        planner, unclaimed = self._budget.planner, self._lending.unclaimed
        if unclaimed is not None and unclaimed.could_place(wanted):
            why = Reason.QUEUE_SHARE, self._lending.text()
        else:
            why = explain(self._cycle, unclaimed or planner, group, wanted)
        if signature is not None:
            self._unplaceable[signature] = why, self._budget.allocations, self._cycle.reads.now or {}
        return why


def largest_fitting(wanted: Members, least: Members, fits: Callable[[Members], bool]) -> Members | None:
    """Return the most members that fit; None if not even `least` do, or if no role may give up any.

    As in Kueue, all roles give up the same part of their spare members, rounded down, and no more
    than is needed; a role that `least` does not name gives up none.
    """
    spare = {role: max(n - least.get(role, n), 0) for role, n in wanted.items()}
    total = sum(spare.values())

    def without(given_up: int) -> Members:
        return {role: n - spare[role] * given_up // total for role, n in wanted.items()}

    if not total:
        return None
    given_up = bisect_left(range(total + 1), True, key=lambda number: fits(without(number)))
    return without(given_up) if given_up <= total else None


def has_choice(group: GroupInfo) -> bool:
    """Return whether a group has more members than it needs, and it matters which of them start."""
    spare = len(missing(group).members) < len(group.waiting)
    return spare and len({pod.shape for pod in group.waiting}) > 1


def _signature(planner: Planner, wanted: Missing) -> Signature | None:
    """Return a key; groups with equal keys either all fit or all do not.

    None: there is no key, since the labels of a member matter.
    """
    return None if planner.affinity.any_interdependent(wanted) else wanted.signature
