"""The PodDisruptionBudgets of the cluster, by namespace."""

from extender.api.objects.cluster import PodDisruptionBudget
from extender.domain.cache.changes import Changes
from extender.domain.model.disruption_budgets import (
    BudgetsByNamespace,
    DisruptionBudget,
    disruption_budget,
)


class DisruptionBudgets:
    """Callers hold the ledger's lock."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._known: dict[str, dict[str, DisruptionBudget]] = {}
        self._stale: set[str] = set()  # namespaces that differ from what was last shown
        self._shown: BudgetsByNamespace = {}

    def put(self, budget: PodDisruptionBudget) -> None:
        record = disruption_budget(budget)
        there = self._known.setdefault(record.namespace, {})
        if there.get(record.name) != record:
            there[record.name] = record
            self._note(record.namespace)

    def drop(self, namespace: str, name: str) -> None:
        if self._known.get(namespace, {}).pop(name, None) is not None:
            self._note(namespace)

    def view(self) -> BudgetsByNamespace:
        """The same object until a budget changes; never changed."""
        if self._stale:
            now = dict(self._shown)
            for namespace in self._stale:
                self._show(namespace, now)
            self._shown, self._stale = now, set()
        return self._shown

    def _note(self, namespace: str) -> None:
        self._stale.add(namespace)
        self._changes.mark()

    def _show(self, namespace: str, now: dict[str, tuple[DisruptionBudget, ...]]) -> None:
        if there := self._known[namespace]:
            now[namespace] = tuple(there.values())
        else:
            del self._known[namespace]
            now.pop(namespace, None)
