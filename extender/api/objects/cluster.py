"""Namespaces, priority classes, budgets of disruptions, requests for nodes, and leases."""

from extender.api.objects.base import Condition, Meta, Wire
from extender.api.objects.selectors import LabelSelector


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
