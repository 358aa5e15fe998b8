"""Pods, with their selectors, affinities and tolerations."""

import msgspec

from extender.api.objects.base import Condition, Labels, Meta, Quantities, Wire

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


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
    required: NodeSelector | None = msgspec.field(name=_REQUIRED, default=None)


class PodAffinityTerm(Wire, frozen=True):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PodAffinity(Wire, frozen=True):
    required: list[PodAffinityTerm] | None = msgspec.field(name=_REQUIRED, default=None)


class Affinity(Wire, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


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
        """Return whether this init container keeps running alongside the pod's main containers."""
        return self.restart_policy == "Always"


class Gate(Wire, frozen=True):
    name: str


class SchedulingGroup(Wire, frozen=True):
    pod_group_name: str = ""


class Volume(Wire, frozen=True):
    """Volume sources that may restrict a pod to some nodes. Muster only compares them."""

    persistent_volume_claim: msgspec.Raw = msgspec.Raw()
    ephemeral: msgspec.Raw = msgspec.Raw()


class PodClaim(Wire, frozen=True):
    """Reference of a pod to a device claim, or to the template of a claim for each pod."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""
    counts_elsewhere: bool = False  # not on the wire: another pod that shares the claim counts it
    made_for_group: str = ""  # not on the wire: the claim that the PodGroup got for the template


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
    resource_claims: list[PodClaim] | None = None
    volumes: list[Volume] | None = None
    active_deadline_seconds: int | None = None


class Terminated(Wire, frozen=True):
    started_at: str | None = None


class Running(Wire, frozen=True):
    """State of a running container. Muster reads no field of it."""


class ContainerState(Wire, frozen=True):
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Wire, frozen=True):
    """Status of a container.

    `resources` are the amounts in force, `allocated_resources` the amounts that the kubelet has set aside.
    """

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodClaimStatus(Wire, frozen=True):
    """Name of the claim that was created from a template for a pod or PodGroup."""

    name: str = ""
    resource_claim_name: str = ""


class PodStatus(Wire, frozen=True):
    phase: str = ""
    conditions: list[Condition] | None = None
    nominated_node_name: str = ""
    start_time: str | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None
    resources: ResourceRequirements | None = None  # amounts in force for the pod as a whole
    allocated_resources: Quantities | None = None  # amounts that the kubelet has set aside
    resource_claim_statuses: list[PodClaimStatus] | None = None


class Pod(Wire, frozen=True):
    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
