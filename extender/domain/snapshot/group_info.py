"""State of groups for decide(): frozen, and the same object as long as the group does not change."""

from collections.abc import Callable, Mapping
from functools import cached_property, wraps
from typing import Any, TypeVar

import msgspec

from extender.api.keys import STOP_DRAIN
from extender.api.units import listed
from extender.domain.model.evictions import PastEviction, Reclaim
from extender.domain.model.reasons import Outcome
from extender.domain.model.records import GroupKey, Needs, PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.model.run_history import NO_CHECKPOINT, Checkpoint, RunKind
from extender.domain.model.shapes import total_requests
from extender.domain.model.topology import ChildGroup
from extender.domain.queues.local_queues import LocalQueueRecord
from extender.domain.queues.past_usage import HeldAmounts

# Sort key by age: the group's creation time, its namespace, the name of the group or its owner, and its key.
Age = tuple[str, str, str, str]
# Keys of debug pages that differ from the names of fields.
_DEBUG_KEYS = {"requests": "asks", "levels_above_share": "below", "is_for_replacements": "is_for_moved"}


class Reservation(msgspec.Struct, frozen=True, rename=_DEBUG_KEYS):
    """Nodes that are reserved for a group which has waited too long.

    Times are seconds on the ledger's clock. `passable_until` never moves to a later time, so that wrong run
    times cannot delay the start again and again. Before `stays_until`, no other nodes are searched: if groups
    with a wrong run time have just started on other nodes, these nodes would seem to be free earlier.
    """

    since: float  # when the reservation was made
    nodes: Mapping[Uid, str]  # reserved node of each missing member, by the member's UID
    requests: Resources = {}  # joint requests of the missing members
    starts_at: float | None = None  # when all nodes are expected to be free; None: unknown
    passable_until: float | None = None  # groups that end by then may start first; None: no group may
    stays_until: float = 0.0  # until then, other nodes are searched only if these became impossible
    expected: str = ""  # `starts_at` as a timestamp, for users; empty: unknown
    levels_above_share: tuple[str, ...] = ()  # levels that had no headroom when the reservation was made
    is_promised: bool = False  # whether no group of any queue may delay the start beyond `passable_until`
    is_for_replacements: bool = False  # whether the nodes are for the replacements of moved members
    lent_until: str = ""  # until when other groups may use the nodes, for users; empty: not at all

    @property
    def node_names(self) -> list[str]:
        """Return the names of the reserved nodes, each name once."""
        return sorted(set(self.nodes.values()))

    @property
    def is_delayed(self) -> bool:
        """Return whether the start is expected later than at first."""
        return self.starts_at is None or self.passable_until is None or self.starts_at > self.passable_until

    @property
    def text(self) -> str:
        """Return a sentence on where and when the group is expected to start, for users."""
        if self.is_for_replacements:
            return f"nodes {listed(self.node_names, _MAX_NAMES)} are reserved for the moved group"
        shows_time = self.is_promised and not self.is_delayed
        time_text = f"about {self.expected}" if self.expected and shows_time else "once they are free"
        loan_text = f"; until {self.lent_until} others may use them" if self.lent_until else ""
        levels = self.levels_above_share
        parts = [f"headroom in {listed(levels, _MAX_NAMES)}"] if levels else []
        parts.append(f"nodes {listed(self.node_names, _MAX_NAMES)}")
        return f"{' and '.join(parts)} are reserved; it is to start {time_text}{loan_text}"


_MAX_NAMES = 4  # limit of node names in one sentence


T = TypeVar("T")


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """Attempt to bind a waiting member to its planned node. Times are seconds on the ledger's clock."""

    node: str = ""  # the planned node
    shown_at: float | None = None  # since when the scheduler may use the node; None: not yet
    refused_at: float | None = None  # when the scheduler reported that no node suits; None: no such report
    message: str = ""  # last message of the scheduler in this start, about any node
    refusals: int = 0  # how often the scheduler found no node for this pod
    was_asked_again: bool = False  # whether the scheduler tried again after a refusal, fully informed
    binding_fault: str = ""  # why the member cannot be bound to any node, for users; empty: it can


class Start(msgspec.Struct, frozen=True, gc=False):
    """History of a group's starts. Times are seconds on the ledger's clock."""

    admitted_at: float | None = None  # when the current start was admitted; None: no current start
    failures: int = 0  # number of failed starts in a row
    undone_count: int = 0  # number of these failed starts whose members were on nodes and were evicted
    retry_at: float = 0.0  # earliest time of the next try
    failure: str = ""  # why the last start failed, for users
    released_at: float | None = None  # when the scheduler could first see a member; None: not yet
    was_admitted: bool = False  # whether the group was admitted and has not waited since
    rotation: int | None = None  # rotation of its queue with the group's next turn; None: not set
    claims_since: float | None = None  # since when capacity in its queue's share is reserved; None: it is not
    window_full_since: float | None = None  # since when only the full window delays the group, if it does
    no_domain_since: float | None = None  # since when the group's domain lacks capacity for lost members
    reservation: Reservation | None = None  # nodes reserved for the group after a long wait
    reclaim: Reclaim | None = None  # capacity that is being reclaimed for the group, or its restart


class GroupSpec(msgspec.Struct, frozen=True, gc=False):
    """Spec of a group, from its PodGroup. Without a PodGroup, the values are assumed."""

    fault: str  # fault of the specification, for users; empty if valid
    run_time: float | None  # run time in seconds that its owner declared; None: not declared
    submitter: str  # user who made the group; empty: unknown
    has_podgroup: bool = False  # whether the group has a PodGroup
    is_held: bool = False  # whether its owner holds the group back
    min_resources: Resources = {}  # joint requests of the needed members, by its PodGroup
    is_preemptable: bool = True  # whether its members may be evicted for others, by its PodGroup
    series: str = ""  # name of the job series, equal for all runs of one job
    reported_phase: str = ""  # current phase in the status of its PodGroup
    is_evicted_whole: bool = False  # whether its members are only evicted all together
    owner_name: str = ""  # owner whose pods Muster grouped, `job/train`; empty: users made the group
    restarts: bool = False  # whether it restarts elsewhere if its domain lacks capacity for lost members
    least_sub_groups: Mapping[str, int] = {}  # least number of sub-groups that start together, by policy
    composite: ChildGroup | None = None  # child groups with their minima; None: not a composite group


class JobState(msgspec.Struct, frozen=True, gc=False):
    """State of the job that makes a group's pods."""

    is_managed: bool  # whether a managed job makes the pods: suspending the job removes all pods
    is_unsuspended: bool  # whether Muster has unsuspended the job, and the job has not ended
    outcome: Outcome | None  # how the job ended, even if it is deleted by now; None: not ended
    min_partial_size: int  # least number of members for a partial start; 0: no partial start
    is_crowded_out: bool  # whether other jobs of its namespace already wait for the allowed number of pods
    start_timeouts: int  # number of starts in a row that took too long or were undone
    created_pods: int | None  # pods that its controller created; None: further pods still come


class GroupHistory(msgspec.Struct, frozen=True, gc=False):
    """History of a group. The ledger stores the history as long as any member of the group exists."""

    is_entitled: bool  # whether the group was created while its queue was open
    accepted_by: str  # UID of the queue that accepted the group; empty: none yet
    run_needs: Needs | None  # needs at the time the group fully ran, to replace lost members; None: never
    resumes: bool  # whether Muster admitted the start of members on nodes before its own last restart
    reclaim_times: Mapping[GroupKey, float]  # when this group last reclaimed capacity, by victim group
    eviction_times: Mapping[str, float] = {}  # when this group was last evicted, by the queue that gained
    ready_at: str = ""  # timestamp from which the group may start again; empty: at any time
    lost_work: float = 0.0  # seconds of the whole group's work that evictions have cost
    last_eviction: PastEviction | None = None  # its last eviction, for users


class GroupInfo(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Group with its members by progress."""

    key: GroupKey  # key of the PodGroup, or of a pod that forms a group by itself
    exists: bool  # whether the group has a PodGroup or needs none
    queue: str  # name of its queue, which may not exist
    local_queue: LocalQueueRecord | None  # its LocalQueue, which may not exist; None: no LocalQueue
    is_namespace_allowed: bool  # whether its queue accepts groups of its namespace
    is_use_allowed: bool  # whether its author may use its queue, which matters for restricted queues
    priority: int  # groups of higher priority come first in a queue
    may_preempt: bool  # whether the group may preempt others
    created_at: str  # RFC 3339 time at which its PodGroup or first pod was created
    min_member: int  # number of members that must start together
    min_task_member: Mapping[str, int]  # number of needed members by role
    run_limit: float | None  # seconds after which Kubernetes ends the members; None: no limit
    is_aborted: bool  # whether its owner is suspended, or its accepting queue is gone
    spec: GroupSpec
    job: JobState
    history: GroupHistory
    start: Start

    # Members by progress, with their history.

    placed_pods: tuple[PodRecord, ...]  # members that are on a node and not deleting, or have succeeded
    assumed_pods: tuple[tuple[PodRecord, str], ...]  # assumed members with a node that no plan may change
    waiting_pods: tuple[PodRecord, ...]  # members without a node, for which a node may be planned
    departing_pods: tuple[PodRecord, ...]  # members on a node that are being deleted
    held_back_count: int  # number of members that wait for other gates, or for missing device claims
    planned_nodes: Mapping[Uid, str]  # planned nodes of waiting members
    attempts: Mapping[Uid, Attempt]  # binding attempts of waiting members
    bound_since: Mapping[Uid, float]  # since when the watch has shown each member on its node
    running: int  # members whose phase is Running
    succeeded: int  # members whose phase is Succeeded
    failed: int  # members whose phase is Failed
    running_since: str  # RFC 3339 time at which the first member on a node began to run; empty: unknown
    is_whole: bool  # whether the placed members are enough for the group now
    is_whole_as_before: bool  # whether as many members are placed as at its full run; other needs are growth

    # Allocated and requested amounts.

    allocated: Resources  # joint requests of members on nodes and assumed members
    pending_requests: Resources  # joint requests of waiting members
    amounts_by_pool: Mapping[str, Resources] = {}  # allocation by pool of nodes
    claim_fault: str = ""  # why a member's device claims prevent its start, for users
    checkpoint: Checkpoint = NO_CHECKPOINT  # latest checkpoint of its PodGroup, job and members on nodes

    @property
    def display_name(self) -> str:
        """Return the name that users use: `team/train`, or `team/job/train` if Muster made the group."""
        owner = self.spec.owner_name
        return f"{self.key.partition('/')[0]}/{owner}" if owner else self.key

    @property
    def needs(self) -> Needs:
        """Return the members that the group needs to be fully running."""
        return Needs(self.min_member, self.min_task_member, self.spec.composite)

    @property
    def is_refused_entry(self) -> bool:
        """Return whether the group's LocalQueue, its namespace or its author's rights prevent a start."""
        is_shut = self.local_queue is not None and self.local_queue.is_closed
        return is_shut or not (self.is_namespace_allowed and self.is_use_allowed)

    @property
    def missing_request(self) -> Resources:
        """Return what the group requests beyond its allocation: the requests of its waiting members.

        The result is empty for a group without a PodGroup, and while the group is not entitled, is held, has
        a fault or may not enter its queue.
        """
        is_barred = self.spec.fault or self.spec.is_held or self.is_refused_entry
        may_request = self.exists and self.history.is_entitled and not is_barred
        return self.pending_requests if may_request else {}

    @cached_property
    def requires_domains(self) -> bool:
        """Return whether any member without a node has to share a topology domain with other members."""
        members = (*self.waiting_pods, *(pod for pod, _ in self.assumed_pods))
        return any(pod_set.is_required for pod in members for pod_set in pod.pod_sets)

    @property
    def is_drained(self) -> bool:
        """Return whether the LocalQueue of the group is drained."""
        return self.local_queue is not None and self.local_queue.stop_policy == STOP_DRAIN

    @property
    def leaving_count(self) -> int:
        """Return the number of members on nodes that are being deleted."""
        return len(self.departing_pods)

    @property
    def has_fully_run(self) -> bool:
        """Return whether all needed members have been on nodes at the same time.

        Once a group has fully run, lost members never undo its start.
        """
        return self.history.run_needs is not None

    @property
    def is_in_queue(self) -> bool:
        """Return whether the queue counts the group. A queue is closed once it counts no group.

        A queue counts each group that has a PodGroup. A group that needs no PodGroup counts if it has pods on
        nodes, or if it was created while the queue was open. Other pods, and pods of a deleted PodGroup, do
        not count.
        """
        return self.spec.has_podgroup or (self.exists and (self.history.is_entitled or self.has_live_members))

    @property
    def has_pods(self) -> bool:
        """Return whether any unfinished pod of the group exists."""
        pods = self.placed_pods or self.assumed_pods or self.waiting_pods or self.departing_pods
        return bool(pods or self.held_back_count)

    @property
    def is_on_nodes(self) -> bool:
        """Return whether any placed member has not finished."""
        return len(self.placed_pods) > self.succeeded

    @property
    def has_live_members(self) -> bool:
        """Return whether any member is on a node and has not finished; departing members count."""
        return self.leaving_count > 0 or self.is_on_nodes

    def is_under_way(self, plan: Mapping[Uid, str]) -> bool:
        """Return whether any existing member has a planned node."""
        return bool(plan) and any(pod.uid in plan and not pod.is_expected for pod in self.waiting_pods)

    def compute(self, function: Callable[["GroupInfo"], T]) -> T:
        """Return the result of `function` on this group, computed once: the frozen group never changes."""
        cache: dict[Callable[[GroupInfo], Any], Any] = self.__dict__.setdefault("_known", {})
        if function not in cache:
            cache[function] = function(self)
        result: T = cache[function]
        return result

    @cached_property
    def age(self) -> Age:
        """Return the sort key of pending groups: the oldest first.

        Timestamps have whole seconds. Groups of the same second are ordered by names that users gave, because
        names of Muster's own PodGroups contain UIDs. Before a PodGroup exists, the stem of the pods' names is
        used.
        """
        namespace, _, name = self.key.partition("/")
        owner_name = self.spec.owner_name or ("" if self.spec.has_podgroup else self.spec.series)
        return self.created_at, namespace, owner_name.rpartition("/")[2] or name, self.key

    @cached_property
    def order(self) -> tuple[int, Age]:
        """Return the sort key within a queue: priority, then age."""
        return -self.priority, self.age


def computed_once(function: Callable[[GroupInfo], T]) -> Callable[[GroupInfo], T]:
    """Return a function that computes `function` once for each group and then returns the cached result."""
    return wraps(function)(lambda group: group.compute(function))


@computed_once
def kind_of(group: GroupInfo) -> RunKind:
    """Return the kind of a group. Groups of one kind are expected to run for the same time."""
    pods = (*group.placed_pods, *(pod for pod, _ in group.assumed_pods), *group.waiting_pods)
    requests = total_requests(pod.shape for pod in pods)
    return RunKind(group.queue, group.spec.series, frozenset(requests.items()))


def holding_of(group: GroupInfo | None) -> HeldAmounts | None:
    """Return the amounts that the group holds, for the usage of its queue and submitter.

    None means that the group holds nothing.
    """
    if group is None or not group.allocated:
        return None
    namespace = group.key.partition("/")[0]
    return HeldAmounts(group.queue, group.spec.submitter, namespace, group.allocated, group.running_since)
