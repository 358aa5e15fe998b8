"""Records of pods and groups in the ledger: small and frozen."""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple, NewType

import msgspec

from extender.api.keys import ENDED_PHASES, UNSCHEDULABLE
from extender.domain.model.ownership import group_name_of
from extender.domain.model.queue_of_group import LocalQueueLabel
from extender.domain.model.reasons import REFUSAL_PREFIX
from extender.domain.model.resources import Resources
from extender.domain.model.run_history import NO_CHECKPOINT, Checkpoint
from extender.domain.model.selectors import Labels
from extender.domain.model.shapes import Shape
from extender.domain.model.topology import (
    NO_TOPOLOGY,
    ChildGroup,
    PodSubGroup,
    SubGroupPolicy,
    TopologyRequest,
    TopologySet,
)


class Needs(NamedTuple):
    """Needs of a group: the members with which it is fully running."""

    min_member: int  # number of needed members
    min_task_member: Mapping[str, int]  # number of needed members by role
    composite: ChildGroup | None = None  # child groups with their minima

    def at_most(self, limit: "Needs") -> "Needs":
        """Return these needs, with each number limited to the number in `limit`.

        The child groups come from `limit`.
        """
        roles = {role: min(n, limit.min_task_member.get(role, 0)) for role, n in self.min_task_member.items()}
        members = min(self.min_member, limit.min_member)
        return Needs(members, {role: n for role, n in roles.items() if n}, limit.composite)


Uid = NewType("Uid", str)
# NAMESPACE/NAME of a PodGroup, NAMESPACE/pod:NAME of a lone pod, NAMESPACE/compositepodgroup/NAME.
GroupKey = NewType("GroupKey", str)


class Unscheduled(NamedTuple):
    """Reason and message of a pod's condition PodScheduled while the condition is False."""

    reason: str
    message: str  # for users

    @property
    def is_ours(self) -> bool:
        """Return whether Muster wrote the message.

        Messages of the scheduler begin with a number of nodes, even if they quote Muster.
        """
        return self.message.startswith(REFUSAL_PREFIX)


MIN_RESOURCES_UID = Uid("minResources")


class PodRecord(msgspec.Struct, frozen=True, gc=False):
    """Record of a pod, with the facts that decisions need."""

    uid: Uid
    namespace: str
    name: str
    shape: Shape  # requests and constraints, one object for all equal pods
    labels: Labels  # one object for all pods with equal labels
    node: str = ""  # spec.nodeName; empty while the pod is unbound
    scheduler: str = ""  # spec.schedulerName
    group: GroupKey = GroupKey("")  # empty if another scheduler places the pod
    own_group: GroupKey = GroupKey("")  # its group if Muster schedules it, now or later
    is_auto: bool = False  # whether the pod names no group, so that its controller determines the group
    controller: str = ""  # kind of the pod's controller; empty: unknown
    min_member: str = ""  # number of pods of its group that start together, by its annotation
    queue: str = ""  # queue that its own annotation or label names
    queue_uid: str = ""  # UID of the queue in which the pod was bound, by its annotation
    local_queue: LocalQueueLabel | None = None  # LocalQueue that its label names
    role: str = ""  # role for minTaskMember
    priority: int = 0  # spec.priority, set by the API server at admission
    created_at: str = ""  # metadata.creationTimestamp
    phase: str = ""  # status.phase
    is_gated: bool = False  # whether it has Muster's scheduling gate
    has_foreign_gates: bool = False  # whether it has scheduling gates of other components
    deleting: bool = False  # whether it has a deletionTimestamp
    has_started: bool = False  # whether one of its containers has run at least once
    nominated_node: str = ""  # status.nominatedNodeName
    binds_late: bool = False  # whether it has volumes or resource claims to bind before the pod
    version: str = ""  # metadata.resourceVersion while the pod has no node
    run_limit: int | None = None  # seconds until Kubernetes ends the pod: spec.activeDeadlineSeconds
    running_since: str = ""  # status.startTime
    unscheduled: Unscheduled | None = None  # why it has no node, by its condition PodScheduled
    is_preemptable: bool = True  # whether the pod may be evicted for other groups, by its annotation
    is_vital: bool = False  # whether it is never evicted: a system pod, or bound to its node
    deletion_deadline: str = ""  # metadata.deletionTimestamp: the end of its grace period
    never_preempts: bool = False  # whether its preemptionPolicy is Never
    checkpoint: Checkpoint = NO_CHECKPOINT  # latest checkpoint, by its annotation
    usable_queue: str = ""  # restricted queue that its author may use, by its annotation
    author: str = ""  # user who made the pod; empty: not recorded
    awaited_claims: tuple[str, ...] = ()  # shared claims that the scheduler still has to allocate
    claims_of_one_node: tuple[str, ...] = ()  # awaited claims whose devices are each on a single node
    claim_fault: str = ""  # why its device claims prevent a start, for users; empty: they do not
    is_expected: bool = False  # whether the pod does not exist yet: a job will make it, or a placeholder
    is_dependent: bool = False  # whether its job makes it only once other pods run
    reserved_for: Uid = Uid("")  # for a placeholder: UID of a lost member, or MIN_RESOURCES_UID
    is_replaceable: bool = False  # whether a controller replaces the pod if it is lost
    run_time: float | None = None  # expected run time of its group in seconds, by its annotation
    topology: TopologyRequest = NO_TOPOLOGY  # request of all pods of its role, by annotation
    on_lost_domain: str = ""  # policy for lost members without capacity in their domain, by its annotation
    pod_sets: tuple[TopologySet, ...] = ()  # its sets, the largest first; only on members of a GroupInfo
    sub_group: PodSubGroup | None = None  # its sub-group; only on members of a GroupInfo
    index: tuple[int, int] | None = None  # number of its Job, and index in the Job, for the order

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_for_min_resources(self) -> bool:
        """Return whether the record is a placeholder that reserves the capacity of minResources."""
        return self.reserved_for == MIN_RESOURCES_UID

    @property
    def is_plain(self) -> bool:
        """Return whether the pod names no group and has no owner, so that it forms a group by itself."""
        return self.is_auto and not self.controller

    @property
    def unschedulable(self) -> str:
        """Return the scheduler's message that no node suits the pod; empty without such a message.

        Messages by Muster do not count.
        """
        condition = self.unscheduled
        if condition is None or condition.reason != UNSCHEDULABLE or condition.is_ours:
            return ""
        return condition.message

    @property
    def holds_capacity(self) -> bool:
        return bool(self.node) and self.phase not in ENDED_PHASES

    @property
    def is_placed(self) -> bool:
        """Return whether the pod counts as placed for the quorum of its group.

        Pods that succeeded count. Pods on a node count, unless they have failed or are being deleted.
        """
        return (bool(self.node) and not self.deleting and self.phase != "Failed") or self.phase == "Succeeded"

    @property
    def is_waiting(self) -> bool:
        return not self.node and not self.deleting and self.phase not in ENDED_PHASES

    def may_be_evicted(self, honours_preemptable: bool = True) -> bool:
        """Return whether the pod may be evicted for others.

        Args:
            honours_preemptable: Whether the pod's own annotation may forbid the eviction.
        """
        return not self.is_vital and (self.is_preemptable or not honours_preemptable)

    @property
    def sort_key(self) -> tuple[int, str]:
        """Return the sort key by name, in which 10 comes after 9. The parts of a task start in this order."""
        return len(self.name), self.name

    @property
    def order(self) -> tuple[int, int, str]:
        """Return the sort key within a group: highest priority first, then name."""
        return -self.priority, *self.sort_key


class Origin(IntEnum):
    """API of a PodGroup.

    If PodGroups of several APIs have the same name, the API that comes first here counts.
    """

    VOLCANO = 0
    PLUGINS = 1  # scheduler-plugins
    NATIVE = 2  # Kubernetes itself, from 1.37 on
    ALPHA = 3  # Kubernetes 1.36
    COMPOSITE = 4  # CompositePodGroup of Kubernetes


class GroupRecord(msgspec.Struct, frozen=True, gc=False):
    """Record of a PodGroup of any API."""

    key: GroupKey
    namespace: str
    name: str
    uid: str
    queue: str  # spec.queue as written; the group's queue may follow from elsewhere
    min_member: int
    min_task_member: Mapping[str, int]  # number of needed members by role, without zeros
    priority_class: str = ""  # name of its PriorityClass
    created_at: str = ""  # metadata.creationTimestamp
    phase: str = ""  # status.phase
    members_when_run: int | None = None  # number of members with which it fully ran, by its own record
    was_admitted: bool = False  # whether Muster admitted its start, by its annotation
    last_reason: str = ""  # last reason in its status
    fault: str = ""  # fault of its spec, for users; empty if valid
    min_resources: Resources = {}  # joint requests of minMember members, by its spec
    local_queue: LocalQueueLabel | None = None  # LocalQueue that its label names
    queue_uid: str = ""  # UID of the queue that admitted it, by its annotation
    owner_uid: str = ""  # UID of its controller
    is_held: bool = False  # whether its owner holds it back, by an annotation
    run_time: float | None = None  # expected run time in seconds, by its annotation
    start_timeouts: int = 0  # number of start timeouts of its job, by its annotation
    submitter: str = ""  # user who made the group; empty: unknown
    series: str = ""  # name of the job series, equal for all runs of one job
    stands_for: str = ""  # owner whose pods Muster grouped, `job/train`; empty: users made the group
    is_preemptable: bool = True  # whether its members may be evicted for others
    is_evicted_whole: bool = False  # whether all its members are evicted together, even spare members
    checkpoint: Checkpoint = NO_CHECKPOINT  # latest checkpoint, by its annotation
    lost_work: int = 0  # seconds of work lost by evictions, by its annotation
    usable_queue: str = ""  # restricted queue that its author may use, by its annotation
    origin: Origin = Origin.VOLCANO
    topology: TopologyRequest = NO_TOPOLOGY  # request of the whole group, by its spec or annotations
    sub_groups: tuple[SubGroupPolicy, ...] = ()
    on_lost_domain: str = ""  # policy for lost members without capacity in their domain, by its annotation
    parent: GroupKey = GroupKey("")  # the composite group above; empty: none
    workload: str = ""  # name of the Workload of its tree, if any
    composite: ChildGroup | None = None  # child groups with their minima, if it is a composite


def is_single(key: GroupKey) -> bool:
    """Return whether a key belongs to a pod that is a group by itself: no object's name contains a ":"."""
    return "/pod:" in key


def composite_key(namespace: str, name: str) -> GroupKey:
    """Return the key of a CompositePodGroup. A PodGroup with the same name has another key."""
    return GroupKey(f"{namespace}/compositepodgroup/{name}")


def group_of_owner(namespace: str, uid: str) -> GroupKey:
    """Return the key of the group of a controller's pods that name no group."""
    return GroupKey(f"{namespace}/{group_name_of(uid)}")
