"""Queues, flavors, LocalQueues, Commands, and the PodGroups of all APIs."""

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
    """Limit of concurrent groups and pods. None means no limit."""

    groups: int | None = None
    pods: int | None = None


class QueueLimits(RunningLimit, frozen=True):
    """Limits of a queue.

    `groups` and `pods` limit the whole queue; the other fields limit each user and each namespace in it.
    """

    per_user: RunningLimit | None = None
    per_namespace: RunningLimit | None = None


class BorrowWithinCohort(Wire, frozen=True):
    policy: str = ""  # `Never` or `LowerPriority`
    max_priority_threshold: int | None = None


class QueuePreemption(Wire, frozen=True):
    """Preemption settings of a queue: its `spec.preemption`."""

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
    """Amounts of a queue on nodes with certain labels: own labels, or the labels of a ResourceFlavor."""

    name: str = ""
    node_labels: Labels | None = None
    capability: Quantities | None = None
    deserved: Quantities | None = None
    guarantee: Quantities | None = None
    borrowing_limit: Quantities | None = None
    lending_limit: Quantities | None = None
    resource_flavor: str = ""

    def amounts(self) -> dict[str, Quantities]:
        """Return the specified amounts by name of the field."""
        names = ("capability", "deserved", "guarantee", "borrowing_limit", "lending_limit")
        fields = {name: getattr(self, name) for name in names}
        return {name: amounts for name, amounts in fields.items() if amounts is not None}


class Provisioning(Wire, frozen=True):
    """Settings of a queue for ProvisioningRequests, which ask an autoscaler for nodes."""

    class_name: str = ""  # empty means that no nodes are requested
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
    """Capacity that a queue reserves for one of its groups, which has waited too long."""

    nodes: list[str] | None = None
    resource: Quantities | None = None


class QueueTaken(Wire, frozen=True):
    """Group for which capacity was reclaimed. The reclaim counts as used after `seconds` of run time."""

    group: str
    at: str = ""
    seconds: int = 0


class QueueReclaimed(Wire, frozen=True):
    """Last reclaim of capacity from another queue: the time, the group, and the success of earlier reclaims.

    `in_vain` is the number of reclaims whose capacity was not used. `unused` are the groups that have not yet
    run long enough to count their reclaim as used.
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

    at: str = ""  # timestamp in RFC 3339
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
    """Nodes that are divided among several queues (kube-muster.io/v1alpha1)."""

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
    """Queue of a namespace that leads to a cluster-wide queue (kube-muster.io/v1alpha1)."""

    metadata: Meta
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()


ABORT, RESUME = "AbortJob", "ResumeJob"  # actions of Commands on Volcano Jobs


def new_command(target: OwnerReference, action: str, name: str = "") -> dict[str, Any]:
    """Return a Command as vcctl creates it.

    Args:
        target: The object that the Command acts on.
        action: The action, such as `ResumeJob`.
        name: The name of the Command. If it is empty, the API server generates one.
    """
    owner = msgspec.to_builtins(target)
    identity = {"name": name} if name else {"generateName": f"{target.name}-{action.lower()}-"}
    head = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command"}
    return {**head, "metadata": {**identity, "ownerReferences": [owner]}, "action": action, "target": owner}


class Command(Wire, frozen=True):
    """Command of bus.volcano.sh: an action on `target`, which has the fields of an owner reference."""

    metadata: Meta
    action: str = ""
    target: OwnerReference | None = None


class NetworkTopology(Wire, frozen=True):
    """Volcano's topology request: the pods share a HyperNode up to a tier, given by number or name."""

    mode: str = ""  # `hard` or `soft`; empty means hard
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class SubGroup(Wire, frozen=True):
    """Volcano's sub-group policy of a PodGroup: it divides selected pods into sub-groups of equal size."""

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
    """Group or pod that holds resources for which a PodGroup waits.

    `holds` has the amounts of these resources that the group or pod holds.
    """

    kind: str = "PodGroup"
    namespace: str = ""
    name: str = ""
    queue: str = ""
    pods: int = 0
    holds: Mapping[str, str] = {}
    deleting: int = 0  # number of its pods that are being deleted
    overdue: str | None = None  # timestamp at which the first of these pods exceeded its grace period


class Raise(Wire, frozen=True):
    """Raise of a queue's capability that a group needs: the resource and the new amount."""

    queue: str = ""
    resource: str = ""
    amount: str = ""


class Estimate(Wire, frozen=True):
    """Estimate of a PodGroup's start: two timestamps and the method, or the reason why it is unknown."""

    at_p50: str | None = None  # timestamp: the group has started by then in half of the simulations
    at_p90: str | None = None  # timestamp: the group has started by then in nine of ten simulations
    method: str = ""  # Declared, Learnt or Reclaim: the source of the end that the start waits for
    unknown_because: str = ""  # a sentence that names the group whose end is unknown


class WaitingStatus(Wire, frozen=True):
    """Status of a PodGroup that waits, or whose further members wait.

    Condition Scheduled has the same facts as text.
    """

    since: str | None = None  # timestamp at which the current reason began
    position: int = 0  # place in its queue, from 1; 0 means that it has none
    ahead: list[str] = []  # `namespace/name` of the first groups ahead of it
    holders: list[GroupHolder] = []  # the largest first
    remedy: str = ""  # a sentence with the smallest change that would start the group
    capability: list[Raise] = []  # raises of capabilities of queues
    estimate: Estimate | None = None  # None if no estimate has been made yet


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
    min_group_count: int = 0  # only for a composite: the minimum of child groups


class SchedulingPolicy(Wire, frozen=True):
    gang: GangPolicy | None = None


class TopologyConstraint(Wire, frozen=True):
    key: str = ""


class SchedulingConstraints(Wire, frozen=True):
    topology: list[TopologyConstraint] | None = None


class WorkloadReference(Wire, frozen=True):
    workload_name: str = ""


_MAX_CLAIMS = 4  # the API's limit of claims of a PodGroup


class NativePodGroupSpec(Wire, frozen=True):
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    priority_class_name: str = ""
    disruption_mode: dict[str, Any] | str | None = None  # {"all": {}}, or "PodGroup" in v1alpha2
    scheduling_constraints: SchedulingConstraints = SchedulingConstraints()
    resource_claims: list[PodClaim] | None = None
    parent_composite_pod_group_name: str = ""
    workload_ref: WorkloadReference = WorkloadReference()


class NativePodGroupStatus(Wire, frozen=True):
    conditions: list[Condition] | None = None
    resource_claim_statuses: list[PodClaimStatus] | None = None


class NativePodGroup(Wire, frozen=True):
    """PodGroup of Kubernetes (scheduling.k8s.io/v1beta1, Kubernetes 1.37 and later)."""

    metadata: Meta
    spec: NativePodGroupSpec = NativePodGroupSpec()
    status: NativePodGroupStatus = NativePodGroupStatus()

    @property
    def claims_of_templates(self) -> dict[PodClaim, str]:
        """Return the claims that name a template, with the name of the object that was created for each.

        The name is empty while the object does not exist.
        """
        statuses = self.status.resource_claim_statuses or ()
        names = {status.name: status.resource_claim_name for status in statuses}
        claims = (self.spec.resource_claims or ())[:_MAX_CLAIMS]
        return {claim: names.get(claim.name, "") for claim in claims if claim.resource_claim_template_name}


class AlphaPodGroup(NativePodGroup, frozen=True):
    """PodGroup of Kubernetes 1.36 (scheduling.k8s.io/v1alpha2)."""


class CompositePodGroup(NativePodGroup, frozen=True):
    """Group of PodGroups, or of other composites (scheduling.k8s.io/v1alpha3, Kubernetes 1.37 and later)."""


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
    """Return the patch of a group's priority class.

    A group that Muster made for a job gets its priority from the job instead.
    """
    return {"spec": {"priorityClassName": priority_class}}
