"""PodDisruptionBudgets: how many of the pods that one selects may be evicted now."""

from collections.abc import Mapping

import msgspec

from extender.api.objects.cluster import PodDisruptionBudget
from extender.api.objects.selectors import LabelSelector
from extender.domain.model.selectors import Labels, selects


class DisruptionBudget(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    selector: LabelSelector | None
    allowed: int  # evictions that the Eviction API admits now; pods that are being deleted are counted off

    def __hash__(self) -> int:
        return hash((self.namespace, self.name))

    def covers(self, labels: Labels) -> bool:
        """Whether it counts a pod of its namespace."""
        return selects(self.selector, labels)


BudgetsByNamespace = Mapping[str, tuple[DisruptionBudget, ...]]


def disruption_budget(budget: PodDisruptionBudget) -> DisruptionBudget:
    """One whose status is of an older spec allows nothing, as in the Eviction API."""
    meta, status = budget.metadata, budget.status
    is_current = status.observed_generation >= meta.generation
    allowed = max(status.disruptions_allowed, 0) if is_current else 0
    return DisruptionBudget(meta.namespace, meta.name, budget.spec.selector, allowed)
