"""Admission of groups, one by one, as docs/explanation/concepts.md and docs/reference/queues.md define it.

Groups within their queue's deserved share come first, then those that borrow capacity; both in the order of
shares. A starting group gets the nodes that decide() chose, since other nodes could be right as well.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import Any

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.resources import PODS
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.snapshot import Limits
from tests.domain.world import key
from tests.oracle.placement import Amounts, FreeCapacity, Pod, any_fit, fits_in_sum, free_capacity
from tests.oracle.shares import ROOT, ZERO, Part, Queues
from tests.oracle.states import GONE, Group, State

SLACK = Fraction(1, 10)  # smaller differences of amounts do not count


class Shares:
    """Usage, deserved shares and ceilings of queues. `reserved`: headroom reserved for groups."""

    def __init__(self, state: State) -> None:
        self.total = state.offers
        self.queues = Queues(state.demands())
        self.parts: Mapping[str, Mapping[str, Part]] = {
            resource: self.queues.divide(resource, n) for resource, n in self.total.items()
        }
        self.held: dict[str, Counter[str]] = {}
        self.reserved = Counter[tuple[str, str]]()  # by node of the tree and resource
        for group in state.groups:
            if group.nodes:
                self.add_usage(group.queue, group.holds)

    def add_usage(self, queue: str, requests: Amounts) -> None:
        self.held.setdefault(self.queues.own_leaf(queue), Counter()).update(requests)

    def offered(self, requests: Amounts) -> Amounts:
        """Return the requests for resources that the cluster has."""
        return {resource: n for resource, n in requests.items() if n and resource in self.total}

    def usage_at(self, name: str, resource: str) -> int:
        children = self.queues.children(name)
        if children:
            return sum(self.usage_at(child, resource) for child in children)
        return self.held.get(name, Counter())[resource]

    def filled_at(self, name: str, resource: str) -> Fraction:
        """Return the usage of a queue, in which queues below count with at least their reserved amount."""
        children = self.queues.children(name)
        if not children:
            return Fraction(self.usage_at(name, resource))
        return sum(
            (max(self.filled_at(c, resource), self.queues.reserved(c, resource)) for c in children), ZERO
        )

    def share_of(self, name: str) -> Fraction:
        """Return a queue's share: the largest ratio of usage to deserved amount over all resources."""
        deserved = {resource: parts[name].deserved for resource, parts in self.parts.items()}
        ratios = [self.usage_at(name, resource) / n for resource, n in deserved.items() if n >= SLACK]
        holds_any = any(self.usage_at(name, resource) for resource in self.total)
        return max(ratios, default=Fraction(holds_any))

    def is_above_share(self, queue: str, requests: Amounts) -> bool:
        own_queue = self.queues.own_leaf(queue)
        return any(
            self.usage_at(own_queue, resource) + n > self.parts[resource][own_queue].deserved + SLACK
            for resource, n in self.offered(requests).items()
            if resource != PODS
        )

    def limit(self, name: str, resource: str) -> Fraction | float:
        """Return the ceiling of a queue.

        A ceiling that is not below the capacity does not count, since free capacity is checked anyway.
        """
        if name == ROOT:
            is_any_reserved = self.filled_at(ROOT, resource) > self.usage_at(ROOT, resource)
            return Fraction(self.total[resource]) if is_any_reserved else self.queues.limit(ROOT, resource)
        ceiling = self.parts[resource][name].ceiling
        return ceiling if ceiling < self.total[resource] else self.queues.limit(name, resource)

    def added(self, queue: str, requests: Amounts) -> Iterator[tuple[str, str, Fraction]]:
        """Yield the increases of this queue and all its ancestors, if a group with these requests starts."""
        for resource, n in self.offered(requests).items():
            increase = Fraction(n)
            for name in self.queues.path(queue):
                yield name, resource, increase
                filled, reserved = self.filled_at(name, resource), self.queues.reserved(name, resource)
                increase = max(filled + increase, reserved) - max(filled, reserved)

    def is_above_ceiling(self, queue: str, requests: Amounts) -> bool:
        for name, resource, increase in self.added(queue, requests):
            limit = self.limit(name, resource) + SLACK
            if increase and self.filled_at(name, resource) + self.reserved[name, resource] + increase > limit:
                return True
            if name != ROOT and self.usage_at(name, resource) + requests[resource] > limit:
                return True  # other queues use its reserved amount
        return False

    def always_exceeds_ceiling(self, queue: str, requests: Amounts) -> bool:
        own_queue = self.queues.own_leaf(queue)
        return any(
            n > self.parts[resource][own_queue].potential + SLACK
            for resource, n in self.offered(requests).items()
        )

    def reserve(self, queue: str, requests: Amounts) -> None:
        """Reserve headroom for a group: its requests, as far as the ceilings up to root allow."""
        for name, resource, increase in list(self.added(queue, requests)):
            limit = self.limit(name, resource)
            if name != ROOT and limit < inf:
                rest = int(limit - self.filled_at(name, resource) - self.reserved[name, resource])
                self.reserved[name, resource] += min(int(increase), max(rest, 0))


@dataclass(frozen=True)
class Turn:
    """Turn of one group, with the state at that time."""

    group: Group
    decision: GroupDecision
    state: State
    shares: Shares
    capacity: FreeCapacity
    lends: bool  # whether groups may borrow capacity now
    starting: int  # members of groups that start before it
    places: int  # its free places in the limit of in-flight pods
    behind: str  # the group that blocks it in its queue; empty: none
    claimants: tuple[Group, ...]  # groups within their share that lack capacity
    is_reserved_for_others: bool  # whether it lacks headroom only because of `Shares.reserved`

    @property
    def pods(self) -> tuple[Pod, ...]:
        return self.group.pods

    @cached_property
    def has_capacity(self) -> bool:
        return any_fit(self.pods, self.group.needed, self.capacity)

    @cached_property
    def has_sums(self) -> bool:
        return fits_in_sum(self.pods[: self.group.needed], self.capacity)

    @cached_property
    def fits_empty_cluster(self) -> bool:
        return any_fit(self.pods, self.group.needed, free_capacity(self.state.nodes, ()))

    @cached_property
    def can_never_start(self) -> bool:
        """Return whether the group could not start even if no other group ran."""
        group = self.group
        is_too_large = not self.fits_empty_cluster or group.needed > self.state.window
        return is_too_large or self.shares.always_exceeds_ceiling(group.queue, group.requests)

    @property
    def running(self) -> int:
        """Return the number of groups of the queue that run or start."""
        return sum(1 for group in self.state.groups if group.queue == self.group.queue and group.nodes)

    @cached_property
    def is_at_limit(self) -> bool:
        queue = self.state.queue(self.group.queue)
        return queue is not None and queue.groups is not None and self.running >= queue.groups

    @cached_property
    def is_above_ceiling(self) -> bool:
        return self.shares.is_above_ceiling(self.group.queue, self.group.requests)

    @cached_property
    def is_above_share(self) -> bool:
        return self.shares.is_above_share(self.group.queue, self.group.requests)

    @property
    def is_within_limits(self) -> bool:
        return not (self.is_at_limit or self.is_above_ceiling or self.group.needed > self.state.window)

    @property
    def backs_off(self) -> bool:
        return self.group.retry_in > 0

    @property
    def is_deferred(self) -> bool:
        """Return whether the group would borrow, so that it gets a second turn when borrowing is allowed."""
        return not self.backs_off and self.is_within_limits and self.is_above_share and not self.lends

    @property
    def may_start(self) -> bool:
        is_stopped = self.behind or self.backs_off or not self.is_within_limits or self.is_deferred
        return not is_stopped and self.has_capacity and self.group.needed <= self.places


def obstacle(state: State, group: Group) -> frozenset[Reason]:
    """Return all reasons, each of them true, for which a group gets no turn."""
    queue = state.queue(group.queue)
    reasons = set[Reason]()
    if not group.exists:
        reasons.add(Reason.GROUP_NOT_FOUND)
    if group.queue == GONE:
        reasons.add(Reason.QUEUE_NOT_FOUND)
    if queue is not None and queue.is_closed:
        reasons.add(Reason.QUEUE_NOT_OPEN)
    if queue is not None and queue.is_for_others:
        reasons.add(Reason.NAMESPACE_NOT_ALLOWED)
    if queue is not None and queue.is_restricted:
        reasons.add(Reason.QUEUE_NOT_ALLOWED)
    if group.timeouts >= Limits().start_timeouts:
        reasons.add(Reason.START_TIMED_OUT)
    if queue is not None and queue.is_stopped:
        reasons.add(Reason.QUEUE_STOPPED)
    if group.is_held:
        reasons.add(Reason.HELD)
    if len(group.pods) < group.needed:
        reasons.add(Reason.NOT_ENOUGH_MEMBERS)
    return frozenset(reasons)


class Replay:
    """Turns of all waiting groups, in their order."""

    def __init__(self, state: State, decisions: Decisions) -> None:
        self.state, self.decisions = state, decisions
        self.shares = Shares(state)
        self.started: dict[str, int] = {}  # starting members, by queue
        self.lacking_places: set[str] = set()  # queues with a group that lacks only in-flight places
        self.heads: dict[str, str] = {}  # groups that block their queue, by queue
        self.claimants: list[Group] = []
        self.at_ceiling: list[Group] = []

    def __iter__(self) -> Iterator[Turn]:
        waiting = [
            group for group in self.state.groups if not group.nodes and not obstacle(self.state, group)
        ]
        above_share = list[Group]()
        yield from self._turns_of(waiting, above_share)
        for group in self.at_ceiling:
            self.shares.reserve(group.queue, group.requests)
        yield from self._turns_of(above_share, None)

    def decision(self, group: Group) -> GroupDecision:
        return self.decisions.groups[key(group.name)]

    def _turns_of(self, groups: list[Group], deferred: list[Group] | None) -> Iterator[Turn]:
        groups_by_queue: dict[str, list[Group]] = {}
        for group in sorted(groups, key=lambda member: member.order):
            groups_by_queue.setdefault(group.queue, []).append(group)
        while (queue := self.next_queue(groups_by_queue)) is not None:
            queue_groups = groups_by_queue[queue]
            while queue_groups:
                group = queue_groups.pop(0)
                turn = self._turn(group, lends=deferred is None)
                if turn.is_deferred and not turn.behind and deferred is not None:
                    deferred.append(group)
                    if self._blocks_queue(turn):
                        deferred += queue_groups
                        queue_groups.clear()
                    continue
                yield turn
                self._record(turn)
                if turn.decision.verdict is Verdict.STARTING:
                    break

    def _blocks_queue(self, turn: Turn) -> bool:
        """Return whether a waiting group blocks its queue: a strict one, unless the group can never start."""
        queue = self.state.queue(turn.group.queue)
        return queue is not None and queue.strategy == "fifo" and not turn.can_never_start

    def _turn(self, group: Group, lends: bool) -> Turn:
        is_reserved_for_others = False
        if self.shares.is_above_ceiling(group.queue, group.requests) and self.shares.reserved:
            reserved, self.shares.reserved = self.shares.reserved, Counter()
            is_reserved_for_others = not self.shares.is_above_ceiling(group.queue, group.requests)
            self.shares.reserved = reserved
        return Turn(
            group,
            self.decision(group),
            self.state,
            self.shares,
            free_capacity(self.state.nodes, self.state.placed_pods),
            lends=lends,
            starting=sum(self.started.values()),
            places=self._places_of_gang(group.queue),
            behind=self.heads.get(group.queue, ""),
            claimants=tuple(self.claimants),
            is_reserved_for_others=is_reserved_for_others,
        )

    def _record(self, turn: Turn) -> None:
        group, decision, queue = turn.group, turn.decision, turn.group.queue
        if decision.verdict is Verdict.STARTING:
            nodes = tuple(decision.plan[f"uid-{group.name}-{n}"] for n in range(group.needed))  # type: ignore[index]
            self.state = self.state.with_group(group._replace(nodes=nodes))
            self.shares.add_usage(queue, group.requests)
            self.started[queue] = self.started.get(queue, 0) + group.needed
            return
        if self._blocks_queue(turn):
            self.heads.setdefault(queue, group.name)
        if turn.behind or turn.backs_off or turn.can_never_start or turn.is_at_limit:
            return
        if turn.is_above_ceiling or not turn.has_capacity:
            if not (turn.lends or turn.is_above_share):
                lacking_headroom_or_capacity = self.at_ceiling if turn.is_above_ceiling else self.claimants
                lacking_headroom_or_capacity.append(group)
        elif group.needed > turn.places:
            self.lacking_places.add(queue)

    # ---- order of turns

    def next_queue(self, items_by_queue: Mapping[str, list[Any]]) -> str | None:
        """Return the next queue, chosen from root down.

        The order of siblings: higher priority, smaller share (all shares up to 1 are equal), smaller share,
        older first group, name.
        """
        waiting = {
            name
            for queue, items in items_by_queue.items()
            if items
            for name in self.shares.queues.path(queue)
        }
        return None if not waiting else self._next_below(ROOT, waiting, items_by_queue)[0].removesuffix("/")

    def _next_below(
        self, name: str, waiting: Collection[str], items_by_queue: Mapping[str, list[Any]]
    ) -> tuple[str, float]:
        """Return the next queue at or below a node, and the age of its first group."""
        candidates = list[tuple[tuple[Any, ...], tuple[str, float]]]()
        for child in self.shares.queues.children(name):
            if child in waiting:
                following = self._next_below(child, waiting, items_by_queue)
                candidates.append((self._rank(child, following[1]), following))
        if candidates:
            return min(candidates)[1]
        queue_groups = [getattr(item, "group", item) for item in items_by_queue[name.removesuffix("/")]]
        queue = self.state.queue(name.removesuffix("/"))
        # In a strict queue, groups that back off stay in line and block others.
        is_strict = queue is not None and queue.strategy == "fifo"
        return name, next(
            (group for group in queue_groups if is_strict or not group.retry_in), queue_groups[0]
        ).age

    def _rank(self, name: str, age: float) -> tuple[int, Fraction, Fraction, float, str]:
        queue, share = self.state.queue(name), self.shares.share_of(name)
        priority = -queue.priority if queue else 0
        return priority, max(share, Fraction(1)), share, -age, name.removesuffix("/")

    # ---- limit of in-flight pods

    def _places_of_gang(self, queue: str) -> int:
        """Return all free places if no other group of the queue starts or waits for places, else `places`."""
        is_first = not self.started.get(queue) and queue not in self.lacking_places
        return self.state.window - sum(self.started.values()) if is_first else self.places(queue)

    def places(self, queue: str) -> int:
        """Return the unused places of the queue's part, and those of no queue's part."""
        size, used = self.state.window, sum(self.started.values())
        if queue in self.lacking_places:
            return 0
        over_parts = sum(max(n - self._part(name), 0) for name, n in self.started.items())
        parts = sum(map(self._part, self.shares.queues.demands))
        own_rest = max(self._part(queue) - self.started.get(queue, 0), 0)
        return max(min(own_rest + max(size - parts - over_parts, 0), size - used), 0)

    def _part(self, queue: str) -> int:
        """Return a queue's part of one half of the places, which are divided by weight from root down."""
        part, path = Fraction(self.state.window, 2), self.shares.queues.path(queue)[::-1]
        for parent, child in pairwise(path):
            weights = [self._weight(name) for name in self.shares.queues.children(parent)]
            part *= Fraction(self._weight(child), max(sum(weights), 1))
        return int(part)

    def _weight(self, name: str) -> int:
        queue = self.state.queue(name)
        return queue.weight if queue else int(name != f"{ROOT}/")  # `default`, and the own groups of a queue
