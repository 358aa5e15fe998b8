"""What PodDisruptionBudgets allow. The Eviction API asks them for each pod; here, they are asked for all pods
that go together, so that no gang goes in part."""

from collections import Counter
from collections.abc import Iterable

from extender.domain.model.disruption_budgets import BudgetsByNamespace, DisruptionBudget
from extender.domain.model.records import PodRecord


class Disruptions:
    """`going`: pods that are evicted but not yet being deleted, so that no budget counts them off."""

    def __init__(self, budgets: BudgetsByNamespace, going: Iterable[PodRecord] = ()) -> None:
        self._budgets = budgets
        self._taken: Counter[DisruptionBudget] = Counter()
        self._known: dict[tuple[str, int], tuple[DisruptionBudget, ...]] = {}
        self.take(going)

    @property
    def matter(self) -> bool:
        """Whether a budget covers any pod that was asked about."""
        return any(self._known.values())

    def clone(self) -> "Disruptions":
        """One that is used up apart; what is known about pods stays common to both."""
        other = Disruptions(self._budgets)
        other._taken, other._known = self._taken.copy(), self._known
        return other

    def allow(self, pods: Iterable[PodRecord]) -> bool:
        """Whether all of these may go, with all that was taken. A pod that two budgets cover may not: the
        Eviction API refuses it."""
        if not self._budgets:
            return True
        wanted: dict[DisruptionBudget, int] = {}
        for pod in pods:
            budgets = self._of(pod)
            if len(budgets) > 1:
                return False
            for budget in budgets:
                wanted[budget] = wanted.get(budget, self._taken[budget]) + 1
                if wanted[budget] > budget.allowed:
                    return False
        return True

    def take(self, pods: Iterable[PodRecord], times: int = 1) -> None:
        """These go; -1 times: they stay."""
        for pod in pods if self._budgets else ():
            for budget in self._of(pod):
                self._taken[budget] += times

    def _of(self, pod: PodRecord) -> tuple[DisruptionBudget, ...]:
        known = pod.namespace, id(pod.labels)  # pods with the same labels share them, and outlive this
        if known not in self._known:
            there = self._budgets.get(pod.namespace, ())
            self._known[known] = tuple(budget for budget in there if budget.covers(pod.labels))
        return self._known[known]
