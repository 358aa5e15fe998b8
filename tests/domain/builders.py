"""Builders of objects as the API server sends them."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Condition, Meta, OwnerReference, Quantities
from extender.api.objects.cluster import (
    BudgetMeta,
    Node,
    NodeSpec,
    NodeStatus,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    Taint,
    Workload,
    WorkloadSpec,
)
from extender.api.objects.pods import (
    Affinity,
    Container,
    Gate,
    LabelSelector,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    Port,
    Requirement,
    ResourceRequirements,
    Toleration,
)
from extender.api.objects.queues import (
    Guarantee,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    Queue,
    QueueFlavor,
    QueuePreemption,
    QueueSpec,
    QueueStatus,
    ResourceFlavor,
    ResourceFlavorSpec,
)
from extender.domain.model.queue_of_group import entry_annotation
from extender.domain.model.wire_records import whole_condition

NAMESPACE = "team"
SCHEDULER = "muster"
NO_QUANTITY = "is not a quantity such as 500m, 2 or 1.5Gi"
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def node(
    name: str,
    cpu: str = "4",
    memory: str = "64Gi",
    pods: str = "110",
    zone: str = "",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    cordoned: bool = False,
    more: Mapping[str, str] | None = None,
) -> Node:
    zones = {ZONE: zone} if zone else {}
    return Node(
        Meta(name=name, uid=f"uid-{name}", labels={HOSTNAME: name, **zones, **(labels or {})}),
        NodeSpec(list(taints) or None, unschedulable=cordoned),
        NodeStatus({"cpu": cpu, "memory": memory, "pods": pods, **(more or {})}),
    )


def pod(
    name: str,
    group: str = "",
    cpu: str = "1",
    role: str = "",
    queue: str = "",
    gated: bool = True,
    on: str = "",
    phase: str = "",
    scheduler: str = SCHEDULER,
    priority: int | None = None,
    labels: Mapping[str, str] | None = None,
    selector: Mapping[str, str] | None = None,
    tolerations: Sequence[Toleration] = (),
    affinity: Affinity | None = None,
    host_port: int = 0,
    foreign_gate: str = "",
    more: Mapping[str, str] | None = None,
    uid: str = "",
    created: str = "",
    owner: str = "",
    annotations: Mapping[str, str] | None = None,
    run_limit: int | None = None,
) -> Pod:
    all_annotations = {
        keys.GROUP_ANNOTATION: group,
        keys.ROLE: role,
        keys.QUEUE: queue,
        **(annotations or {}),
    }
    gates = ([Gate(keys.GATE)] if gated and not on else []) + ([Gate(foreign_gate)] if foreign_gate else [])
    container = Container(
        ResourceRequirements({"cpu": cpu, **(more or {})}),
        [Port(host_port=host_port)] if host_port else None,
    )
    return Pod(
        Meta(
            name=name,
            namespace=NAMESPACE,
            uid=uid or f"uid-{name}",
            creation_timestamp=created or None,
            labels=dict(labels or {}),
            annotations={key: value for key, value in all_annotations.items() if value},
            owner_references=[_replica_set(owner)] if owner else None,
        ),
        PodSpec(
            [container],
            node_name=on,
            scheduler_name=scheduler,
            node_selector=dict(selector) if selector else None,
            affinity=affinity,
            tolerations=list(tolerations) or None,
            scheduling_gates=gates or None,
            priority=priority,
            active_deadline_seconds=run_limit,
        ),
        PodStatus(phase=phase or ("Running" if on else "Pending")),
    )


def foreign_pod(name: str, on: str = "", cpu: str = "1", **more: Any) -> Pod:
    """Return a pod of another scheduler. `more`: as for `pod`."""
    return pod(name, cpu=cpu, on=on, gated=False, scheduler=keys.DEFAULT_SCHEDULER, **more)


def group(
    name: str,
    min_member: int,
    queue: str = "",
    roles: Mapping[str, int] | None = None,
    priority_class: str = "",
    created: str = "",
    phase: str = "",
    stood_whole: bool = False,
    last_reason: str = "",
    uid: str = "",
    min_resources: Quantities | None = None,
    queue_uid: str = "",
    admitted: bool = False,
    run_time: str = "",
    annotations: Mapping[str, str] | None = None,
    namespace: str = NAMESPACE,
) -> PodGroup:
    uid = uid or f"uid-{name}"
    all_annotations = {
        **(entry_annotation(queue_uid, uid) if queue_uid else {}),
        **({keys.ADMITTED: uid} if admitted else {}),
    }
    all_annotations |= {keys.RUN_TIME: run_time} if run_time else {}
    all_annotations |= annotations or {}
    conditions = [Condition(keys.SCHEDULED, "False", last_reason)] if last_reason else []
    if stood_whole:
        conditions.append(whole_condition(uid, min_member))
    return PodGroup(
        Meta(
            name=name,
            namespace=namespace,
            uid=uid,
            creation_timestamp=created or None,
            annotations=all_annotations or None,
        ),
        PodGroupSpec(
            min_member,
            dict(roles) if roles else None,
            queue,
            priority_class,
            min_resources,
        ),
        PodGroupStatus(phase, conditions or None),
    )


def _replica_set(name: str) -> OwnerReference:
    return OwnerReference("apps/v1", "ReplicaSet", name, f"uid-{name}", True)


def owner(
    name: str,
    min_member: str = "",
    replicas: int | None = None,
    suspended: bool = False,
    annotations: Mapping[str, str] | None = None,
    policy: str = "",
) -> Workload:
    """Return a controller of pods. `policy`: spec.podManagementPolicy."""
    all_annotations = {**({keys.VOLCANO_MIN_MEMBER: min_member} if min_member else {}), **(annotations or {})}
    meta = Meta(name=name, namespace=NAMESPACE, uid=f"uid-{name}", annotations=all_annotations)
    return Workload(meta, WorkloadSpec(replicas, suspended, pod_management_policy=policy))


# By default, capacity is reclaimed at once, at any cost, also inside a queue.
AT_ONCE = QueuePreemption(within_queue="LowerPriority", after="0s", at_most="0s")


def preemption(**fields: Any) -> QueuePreemption:
    """Return a preemption policy. `fields`: the differences from `AT_ONCE`."""
    return replace(AT_ONCE, **fields)


def queue(
    name: str,
    weight: int = 1,
    capability: Mapping[str, str] | None = None,
    guarantee: Mapping[str, str] | None = None,
    strategy: str = "",
    priority: int = 0,
    spec_state: str = "",
    status_state: str = "",
    created: str = "",
    parent: str = "",
    closed_by_parent: bool = False,
    last_command: str = "",
    uid: str = "",
    flavors: Sequence[QueueFlavor] = (),
    reserve_after: str = "10m",
    start_timeout: str = "",
    max_run_time: str = "",
    preemption: QueuePreemption | None = AT_ONCE,
    **more: Any,
) -> Queue:
    """Return a queue. `more`: further fields of its spec."""
    annotations = {keys.CLOSED_BY_PARENT: "true" if closed_by_parent else "", keys.LAST_COMMAND: last_command}
    return Queue(
        Meta(
            name=name,
            uid=uid or f"uid-{name}",
            creation_timestamp=created or None,
            annotations={key: value for key, value in annotations.items() if value},
        ),
        QueueSpec(
            weight=weight,
            capability=dict(capability) if capability else None,
            guarantee=Guarantee(dict(guarantee)) if guarantee else None,
            priority=priority,
            parent=parent,
            dequeue_strategy=strategy,
            state=spec_state,
            flavors=list(flavors) or None,
            reserve_after=reserve_after,
            start_timeout=start_timeout,
            max_run_time=max_run_time,
            preemption=preemption,
            **more,
        ),
        QueueStatus(status_state),
    )


def flavor(
    name: str, capability: Mapping[str, str] | None = None, deserved: Mapping[str, str] | None = None
) -> QueueFlavor:
    """Return a flavor on nodes of its name, as `on_flavor` labels them."""
    return QueueFlavor(
        name, on_flavor(name), dict(capability) if capability else None, dict(deserved) if deserved else None
    )


def shared(name: str, *taints: Taint, **labels: str) -> ResourceFlavor:
    """Return a ResourceFlavor, on nodes of its name unless labels are given."""
    spec = ResourceFlavorSpec(labels or on_flavor(name), list(taints) or None)
    return ResourceFlavor(Meta(name=name, uid=f"uid-{name}"), spec)


def on_flavor(name: str) -> dict[str, str]:
    return {"flavor": name}


# ---- affinity


def budget(name: str, allowed: int, stale: bool = False, **labels: str) -> PodDisruptionBudget:
    """Return a budget that allows `allowed` evictions of the pods with these labels.

    `stale`: its status is that of an older spec.
    """
    meta = BudgetMeta(name=name, namespace=NAMESPACE, generation=2)
    status = PodDisruptionBudgetStatus(allowed, observed_generation=1 if stale else 2)
    return PodDisruptionBudget(meta, PodDisruptionBudgetSpec(LabelSelector(labels)), status)


def _term(topology: str, labels: Mapping[str, str]) -> PodAffinityTerm:
    return PodAffinityTerm(topology, LabelSelector(dict(labels)))


def anti_affinity(topology: str = HOSTNAME, **labels: str) -> Affinity:
    """Return an anti-affinity to pods with these labels."""
    return Affinity(pod_anti_affinity=PodAffinity([_term(topology, labels)]))


def co_location(topology: str = ZONE, **labels: str) -> Affinity:
    """Return an affinity to pods with these labels."""
    return Affinity(pod_affinity=PodAffinity([_term(topology, labels)]))


def on_nodes(key: str, operator: str, *values: str) -> Affinity:
    term = NodeSelectorTerm([Requirement(key, operator, list(values) or None)])
    return Affinity(node_affinity=NodeAffinity(NodeSelector([term])))
