"""Queues, flavors, LocalQueues, Commands and the PodGroups of all APIs."""

from collections.abc import Mapping
from typing import Any

import msgspec

from extender.api.keys import HOLD, START_TIMEOUTS, STOP_DRAIN, STOP_HOLD, STOP_NONE
from extender.api.objects.base import Condition, Labels, Meta, OwnerReference, Quantities, Wire
from extender.api.objects.cluster import Taint
from extender.api.objects.pods import LabelSelector, PodClaim, PodClaimStatus, Toleration
from extender.api.units import Quantity


class Guarantee(Wire, frozen=True):
    resource: Quantities | None = None


class RunningLimit(Wire, frozen=True):
    """Limit of concurrent groups and pods; None: no limit."""

    groups: int | None = None
    pods: int | None = None


class QueueLimits(RunningLimit, frozen=True):
    """Limits of a queue, of each user and of each namespace. `groups` and `pods`: of the whole queue."""

    per_user: RunningLimit | None = None
    per_namespace: RunningLimit | None = None


class BorrowWithinCohort(Wire, frozen=True):
    policy: str = ""  # Never or LowerPriority
    max_priority_threshold: int | None = None


class QueuePreemption(Wire, frozen=True):
    """Preemption settings of a queue, as in `spec.preemption`."""

    within_queue: str = ""
    borrow_within_cohort: BorrowWithinCohort | None = None
    unmanaged: str = ""
    min_runtime: str = ""
    after: str = ""
    at_most: str = ""
    patience: Quantity | None = None
    honour: list[str] | None = None
    max_grace_period: str = ""
    consolidation: bool = False


class QueueFlavor(Wire, frozen=True):
    """Part of the queue's amounts, on nodes with these labels, or with those of a ResourceFlavor."""

    name: str = ""
    node_labels: Labels | None = None
    capability: Quantities | None = None
    deserved: Quantities | None = None
    guarantee: Quantities | None = None
    borrowing_limit: Quantities | None = None
    lending_limit: Quantities | None = None
    resource_flavor: str = ""

    def amounts(self) -> dict[str, Quantities]:
        """Return the amounts by field."""
        names = ("capability", "deserved", "guarantee", "borrowing_limit", "lending_limit")
        fields = {name: getattr(self, name) for name in names}
        return {name: amounts for name, amounts in fields.items() if amounts is not None}


class Provisioning(Wire, frozen=True):
    """Requests of a queue to an autoscaler for nodes: ProvisioningRequests."""

    class_name: str = ""  # empty: no nodes are requested
    parameters: dict[str, str] | None = None


class QueueSpec(Wire, frozen=True):
    weight: int = 1
    capability: Quantities | None = None
    deserved: Quantities | None = None
    guarantee: Guarantee | None = None
    reclaimable: bool | None = None
    parent: str = ""
    restricted: bool = False
    priority: int = 0
    dequeue_strategy: str = ""
    placement: str = ""
    fair_share: str = ""
    priority_threshold: int | None = None
    ageing: int = 0
    state: str = ""
    stop_policy: str = ""
    oversell: Quantity | None = None
    limits: QueueLimits | None = None
    default_request: Quantities | None = None
    borrowing_limit: Quantities | None = None
    lending_limit: Quantities | None = None
    reserve_after: str = ""
    start_timeout: str = ""
    max_run_time: str = ""
    preemption: QueuePreemption | None = None
    flavors: list[QueueFlavor] | None = None
    provisioning: Provisioning | None = None
    namespace_selector: LabelSelector | None = None


class QueueReservation(Wire, frozen=True):
    """Reservation for a group of the queue that has waited too long."""

    nodes: list[str] | None = None
    resource: Quantities | None = None


class QueueTaken(Wire, frozen=True):
    """Group that got reclaimed capacity. Once it has run for `seconds`, the reclaim counts as used."""

    group: str
    at: str = ""
    seconds: int = 0


class QueueReclaimed(Wire, frozen=True):
    """Last reclaim of a queue from another one: when, for which group, and with which success.

    Also counts earlier unused reclaims, and names the groups whose use is not known yet.
    """

    queue: str
    group: str = ""
    at: str = ""
    in_vain: int = 0
    unused: tuple[QueueTaken, ...] = ()


class QueueFlavorStatus(Wire, frozen=True):
    name: str
    allocated: Quantities | None = None
    deserved: Quantities | None = None
    borrowed: Quantities | None = None


class UsedPart(Wire, frozen=True):
    name: str
    share: float = 0.0


class QueueUsage(Wire, frozen=True):
    """Recent usage of a queue's groups, as a part of the cluster."""

    at: str = ""  # when: RFC 3339
    share: float = 0.0
    users: list[UsedPart] | None = None  # the largest first
    namespaces: list[UsedPart] | None = None


class QueueStatus(Wire, frozen=True):
    state: str = ""
    allocated: Quantities | None = None
    deserved: Quantities | None = None
    flavors: list[QueueFlavorStatus] | None = None
    borrowed: Quantities | None = None
    usage: QueueUsage | None = None
    share: float | None = None
    pending: int | None = None
    inqueue: int | None = None
    running: int | None = None
    unknown: int | None = None
    completed: int | None = None
    failed: int | None = None
    aborted: int | None = None
    reservation: QueueReservation | None = None
    reclaimed: list[QueueReclaimed] | None = None
    conditions: list[Condition] | None = None


class Queue(Wire, frozen=True):
    metadata: Meta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


class ResourceFlavorSpec(Wire, frozen=True):
    node_labels: Labels | None = None
    node_taints: list[Taint] | None = None
    tolerations: list[Toleration] | None = None


class ResourceFlavor(Wire, frozen=True):
    """Nodes that several queues divide (kube-muster.io/v1alpha1)."""

    metadata: Meta
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class LocalQueueSpec(Wire, frozen=True):
    queue: str = ""
    stop_policy: str = ""


class LocalQueueStatus(Wire, frozen=True):
    waiting: int | None = None
    admitted: int | None = None
    reserved: Quantities | None = None
    conditions: list[Condition] | None = None


class LocalQueue(Wire, frozen=True):
    """A namespace's route into a queue (kube-muster.io/v1alpha1)."""

    metadata: Meta
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()


ABORT, RESUME = "AbortJob", "ResumeJob"  # actions of Commands for Volcano Jobs


def new_command(target: OwnerReference, action: str, name: str = "") -> dict[str, Any]:
    """Return a Command as vcctl makes it. Without a `name` the API server generates one."""
    owner = msgspec.to_builtins(target)
    identity = {"name": name} if name else {"generateName": f"{target.name}-{action.lower()}-"}
    head = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command"}
    return {**head, "metadata": {**identity, "ownerReferences": [owner]}, "action": action, "target": owner}


class Command(Wire, frozen=True):
    """A Command of bus.volcano.sh: an action for `target`, which has the form of an owner reference."""

    metadata: Meta
    action: str = ""
    target: OwnerReference | None = None


class NetworkTopology(Wire, frozen=True):
    """Volcano's request for a domain: a HyperNode of at most a tier, by number or name."""

    mode: str = ""  # hard or soft; empty: hard
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class SubGroup(Wire, frozen=True):
    """Volcano's part of a PodGroup: selected pods, in sub-groups of a size."""

    name: str = ""
    sub_group_size: int = 0
    min_sub_groups: int = 0
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    network_topology: NetworkTopology | None = None


class PodGroupSpec(Wire, frozen=True):
    min_member: int = 0
    min_task_member: dict[str, int] | None = None
    queue: str = ""
    priority_class_name: str = ""
    min_resources: Quantities | None = None
    network_topology: NetworkTopology | None = None
    sub_group_policy: list[SubGroup] | None = None


class GroupHolder(Wire, frozen=True):
    """Holder of resources that a PodGroup lacks: a group, or another pod. `holds`: the lacking resources."""

    kind: str = "PodGroup"
    namespace: str = ""
    name: str = ""
    queue: str = ""
    pods: int = 0
    holds: Mapping[str, str] = {}
    deleting: int = 0  # number of its pods that are being deleted
    overdue: str | None = None  # since when the first of these should have gone


class Raise(Wire, frozen=True):
    """Amount of a resource to which a queue's capability would have to be raised."""

    queue: str = ""
    resource: str = ""
    amount: str = ""


class Estimate(Wire, frozen=True):
    """Estimate of a PodGroup's start: two timestamps and their method, or why it is unknown."""

    at_p50: str | None = None  # the time by which it has started in half of the futures
    at_p90: str | None = None  # the same in nine of ten futures
    method: str = ""  # the event that the start depends on: Declared, Learnt or Reclaim
    unknown_because: str = ""  # a sentence that names what has no known end


class WaitingStatus(Wire, frozen=True):
    """Status of a waiting PodGroup, or of its further members; condition Scheduled has it as text."""

    since: str | None = None  # when it began to wait for its present reason
    position: int = 0  # 1 for the next one of its queue; 0: it is not in line
    ahead: list[str] = []  # the first groups ahead of it, by `namespace/name`
    holders: list[GroupHolder] = []  # the largest first
    remedy: str = ""  # the smallest change that would start it, as a sentence
    capability: list[Raise] = []  # raises of capabilities of queues
    estimate: Estimate | None = None  # None: not worked out yet


class PodGroupStatus(Wire, frozen=True):
    phase: str = ""
    conditions: list[Condition] | None = None
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    waiting: WaitingStatus | None = None


class PodGroup(Wire, frozen=True):
    metadata: Meta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class PluginsPodGroup(Wire, frozen=True):
    """PodGroup of scheduler-plugins (scheduling.x-k8s.io/v1alpha1)."""

    metadata: Meta
    spec: PodGroupSpec = PodGroupSpec()


class GangPolicy(Wire, frozen=True):
    min_count: int = 0
    min_group_count: int = 0  # of a composite: the least child groups


class SchedulingPolicy(Wire, frozen=True):
    gang: GangPolicy | None = None


class TopologyConstraint(Wire, frozen=True):
    key: str = ""


class SchedulingConstraints(Wire, frozen=True):
    topology: list[TopologyConstraint] | None = None


class WorkloadReference(Wire, frozen=True):
    workload_name: str = ""


_MOST_CLAIMS = 4  # of a PodGroup, as the API has it


class NativePodGroupSpec(Wire, frozen=True):
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    priority_class_name: str = ""
    disruption_mode: dict[str, Any] | str | None = None  # {"all": {}}; in v1alpha2 PodGroup
    scheduling_constraints: SchedulingConstraints = SchedulingConstraints()
    resource_claims: list[PodClaim] | None = None
    parent_composite_pod_group_name: str = ""
    workload_ref: WorkloadReference = WorkloadReference()


class NativePodGroupStatus(Wire, frozen=True):
    conditions: list[Condition] | None = None
    resource_claim_statuses: list[PodClaimStatus] | None = None


class NativePodGroup(Wire, frozen=True):
    """PodGroup of Kubernetes (scheduling.k8s.io/v1beta1, from 1.37 on)."""

    metadata: Meta
    spec: NativePodGroupSpec = NativePodGroupSpec()
    status: NativePodGroupStatus = NativePodGroupStatus()

    @property
    def claims_of_templates(self) -> dict[PodClaim, str]:
        """Return its claims by template, with the names of their objects; empty: not created yet."""
        statuses = self.status.resource_claim_statuses or ()
        names = {status.name: status.resource_claim_name for status in statuses}
        claims = (self.spec.resource_claims or ())[:_MOST_CLAIMS]
        return {claim: names.get(claim.name, "") for claim in claims if claim.resource_claim_template_name}


class AlphaPodGroup(NativePodGroup, frozen=True):
    """PodGroup of Kubernetes 1.36 (scheduling.k8s.io/v1alpha2)."""


class CompositePodGroup(NativePodGroup, frozen=True):
    """Group of PodGroups, or of composites, of Kubernetes (scheduling.k8s.io/v1alpha3, from 1.37 on)."""


Patch = Mapping[str, Any]

OPEN, CLOSED = "Open", "Closed"  # spec.state of a queue

GROUP_PATCHES: Mapping[str, Patch] = {
    "hold": {"metadata": {"annotations": {HOLD: "true"}}},
    "resume": {"metadata": {"annotations": {HOLD: None, START_TIMEOUTS: None}}},
}
QUEUE_PATCHES: Mapping[str, Patch] = {
    "open": {"spec": {"state": OPEN}},
    "close": {"spec": {"state": CLOSED}},
    "hold": {"spec": {"stopPolicy": STOP_HOLD}},
    "drain": {"spec": {"stopPolicy": STOP_DRAIN}},
    "resume": {"spec": {"stopPolicy": STOP_NONE}},
}


def priority_patch(priority_class: str) -> Patch:
    """Return the patch of a group's priority class; a group that stands for a job follows its job."""
    return {"spec": {"priorityClassName": priority_class}}
