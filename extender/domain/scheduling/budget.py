"""Budget of a cycle: capacity, shares of queues, limits on running groups and pods, and the starting window.

All allocations are made here: what one group uses, the next one lacks. The allocations of a group whose
evaluation fails are undone.
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
from extender.domain.placement.departures import held_by
from extender.domain.placement.planner import Journal, Planner, read
from extender.domain.queues.records import Limit, QueueRecord, RunningLimits
from extender.domain.queues.share_tree import TOP, ShareTree
from extender.domain.queues.tree import QueueInfo
from extender.domain.scheduling.flavors import Flavors
from extender.domain.scheduling.shares import QueueShares
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import missing

_NO_LIMIT = 10**9
_UNLIMITED = RunningLimits()
_NOTHING: Mapping[str, int] = Counter()


class QueueRules(NamedTuple):
    """Rules in the specifications of queues: few have any."""

    queues: Mapping[str, QueueInfo] = {}  # queues with these rules
    limits: Mapping[str, RunningLimits] = {}  # limits on running groups and pods, by queue
    spread: Set[str] = frozenset()  # queues that spread their pods
    drained: Set[str] = frozenset()  # queues whose groups are evicted

    def for_queues(self, queues: Mapping[str, QueueInfo]) -> "QueueRules":
        """Return the rules of other queues, of which only changed ones are read."""
        records = {name: _existing_record(queues, name) for name in changed_keys(queues, self.queues)}
        before = self.queues
        changed = {name: now for name, now in records.items() if now is not _existing_record(before, name)}
        if not changed:
            return self._replace(queues=queues)
        present = {name: record for name, record in changed.items() if record is not None}
        limits: dict[str, RunningLimits | None] = dict.fromkeys(changed)
        limits |= {name: now.limits for name, now in present.items() if now.limits != _UNLIMITED}
        spread = {name for name, now in present.items() if now.placement == keys.SPREAD}
        drained = {name for name, now in present.items() if now.stop_policy == keys.STOP_DRAIN}
        return QueueRules(
            queues,
            with_changes(self.limits, limits),
            (self.spread - changed.keys()) | spread,
            (self.drained - changed.keys()) | drained,
        )


_MOST_SHAPES = 16  # of members for which a domain is looked for: each shape costs a look at all nodes


def _existing_record(queues: Mapping[str, QueueInfo], name: str) -> QueueRecord | None:
    info = queues.get(name)
    return info.record if info is not None and info.exists else None


class Budget:
    shares: QueueShares

    def __init__(self, snapshot: Snapshot, before: "Budget | None" = None) -> None:
        """Begin with the free capacity. `before`: the budget of an earlier cycle, to save work."""
        self.rules: QueueRules = (QueueRules() if before is None else before.rules).for_queues(
            snapshot.queues
        )
        self.journal = Journal()  # with all reads; a failed evaluation is rolled back
        self.planner = Planner.from_snapshot(snapshot, self.journal)
        self.shares = QueueShares(snapshot, None if before is None else before.shares.at_start, self.journal)
        self.flavors = Flavors(snapshot, self.shares)
        self.running = RunningCounts(snapshot, self.rules.limits, self.journal)
        self.window = Window(snapshot, self.shares.tree, self.journal)
        self.allocations = 0  # number of allocations: while it is unchanged, so is the budget

    def place(
        self, group: GroupInfo, pods: Iterable[PodRecord], partly: bool = False, places: int | None = None
    ) -> dict[Uid, str] | None:
        """Start `pods` of a group: capacity, share and places for all of them at once.

        None where the capacity does not suffice, unless `partly`, which starts as many as fit.
        `places`: see `count`.
        """
        pods, apart = list(pods), group.queue in self.rules.spread
        # The members that join later must fit into the same domains.
        is_small = len({pod.shape for pod in group.waiting}) <= _MOST_SHAPES
        together = group.waiting if is_small else ()
        plan = self.planner.place(pods, partly=partly, apart=apart, together=together)
        self.count(group, plan or {}, places=places)
        return plan

    def count(
        self,
        group: GroupInfo,
        plan: Mapping[Uid, str],
        requests: Resources | None = None,
        places: int | None = None,
    ) -> None:
        """Count members, whose capacity is allocated already, to the share and the window.

        Args:
            group: The group of the members.
            plan: The node of each member.
            requests: Their requests, where known.
            places: Their places in the window, if not one for each.
        """
        if plan:
            self.allocations += 1
            self.shares.add(group.queue, self.requests(group, plan, requests))
            self.running.add(group, len(plan))
            self.window.add(group, len(plan) if places is None else places)

    def release(self, group: GroupInfo, plan: Mapping[Uid, str]) -> None:
        """Free the allocation of members."""
        self.free_plan(group, plan)
        self.running.add(group, -len(plan))
        self.window.add(group, -len(plan))

    def reserve(self, group: GroupInfo, plan: Mapping[Uid, str]) -> None:
        """Allocate capacity and share for members that start once capacity is free."""
        self.allocations += 1
        self.planner.allocate((pod, plan[pod.uid]) for pod in group.waiting if pod.uid in plan)
        self.shares.add(group.queue, self.requests(group, plan))

    def free_plan(self, group: GroupInfo, plan: Mapping[Uid, str]) -> None:
        """Free the capacity and share of a group's plan."""
        self.planner.unplace(group.waiting, plan)
        self.shares.add(group.queue, self.requests(group, plan), times=-1)

    def end(self, group: GroupInfo) -> None:
        """Remove a group from all counts except the capacity of nodes."""
        self.shares.add(group.queue, self.flavors.requests(held_by(group).pods), times=-1)
        self.running.end(group)

    def requests(
        self, group: GroupInfo, plan: Mapping[Uid, str], known: Resources | None = None
    ) -> Resources:
        """Return the requests of members on their planned nodes. `known`: without flavors, where known."""
        places = [(pod, plan[pod.uid]) for pod in group.waiting if pod.uid in plan]
        return self.flavors.requests(places, known)


class Window:
    """Starting window: the number of members that may be in flight, between release and binding.

    Members in flight have their places before any new ones start. Half of the places are parts of the
    queues, by weight from root down; the rest is common. A queue may use its part and what is left of the
    common places, so the parts of other queues stay free for them. A gang is never split to fit: a queue
    without members in flight may use all places that are left.

    While places are free, no group is shut out. Two groups reserve the places that they still need, until
    they have taken them: the gang that has waited longest reserves common places, and a group that has
    waited for as long as a start may take reserves any. Inside its queue, a gang that waits for places is
    never overtaken.

    Answers are not recorded as read: a group that lacks only places is evaluated in each cycle.
    """

    def __init__(self, snapshot: Snapshot, tree: ShareTree, journal: Journal) -> None:
        self.size = self.free_places = snapshot.limits.window
        self.taken = Counter[str]()  # members in flight by queue
        self._snapshot, self._tree = snapshot, tree
        self._reserves_common: GroupKey | None = None  # the gang that reserves common places
        self._reserves_any: GroupKey | None = None  # the group that reserves any places
        self._needed: dict[GroupKey, int] = {}  # places that these two groups still need
        self.waiting_queues: set[str] = set()  # queues with a gang that waits for places
        self._journal = journal

    def reserve_places(
        self, gangs: Iterable[GroupInfo], others: Iterable[GroupInfo], is_due: Callable[[float], bool]
    ) -> None:
        """Choose the groups that reserve places.

        Candidates are the gangs in line, and `others`, which start members one by one.
        """
        waiting = sorted(filter(_waits_for_places, gangs), key=self._rank)
        candidates = sorted((*waiting, *filter(_waits_for_places, others)), key=self._rank)
        overdue = [group for group in candidates if is_due(self._patience_ends(group))]
        self._reserves_common = waiting[0].key if waiting else None
        self._reserves_any = overdue[0].key if overdue else None
        for group in (*waiting[:1], *overdue[:1]):
            self._needed[group.key] = max(len(missing(group).members), 1)

    def _patience_ends(self, group: GroupInfo) -> float:
        return (group.start.places_since or 0.0) + self._snapshot.limits.start_deadline

    def _rank(self, group: GroupInfo) -> tuple[object, ...]:
        return self._patience_ends(group), group.order

    def describe_wait(self, group: GroupInfo, members: int) -> str:
        """Describe the places that members wait for, and until when other groups may start before them."""
        text = f"{members} members to start, window {self.size}"
        if group.start.places_since is None:
            return text
        ends = self._snapshot.timestamp(self._patience_ends(group))
        return f"{text}; from {ends} on, places are reserved in the order of waiting"

    def add(self, group: GroupInfo, members: int) -> None:
        """Add members of a group to the window; a negative number removes them."""
        self._journal.apply(partial(self._count, group), members)

    def _count(self, group: GroupInfo, members: int) -> None:
        self.free_places -= members
        self.taken[group.queue] += members
        if group.key in self._needed:
            self._needed[group.key] -= members
        self.__dict__.pop("_common_left", None)

    def reserves_for(self, group: GroupInfo) -> bool:
        """Return whether places are reserved for a group, unlike others with the same needs."""
        return group.key in self._needed

    @property
    def is_waited_for(self) -> bool:
        return bool(self.waiting_queues or self._needed)

    def has_places_for(self, group: GroupInfo, members: int) -> bool:
        """Return whether a whole gang may start."""
        if self.taken[group.queue] or group.queue in self.waiting_queues:
            return members <= self.places(group)
        reserved = max(self._reserved(key, group) for key in (self._reserves_any, self._reserves_common))
        return members <= max(self.free_places - reserved, self.places(group))

    def places(self, group: GroupInfo) -> int:
        """Return the number of places that a group may use, one by one or as a gang."""
        queue = group.queue
        if group.key == self._reserves_any:
            return max(self.free_places, 0)
        if queue in self.waiting_queues:
            return 0
        own = max(self._parts.get(queue, 0) - self.taken[queue], 0)
        common = max(self._common_left - self._reserved(self._reserves_common, group), 0)
        return max(min(own + common, self.free_places - self._reserved(self._reserves_any, group)), 0)

    def _reserved(self, holder: GroupKey | None, group: GroupInfo) -> int:
        """Return the places reserved for `holder`; 0 if that is the group itself."""
        return 0 if holder is None or holder == group.key else max(self._needed[holder], 0)

    @cached_property
    def _common_left(self) -> int:
        """Return the common places at the start of the cycle."""
        beyond = sum(max(n - self._parts.get(queue, 0), 0) for queue, n in self.taken.items())
        return self.size - sum(self._parts.values()) - beyond

    @cached_property
    def _parts(self) -> dict[str, int]:
        """Return the places by queue.

        The own groups of a parent queue count as one of its children, of weight 1.
        """
        tree, below = self._tree, Counter[int]()
        weights = [0, *(self._weight(node) for node in range(1, len(tree)))]
        for node, weight in enumerate(weights):
            below[tree.parents[node]] += weight
        own = [self.size / 2]
        for node, parent in islice(enumerate(tree.parents), 1, None):  # a parent comes before its children
            own.append(own[parent] * weights[node] / max(below[parent], 1))
        return {queue: int(own[leaf]) for queue, leaf in tree.leaf.items() if leaf != TOP}

    def _weight(self, node: int) -> int:
        queue = self._snapshot.queues.get(name := self._tree.queues[node])
        if queue is None or not queue.exists or name == ROOT_QUEUE:
            return 0
        return 1 if self._tree.is_extra_leaf(node) else queue.record.weight


def _waits_for_places(group: GroupInfo) -> bool:
    return getattr(group.start, "places_since", None) is not None


class Scope(NamedTuple):
    """Scope of a limit; `user` and `namespace` are empty where it applies to all."""

    queue: str
    user: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        parts = {"user": self.user, "namespace": self.namespace}
        parts_of_scope = [f"{part} {name} in " for part, name in parts.items() if name]
        return f"{''.join(parts_of_scope)}queue {self.queue}"


def _scopes(group: GroupInfo) -> tuple[Scope, Scope, Scope]:
    """Return the queue of a group, and its user and its namespace in it."""
    user, namespace = group.spec.submitter, group.key.partition("/")[0]
    return Scope(group.queue), Scope(group.queue, user), Scope(group.queue, "", namespace)


class Excess(NamedTuple):
    """Limit that a group would exceed."""

    scope: Scope
    text: str  # the numbers, for users
    always: bool  # whether the limit is too low even if nothing ran


Sums = Mapping[Scope, Counter[str]]  # running groups and pods by scope


class RunningCounts:
    """Running groups and pods of each queue, against the queue's limits.

    There are limits of the whole queue, of each user and of each namespace in it. Limits of users apply to
    known users only: otherwise groups without a recorded user would block each other.
    """

    def __init__(self, snapshot: Snapshot, limits: Mapping[str, RunningLimits], journal: Journal) -> None:
        self._limits = limits
        self._pods: dict[GroupKey, int] = {}
        self._sums: dict[Scope, Counter[str]] = {}
        self._reserved: dict[Scope, Counter[str]] = {}  # reserved counts
        self._journal = journal
        self.reads = journal.reads
        for group in snapshot.groups.values() if self._limits else ():
            if group.queue in self._limits:
                on_nodes = len(group.placed) - group.succeeded + group.leaving
                if pods := on_nodes + len(group.assumed):
                    self._add(group, pods)
        self.personal_at_first = self.personal

    def add(self, group: GroupInfo, pods: int) -> None:
        """Count more members of a group as started; a negative number removes them."""
        if group.queue in self._limits:
            self._journal.apply(partial(self._add, group), pods)

    def end(self, group: GroupInfo) -> None:
        """Remove a group of which no member runs or starts."""
        self.add(group, -self._pods.get(group.key, 0))

    def reserve(self, headroom: Mapping[Scope, Resources], times: int = 1) -> None:
        """Reserve places under the limits; with `times` -1, free them."""
        self._journal.apply(partial(self._reserve, headroom), times)

    def _reserve(self, headroom: Mapping[Scope, Resources], times: int) -> None:
        for scope, counts in headroom.items():
            add(self._reserved.setdefault(scope, Counter()), counts, times)

    @property
    def sums(self) -> Sums:
        """Return the sums without zeros. The mapping does not change later."""
        return {scope: sums for scope, sums in self._sums.items() if any(sums.values())}

    @read
    def excess(self, group: GroupInfo, pods: int) -> Excess | None:
        """Return the limit that `pods` more members of a group would exceed; None: no limit."""
        if group.queue not in self._limits:
            return None
        for scope, counts, left in self.remaining(group, pods):
            for kind, more in counts.items():
                if more > left[kind]:
                    reserved = self._reserved.get(scope, Counter())[kind]
                    running = self._sums.get(scope, Counter())[kind]
                    most = left[kind] + running + reserved
                    reserved_text = f" + {reserved} reserved" if reserved else ""
                    text = f"{scope}: {kind}: {running} run or start{reserved_text} + {more} asked > {most}"
                    return Excess(scope, text, more > most)
        return None

    def remaining(self, group: GroupInfo, pods: int) -> Iterator[tuple[Scope, Resources, Resources]]:
        """Yield the scope of each limit, the counts of `pods` more members, and the remaining counts."""
        added = {"groups": int(self._pods.get(group.key, 0) <= 0), "pods": pods}
        for scope, limit in self.scopes(group) if group.queue in self._limits else ():
            used, reserved = self._sums.get(scope, _NOTHING), self._reserved.get(scope, _NOTHING)
            limits = {"groups": limit.groups, "pods": limit.pods}
            free = {
                kind: most - used[kind] - reserved[kind] for kind, most in limits.items() if most is not None
            }
            yield scope, {kind: added[kind] for kind in free if added[kind]}, free

    @read
    def headroom(self, group: GroupInfo) -> int:
        """Return how many more members of a group may start."""
        if self.excess(group, 0) is not None:
            return 0
        capacities = (free["pods"] for _, _, free in self.remaining(group, 0) if "pods" in free)
        return max(min(capacities, default=_NO_LIMIT), 0)

    @property
    def personal(self) -> Mapping[Scope, tuple[int, ...]]:
        """Return the running and reserved counts of each user and namespace with a limit."""
        found: dict[Scope, tuple[int, ...]] = {}
        for scope in {**self._sums, **self._reserved}:
            if scope.user or scope.namespace:
                parts = self._sums.get(scope, _NOTHING), self._reserved.get(scope, _NOTHING)
                numbers = tuple(part[kind] for part in parts for kind in ("groups", "pods"))
                if any(numbers):
                    found[scope] = numbers
        return found

    def class_key(self, group: GroupInfo) -> tuple[Hashable, ...]:
        """Return a key, equal for groups of a queue with the same needs if its limits treat them equally.

        A user or a namespace is part of it only if its limit binds.
        """
        if group.queue not in self._limits:
            return ()
        limits = self.remaining(group, len(missing(group).members))
        binding = (scope for scope, more, left in limits if any(n > left[kind] for kind, n in more.items()))
        return (self._pods.get(group.key, 0) > 0, *binding)

    def concerns(self, group: GroupInfo, scopes: Set[Scope]) -> bool:
        """Return whether any of these limits applies to a group."""
        return any(scope in scopes for scope, _ in self.scopes(group))

    def scopes(self, group: GroupInfo) -> Iterator[tuple[Scope, Limit]]:
        """Yield the limits that a group counts towards: of its queue, and of its user and namespace there."""
        limits = self._limits.get(group.queue, _UNLIMITED)
        queue, user, namespace = group.computed(_scopes)
        yield queue, limits.queue
        if group.spec.submitter and limits.user != _UNLIMITED.user:
            yield user, limits.user
        if limits.namespace != _UNLIMITED.namespace:
            yield namespace, limits.namespace

    def _add(self, group: GroupInfo, pods: int) -> None:
        """Add pods of a group to the counts of its scopes; a group counts while it has any."""
        before = self._pods.get(group.key, 0)
        self._pods[group.key] = now = before + pods
        for scope, _ in self.scopes(group):
            sums = self._sums.setdefault(scope, Counter())
            sums["pods"] += pods
            sums["groups"] += (now > 0) - (before > 0)
