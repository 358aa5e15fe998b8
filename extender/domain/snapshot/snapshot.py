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
    """Times since when this replica leads and the scheduler calls it.

    Decisions take effect only while both are true. At other times, an unused plan is no evidence that the
    plan is wrong. Times are seconds on the ledger's clock.
    """

    leading_since: float | None = -inf  # since when this replica leads; None: it does not lead
    asked_since: float = -inf  # start of the scheduler's calls, at first or after a pause
    asked_at: float = -inf  # last call of the scheduler with a question or report about a pod

    def after_call(self, now: float, pause: float) -> "Attention":
        """Return the attention after a call of the scheduler.

        After a gap of more than `pause` seconds between calls, `asked_since` starts again.
        """
        since = now if now - self.asked_at > pause else self.asked_since
        return replace(self, asked_since=since, asked_at=now)

    def with_leading(self, now: float, is_leading: bool) -> "Attention":
        """Return the attention after this replica became or ceased to be the leader."""
        if is_leading == (self.leading_since is not None):
            return self
        return replace(self, leading_since=now if is_leading else None)

    def since(self, instant: float) -> float | None:
        """Return since when, at or after `instant`, this replica leads and the scheduler calls it.

        None means that this replica does not lead now, or that the scheduler has not called it since.
        """
        if self.leading_since is None:
            return None
        start = max(instant, self.leading_since)
        return max(start, self.asked_since) if self.asked_at >= start else None


OTHERS_KEY = GroupKey("")  # stands for other schedulers' pods, nodes and queues


class Freed(msgspec.Struct, frozen=True):
    """Last times at which capacity, a share or places in the window became free, on the ledger's clock.

    In a queue of strict priority, a group that backs off is tried again once another group frees any of
    these. Capacity that the group frees by its own failure does not count.
    """

    at: float = -inf  # when any of these last became free
    group: GroupKey = OTHERS_KEY  # group that freed it
    by_others_at: float = -inf  # when any other group last freed any of these

    def recorded(self, now: float, by: GroupKey) -> "Freed":
        """Return the times after group `by` freed capacity, a share or places."""
        return Freed(now, by, self.by_others_at if by == self.group else self.at)

    def for_group(self, group: GroupKey) -> float:
        """Return when a group other than `group` last freed any of these."""
        return self.by_others_at if group == self.group else self.at


class Limits(msgspec.Struct, frozen=True):
    """Limits of policy. Times are in seconds, sizes in pods."""

    oversell: float = 1.0  # default factor of a queue's capability, 1 or more
    window: int = 1000  # most members that may pass through the scheduler at once
    start_deadline: float = 120.0  # longest time of a start, and of a held bind call
    start_deadline_base: float = 60.0  # time that every start has, even with few members
    start_deadline_per_member: float = 0.1  # further time of a start for each member
    refusal_grace: float = 2.0  # how long a refused node stays planned: the scheduler's cache may lag
    arrival_grace: float = 15.0  # how long the scheduler may leave a planned node unused without refusing it
    arrival_grace_per_pod: float = 0.05  # further time for each pod that the scheduler still has to schedule
    stall_grace: float = 10.0  # how long a start with held members may lack a plan for other members
    whole_grace: float = 30.0  # time without failures on nodes after which a group has fully run
    asking_pause: float = 10.0  # after a longer pause, the scheduler may have been gone: graces start again
    capacity_reserved: float = 600.0  # how long capacity is reserved for a group; then it is lent for as long
    reclaim_deadline: float = 300.0  # a reclaim is given up if its victims take longer to leave
    reclaim_memory: float = 3600.0  # how long a group is not a victim of the same group again
    spared_seconds: float = 60.0  # how long a pod is no victim after its eviction was refused
    max_reclaims: int = 8  # most groups for which capacity is reclaimed at the same time
    max_reserved_part: float = 0.1  # largest reserved part of the cluster, except for a single reservation
    # A group restarts elsewhere once its domain has lacked capacity for lost members for this long:
    # controllers create replacements within seconds, and a node may return.
    lost_domain_grace: float = 60.0
    max_draining_pods: int = 100  # most pods of a drained queue that may be terminating at once
    expected_pods: int = 50_000  # most pods not yet created for which the jobs of a namespace may wait
    start_timeouts: int = 3  # number of start timeouts in a row after which a job is held
    usage_half_life: float = 1200.0  # half-life of recent usage; 0: usage is not recorded
    refusal_memory: float = 60.0  # how long a node's refusal of a shape is remembered
    backoff: float = 5.0  # pause after the first failed start; doubled with each further failure
    backoff_max: float = 300.0  # longest pause after failed starts

    def deadline(self, size: int) -> float:
        """Return how long a start with that many members may take.

        The time grows with the number of members, up to `start_deadline`.
        """
        return min(self.start_deadline, self.start_deadline_base + size * self.start_deadline_per_member)

    def retry_after(self, failure_count: int) -> float:
        """Return the pause after that many failed starts in a row."""
        return min(self.backoff_max, self.backoff * 2.0 ** min(failure_count, 32))


class Occupancy(msgspec.Struct, frozen=True, eq=False):
    """Occupancy of nodes apart from amounts: host ports, and pods that (anti-)affinity terms concern."""

    port_counts: Mapping[str, Mapping[HostPort, int]] = {}  # number of pods that use a host port, by node
    selected_counts: Mapping[Term, Mapping[str, int]] = {}  # number of selected pods, by term in use and node
    carrier_counts: Mapping[Term, Mapping[str, int]] = {}  # number of pods with that anti-affinity term
    terms: TermIndex = TermIndex()  # all terms in use, by the labels that they select; immutable
    namespace_count: int = 0  # number of namespaces in which pods of groups have terms

    def is_equal(self, other: "Occupancy") -> bool:
        """Return whether both have equal counts and the same object as `terms`."""
        counts = self.port_counts, self.selected_counts, self.carrier_counts
        other_counts = other.port_counts, other.selected_counts, other.carrier_counts
        return self.terms is other.terms and counts == other_counts

    def with_pods(self, pods: Iterable[tuple[PodRecord, str, int]]) -> "Occupancy":
        """Return the occupancy after pods are added to nodes or removed.

        Args:
            pods: Each pod with the name of its node, and 1 to add the pod or -1 to remove it.
        """
        port_changes, selections, carriers = list[_CountChange](), list[_CountChange](), list[_CountChange]()
        for pod, node, times in pods:
            rules = pod.shape.constraints
            port_changes += [(node, port, times) for port in rules.ports]
            selecting_terms = self.terms.terms_selecting(pod.namespace, pod.labels) if len(self.terms) else ()
            selections += [(term, node, times) for term in selecting_terms]
            carriers += [(term, node, times) for term in rules.anti_affinity if term in self.carrier_counts]
        if not (port_changes or selections or carriers):
            return self
        return replace(
            self,
            port_counts=_with_count_changes(self.port_counts, port_changes),
            selected_counts=_with_count_changes(self.selected_counts, selections),
            carrier_counts=_with_count_changes(self.carrier_counts, carriers),
        )


_CountChange = tuple[Any, Any, int]


def _with_count_changes(
    counts: Mapping[Any, Mapping[Any, int]], changes: Iterable[_CountChange]
) -> dict[Any, dict[Any, int]]:
    """Return the two-level counts after changes, without zeros. Outer entries of `counts` stay when empty."""
    new_counts: dict[Any, dict[Any, int]] = {**counts}  # type: ignore[dict-item]
    copied_keys: set[Any] = set()
    for key, counted_key, times in changes:
        if key not in copied_keys:
            copied_keys.add(key)
            new_counts[key] = dict(new_counts.get(key, {}))
        add_times(new_counts[key], {counted_key: 1}, times)
        if not (new_counts[key] or key in counts):
            del new_counts[key]
            copied_keys.discard(key)
    return new_counts


def clock_time_of(timestamp: str, epoch: float) -> float:
    """Return a timestamp as a time on the ledger's clock; inf if the timestamp cannot be read.

    Args:
        timestamp: The timestamp.
        epoch: The wall clock at the zero of the ledger's clock, in seconds since 1970.
    """
    try:
        return as_datetime(timestamp).timestamp() - epoch
    except ValueError:
        return inf


_PART_COUNT = 1024
_NO_PODS: Mapping[Uid, PodRecord] = {}


class OtherPods:
    """Pods of other schedulers on nodes, by UID.

    There may be a hundred times as many such pods as members, and some change every second. The pods are
    divided into parts that never change: `with_changes` copies only the parts with changes.
    """

    def __init__(self) -> None:
        self.leaving: Mapping[Uid, PodRecord] = _NO_PODS  # terminating pods, by UID
        self._parts: tuple[Mapping[Uid, PodRecord], ...] = (_NO_PODS,) * _PART_COUNT
        self._lowest_priorities: tuple[float, ...] = (inf,) * _PART_COUNT

    def with_changes(self, changes: Mapping[Uid, PodRecord | None]) -> "OtherPods":
        """Return the pods after some of them changed.

        Args:
            changes: The new records by UID; None for a pod that is gone.
        """
        new, parts, leaving_pods = OtherPods(), list(self._parts), dict(self.leaving)
        copied_parts: dict[int, dict[Uid, PodRecord]] = {}
        for uid, pod in changes.items():
            number = _part_of(uid)
            if number not in copied_parts:
                parts[number] = copied_parts[number] = dict(parts[number])
            copied_parts[number].pop(uid, None)
            leaving_pods.pop(uid, None)
            if pod is not None:
                copied_parts[number][uid] = pod
            if pod is not None and pod.deleting:
                leaving_pods[uid] = pod
        lowest_priorities = list(self._lowest_priorities)
        for number, part in copied_parts.items():
            evictable_pods = (pod for pod in part.values() if pod.may_be_evicted() and not pod.deleting)
            lowest_priorities[number] = min((pod.priority for pod in evictable_pods), default=inf)
        new.leaving, new._parts, new._lowest_priorities = leaving_pods, tuple(parts), tuple(lowest_priorities)
        return new

    @cached_property
    def lowest_priority(self) -> float:
        """Return the lowest priority of the pods that may be evicted; inf if there are none."""
        return min(self._lowest_priorities)

    def get(self, uid: Uid) -> PodRecord | None:
        return self._parts[_part_of(uid)].get(uid)

    def __contains__(self, uid: Uid) -> bool:
        return self.get(uid) is not None

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[PodRecord]:
        return chain.from_iterable(part.values() for part in self._parts)


def _part_of(uid: Uid) -> int:
    """Return the number of the part that contains a UID. The number is the same in every process."""
    return crc32(uid.encode()) % _PART_COUNT


class Snapshot(msgspec.Struct, frozen=True, eq=False):
    """Input of decide(). A snapshot never changes. Unchanged groups are the same objects as before."""

    version: int  # version of the ledger; grows with each change that may affect a decision
    now: float  # time on the ledger's clock, in seconds
    epoch: float  # seconds since 1970 minus the ledger's clock
    limits: Limits
    dimensions: tuple[str, ...]  # names of the columns of `capacity` and `allocatable`
    nodes: NodeTable  # the nodes in the rows of `capacity` and `allocatable`
    capacity: AmountRows  # allocatable minus allocated amounts; planned pods are not subtracted
    allocatable: AmountRows  # allocatable amounts of nodes
    occupancy: Occupancy  # host ports in use, and pods that terms concern; without planned pods
    refused_rows: Mapping[Shape, frozenset[int]]  # rows that the scheduler refuses for a shape
    queues: Mapping[str, QueueInfo]  # by name: all existing queues, `default`, and queues that groups name
    groups: Mapping[GroupKey, GroupInfo]
    pools: Pools = Pools()  # pools of nodes for the flavors of all queues
    expires_at: float | None = None  # when the ledger next forgets a refusal or unused answer
    orphans: tuple[Orphan, ...] = ()  # groups whose queue was deleted
    dirty_groups: Set[GroupKey] = frozenset()  # groups that changed since decisions were last published
    history: RunHistory = RunHistory()  # run times of ended groups
    past_usage: PastUsage = PastUsage()  # recent usage of queues and users
    other_pods: OtherPods = OtherPods()  # pods of other schedulers on nodes
    last_reclaims: Mapping[str, Mapping[ReclaimKey, Reclaimed]] = {}  # last reclaims of each queue
    moves: Mapping[GroupKey, Move] = {}  # last move of each group, with the nodes still reserved
    refused_evictions: Mapping[Uid, float] = {}  # pods whose eviction was refused: until when to spare them
    disruption_budgets: BudgetsByNamespace = {}  # the same object until a budget changes
    attention: Attention = Attention()  # whether decisions take effect
    last_freed: Freed = Freed()  # when capacity, shares or places last became free
    changed_at: float = 0.0  # when the version last grew
    instants: Mapping[str, float] = {}  # ledger times by timestamp; steps of the wall clock do not shift them

    def in_pools(self, pods: Iterable[tuple[PodRecord, str]]) -> dict[str, Resources]:
        """Return the amounts that pods on these nodes hold of each pool, by the pool's name."""
        nodes = self.nodes
        places = ((pod.shape, nodes.nodes[nodes.row_of[node]]) for pod, node in pods if node in nodes.row_of)
        return self.pools.amounts_by_pool((shape, node.labels if node else None) for shape, node in places)

    def instant(self, timestamp: str) -> float:
        """Return an object's timestamp as a time on the ledger's clock.

        The result is the current time if the timestamp cannot be read, or is in the future.
        """
        known_time = self.instants.get(timestamp)
        return min(clock_time_of(timestamp, self.epoch) if known_time is None else known_time, self.now)

    def timestamp(self, instant: float | None) -> str:
        """Return a time for users; empty if the time is unknown, or beyond all calendars."""
        return timestamp_at(self.epoch + (inf if instant is None else instant))
