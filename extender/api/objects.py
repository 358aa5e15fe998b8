"""The objects that Muster watches, reduced to the fields that it needs.

Unknown fields are skipped while decoding, so a pod costs microseconds. All Structs are frozen and free of
reference cycles (`gc=False`), so a full garbage collection over 100,000 of them takes only milliseconds.
"""

from typing import Any

import msgspec

from extender.api.quantities import Quantity

Quantities = dict[str, Quantity]
Labels = dict[str, str]


class Wire(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Base of all objects: camelCase on the wire, defaults left out."""


class OwnerReference(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    owner_references: list[OwnerReference] | None = None


class Condition(Wire, frozen=True, omit_defaults=False):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Reference(Wire, frozen=True):
    """An object that an event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


# ---- selectors


class Requirement(Wire, frozen=True):
    """One expression of a label selector or a node selector term."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(Wire, frozen=True):
    match_labels: Labels | None = None
    match_expressions: list[Requirement] | None = None


class NodeSelectorTerm(Wire, frozen=True):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(Wire, frozen=True):
    node_selector_terms: list[NodeSelectorTerm]


class NodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class PodAffinityTerm(Wire, frozen=True):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PodAffinity(Wire, frozen=True):
    required: list[PodAffinityTerm] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Wire, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


# ---- pods


class ResourceRequirements(Wire, frozen=True):
    requests: Quantities | None = None
    limits: Quantities | None = None


class Port(Wire, frozen=True):
    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = ""


class Container(Wire, frozen=True):
    resources: ResourceRequirements = ResourceRequirements()
    ports: list[Port] | None = None
    restart_policy: str = ""
    name: str = ""

    @property
    def is_sidecar(self) -> bool:
        """Whether this init container keeps running alongside the pod's main containers."""
        return self.restart_policy == "Always"


class Gate(Wire, frozen=True):
    name: str


class SchedulingGroup(Wire, frozen=True):
    pod_group_name: str = ""


class Volume(Wire, frozen=True):
    """Only the sources that may tie a pod to certain nodes. The scheduler judges them; Muster only compares
    them, to see whether two pods are alike."""

    persistent_volume_claim: msgspec.Raw = msgspec.Raw()
    ephemeral: msgspec.Raw = msgspec.Raw()


class PodSpec(Wire, frozen=True):
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    overhead: Quantities | None = None
    resources: ResourceRequirements | None = None
    node_name: str = ""
    scheduler_name: str = ""
    host_network: bool = False
    node_selector: Labels | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    scheduling_gates: list[Gate] | None = None
    scheduling_group: SchedulingGroup | None = None
    preemption_policy: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    topology_spread_constraints: msgspec.Raw = msgspec.Raw()
    resource_claims: msgspec.Raw = msgspec.Raw()
    volumes: list[Volume] | None = None
    active_deadline_seconds: int | None = None


class Terminated(Wire, frozen=True):
    started_at: str | None = None


class ContainerState(Wire, frozen=True):
    running: Any = None
    terminated: Terminated | None = None


class ContainerStatus(Wire, frozen=True):
    """`resources` are the ones in force, `allocated_resources` those that the kubelet has set aside."""

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodStatus(Wire, frozen=True):
    phase: str = ""
    conditions: list[Condition] | None = None
    nominated_node_name: str = ""
    start_time: str | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None


class Pod(Wire, frozen=True):
    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# ---- nodes


class Taint(Wire, frozen=True):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Wire, frozen=True):
    taints: list[Taint] | None = None
    unschedulable: bool = False


class NodeStatus(Wire, frozen=True):
    allocatable: Quantities | None = None


class Node(Wire, frozen=True):
    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# ---- queues and groups


class Guarantee(Wire, frozen=True):
    resource: Quantities | None = None


class RunningLimit(Wire, frozen=True):
    """How much may run at the same time; None: no limit."""

    groups: int | None = None
    pods: int | None = None


class QueueLimits(RunningLimit, frozen=True):
    """`groups` and `pods`: of the whole queue."""

    per_user: RunningLimit | None = None
    per_namespace: RunningLimit | None = None


class QueuePreemption(Wire, frozen=True):
    """`Never` or `LowerPriority`, and how long a victim has run at least, as a duration."""

    within_queue: str = ""
    unmanaged: str = ""
    min_runtime: str = ""
    after: str = ""


class QueueFlavor(Wire, frozen=True):
    """A part of the queue's amounts, on nodes with these labels."""

    name: str = ""
    node_labels: Labels | None = None
    capability: Quantities | None = None
    deserved: Quantities | None = None


class Provisioning(Wire, frozen=True):
    """How a queue asks an autoscaler for nodes: by ProvisioningRequests."""

    class_name: str = ""  # empty: not at all
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
    """What is reserved for a group of the queue that has waited too long."""

    nodes: list[str] | None = None
    resource: Quantities | None = None


class QueueFlavorStatus(Wire, frozen=True):
    """What the queue holds of a flavor."""

    name: str
    allocated: Quantities | None = None


class QueueStatus(Wire, frozen=True):
    state: str = ""
    allocated: Quantities | None = None
    deserved: Quantities | None = None
    flavors: list[QueueFlavorStatus] | None = None
    borrowed: Quantities | None = None
    share: float | None = None
    pending: int | None = None
    inqueue: int | None = None
    running: int | None = None
    unknown: int | None = None
    completed: int | None = None
    failed: int | None = None
    aborted: int | None = None
    reservation: QueueReservation | None = None
    conditions: list[Condition] | None = None


class Queue(Wire, frozen=True):
    metadata: Meta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


class LocalQueueSpec(Wire, frozen=True):
    queue: str = ""
    stop_policy: str = ""


class LocalQueueStatus(Wire, frozen=True):
    waiting: int | None = None
    admitted: int | None = None
    reserved: Quantities | None = None
    conditions: list[Condition] | None = None


class LocalQueue(Wire, frozen=True):
    """A namespace's way into a queue (kube-muster.io/v1alpha1)."""

    metadata: Meta
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()


class PodGroupSpec(Wire, frozen=True):
    min_member: int = 0
    min_task_member: dict[str, int] | None = None
    queue: str = ""
    priority_class_name: str = ""
    min_resources: Quantities | None = None


class PodGroupStatus(Wire, frozen=True):
    phase: str = ""
    conditions: list[Condition] | None = None
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class PodGroup(Wire, frozen=True):
    metadata: Meta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class Command(Wire, frozen=True):
    """A Command of bus.volcano.sh: an action requested for `target`, which has the form of an owner
    reference."""

    metadata: Meta
    action: str = ""
    target: OwnerReference | None = None


class PluginsPodGroup(Wire, frozen=True):
    """A PodGroup of scheduler-plugins (scheduling.x-k8s.io/v1alpha1)."""

    metadata: Meta
    spec: PodGroupSpec = PodGroupSpec()


class GangPolicy(Wire, frozen=True):
    min_count: int = 0


class SchedulingPolicy(Wire, frozen=True):
    gang: GangPolicy | None = None


class NativePodGroupSpec(Wire, frozen=True):
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    priority_class_name: str = ""


class NativePodGroup(Wire, frozen=True):
    """A PodGroup of Kubernetes itself (scheduling.k8s.io/v1alpha2)."""

    metadata: Meta
    spec: NativePodGroupSpec = NativePodGroupSpec()


# ---- controllers of pods


class WorkloadSpec(Wire, frozen=True):
    replicas: int | None = None
    suspend: bool | None = None
    active_deadline_seconds: int | None = None


class Workload(Wire, frozen=True):
    """A ReplicaSet, StatefulSet, DaemonSet or Job."""

    metadata: Meta
    spec: WorkloadSpec = WorkloadSpec()


# ---- the rest


class PriorityClass(Wire, frozen=True):
    metadata: Meta
    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


class Namespace(Wire, frozen=True):
    metadata: Meta


class BudgetMeta(Meta, frozen=True):
    generation: int = 0


class PodDisruptionBudgetSpec(Wire, frozen=True):
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Wire, frozen=True):
    disruptions_allowed: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(Wire, frozen=True):
    """How many of some pods may be evicted (policy/v1)."""

    metadata: BudgetMeta
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class ProvisioningRequestStatus(Wire, frozen=True):
    conditions: list[Condition] | None = None


class ProvisioningRequest(Wire, frozen=True):
    """A request to an autoscaler for nodes (autoscaling.x-k8s.io/v1)."""

    metadata: Meta
    status: ProvisioningRequestStatus = ProvisioningRequestStatus()


class LeaseSpec(Wire, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


class Lease(Wire, frozen=True):
    metadata: Meta
    spec: LeaseSpec = LeaseSpec()
