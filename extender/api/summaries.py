"""Summaries of a cluster for users and programs: one set of records for all commands and pages.

A summary comes from API objects alone, or from a running Muster. The JSON is the same. Amounts are numbers in
the unit of their resource: cores, bytes or pieces. Timestamps are RFC 3339; an unknown timestamp is empty.
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
_NO_AMOUNTS: Amounts = MappingProxyType({})


class Summary(Wire, frozen=True, omit_defaults=False):
    """Base of all summaries. JSON has every field."""


class ShareSummary(Summary, frozen=True):
    """Share of a queue, including its child queues, in one resource."""

    resource: str
    flavor: str = ""  # empty means all nodes
    allocated: float = 0.0
    deserved: float = 0.0
    guarantee: float = 0.0
    ceiling: float | None = None  # None means no limit
    borrowed: float = 0.0  # allocation above the deserved share
    lent: float = 0.0  # unused part of the specified amounts; other queues may use it


def share_summaries(
    flavor: str,
    allocated: Amounts,
    deserved: Amounts,
    guarantee: Amounts = _NO_AMOUNTS,
    ceiling: Amounts = _NO_AMOUNTS,
    specified: Amounts = _NO_AMOUNTS,
) -> Iterator[ShareSummary]:
    """Yield the share of a queue in each resource.

    `specified` are the deserved amounts in the queue's spec.
    """
    for name in sorted({*allocated, *deserved, *guarantee, *ceiling, *specified}):
        used_amount, share, guaranteed = (each.get(name, 0.0) for each in (allocated, deserved, guarantee))
        yield ShareSummary(
            resource=name,
            flavor=flavor,
            allocated=used_amount,
            deserved=share,
            guarantee=guaranteed,
            ceiling=ceiling.get(name),
            borrowed=max(used_amount - share, 0.0),
            lent=max(max(specified.get(name, 0.0), guaranteed) - max(share, used_amount), 0.0),
        )


class QueueSummary(Summary, frozen=True):
    name: str
    parent: str = ""  # empty for the root queue
    depth: int = 0  # number of levels below the root queue
    state: str = ""  # Open, Closing, Closed or Unknown
    stop_policy: str = ""  # Hold or HoldAndDrain; empty means that groups are admitted
    weight: int = 1
    share: float | None = None  # usage divided by the deserved share; None if unknown
    shares: Sequence[ShareSummary] = ()
    waiting: int = 0  # number of groups, with those of child queues, from the status
    starting: int = 0
    running: int = 0
    fault: str = ""  # fault of its spec; empty without one


class LocalQueueSummary(Summary, frozen=True):
    """Queue of a namespace that leads to a cluster-wide queue."""

    namespace: str
    name: str
    queue: str = ""
    waiting: int = 0  # number of groups
    admitted: int = 0
    reserved: Amounts = {}  # requests of its admitted groups
    problem: str = ""  # the reason why its groups may not start; empty without one

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class EstimateSummary(Summary, frozen=True):
    """Estimate of a group's start. If `p50` is empty, `unknown_because` says why the start is unknown."""

    p50: str = ""
    p90: str = ""
    method: str = ""
    unknown_because: str = ""

    @classmethod
    def from_estimate(cls, reported: Estimate | None) -> "EstimateSummary | None":
        """Return the estimate from a status; None if the status has none."""
        if reported is None:
            return None
        return cls(reported.at_p50 or "", reported.at_p90 or "", reported.method, reported.unknown_because)


class HolderSummary(Summary, frozen=True):
    """Group, queue or pod that holds resources for which another group waits."""

    kind: str = "PodGroup"
    namespace: str = ""
    name: str = ""
    queue: str = ""
    pods: int = 0
    holds: Mapping[str, str | int] = {}  # quantities that it holds of the lacking resources
    overdue: str = ""  # end of its pods' grace period; empty unless exceeded
    does: str = ""  # its state, if known, such as `runs, 2 pods on nodes`
    api_version: str = ""  # only for a workload, because kinds of several projects share a name

    @property
    def display_name(self) -> str:
        """Return kind, namespace and name, such as `podgroup/team/train`."""
        return "/".join(filter(None, (kind_prefix(self.api_version, self.kind), self.namespace, self.name)))

    @classmethod
    def from_holder(cls, holder: GroupHolder) -> "HolderSummary":
        names = holder.kind, holder.namespace, holder.name, holder.queue
        return cls(*names, holder.pods, holder.holds, holder.overdue or "")


class WaitSummary(Summary, frozen=True):
    """Wait of a group, or of the group's further members."""

    reason: str  # a code from a fixed list
    sentence: str  # the meaning of the reason
    detail: str = ""  # the numbers behind the reason
    since: str = ""
    position: int = 0  # place in its queue, from 1; 0 means that it has none
    line: int = 0  # number of pending groups in its queue
    ahead: Sequence[str] = ()  # `namespace/name` of the first groups ahead of it
    holders: Sequence[HolderSummary] = ()  # the largest first
    more_holders: int = 0
    remedy: str = ""  # a sentence with the smallest change that would start the group
    estimate: EstimateSummary | None = None

    @classmethod
    def from_status(
        cls, reason: str, sentence: str, detail: str, status: WaitingStatus, line: int
    ) -> "WaitSummary":
        """Return the summary of a `waitingStatus`. `line` is the number of pending groups in the queue."""
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
    """Last eviction of a group's members. `cause` is a word such as Reclaim, or an Event's reason."""

    at: str
    cause: str
    why: str


class GroupSummary(Summary, frozen=True):
    namespace: str
    name: str
    called: str = ""  # name for users: the job, such as `pytorchjob/train`, else the group
    queue: str = ""
    user: str = ""  # the submitter; empty if unknown
    priority: int = 0
    verdict: str = ""  # Waiting, Starting, Running, Ended; Unknown before a decision
    needed: int = 0  # number of members that the group needs to start
    members: int = 0  # number of existing members
    placed: int = 0  # number of members on nodes
    failed: int = 0
    succeeded: int = 0
    asks: Amounts = {}  # requests of members without a node
    holds: Amounts = {}
    created: str = ""
    started: str = ""  # timestamp at which it was fully running, else its first member's start
    wait: WaitSummary | None = None  # None if no member waits
    held: bool = False  # whether its owner keeps it from starting
    stopped: bool = False  # whether its job is suspended until a user resumes it
    is_job: bool = False  # whether its pods are the pods of a job
    evicted: EvictionSummary | None = None  # None if no eviction is known

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def display_name(self) -> str:
        """Return the name for users, such as `team/job/train` for the group of a job."""
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
    node: str = ""  # the pod's node, or its planned node; empty without one
    stage: str = ""  # Bound, Posted, Held, Answered, Planned; empty if not assumed
    says: str = ""  # last message from the scheduler or a container


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
    """Command that a user can run on an object.

    `purpose` is an infinitive, `right` the right that the command needs. `allowed` says whether the user has
    this right.
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
    """Node with its amounts by resource: allocatable, used by pods, and claimed by assumed members."""

    name: str
    allocatable: Amounts = {}
    used: Amounts = {}  # requests of all pods on the node
    claimed: Amounts = {}  # requests of members that are planned here
    reserved_for: str = ""  # `namespace/name` of the group that the node is reserved for
    groups: Sequence[str] = ()  # `namespace/name` of groups with members here; limited in number
    flavors: Sequence[str] = ()
    domains: Mapping[str, str] = {}  # names of the node's domains, by topology level
    taken: bool = True  # whether the node accepts new pods
    health: Sequence[str] = ()  # problems such as `not ready` or `cordoned`

    @property
    def left(self) -> Amounts:
        """Return the free amounts: allocatable without the used and the claimed amounts."""
        return {
            name: max(n - self.used.get(name, 0.0) - self.claimed.get(name, 0.0), 0.0)
            for name, n in self.allocatable.items()
        }


def node_health(taints: Iterable[str]) -> list[str]:
    """Return the problems of a node. Kubernetes taints the node for each problem; `taints` are their keys."""
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
    """Capacity of several nodes in one resource, with its usage and the demand for it."""

    resource: str
    total: float = 0.0
    used: float = 0.0  # by pods on the nodes
    claimed: float = 0.0  # by members that are planned on the nodes
    reserved: float = 0.0  # remaining free amounts of reserved nodes
    waiting: float = 0.0  # requests of pending groups

    @property
    def free(self) -> float:
        return max(self.total - self.used - self.claimed - self.reserved, 0.0)


def capacity_summaries(
    nodes: Iterable[NodeSummary], groups: Iterable[GroupSummary] = ()
) -> list[CapacitySummary]:
    """Return the total capacity of the nodes for each resource, with devices first.

    The field `waiting` of a summary has the requests of the pending groups in `groups`.
    """
    sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * 5)  # total, used … waiting
    for node in nodes:
        reserved_amounts = node.left if node.reserved_for else _NO_AMOUNTS
        columns = (node.allocatable, node.used, node.claimed, reserved_amounts)
        for resource in node.allocatable:
            row = sums[resource]
            for column, amounts in enumerate(columns):
                row[column] += amounts.get(resource, 0.0)
    pending_groups = (group for group in groups if group.wait)
    for group in pending_groups:
        for resource, requested in group.asks.items():
            sums[resource][-1] += requested
    names = (name for name in sorted(sums, key=resource_order) if any(sums[name]))
    return [CapacitySummary(name, *sums[name]) for name in names]


def resource_order(resource: str) -> tuple[int, str]:
    """Return the sort key of a resource: devices come first, then cpu and memory."""
    return 0 if "/" in resource else {"cpu": 1, "memory": 2}.get(resource, 3), resource


class DomainSummary(Summary, frozen=True):
    """Domain of a topology.

    `path` has the names of the domains around it, largest first, and its own name.
    """

    path: Sequence[str]
    nodes: int
    capacity: Sequence[CapacitySummary] = ()  # devices first


def domain_summaries(levels: Sequence[str], nodes: Iterable[NodeSummary]) -> list[DomainSummary]:
    """Return the domains of a topology; each domain comes before the domains inside it."""
    nodes_of: defaultdict[tuple[str, ...], list[NodeSummary]] = defaultdict(list)
    for node in nodes:
        path: tuple[str, ...] = ()
        for name in takewhile(bool, (node.domains.get(level, "") for level in levels)):
            path = (*path, name)
            nodes_of[path].append(node)
    paths = sorted(nodes_of, key=lambda path: [_natural_key(name) for name in path])
    return [DomainSummary(path, len(nodes_of[path]), capacity_summaries(nodes_of[path])) for path in paths]


def _natural_key(name: str) -> str:
    """Return a sort key of a name that sorts rack-9 before rack-10."""
    return re.sub(r"\d+", lambda number: number[0].zfill(9), name)


class ReservationSummary(Summary, frozen=True):
    group: str  # `namespace/name`
    queue: str
    nodes: Sequence[str] = ()
    asks: Amounts = {}


class DecisionSummary(Summary, frozen=True):
    """Changed decision on a group."""

    at: str
    group: str
    verdict: str
    reason: str = ""
    detail: str = ""


class Overview(Summary, frozen=True):
    """All data that a user may see, at one time.

    An overview is immutable: other contents are a new overview.
    """

    version: str  # equal versions from one source mean equal contents
    at: str
    by: str = "objects"  # source: `objects` (the API server) or `muster`
    silent_since: str = ""  # time of Muster's last decision, if Muster seems to be down
    queues: Sequence[QueueSummary] = ()  # in tree order: each follows its parent
    local_queues: Sequence[LocalQueueSummary] = ()  # by namespace and name
    groups: Sequence[GroupSummary] = ()  # by namespace and name
    nodes: Sequence[NodeSummary] = ()  # by name
    topologies: Sequence[Sequence[str]] = ()  # levels of each topology, the largest domains first
    reservations: Sequence[ReservationSummary] = ()
    decisions: Sequence[DecisionSummary] = ()  # the latest first
    notes: Sequence[str] = ()  # sentences for users about parts that could not be read
    capacity: Sequence[CapacitySummary] = ()  # capacity of all nodes; only in JSON for programs
    api_version: str = VERSION
