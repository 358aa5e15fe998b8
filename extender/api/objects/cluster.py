"""Objects of a cluster other than pods and queues, with the quotas from which queues are made.

- `ElasticQuotaTree`: Alibaba Cloud's ACK (kube-queue, koord-queue).
- `ElasticQuota`: the Kubernetes SIG's scheduler-plugins.
- `ResourceQuota`: Kubernetes itself.

Amounts of quotas stay undecoded, so that an invalid amount affects one node of a tree only.
"""

from enum import StrEnum
from typing import Any

import msgspec

from extender.api.objects.base import Condition, Meta, OwnerReference, Quantities, Wire
from extender.api.objects.pods import LabelSelector
from extender.api.units import as_datetime


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


class TopologyLevel(Wire, frozen=True):
    node_label: str


class ClusterTopologySpec(Wire, frozen=True):
    levels: list[TopologyLevel] | None = None


class ClusterTopology(Wire, frozen=True):
    """Topology of kube-muster.io/v1alpha1. Kueue's Topology has the same fields."""

    metadata: Meta
    spec: ClusterTopologySpec = ClusterTopologySpec()


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
    """Limit of the evictions among some pods (policy/v1)."""

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


_DEFAULT_DURATION = 15.0  # seconds; the duration of a Lease that does not state one


def duration_of(lease: LeaseSpec) -> float:
    return lease.lease_duration_seconds or _DEFAULT_DURATION


def age_of(lease: LeaseSpec, now: float) -> float | None:
    """Return the seconds since the renewal of a Lease; None if the Lease has no valid renewal time.

    The age is negative if the holder's clock is ahead of `now`.
    """
    try:
        return now - as_datetime(lease.renew_time or "").timestamp()
    except ValueError:
        return None


def is_held(lease: LeaseSpec, now: float) -> bool:
    """Return whether the Lease has a holder, and the holder renewed the Lease in time by the clock `now`."""
    age = age_of(lease, now)
    return bool(lease.holder_identity) and age is not None and age < duration_of(lease)


class WorkloadSpec(Wire, frozen=True):
    replicas: int | None = None
    suspend: bool | None = None
    active_deadline_seconds: int | None = None
    pod_management_policy: str = ""  # only StatefulSets have it


class Workload(Wire, frozen=True):
    """A ReplicaSet, StatefulSet, DaemonSet or Job."""

    metadata: Meta
    spec: WorkloadSpec = WorkloadSpec()


class EventSeries(Wire, frozen=True):
    count: int = 0
    last_observed_time: str | None = None


class Event(Wire, frozen=True):
    about: OwnerReference = msgspec.field(name="involvedObject", default=OwnerReference())
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    last_timestamp: str | None = None
    event_time: str | None = None
    series: EventSeries | None = None

    @property
    def at(self) -> str:
        """Return the timestamp of the last occurrence."""
        series_time = self.series.last_observed_time if self.series else None
        return series_time or self.last_timestamp or self.event_time or ""

    @property
    def times(self) -> int:
        return max(1, self.count, self.series.count if self.series else 0)


Amounts = dict[str, Any]


class QuotaKind(StrEnum):
    """Kind of quota from which queues are made, as `--quota-sources` names the kind."""

    ELASTIC_QUOTA_TREE = "elasticquotatree"
    ELASTIC_QUOTA = "elasticquota"
    RESOURCE_QUOTA = "resourcequota"


class QuotaNode(Wire, frozen=True):
    name: str = ""
    min: Amounts | None = None  # guaranteed amounts
    max: Amounts | None = None  # limits; a resource that is absent has no limit
    namespaces: list[str] | None = None  # namespaces of its pods; only leaves have them
    children: list[msgspec.Raw] | None = None  # child QuotaNodes, decoded one by one


class ElasticQuotaTreeSpec(Wire, frozen=True):
    root: msgspec.Raw = msgspec.Raw()


class ElasticQuotaTree(Wire, frozen=True):
    """ElasticQuotaTree of scheduling.sigs.k8s.io/v1beta1. Only a tree in kube-system is used."""

    metadata: Meta
    spec: ElasticQuotaTreeSpec = ElasticQuotaTreeSpec()


class ElasticQuotaSpec(Wire, frozen=True):
    min: Amounts | None = None
    max: Amounts | None = None


class ElasticQuota(Wire, frozen=True):
    """ElasticQuota of scheduling.x-k8s.io/v1alpha1: the quota of its namespace."""

    metadata: Meta
    spec: ElasticQuotaSpec = ElasticQuotaSpec()


class ResourceQuotaSpec(Wire, frozen=True):
    hard: Amounts | None = None
    scopes: list[str] | None = None
    scope_selector: Any = None


class ResourceQuota(Wire, frozen=True):
    """ResourceQuota of Kubernetes. A quota with scopes applies to some pods of its namespace only."""

    metadata: Meta
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
