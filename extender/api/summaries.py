"""Summaries of a cluster for users and programs: one set of records for all commands and pages.

Summaries come from API objects alone or from a running Muster, with the same JSON. Amounts
are numbers in the unit of their resource: cores, bytes, pieces. Timestamps are RFC 3339, and empty if
unknown.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType

from extender.api.objects.base import Wire
from extender.api.objects.queues import Estimate, GroupHolder, WaitingStatus
from extender.api.workloads.shape import kind_prefix

VERSION = "muster.summary/v1"  # changes if a field is removed or changes its meaning

Amounts = Mapping[str, float]
_NONE: Amounts = MappingProxyType({})


class Summary(Wire, frozen=True, omit_defaults=False):
    """Base of all summaries: every field is always present."""


class ShareSummary(Summary, frozen=True):
    """Share of a queue, and those below it, in one resource, on the nodes of a flavor or on all."""

    resource: str
    flavor: str = ""  # empty: on all nodes
    allocated: float = 0.0
    deserved: float = 0.0
    guarantee: float = 0.0
    ceiling: float | None = None  # None: no limit
    borrowed: float = 0.0  # allocation above the deserved share
    lent: float = 0.0  # unused part of the specified amounts, which others may use


def share_summaries(
    flavor: str,
    allocated: Amounts,
    deserved: Amounts,
    guarantee: Amounts = _NONE,
    ceiling: Amounts = _NONE,
    specified: Amounts = _NONE,
) -> Iterator[ShareSummary]:
    """Yield the share in each resource. `specified`: the amounts that the queue deserves by its spec."""
    for name in sorted({*allocated, *deserved, *guarantee, *ceiling, *specified}):
        held, own, guaranteed = allocated.get(name, 0.0), deserved.get(name, 0.0), guarantee.get(name, 0.0)
        yield ShareSummary(
            resource=name,
            flavor=flavor,
            allocated=held,
            deserved=own,
            guarantee=guaranteed,
            ceiling=ceiling.get(name),
            borrowed=max(held - own, 0.0),
            lent=max(max(specified.get(name, 0.0), guaranteed) - max(own, held), 0.0),
        )


class QueueSummary(Summary, frozen=True):
    name: str
    parent: str = ""  # empty for root
    depth: int = 0  # below root
    state: str = ""  # Open, Closing, Closed or Unknown
    stop_policy: str = ""  # Hold, HoldAndDrain; empty: it admits groups
    weight: int = 1
    share: float | None = None  # usage divided by the deserved share; None: unknown
    shares: Sequence[ShareSummary] = ()
    waiting: int = 0  # groups of the queue and of those below it, from its status
    starting: int = 0
    running: int = 0
    fault: str = ""  # fault of its spec; empty: none


class LocalQueueSummary(Summary, frozen=True):
    """Route of a namespace into a queue."""

    namespace: str
    name: str
    queue: str = ""
    waiting: int = 0  # groups
    admitted: int = 0
    reserved: Amounts = {}  # allocation of its groups
    problem: str = ""  # why its groups may not start; empty: they may

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class EstimateSummary(Summary, frozen=True):
    """Estimate of a group's start. Without `p50` it is unknown, and `unknown_because` says why."""

    p50: str = ""
    p90: str = ""
    method: str = ""
    unknown_because: str = ""

    @classmethod
    def from_estimate(cls, reported: Estimate | None) -> "EstimateSummary | None":
        """Return the estimate; None where none was made."""
        if reported is None:
            return None
        return cls(reported.at_p50 or "", reported.at_p90 or "", reported.method, reported.unknown_because)


class HolderSummary(Summary, frozen=True):
    """Holder of lacking resources: a group, a queue, or another pod."""

    kind: str = "PodGroup"
    namespace: str = ""
    name: str = ""
    queue: str = ""
    pods: int = 0
    holds: Mapping[str, str | int] = {}  # quantities of what the group lacks
    overdue: str = ""  # end of the grace period of its pods; empty: not exceeded
    does: str = ""  # how it blocks the group, if known: `runs, 2 pods on nodes`
    api_version: str = ""  # of a workload, as kinds of several projects have one name

    @property
    def display_name(self) -> str:
        """Return kind, namespace and name, such as `podgroup/team/train`."""
        return "/".join(filter(None, (kind_prefix(self.api_version, self.kind), self.namespace, self.name)))

    @classmethod
    def from_holder(cls, holder: GroupHolder) -> "HolderSummary":
        names = holder.kind, holder.namespace, holder.name, holder.queue
        return cls(*names, holder.pods, holder.holds, holder.overdue or "")


class WaitSummary(Summary, frozen=True):
    """Wait of a group, or of its further members."""

    reason: str  # a code of the closed list
    sentence: str  # the meaning of the reason
    detail: str = ""  # the numbers
    since: str = ""
    position: int = 0  # from 1; 0: not in line
    line: int = 0  # number of pending groups of its queue
    ahead: Sequence[str] = ()  # the first groups ahead of it, by `namespace/name`
    holders: Sequence[HolderSummary] = ()  # the largest first
    more_holders: int = 0
    remedy: str = ""  # the smallest change that would start it, as a sentence
    estimate: EstimateSummary | None = None

    @classmethod
    def from_status(
        cls, reason: str, sentence: str, detail: str, status: WaitingStatus, line: int
    ) -> "WaitSummary":
        """Return the summary of a `waitingStatus`; `line`: the number of pending groups in its queue."""
        return cls(
            reason,
            sentence,
            detail,
            since=status.since or "",
            position=status.position,
            line=line if status.position else 0,
            ahead=status.ahead,
            holders=[*map(HolderSummary.from_holder, status.holders)],
            remedy=status.remedy,
            estimate=EstimateSummary.from_estimate(status.estimate),
        )


class EvictionSummary(Summary, frozen=True):
    """Last eviction of a group's members. `cause`: such as Reclaim or Preempt, or an Event's reason."""

    at: str
    cause: str
    why: str


class GroupSummary(Summary, frozen=True):
    namespace: str
    name: str
    called: str = ""  # the job of the group, such as `pytorchjob/train`; else the group's name
    queue: str = ""
    user: str = ""  # submitter; empty: unknown
    priority: int = 0
    verdict: str = ""  # Waiting, Starting, Running, Ended; Unknown: no decision yet
    needed: int = 0  # the members that it needs to start
    members: int = 0  # existing members
    placed: int = 0  # members on nodes
    failed: int = 0
    succeeded: int = 0
    asks: Amounts = {}  # requests of members without a node
    holds: Amounts = {}
    created: str = ""
    started: str = ""  # when it had fully run, or its first member began to run
    wait: WaitSummary | None = None  # None: no member waits
    held: bool = False  # its owner holds it
    stopped: bool = False  # its job is suspended until a user resumes it
    is_job: bool = False  # its pods are those of a job
    evicted: EvictionSummary | None = None  # None: no eviction is known

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def display_name(self) -> str:
        """Return the name that users know, such as `team/job/train` for the group of a job."""
        return f"{self.namespace}/{self.called or self.name}"

    @property
    def devices(self) -> Amounts:
        """Return the requests of all members for GPUs and other devices."""
        return {
            name: self.asks.get(name, 0.0) + self.holds.get(name, 0.0)
            for name in sorted({*self.asks, *self.holds})
            if "/" in name
        }


class MemberSummary(Summary, frozen=True):
    pod: str
    phase: str = ""
    node: str = ""  # its node, or the planned node; empty: none
    stage: str = ""  # Bound, Posted, Held, Answered, Planned; empty: it has no claim
    says: str = ""  # last message of the scheduler or container


class ShortfallSummary(Summary, frozen=True):
    """Shortfall of one resource: a group's request, and the free amount on suitable nodes."""

    resource: str
    asked: float
    free: float


class EventSummary(Summary, frozen=True):
    at: str
    reason: str
    message: str
    warning: bool = False
    times: int = 1


class CommandSummary(Summary, frozen=True):
    """Command on an object.

    `purpose`: an infinitive; `right`: the needed right; `allowed`: whether the user has that right.
    """

    purpose: str
    line: str
    right: str = ""
    allowed: bool = True


class GroupDetails(Summary, frozen=True):
    """Details of a group."""

    group: GroupSummary
    members: Sequence[MemberSummary] = ()
    shortfall: Sequence[ShortfallSummary] = ()
    timeline: Sequence[EventSummary] = ()  # the oldest first
    commands: Sequence[CommandSummary] = ()
    notes: Sequence[str] = ()


class NodeSummary(Summary, frozen=True):
    """Amounts in use on a node, in assumed pods and in reservations, by resource."""

    name: str
    allocatable: Amounts = {}
    used: Amounts = {}  # by all pods on it
    claimed: Amounts = {}  # by members with this planned node
    reserved_for: str = ""  # a group, by `namespace/name`
    groups: Sequence[str] = ()  # groups with members or assumed members, by `namespace/name`; bounded
    flavors: Sequence[str] = ()
    domains: Mapping[str, str] = {}  # names of its domains, by level of a topology
    taken: bool = True  # whether it accepts new pods
    health: Sequence[str] = ()  # its problems: `not ready`, `memory pressure`, `cordoned`; empty: none

    @property
    def left(self) -> Amounts:
        """Return the free amounts, without those for members that are planned here."""
        return {
            name: max(n - self.used.get(name, 0.0) - self.claimed.get(name, 0.0), 0.0)
            for name, n in self.allocatable.items()
        }


def node_health(taints: Iterable[str]) -> list[str]:
    """Return the problems of a node, by the keys of its taints: Kubernetes has one for each condition."""
    keys = {*taints}
    return [problem for key, problem in _PROBLEMS.items() if key in keys]


_PROBLEMS = {
    "node.kubernetes.io/not-ready": "not ready",
    "node.kubernetes.io/unreachable": "unreachable",
    "node.kubernetes.io/memory-pressure": "memory pressure",
    "node.kubernetes.io/disk-pressure": "disk pressure",
    "node.kubernetes.io/pid-pressure": "PID pressure",
    "node.kubernetes.io/network-unavailable": "no network",
    "node.kubernetes.io/unschedulable": "cordoned",
}


class CapacitySummary(Summary, frozen=True):
    """Capacity of several nodes in one resource, its usage, and the demand."""

    resource: str
    total: float = 0.0
    used: float = 0.0  # by pods on the nodes
    claimed: float = 0.0  # by members on their way to them
    reserved: float = 0.0  # by reservations, beyond both
    waiting: float = 0.0  # requests of pending groups

    @property
    def free(self) -> float:
        return max(self.total - self.used - self.claimed - self.reserved, 0.0)


def capacity_summaries(
    nodes: Iterable[NodeSummary], groups: Iterable[GroupSummary] = ()
) -> list[CapacitySummary]:
    """Return the joint capacity of nodes by resource, devices first, with the requests of pending groups."""
    sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * 5)  # total, used … waiting
    for node in nodes:
        remaining = node.left if node.reserved_for else _NONE
        columns = (node.allocatable, node.used, node.claimed, remaining)
        for resource in node.allocatable:
            row = sums[resource]
            for column, amounts in enumerate(columns):
                row[column] += amounts.get(resource, 0.0)
    pending = (group for group in groups if group.wait)
    for group in pending:
        for resource, requested in group.asks.items():
            sums[resource][-1] += requested
    names = (name for name in sorted(sums, key=resource_order) if any(sums[name]))
    return [CapacitySummary(name, *sums[name]) for name in names]


def resource_order(resource: str) -> tuple[int, str]:
    """Return the sort key of resources: devices first, then cpu and memory."""
    return 0 if "/" in resource else {"cpu": 1, "memory": 2}.get(resource, 3), resource


class DomainSummary(Summary, frozen=True):
    """Domain of a topology: its names and those of the larger domains around it, the largest first."""

    path: Sequence[str]
    nodes: int
    capacity: Sequence[CapacitySummary] = ()  # devices first


def domain_summaries(levels: Sequence[str], nodes: Iterable[NodeSummary]) -> list[DomainSummary]:
    """Return the domains of a topology, each before those inside it."""
    nodes_of: defaultdict[tuple[str, ...], list[NodeSummary]] = defaultdict(list)
    for node in nodes:
        path: tuple[str, ...] = ()
        for name in takewhile(bool, (node.domains.get(level, "") for level in levels)):
            path = (*path, name)
            nodes_of[path].append(node)
    paths = sorted(nodes_of, key=lambda path: [_natural_key(name) for name in path])
    return [DomainSummary(path, len(nodes_of[path]), capacity_summaries(nodes_of[path])) for path in paths]


def _natural_key(name: str) -> str:
    """Return a sort key of names that has rack-9 before rack-10."""
    return re.sub(r"\d+", lambda number: number[0].zfill(9), name)


class ReservationSummary(Summary, frozen=True):
    group: str  # `namespace/name`
    queue: str
    nodes: Sequence[str] = ()
    asks: Amounts = {}


class DecisionSummary(Summary, frozen=True):
    """Change of the decision on a group."""

    at: str
    group: str
    verdict: str
    reason: str = ""
    detail: str = ""


class Overview(Summary, frozen=True):
    """All data that a user may see at one time. Immutable: another `version` is another overview."""

    version: str  # equal versions of one source mean equal contents
    at: str
    by: str = "objects"  # source: `objects` of the API, or `muster`
    silent_since: str = ""  # time of Muster's last decision, if too long ago; else empty
    queues: Sequence[QueueSummary] = ()  # each below its parent, in the order of a tree
    local_queues: Sequence[LocalQueueSummary] = ()  # by namespace and name
    groups: Sequence[GroupSummary] = ()  # by namespace and name
    nodes: Sequence[NodeSummary] = ()  # by name
    topologies: Sequence[Sequence[str]] = ()  # the levels of each, that with the largest domains first
    reservations: Sequence[ReservationSummary] = ()
    decisions: Sequence[DecisionSummary] = ()  # the latest first
    notes: Sequence[str] = ()  # the parts that could not be read, for users
    capacity: Sequence[CapacitySummary] = ()  # of all nodes, in answers to programs
    api_version: str = VERSION
