"""Infos of groups for decide(): frozen, and the same object while the group does not change."""

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
from extender.domain.model.run_history import NEVER_SAVED, Checkpoint, RunKind
from extender.domain.model.shapes import total_requests
from extender.domain.model.topology import ChildGroup
from extender.domain.queues.local_queues import LocalQueueRecord
from extender.domain.queues.past_usage import HeldAmounts

# Sort key by age: creation of the group, its namespace, its name or that of its owner, and its key.
Age = tuple[str, str, str, str]


class Reservation(msgspec.Struct, frozen=True):
    """Reservation: the nodes that are reserved for a group which has waited too long, and since when.

    Times are seconds on the ledger's clock. `passable_until` is never delayed, so that wrong run times do not
    delay the start again and again. Before `stays_until`, no other nodes are searched: nodes of groups that
    have just started with a wrong run time would seem to be free earlier.
    """

    since: float  # when it was made
    nodes: Mapping[Uid, str]  # reserved node of each missing member
    asks: Resources = {}  # joint requests of the missing members
    starts_at: float | None = None  # when all of them are expected to be free; None: that is not known
    passable_until: float | None = None  # groups that end by then may start before it; None: none may
    stays_until: float = 0.0  # no other nodes are looked for before, unless these became impossible
    expected: str = ""  # `starts_at` as a timestamp, for users; empty if it is not known
    below: tuple[str, ...] = ()  # levels without headroom at the time of the reservation
    is_promised: bool = False  # whether no group of any queue may delay `passable_until`
    is_for_moved: bool = False  # capacity for the replacements of moved members
    lent_until: str = ""  # until when others may use the nodes, for users; empty: reserved now

    @property
    def node_names(self) -> list[str]:
        return sorted(set(self.nodes.values()))

    @property
    def is_delayed(self) -> bool:
        """Return whether the start is later than first expected."""
        return self.starts_at is None or self.passable_until is None or self.starts_at > self.passable_until

    @property
    def text(self) -> str:
        """Return when and where the group is expected to start, for users."""
        if self.is_for_moved:
            return f"nodes {listed(self.node_names, _MOST_NAMES)} are reserved for the moved group"
        is_reported = self.is_promised and not self.is_delayed
        instant = f"about {self.expected}" if self.expected and is_reported else "once they are free"
        lent = f"; until {self.lent_until} others may use them" if self.lent_until else ""
        reserved = [f"headroom in {listed(self.below, _MOST_NAMES)}"] if self.below else []
        reserved.append(f"nodes {listed(self.node_names, _MOST_NAMES)}")
        return f"{' and '.join(reserved)} are reserved; it is to start {instant}{lent}"


_MOST_NAMES = 4  # names of nodes in one sentence


T = TypeVar("T")


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """Attempt to bind a waiting member to its node. Timestamps are seconds on the ledger's clock."""

    node: str = ""  # the node that is planned for it
    shown_at: float | None = None  # since when the scheduler could use that node; None: it cannot yet
    refused_at: float | None = None  # when it said that it can use no node at all; None: it has not
    words: str = ""  # last message in this start, also about another node
    refusals: int = 0  # how often it has found no node for this pod
    asked_twice: bool = False  # whether it was asked again after a refusal, with complete information
    barred: str = ""  # why it cannot be bound to any node, for users; empty: it can


class Start(msgspec.Struct, frozen=True, gc=False):
    """History of a group's starts."""

    admitted_at: float | None = None  # when the start under way was admitted; None: no start is under way
    failures: int = 0  # the number of starts that failed in a row
    undone: int = 0  # how many of these had members on nodes, which were undone
    retry_at: float = 0.0  # the group is not tried again before this time
    failure: str = ""  # why the last start failed, for users
    released_at: float | None = None  # when the scheduler could first begin with a member; None: not yet
    admitted: bool = False  # it was admitted and has not waited since; stays once all needed are on nodes
    rotation: int | None = None  # the rotation of its queue with its next turn; None: not set
    claims_since: float | None = None  # since when capacity is reserved for its claim; None: none
    places_since: float | None = None  # since when it lacks only places in the window; None: it lacks more
    no_domain_since: float | None = None  # since when its domain lacks capacity for lost members
    reservation: Reservation | None = None  # the nodes reserved for it, once it has waited too long
    reclaim: Reclaim | None = None  # the capacity that is being reclaimed for it, or its restart; None: none


class GroupSpec(msgspec.Struct, frozen=True, gc=False):
    """Spec of a group: that of its PodGroup, or the assumed one without a PodGroup."""

    fault: str  # fault of its specification, for users; empty if valid
    run_time: float | None  # how long it will run, in seconds, as its owner declared
    submitter: str  # the user who made it; empty if that is not known
    recorded: bool = False  # whether it has a PodGroup
    held: bool = False  # whether its owner keeps it back
    min_resources: Resources = {}  # requests of the needed members together, by its PodGroup
    preemptable: bool = True  # whether its PodGroup allows the eviction of its members for others
    series: str = ""  # origin, equal for all runs of one job
    reported_phase: str = ""  # the phase in the status of its PodGroup now
    goes_whole: bool = False  # whether its members are evicted only all together
    stands_for: str = ""  # the owner for whose pods Muster made it, `job/train`; empty: others made it
    restarts: bool = False  # whether it restarts elsewhere if its domain lacks capacity for lost members
    least_sub_groups: Mapping[str, int] = {}  # the least sub-groups that start together, by policy
    composite: ChildGroup | None = None  # its child groups with their minima, if it is a composite


class JobState(msgspec.Struct, frozen=True, gc=False):
    """State of the job that makes a group's pods."""

    managed: bool  # a managed job makes its pods: suspending the job removes them all
    is_unsuspended: bool  # Muster has unsuspended that job, and it has not ended
    outcome: Outcome | None  # how the job ended, which may be gone by now; None: it has not ended
    least: int  # with how few members its job may start, where not all find capacity; 0: only with all
    crowded_out: bool  # whether other jobs of its namespace already wait for as many pods as they may
    start_timeouts: int  # how often in a row its job did not start in time, or its start was undone
    created_pods: int | None  # pods that its controller created, if no more came for a short time


class GroupHistory(msgspec.Struct, frozen=True, gc=False):
    """History of a group in the ledger, as long as any of its members exists."""

    entitled: bool  # whether it was created while its queue was open
    accepted_by: str  # the UID of the queue that takes it in; empty while none does
    ran_with: Needs | None  # needs when it had fully run: lost members are replaced; None: never
    resumes: bool  # whether members on nodes belong to a start that Muster admitted before its last restart
    took_from: Mapping[GroupKey, float]  # when this group last reclaimed capacity, by the group that lost it
    gave_to: Mapping[str, float] = {}  # when this group was last evicted, by the queue that got the capacity
    ready_at: str = ""  # timestamp since when the group may start again; empty: always
    lost_work: float = 0.0  # the seconds of its work, as a whole group, that evictions have cost it
    evicted: PastEviction | None = None  # its last eviction, for users


class GroupInfo(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Group with its members by progress."""

    key: GroupKey  # its PodGroup, or the pod that is a group of its own
    exists: bool  # whether the group exists: it has a PodGroup, or consists of pods that need none
    queue: str  # the name of its queue, whether that queue exists or not
    local_queue: LocalQueueRecord | None  # its way into its queue, existing or not; None: it needs none
    namespace_allowed: bool  # whether its queue takes groups of its namespace
    use_allowed: bool  # whether it is recorded that its author may use its queue, where that is restricted
    priority: int  # within a queue, groups with a higher one go first
    preempts: bool  # whether it may preempt others
    created: str  # when its PodGroup, or its first pod, was created: RFC 3339
    min_member: int  # how many members it needs to start
    min_task_member: Mapping[str, int]  # how many members of each role it needs
    run_limit: float | None  # the seconds after which Kubernetes ends its members; None: it does not
    aborted: bool  # whether its owner is suspended, or the queue that took it in is gone
    spec: GroupSpec
    job: JobState
    history: GroupHistory
    start: Start

    # Members by progress, with their history.

    placed: tuple[PodRecord, ...]  # members that are on a node and not being deleted, or have succeeded
    assumed: tuple[tuple[PodRecord, str], ...]  # members with a node that no plan may move
    waiting: tuple[PodRecord, ...]  # members without a node that may be planned
    departing: tuple[PodRecord, ...]  # members on a node that are being deleted
    held_back: int  # members that scheduling gates of others, or missing claims of devices, hold back
    planned: Mapping[Uid, str]  # the nodes planned for waiting members
    attempts: Mapping[Uid, Attempt]  # results of planned nodes of waiting members
    bound_since: Mapping[Uid, float]  # since when members have been on their nodes, as the watch has shown
    running: int  # members whose phase is Running
    succeeded: int  # members whose phase is Succeeded
    failed: int  # members whose phase is Failed
    running_since: str  # when the first member on a node began to run: RFC 3339; empty if not known
    is_whole: bool  # whether the placed members make it whole now
    is_whole_as_before: bool  # it has fully run and as many are placed as then: further needs are growth

    # Allocated and requested amounts.

    allocated: Resources  # joint requests of members on nodes and assumed members
    pending: Resources  # joint requests of waiting members
    by_pool: Mapping[str, Resources] = {}  # allocation on the nodes of each pool
    claim_fault: str = ""  # why one of its members cannot start with its claims of devices, for users
    checkpoint: Checkpoint = NEVER_SAVED  # by its PodGroup, its job and its members on nodes together

    @property
    def display_name(self) -> str:
        """Return the name that users use: `team/train`, or `team/job/train` where Muster made the group."""
        owner = self.spec.stands_for
        return f"{self.key.partition('/')[0]}/{owner}" if owner else self.key

    @property
    def needs(self) -> Needs:
        return Needs(self.min_member, self.min_task_member, self.spec.composite)

    @property
    def is_refused_entry(self) -> bool:
        """Return whether its LocalQueue, its namespace or the rights of its author prevent a start."""
        shut = self.local_queue is not None and self.local_queue.is_closed
        return shut or not (self.namespace_allowed and self.use_allowed)

    @property
    def missing_request(self) -> Resources:
        """Return the request beyond the allocation.

        Empty without a PodGroup, and while the group is not entitled, is held or may not enter its queue.
        """
        waits = self.exists and self.history.entitled
        return (
            self.pending if waits and not (self.spec.fault or self.spec.held or self.is_refused_entry) else {}
        )

    @cached_property
    def requires_domains(self) -> bool:
        """Return whether any member without a node has to share a domain with others."""
        members = (*self.waiting, *(pod for pod, _ in self.assumed))
        return any(pod_set.is_required for pod in members for pod_set in pod.pod_sets)

    @property
    def is_drained(self) -> bool:
        """Return whether the LocalQueue of the group is drained."""
        return self.local_queue is not None and self.local_queue.stop_policy == STOP_DRAIN

    @property
    def leaving(self) -> int:
        return len(self.departing)

    @property
    def stood_whole(self) -> bool:
        """Return whether all needed members have been on nodes: losing some never undoes the rest."""
        return self.history.ran_with is not None

    @property
    def is_in_queue(self) -> bool:
        """Return whether the queue counts the group.

        A counted group has a PodGroup or, if it needs none, pods on nodes or pods created while the queue
        was open. Later pods, or pods of a deleted PodGroup, do not keep the queue from closing.
        """
        return self.spec.recorded or (self.exists and (self.history.entitled or self.has_live_members))

    @property
    def has_pods(self) -> bool:
        """Return whether any unfinished pod of the group exists."""
        return bool(self.placed or self.assumed or self.waiting or self.held_back or self.leaving)

    @property
    def is_on_nodes(self) -> bool:
        """Return whether any placed member has not finished."""
        return len(self.placed) > self.succeeded

    @property
    def has_live_members(self) -> bool:
        """Return whether any member is on a node and has not finished."""
        return self.leaving > 0 or self.is_on_nodes

    def is_under_way(self, plan: Mapping[Uid, str]) -> bool:
        """Return whether any member that exists has a planned node."""
        return bool(plan) and any(pod.uid in plan and not pod.expected for pod in self.waiting)

    def computed(self, work: Callable[["GroupInfo"], T]) -> T:
        """Return the result of `work` on this info, computed on first use: an info never changes."""
        known: dict[Callable[[GroupInfo], Any], Any] = self.__dict__.setdefault("_known", {})
        if work not in known:
            known[work] = work(self)
        result: T = known[work]
        return result

    @cached_property
    def age(self) -> Age:
        """Return the sort key of pending groups: the oldest first.

        Timestamps have whole seconds. Groups of the same second are ordered by the names that users gave, not
        by the UIDs in names of Muster's PodGroups; before there is a PodGroup, by the stem of pods' names.
        """
        namespace, _, name = self.key.partition("/")
        owner_name = self.spec.stands_for or ("" if self.spec.recorded else self.spec.series)
        return self.created, namespace, owner_name.rpartition("/")[2] or name, self.key

    @cached_property
    def order(self) -> tuple[int, Age]:
        """Sort key within a queue: priority, then age."""
        return -self.priority, self.age


def computed_once(work: Callable[[GroupInfo], T]) -> Callable[[GroupInfo], T]:
    """Return `work` that is computed once for each info: an info never changes."""
    return wraps(work)(lambda group: group.computed(work))


@computed_once
def kind_of(group: GroupInfo) -> RunKind:
    """Return the kind of a group. Groups of one kind are expected to run equally long."""
    pods = (*group.placed, *(pod for pod, _ in group.assumed), *group.waiting)
    requests = total_requests(pod.shape for pod in pods)
    return RunKind(group.queue, group.spec.series, frozenset(requests.items()))


def holding_of(group: GroupInfo | None) -> HeldAmounts | None:
    """Return what the group holds, for the usage of its queue and its submitter; None: nothing."""
    if group is None or not group.allocated:
        return None
    namespace = group.key.partition("/")[0]
    return HeldAmounts(group.queue, group.spec.submitter, namespace, group.allocated, group.running_since)
