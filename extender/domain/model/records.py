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
from extender.domain.model.run_history import NEVER_SAVED, Checkpoint
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
    """Needs of a group: the members that make it fully running."""

    min_member: int  # number of members
    min_task_member: Mapping[str, int]  # number of members of each role
    composite: ChildGroup | None = None  # its child groups with their minima

    def at_most(self, most: "Needs") -> "Needs":
        """Return these needs, each number limited to that of `most`; child groups are those of `most`."""
        roles = {role: min(n, most.min_task_member.get(role, 0)) for role, n in self.min_task_member.items()}
        members = min(self.min_member, most.min_member)
        return Needs(members, {role: n for role, n in roles.items() if n}, most.composite)


Uid = NewType("Uid", str)
# Key of a group: "namespace/name" of a PodGroup, "namespace/pod:name" of a pod without a group,
# "namespace/compositepodgroup/name" of a composite.
GroupKey = NewType("GroupKey", str)


class Unscheduled(NamedTuple):
    """The condition PodScheduled of a pod, while it is False."""

    reason: str
    message: str  # for users

    @property
    def is_ours(self) -> bool:
        """Return whether Muster wrote the message.

        The scheduler's messages begin with numbers of nodes, even where they quote Muster.
        """
        return self.message.startswith(REFUSAL_PREFIX)


MIN_RESOURCES = Uid("minResources")


class PodRecord(msgspec.Struct, frozen=True, gc=False):
    uid: Uid
    namespace: str
    name: str
    shape: Shape  # its requests and constraints, shared with all equal pods
    labels: Labels  # shared with all pods that have the same
    node: str = ""  # spec.nodeName; empty while it is unbound
    scheduler: str = ""  # spec.schedulerName
    group: GroupKey = GroupKey("")  # empty: the pod is not ours
    own_group: GroupKey = GroupKey("")  # what `group` is while Muster schedules the pod
    auto: bool = False  # the pod names no group: its group follows from its controller
    controller: str = ""  # kind of the pod's controller; empty: unknown
    min_member: str = ""  # how many of its group start together, by its annotation
    queue: str = ""  # the queue that its own annotation or label names
    queue_uid: str = ""  # UID of the queue in which it was bound, by its annotation
    local_queue: LocalQueueLabel | None = None  # the LocalQueue that its label names
    role: str = ""  # role for minTaskMember
    priority: int = 0  # spec.priority, as the API server admitted it
    created: str = ""  # metadata.creationTimestamp
    phase: str = ""  # status.phase
    gated: bool = False  # it has Muster's scheduling gate
    foreign_gates: bool = False  # it has scheduling gates of others
    deleting: bool = False  # it has a deletionTimestamp
    started: bool = False  # one of its containers has run at least once
    nominated: str = ""  # status.nominatedNodeName
    binds_late: bool = False  # it has volumes or resource claims, which are bound before the pod
    version: str = ""  # metadata.resourceVersion, while it has no node
    run_limit: int | None = None  # seconds after which it is ended: spec.activeDeadlineSeconds
    running_since: str = ""  # status.startTime
    unscheduled: Unscheduled | None = None  # why it has no node, by its condition PodScheduled
    preemptable: bool = True  # whether the pod allows its eviction for other groups
    is_vital: bool = False  # never evicted: the cluster depends on it, or it belongs to its node
    gone_by: str = ""  # metadata.deletionTimestamp: when its grace is over
    never_preempts: bool = False  # its preemptionPolicy is Never
    checkpoint: Checkpoint = NEVER_SAVED  # by its annotation
    may_use: str = ""  # the restricted queue that its author may use, by its annotation
    author: str = ""  # the user who made it; empty if that is not recorded
    awaited_claims: tuple[str, ...] = ()  # its shared claims that the scheduler has yet to allocate
    claims_of_one_node: tuple[str, ...] = ()  # those of them whose devices are all on one node
    claim_fault: str = ""  # why it cannot start with its claims of devices, for users; empty: it can
    expected: bool = False  # there is no such pod yet: a job will make it, or it is a placeholder
    dependent: bool = False  # its job will make it once other pods run
    reserved_for: Uid = Uid("")  # of a placeholder: UID of a lost member, or MIN_RESOURCES
    is_replaced: bool = False  # a controller makes another one in its place
    run_time: float | None = None  # seconds that its group will run, by its annotation
    topology: TopologyRequest = NO_TOPOLOGY  # for the pods of its role, by its annotations
    on_lost_domain: str = ""  # what follows if a domain lacks capacity for lost members, by its annotation
    pod_sets: tuple[TopologySet, ...] = ()  # the largest first; set only on members of a GroupInfo
    sub_group: PodSubGroup | None = None  # set only on members of a GroupInfo
    index: tuple[int, int] | None = None  # order in its set: the number of its Job, and its index there

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_for_min_resources(self) -> bool:
        """Return whether the record is no member, but reserves capacity that minResources asks for."""
        return self.reserved_for == MIN_RESOURCES

    @property
    def is_plain(self) -> bool:
        """Return whether the pod names no group and has no owner, so that it is alone in its group."""
        return self.auto and not self.controller

    @property
    def unschedulable(self) -> str:
        """Return the scheduler's message if it found no node; messages of Muster do not count."""
        condition = self.unscheduled
        if condition is None or condition.reason != UNSCHEDULABLE or condition.is_ours:
            return ""
        return condition.message

    @property
    def holds_capacity(self) -> bool:
        return bool(self.node) and self.phase not in ENDED_PHASES

    @property
    def placed(self) -> bool:
        """Return whether the pod counts for the quorum.

        Pods that succeeded count, and pods on a node that have neither failed nor a deletion timestamp.
        """
        return (bool(self.node) and not self.deleting and self.phase != "Failed") or self.phase == "Succeeded"

    @property
    def waiting(self) -> bool:
        return not self.node and not self.deleting and self.phase not in ENDED_PHASES

    def may_be_evicted(self, honours_preemptable: bool = True) -> bool:
        """Return whether the pod may be evicted for others.

        `honours_preemptable`: the pod's own annotation may forbid it.
        """
        return not self.is_vital and (self.preemptable or not honours_preemptable)

    @property
    def sort_key(self) -> tuple[int, str]:
        """Sort key by name, in which 10 comes after 9: parts of a task start in this order."""
        return len(self.name), self.name

    @property
    def order(self) -> tuple[int, int, str]:
        """Sort key within a group: priority, highest first, then name."""
        return -self.priority, *self.sort_key


class Origin(IntEnum):
    """The API that a PodGroup belongs to; if one name has PodGroups of several, the first of these counts."""

    VOLCANO = 0
    PLUGINS = 1  # scheduler-plugins
    NATIVE = 2  # Kubernetes itself, from 1.37 on
    ALPHA = 3  # Kubernetes 1.36
    COMPOSITE = 4  # CompositePodGroup of Kubernetes


class GroupRecord(msgspec.Struct, frozen=True, gc=False):
    key: GroupKey
    namespace: str
    name: str
    uid: str
    queue: str  # as written; `queue_of_group` says which queue the group has
    min_member: int
    min_task_member: Mapping[str, int]  # members by role; no zeros
    priority_class: str = ""  # the name of its PriorityClass
    created: str = ""  # metadata.creationTimestamp
    phase: str = ""  # status.phase
    ran_with: int | None = None  # number of members it needed when it had fully run, by its annotation
    admitted: bool = False  # its annotation says that Muster admitted its start
    last_reason: str = ""  # the reason that its status gives
    fault: str = ""  # fault of its spec, for users; empty if valid
    min_resources: Resources = {}  # requests of its minMember members together, by its spec
    local_queue: LocalQueueLabel | None = None  # the LocalQueue that its label names
    queue_uid: str = ""  # UID of the queue that admitted it, by its annotation
    owner: str = ""  # the UID of its controller
    held: bool = False  # its owner keeps it back, by an annotation
    run_time: float | None = None  # seconds that it will run, by its annotation
    start_timeouts: int = 0  # how often its job did not start in time, by its annotation
    submitter: str = ""  # the user who made it; empty if that is not known
    series: str = ""  # name shared by all runs of one job
    stands_for: str = ""  # the owner for whose pods Muster made it, `job/train`; empty: others made it
    preemptable: bool = True  # its members may be evicted for others
    goes_whole: bool = False  # its members are evicted together, including spare ones
    checkpoint: Checkpoint = NEVER_SAVED  # by its annotation
    lost_work: int = 0  # seconds of its work that evictions have cost it, by its annotation
    may_use: str = ""  # the restricted queue that its author may use, by its annotation
    origin: Origin = Origin.VOLCANO
    topology: TopologyRequest = NO_TOPOLOGY  # for the whole group, by its spec or annotations
    sub_groups: tuple[SubGroupPolicy, ...] = ()
    on_lost_domain: str = ""  # what follows if a domain lacks capacity for lost members, by its annotation
    parent: GroupKey = GroupKey("")  # the composite above it; empty: none
    workload: str = ""  # the Workload of its tree, if it is in one
    composite: ChildGroup | None = None  # its child groups with their minima, if it is a composite


def is_single(key: GroupKey) -> bool:
    """Return whether a key belongs to a pod that is its own group (no object's name has a ":")."""
    return "/pod:" in key


def composite_key(namespace: str, name: str) -> GroupKey:
    """Return the key of a CompositePodGroup; a PodGroup may have the same name."""
    return GroupKey(f"{namespace}/compositepodgroup/{name}")


def group_of_owner(namespace: str, uid: str) -> GroupKey:
    """Return the key of the group of a controller's pods that name no group."""
    return GroupKey(f"{namespace}/{group_name_of(uid)}")
