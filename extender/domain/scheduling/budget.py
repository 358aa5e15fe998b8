"""Budget of a cycle: capacity, shares of queues, limits on running groups and pods, and the starting window.

All allocations of a cycle change this budget, so groups that are evaluated later find less. If the evaluation
of a group fails, its allocations are undone.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from functools import cached_property, partial
from itertools import islice
from typing import NamedTuple

from extender.api import keys
from extender.api.keys import ROOT_QUEUE
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import Resources, add
from extender.domain.model.shared_maps import changed_keys, with_changes
from extender.domain.placement.departures import holding_of
from extender.domain.placement.planner import Journal, Planner, recorded_read
from extender.domain.queues.records import Limit, QueueRecord, RunningLimits
from extender.domain.queues.share_tree import TOP, ShareTree
from extender.domain.queues.tree import QueueInfo
from extender.domain.scheduling.flavors import Flavors
from extender.domain.scheduling.shares import QueueShares
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import missing

_MAX_COUNT = 10**9
_NO_LIMITS = RunningLimits()
_NO_COUNTS: Mapping[str, int] = Counter()


class QueueRules(NamedTuple):
    """Rules in the specifications of queues. Few queues have such rules."""

    queues: Mapping[str, QueueInfo] = {}  # all queues, which these rules follow from
    limits_by_queue: Mapping[str, RunningLimits] = {}  # limits on running groups and pods, by queue
    spreading_queues: Set[str] = frozenset()  # queues that spread their pods
    drained_queues: Set[str] = frozenset()  # queues whose groups are evicted

    def for_queues(self, queues: Mapping[str, QueueInfo]) -> "QueueRules":
        """Return the rules of `queues`. Only changed queues are read."""
        records = {name: _existing_record(queues, name) for name in changed_keys(queues, self.queues)}
        previous = self.queues
        changes = {name: now for name, now in records.items() if now is not _existing_record(previous, name)}
        if not changes:
            return self._replace(queues=queues)
        new_records = {name: record for name, record in changes.items() if record is not None}
        limits: dict[str, RunningLimits | None] = dict.fromkeys(changes)
        limits |= {name: now.limits for name, now in new_records.items() if now.limits != _NO_LIMITS}
        spreading_queues = {name for name, now in new_records.items() if now.placement == keys.SPREAD}
        drained_queues = {name for name, now in new_records.items() if now.stop_policy == keys.STOP_DRAIN}
        return QueueRules(
            queues,
            with_changes(self.limits_by_queue, limits),
            (self.spreading_queues - changes.keys()) | spreading_queues,
            (self.drained_queues - changes.keys()) | drained_queues,
        )


_MAX_SHAPES = 16  # number of shapes of members that join later; each shape costs a count on all nodes


def _existing_record(queues: Mapping[str, QueueInfo], name: str) -> QueueRecord | None:
    """Return the record of a queue; None if the queue does not exist."""
    info = queues.get(name)
    return info.record if info is not None and info.exists else None


class Budget:
    """Budget of a cycle, from which decisions allocate."""

    rules: QueueRules
    shares: QueueShares

    def __init__(self, snapshot: Snapshot, old: "Budget | None" = None) -> None:
        """Begin with the free capacity.

        Unchanged parts of `old`, the budget of an earlier cycle, are reused.
        """
        self.rules = (QueueRules() if old is None else old.rules).for_queues(snapshot.queues)
        self.journal = Journal()  # all allocations and reads; a failed evaluation is rolled back
        self.planner = Planner.from_snapshot(snapshot, self.journal)
        self.shares = QueueShares(snapshot, None if old is None else old.shares.at_start, self.journal)
        self.flavors = Flavors(snapshot, self.shares)
        self.running = RunningCounts(snapshot, self.rules.limits_by_queue, self.journal)
        self.window = StartingWindow(snapshot, self.shares.tree, self.journal)
        self.allocation_count = 0  # number of allocations; if it has not changed, neither has the budget

    def place(
        self, group: GroupInfo, pods: Iterable[PodRecord], is_partial: bool = False, places: int | None = None
    ) -> dict[Uid, str] | None:
        """Start `pods` of a group: allocate capacity, share and window places for all of them at once.

        None means that the capacity does not suffice. With `is_partial`, as many pods as possible start
        instead. `places` is the number of window places (see `window_places` of `count_members`).
        Domains with capacity for all waiting members of the group are preferred, since the other members
        join later.
        """
        pods, is_spread = list(pods), group.queue in self.rules.spreading_queues
        is_small = len({pod.shape for pod in group.waiting_pods}) <= _MAX_SHAPES
        gang_pods = group.waiting_pods if is_small else ()
        plan = self.planner.place(pods, is_partial=is_partial, is_spread=is_spread, gang_pods=gang_pods)
        self.count_members(group, plan or {}, window_places=places)
        return plan

    def count_members(
        self,
        group: GroupInfo,
        plan: Mapping[Uid, str],
        requests: Resources | None = None,
        window_places: int | None = None,
    ) -> None:
        """Count members with allocated capacity in the shares, the running counts and the window.

        Args:
            group: The group of the members.
            plan: The node of each member.
            requests: The requests of the members, if known.
            window_places: The number of places in the window. None means one place for each member.
        """
        if plan:
            self.allocation_count += 1
            self.shares.add(group.queue, self.requests(group, plan, requests))
            self.running.add(group, len(plan))
            self.window.add(group, len(plan) if window_places is None else window_places)

    def release(self, group: GroupInfo, plan: Mapping[Uid, str]) -> None:
        """Free all allocations of planned members."""
        self.free_plan(group, plan)
        self.running.add(group, -len(plan))
        self.window.add(group, -len(plan))

    def reserve(self, group: GroupInfo, plan: Mapping[Uid, str]) -> None:
        """Allocate capacity and share for members that start only once the capacity is free."""
        self.allocation_count += 1
        self.planner.allocate((pod, plan[pod.uid]) for pod in group.waiting_pods if pod.uid in plan)
        self.shares.add(group.queue, self.requests(group, plan))

    def free_plan(self, group: GroupInfo, plan: Mapping[Uid, str]) -> None:
        """Free the capacity and share of the planned members."""
        self.planner.unplace(group.waiting_pods, plan)
        self.shares.add(group.queue, self.requests(group, plan), times=-1)

    def remove_group(self, group: GroupInfo) -> None:
        """Remove a group from all counts, but leave its capacity on nodes allocated."""
        self.shares.add(group.queue, self.flavors.requests(holding_of(group).pods), times=-1)
        self.running.remove_group(group)

    def requests(
        self, group: GroupInfo, plan: Mapping[Uid, str], known_requests: Resources | None = None
    ) -> Resources:
        """Return the requests of members on their planned nodes, including amounts of flavors.

        `known_requests` are their requests without flavors, if the caller knows them.
        """
        planned_pods = [(pod, plan[pod.uid]) for pod in group.waiting_pods if pod.uid in plan]
        return self.flavors.requests(planned_pods, known_requests)


class StartingWindow:
    """Starting window: limits the number of members in flight, between release and binding.

    Members in flight use their places before any new members start. Half of the places are divided among the
    queues by weight, level by level from root down. The other half is common. A queue may use its own places
    and free common places, so the own places of other queues stay free. A gang is never split to fit.
    Therefore, a queue without members in flight may use all free places for a gang.

    To prevent starvation, up to two groups reserve the places that they still need:

    - The gang that has waited for places the longest reserves common places.
    - A group that has waited for places longer than the start deadline is overdue. The first overdue group
      reserves any free places.

    While a gang waits for places, no other group of the same queue gets places before the gang.

    The journal does not record reads of the window. Therefore, a group that lacks only places is evaluated in
    each cycle.
    """

    def __init__(self, snapshot: Snapshot, tree: ShareTree, journal: Journal) -> None:
        self.size = self.free_places = snapshot.limits.window
        self.in_flight = Counter[str]()  # members in flight by queue
        self._snapshot, self._tree = snapshot, tree
        self._common_holder: GroupKey | None = None  # gang that reserves common places
        self._late_holder: GroupKey | None = None  # overdue group that reserves any free places
        self._needed_places: dict[GroupKey, int] = {}  # places that these two groups still need
        self.waiting_queues: set[str] = set()  # queues with a gang that waits for places
        self._journal = journal

    def reserve_places(
        self, gangs: Iterable[GroupInfo], other_groups: Iterable[GroupInfo], is_due: Callable[[float], bool]
    ) -> None:
        """Choose the groups that reserve places.

        Candidates are the gangs in line, and `other_groups`, which start members one by one.
        """
        waiting_gangs = sorted(filter(_waits_for_places, gangs), key=self._rank)
        candidates = sorted((*waiting_gangs, *filter(_waits_for_places, other_groups)), key=self._rank)
        overdue_groups = [group for group in candidates if is_due(self._overdue_at(group))]
        self._common_holder = waiting_gangs[0].key if waiting_gangs else None
        self._late_holder = overdue_groups[0].key if overdue_groups else None
        for group in (*waiting_gangs[:1], *overdue_groups[:1]):
            self._needed_places[group.key] = max(len(missing(group).members), 1)

    def _overdue_at(self, group: GroupInfo) -> float:
        """Return the time from which a group reserves any places."""
        return (group.start.window_full_since or 0.0) + self._snapshot.limits.start_deadline

    def _rank(self, group: GroupInfo) -> tuple[object, ...]:
        """Return the sort key of a waiting group: the longest wait comes first."""
        return self._overdue_at(group), group.order

    def describe_wait(self, group: GroupInfo, member_count: int) -> str:
        """Return a text: the places that members wait for, and the time from which places are reserved."""
        text = f"{member_count} members to start, window {self.size}"
        if group.start.window_full_since is None:
            return text
        overdue_timestamp = self._snapshot.timestamp(self._overdue_at(group))
        return f"{text}; from {overdue_timestamp} on, places are reserved in the order of waiting"

    def add(self, group: GroupInfo, member_count: int) -> None:
        """Add members of a group to the window. A negative number removes members."""
        self._journal.apply(partial(self._count, group), member_count)

    def _count(self, group: GroupInfo, member_count: int) -> None:
        self.free_places -= member_count
        self.in_flight[group.queue] += member_count
        if group.key in self._needed_places:
            self._needed_places[group.key] -= member_count
        self.__dict__.pop("_free_common_places", None)

    def has_reserved_places(self, group: GroupInfo) -> bool:
        """Return whether places are reserved for a group itself.

        If so, it is not equal to groups with the same needs.
        """
        return group.key in self._needed_places

    @property
    def has_waiting_groups(self) -> bool:
        """Return whether any group waits for places."""
        return bool(self.waiting_queues or self._needed_places)

    def has_places_for(self, group: GroupInfo, member_count: int) -> bool:
        """Return whether there are places for a whole gang."""
        if self.in_flight[group.queue] or group.queue in self.waiting_queues:
            return member_count <= self.places(group)
        reserved_places = max(self._reserves(key, group) for key in (self._late_holder, self._common_holder))
        return member_count <= max(self.free_places - reserved_places, self.places(group))

    def places(self, group: GroupInfo) -> int:
        """Return the number of places that a group may use, by single members or as a gang."""
        queue = group.queue
        if group.key == self._late_holder:
            return max(self.free_places, 0)
        if queue in self.waiting_queues:
            return 0
        own_places = max(self._places_by_queue.get(queue, 0) - self.in_flight[queue], 0)
        commons = max(self._free_common_places - self._reserves(self._common_holder, group), 0)
        return max(min(own_places + commons, self.free_places - self._reserves(self._late_holder, group)), 0)

    def _reserves(self, holder: GroupKey | None, group: GroupInfo) -> int:
        """Return the number of places reserved for `holder`; 0 if the holder is the group itself."""
        return 0 if holder is None or holder == group.key else max(self._needed_places[holder], 0)

    @cached_property
    def _free_common_places(self) -> int:
        """Return the number of common places that are free at present."""
        excess = sum(max(n - self._places_by_queue.get(queue, 0), 0) for queue, n in self.in_flight.items())
        return self.size - sum(self._places_by_queue.values()) - excess

    @cached_property
    def _places_by_queue(self) -> dict[str, int]:
        """Return the places that only one queue may use, by queue.

        A parent queue's own groups count as one more child of the queue, with weight 1.
        """
        tree, weight_sums = self._tree, Counter[int]()
        weights = [0, *(self._weight(node) for node in range(1, len(tree)))]
        for node, weight in enumerate(weights):
            weight_sums[tree.parents[node]] += weight
        places_of_nodes = [self.size / 2]
        for node, parent in islice(enumerate(tree.parents), 1, None):  # a parent comes before its children
            places_of_nodes.append(places_of_nodes[parent] * weights[node] / max(weight_sums[parent], 1))
        return {queue: int(places_of_nodes[leaf]) for queue, leaf in tree.leaves.items() if leaf != TOP}

    def _weight(self, node: int) -> int:
        """Return the weight of a node of the queue tree; 0 if it takes part in no division."""
        queue = self._snapshot.queues.get(name := self._tree.queues[node])
        if queue is None or not queue.exists or name == ROOT_QUEUE:
            return 0
        return 1 if self._tree.is_extra_leaf(node) else queue.record.weight


def _waits_for_places(group: GroupInfo) -> bool:
    """Return whether a group waits for places in the window."""
    return getattr(group.start, "window_full_since", None) is not None


class Scope(NamedTuple):
    """Scope of a limit. `user` and `namespace` are empty if the limit applies to all users or namespaces."""

    queue: str
    user: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        names_by_kind = {"user": self.user, "namespace": self.namespace}
        scope_texts = [f"{kind} {name} in " for kind, name in names_by_kind.items() if name]
        return f"{''.join(scope_texts)}queue {self.queue}"


def _scopes(group: GroupInfo) -> tuple[Scope, Scope, Scope]:
    """Return three scopes of a group: its queue, its user in the queue, and its namespace in the queue."""
    user, namespace = group.spec.submitter, group.key.partition("/")[0]
    return Scope(group.queue), Scope(group.queue, user), Scope(group.queue, "", namespace)


class Excess(NamedTuple):
    """Limit that a group would exceed."""

    scope: Scope
    text: str  # text with the numbers for users
    is_lasting: bool  # whether the limit would be too low even if nothing ran


CountsByScope = Mapping[Scope, Counter[str]]  # running groups and pods by scope


class RunningCounts:
    """Running groups and pods of each queue, compared with the limits of the queue.

    A queue can limit all its groups, the groups of each user, and the groups of each namespace. The limit of
    each user applies only to groups with a recorded user. Otherwise, groups without a recorded user would
    block each other.
    """

    def __init__(self, snapshot: Snapshot, limits: Mapping[str, RunningLimits], journal: Journal) -> None:
        self._limits = limits
        self._pod_counts: dict[GroupKey, int] = {}
        self._sums: dict[Scope, Counter[str]] = {}
        self._reserves: dict[Scope, Counter[str]] = {}  # reserved counts by scope
        self._journal = journal
        self.reads = journal.reads
        for group in snapshot.groups.values() if self._limits else ():
            if group.queue in self._limits:
                pods_on_nodes = len(group.placed_pods) - group.succeeded + group.leaving_count
                if pod_count := pods_on_nodes + len(group.assumed_pods):
                    self._add(group, pod_count)
        self.start_counts = self.tenant_counts

    def add(self, group: GroupInfo, pod_count: int) -> None:
        """Count more members of a group as started. A negative number removes members."""
        if group.queue in self._limits:
            self._journal.apply(partial(self._add, group), pod_count)

    def remove_group(self, group: GroupInfo) -> None:
        """Remove a group of which no member runs or starts any more."""
        self.add(group, -self._pod_counts.get(group.key, 0))

    def reserve(self, headroom: Mapping[Scope, Resources], times: int = 1) -> None:
        """Reserve groups and pods below the limits; with `times` -1, free them."""
        self._journal.apply(partial(self._reserve, headroom), times)

    def _reserve(self, headroom: Mapping[Scope, Resources], times: int) -> None:
        for scope, counts in headroom.items():
            add(self._reserves.setdefault(scope, Counter()), counts, times)

    @property
    def sums(self) -> CountsByScope:
        """Return the sums without zeros, in a mapping that does not change later."""
        return {scope: sums for scope, sums in self._sums.items() if any(sums.values())}

    @recorded_read
    def excess(self, group: GroupInfo, pod_count: int) -> Excess | None:
        """Return the limit that `pod_count` more members of a group would exceed; None if there is none."""
        if group.queue not in self._limits:
            return None
        for scope, counts, remaining_counts in self.remaining(group, pod_count):
            for kind, count in counts.items():
                if count > remaining_counts[kind]:
                    reserved_count = self._reserves.get(scope, Counter())[kind]
                    running = self._sums.get(scope, Counter())[kind]
                    limit = remaining_counts[kind] + running + reserved_count
                    reserved_text = f" + {reserved_count} reserved" if reserved_count else ""
                    text = f"{scope}: {kind}: {running} run or start{reserved_text} + {count} asked > {limit}"
                    return Excess(scope, text, count > limit)
        return None

    def remaining(self, group: GroupInfo, pod_count: int) -> Iterator[tuple[Scope, Resources, Resources]]:
        """Yield the scope of each limit, the counts that `pod_count` members add, and the free counts."""
        added_counts = {"groups": int(self._pod_counts.get(group.key, 0) <= 0), "pods": pod_count}
        for scope, limit in self.scopes(group) if group.queue in self._limits else ():
            counts, reserves = self._sums.get(scope, _NO_COUNTS), self._reserves.get(scope, _NO_COUNTS)
            limits = {"groups": limit.groups, "pods": limit.pods}
            free_counts = {
                kind: cap - counts[kind] - reserves[kind] for kind, cap in limits.items() if cap is not None
            }
            yield scope, {kind: added_counts[kind] for kind in free_counts if added_counts[kind]}, free_counts

    @recorded_read
    def headroom(self, group: GroupInfo) -> int:
        """Return how many more members of a group may start."""
        if self.excess(group, 0) is not None:
            return 0
        free_pods = (remaining["pods"] for _, _, remaining in self.remaining(group, 0) if "pods" in remaining)
        return max(min(free_pods, default=_MAX_COUNT), 0)

    @property
    def tenant_counts(self) -> Mapping[Scope, tuple[int, ...]]:
        """Return the running and reserved counts of each user and each namespace with a limit."""
        counts_by_scope: dict[Scope, tuple[int, ...]] = {}
        for scope in {**self._sums, **self._reserves}:
            if scope.user or scope.namespace:
                counters = self._sums.get(scope, _NO_COUNTS), self._reserves.get(scope, _NO_COUNTS)
                counts = tuple(counter[kind] for counter in counters for kind in ("groups", "pods"))
                if any(counts):
                    counts_by_scope[scope] = counts
        return counts_by_scope

    def class_key(self, group: GroupInfo) -> tuple[Hashable, ...]:
        """Return a key that is equal for two groups if the limits on running groups treat them equally.

        The groups must be in the same queue and have the same needs. The user or the namespace of a group is
        part of its key only if the group would exceed the limit of this user or namespace.
        """
        if group.queue not in self._limits:
            return ()
        limits = self.remaining(group, len(missing(group).members))
        scopes = (scope for scope, needs, free in limits if any(n > free[kind] for kind, n in needs.items()))
        return (self._pod_counts.get(group.key, 0) > 0, *scopes)

    def is_in_scope(self, group: GroupInfo, scopes: Set[Scope]) -> bool:
        """Return whether any limit with one of these scopes applies to a group."""
        return any(scope in scopes for scope, _ in self.scopes(group))

    def scopes(self, group: GroupInfo) -> Iterator[tuple[Scope, Limit]]:
        """Yield the limits that apply to a group: limits of its queue, of its user and of its namespace."""
        limits = self._limits.get(group.queue, _NO_LIMITS)
        queue, user, namespace = group.compute(_scopes)
        yield queue, limits.queue
        if group.spec.submitter and limits.user != _NO_LIMITS.user:
            yield user, limits.user
        if limits.namespace != _NO_LIMITS.namespace:
            yield namespace, limits.namespace

    def _add(self, group: GroupInfo, pod_count: int) -> None:
        """Add pods of a group to the counts of its scopes. A group counts while it has any pods."""
        old_pods = self._pod_counts.get(group.key, 0)
        self._pod_counts[group.key] = new_pods = old_pods + pod_count
        for scope, _ in self.scopes(group):
            sums = self._sums.setdefault(scope, Counter())
            sums["pods"] += pod_count
            sums["groups"] += (new_pods > 0) - (old_pods > 0)
