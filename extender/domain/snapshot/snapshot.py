"""Snapshot for decide(): the ledger, frozen at one version and one time, and the limits of policy."""

from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cached_property
from itertools import chain
from math import inf
from typing import Any
from zlib import crc32

import msgspec
from msgspec.structs import replace

from extender.api.units import as_datetime, timestamp_at
from extender.domain.model.evictions import BudgetsByNamespace, Move
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import Resources, add_times
from extender.domain.model.run_history import RunHistory
from extender.domain.model.shapes import HostPort, Shape, Term, TermIndex
from extender.domain.queues.flavors import Pools
from extender.domain.queues.past_usage import PastUsage
from extender.domain.queues.records import Reclaimed, ReclaimKey
from extender.domain.queues.tree import Orphan, QueueInfo
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.nodes import AmountRows, NodeTable


class Attention(msgspec.Struct, frozen=True):
    """Attention of the scheduler: whether decisions take effect.

    Decisions take effect if this replica leads and the scheduler calls it. Other times are no evidence
    against a plan. Timestamps are seconds on the ledger's clock.
    """

    leading_since: float | None = -inf  # since when this replica leads; None: it does not
    asked_since: float = -inf  # when the scheduler began to ask about pods, at first or after a pause
    asked_at: float = -inf  # when it last asked about any pod, or reported on one

    def after_call(self, now: float, pause: float) -> "Attention":
        """Return the attention after a call of the scheduler.

        After more than `pause` seconds without a call, `asked_since` starts again.
        """
        begun = now if now - self.asked_at > pause else self.asked_since
        return replace(self, asked_since=begun, asked_at=now)

    def with_leading(self, now: float, leading: bool) -> "Attention":
        """Return the attention after this replica became or ceased to be the leader."""
        if leading == (self.leading_since is not None):
            return self
        return replace(self, leading_since=now if leading else None)

    def since(self, instant: float) -> float | None:
        """Return since when this replica leads and the scheduler calls, `instant` at the earliest.

        None: not yet.
        """
        if self.leading_since is None:
            return None
        begun = max(instant, self.leading_since)
        return max(begun, self.asked_since) if self.asked_at >= begun else None


# Last times at which capacity, a share or places in the window became free, by previous user: a group that
# backs off in a queue of strict priority is tried again once others free something, not by its own failure.

OF_OTHERS = GroupKey("")  # pods of another scheduler, nodes, queues


class Freed(msgspec.Struct, frozen=True):
    """Times at which something became free, in seconds on the ledger's clock."""

    at: float = -inf  # when something last became free
    by: GroupKey = OF_OTHERS  # the group that it had belonged to
    before: float = -inf  # when something last became free that had not belonged to that group

    def recorded(self, now: float, by: GroupKey) -> "Freed":
        return Freed(now, by, self.before if by == self.by else self.at)

    def for_group(self, group: GroupKey) -> float:
        """Return when something last became free that had not belonged to `group`."""
        return self.before if group == self.by else self.at


class Limits(msgspec.Struct, frozen=True):
    """Limits of policy. Times are in seconds, sizes in pods."""

    oversell: float = 1.0  # default factor of a queue's capability, 1 or more
    window: int = 1000  # how many members may be on their way through the scheduler at once
    start_deadline: float = 120.0  # the longest time that a start may take, and that a bind call may be held
    start_deadline_base: float = 60.0  # how long any start may take, however few members it has
    start_deadline_per_member: float = 0.1  # how much longer a start may take for each member
    refusal_grace: float = 2.0  # how long a refused node stays planned, since the scheduler's cache may lag
    arrival_grace: float = 15.0  # how long the scheduler may leave a planned node unused without refusing it
    arrival_grace_per_pod: float = 0.05  # more for each pod that it still has to schedule for Muster
    stall_grace: float = 10.0  # how long a start with held members may lack a plan for the others
    whole_grace: float = 30.0  # how long members are on nodes without failing until their group has fully run
    asking_pause: float = 10.0  # a scheduler that pauses longer may be gone: graces count again once it asks
    capacity_reserved: float = 600.0  # how long capacity is reserved for a group, and then lent for as long
    reclaim_deadline: float = 300.0  # how long victims may take to leave before a reclaim is given up
    reclaim_memory: float = 3600.0  # how long a group is not a victim of the same group again
    spared: float = 60.0  # how long a pod whose eviction was refused is no victim
    reclaims: int = 8  # for how many groups capacity may be reclaimed at the same time
    reservations: float = 0.1  # the part of the cluster that is reserved at most, or one reservation; 0: none
    # How long lost members lack capacity in their domain until their group restarts elsewhere: controllers
    # create replacements within seconds, and a node may return.
    lost_domain_grace: float = 60.0
    drain: int = 100  # how many pods of a queue that is drained may be on their way out at once
    expected_pods: int = 50_000  # for how many pods that are not made yet the jobs of one namespace may wait
    start_timeouts: int = 3  # how often in a row it may fail to start in time before it is held
    usage_half_life: float = 1200.0  # half-life of recent usage; 0: usage is not recorded
    refusal_memory: float = 60.0  # how long a node's refusal of a shape is remembered
    backoff: float = 5.0  # pause after the first failed start; doubled with each further one
    backoff_max: float = 300.0  # the longest such pause

    def deadline(self, members: int) -> float:
        """Return how long a start of that many members may take: longer for more, up to the bind deadline."""
        return min(self.start_deadline, self.start_deadline_base + members * self.start_deadline_per_member)

    def retry_after(self, failures: int) -> float:
        return min(self.backoff_max, self.backoff * 2.0 ** min(failures, 32))


class Occupancy(msgspec.Struct, frozen=True, eq=False):
    """Occupancy of nodes besides amounts: host ports, and pods that (anti-)affinity terms concern."""

    ports: Mapping[str, Mapping[HostPort, int]] = {}  # by node: how many pods use a host port
    selected: Mapping[Term, Mapping[str, int]] = {}  # by term in use and node: how many pods it selects
    carried: Mapping[Term, Mapping[str, int]] = {}  # pods with the term as an anti-affinity term
    terms: TermIndex = TermIndex()  # all terms in use, by the labels that they select; never changed
    namespaces: int = 0  # in how many namespaces pods of groups have terms

    def is_equal(self, other: "Occupancy") -> bool:
        own = self.ports, self.selected, self.carried
        return self.terms is other.terms and own == (other.ports, other.selected, other.carried)

    def with_pods(self, pods: Iterable[tuple[PodRecord, str, int]]) -> "Occupancy":
        """Return the occupancy after pods are added to nodes (1) or removed (-1)."""
        ports, selected, carried = list[_Counted](), list[_Counted](), list[_Counted]()
        for pod, node, times in pods:
            rules = pod.shape.constraints
            ports += [(node, port, times) for port in rules.ports]
            selecting = self.terms.terms_selecting(pod.namespace, pod.labels) if len(self.terms) else ()
            selected += [(term, node, times) for term in selecting]
            carried += [(term, node, times) for term in rules.anti_affinity if term in self.carried]
        if not (ports or selected or carried):
            return self
        return replace(
            self,
            ports=_counting(self.ports, ports),
            selected=_counting(self.selected, selected),
            carried=_counting(self.carried, carried),
        )


_Counted = tuple[Any, Any, int]


def _counting(counts: Mapping[Any, Mapping[Any, int]], more: Iterable[_Counted]) -> dict[Any, dict[Any, int]]:
    """Return counts in two levels without zeros; outer keys of `counts` stay."""
    found: dict[Any, dict[Any, int]] = {**counts}  # type: ignore[dict-item]
    copied: set[Any] = set()
    for outer, inner, times in more:
        if outer not in copied:
            copied.add(outer)
            found[outer] = dict(found.get(outer, {}))
        add_times(found[outer], {inner: 1}, times)
        if not (found[outer] or outer in counts):
            del found[outer]
            copied.discard(outer)
    return found


def clock_time_of(timestamp: str, epoch: float) -> float:
    """Return a timestamp on the ledger's clock, `epoch` behind the wall clock; inf if unreadable."""
    try:
        return as_datetime(timestamp).timestamp() - epoch
    except ValueError:
        return inf


# Other schedulers' pods on nodes: perhaps a hundred times as many as members, of which some change every
# second.

_PARTS = 1024
_NONE: Mapping[Uid, PodRecord] = {}


class OtherPods:
    """Pods of other schedulers by UID; immutable: `with_changes` copies only the few parts that differ."""

    def __init__(self) -> None:
        self.leaving: Mapping[Uid, PodRecord] = _NONE  # terminating pods
        self._parts: tuple[Mapping[Uid, PodRecord], ...] = (_NONE,) * _PARTS
        self._lowest: tuple[float, ...] = (inf,) * _PARTS

    def with_changes(self, changes: Mapping[Uid, PodRecord | None]) -> "OtherPods":
        """Return the pods with other records of some; None for one that is gone."""
        later, parts, leaving = OtherPods(), list(self._parts), dict(self.leaving)
        copied: dict[int, dict[Uid, PodRecord]] = {}
        for uid, pod in changes.items():
            number = _part_of(uid)
            if number not in copied:
                parts[number] = copied[number] = dict(parts[number])
            copied[number].pop(uid, None)
            leaving.pop(uid, None)
            if pod is not None:
                copied[number][uid] = pod
            if pod is not None and pod.deleting:
                leaving[uid] = pod
        lowest = list(self._lowest)
        for number, part in copied.items():
            movable = (pod for pod in part.values() if pod.may_be_evicted() and not pod.deleting)
            lowest[number] = min((pod.priority for pod in movable), default=inf)
        later.leaving, later._parts, later._lowest = leaving, tuple(parts), tuple(lowest)
        return later

    @cached_property
    def lowest_priority(self) -> float:
        """Return the lowest priority of evictable pods; inf if there are none."""
        return min(self._lowest)

    def get(self, uid: Uid) -> PodRecord | None:
        return self._parts[_part_of(uid)].get(uid)

    def __contains__(self, uid: Uid) -> bool:
        return self.get(uid) is not None

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[PodRecord]:
        return chain.from_iterable(part.values() for part in self._parts)


def _part_of(uid: Uid) -> int:
    """Return the part of a UID, the same in each process."""
    return crc32(uid.encode()) % _PARTS


class Snapshot(msgspec.Struct, frozen=True, eq=False):
    """Input of decide(), never changed. Infos of unchanged groups are the same objects as before."""

    version: int  # version of the ledger, which grows with each change that may affect a decision
    now: float  # the ledger's clock, in seconds
    epoch: float  # seconds since 1970 minus the ledger's clock
    limits: Limits
    dimensions: tuple[str, ...]  # the names of the resources in the columns of `capacity` and `allocatable`
    nodes: NodeTable  # the nodes of these rows
    capacity: AmountRows  # allocatable without fixed claims; planned claims are not subtracted
    allocatable: AmountRows  # allocatable amounts of nodes
    occupancy: Occupancy  # usage of fixed claims besides amounts
    refused: Mapping[Shape, frozenset[int]]  # rows where the scheduler refuses a shape
    queues: Mapping[str, QueueInfo]  # all queues of the API, `default`, and those that groups name, by name
    groups: Mapping[GroupKey, GroupInfo]
    pools: Pools = Pools()  # the flavors of all queues
    expires_at: float | None = None  # when the next refusal or unused answer in the ledger expires
    orphans: tuple[Orphan, ...] = ()  # groups whose queue is deleted
    dirty: Set[GroupKey] = frozenset()  # groups that changed since decisions were last published
    history: RunHistory = RunHistory()  # how long groups ran that have ended
    past: PastUsage = PastUsage()  # recent usage of queues and users
    others: OtherPods = OtherPods()  # pods on nodes that are not ours
    reclaimed: Mapping[str, Mapping[ReclaimKey, Reclaimed]] = {}  # last reclaims by queue
    moves: Mapping[GroupKey, Move] = {}  # last move by group, with the places that are still reserved
    spared: Mapping[Uid, float] = {}  # pods whose eviction was refused: until when they are no victims
    disruption_budgets: BudgetsByNamespace = {}  # the same object while no budget changes
    attention: Attention = Attention()  # whether this replica leads and the scheduler asks
    freed: Freed = Freed()  # when something last became free
    changed_at: float = 0.0  # when the version last grew
    instants: Mapping[str, float] = {}  # times by timestamp, which steps of the wall clock do not shift

    def in_pools(self, pods: Iterable[tuple[PodRecord, str]]) -> dict[str, Resources]:
        """Return what pods on these nodes hold of each pool, by its name."""
        nodes = self.nodes
        places = ((pod.shape, nodes.nodes[nodes.row[node]]) for pod, node in pods if node in nodes.row)
        return self.pools.amounts_by_pool((shape, node.labels if node else None) for shape, node in places)

    def instant(self, timestamp: str) -> float:
        """Return an object's timestamp on the ledger's clock; now if unreadable or in the future."""
        known = self.instants.get(timestamp)
        return min(clock_time_of(timestamp, self.epoch) if known is None else known, self.now)

    def timestamp(self, instant: float | None) -> str:
        """Return a time for users; empty if it is unknown, or beyond all calendars."""
        return timestamp_at(self.epoch + (inf if instant is None else instant))
