"""Quotas as the watches show them, and the plan that follows from all of them."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from extender.api.quotas import ElasticQuota, ElasticQuotaTree, QuotaKind, ResourceQuota
from extender.controllers.guard import Guard
from extender.domain.cache.ledger import Ledger
from extender.domain.decisions.decisions import Decisions
from extender.domain.quotas.plan import Quotas, plan_of
from extender.domain.quotas.records import QuotaPlan
from extender.kube.inventory import Removed

T = TypeVar("T", ElasticQuotaTree, ElasticQuota, ResourceQuota)


class _Kind(Generic[T]):
    """The sink of the watch of one kind. Its objects are replaced, never changed."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], T] = {}

    def upsert(self, quota: T) -> None:
        """Others write a status as often as a pod comes or goes: that changes nothing here."""
        key = quota.metadata.namespace, quota.metadata.name
        with self._lock:
            before, self._objects[key] = self._objects.get(key), quota
        if before is None or _asked(before) != _asked(quota):
            self._changed()

    def remove(self, gone: Removed) -> None:
        with self._lock:
            self._objects.pop((gone.namespace, gone.name), None)
        self._changed()

    def all(self) -> list[T]:
        with self._lock:
            return list(self._objects.values())


def _asked(quota: ElasticQuotaTree | ElasticQuota | ResourceQuota) -> tuple[object, ...]:
    return quota.metadata.uid, msgspec.json.encode(quota.spec)


class QuotaObjects:
    """`max_depth`: how many levels of queues there may be below root. Whatever changes is planned at the next
    `refresh`, since thousands of objects come at once when a watch begins."""

    def __init__(self, ledger: Ledger, max_depth: int) -> None:
        self._ledger = ledger
        self._max_depth = max_depth
        self._stale = False
        self._guard = Guard("quotas")
        self._lock = threading.Lock()
        self._trees: _Kind[ElasticQuotaTree] = _Kind(self._note_change)
        self._elastic: _Kind[ElasticQuota] = _Kind(self._note_change)
        self._resource: _Kind[ResourceQuota] = _Kind(self._note_change)
        self.plan = QuotaPlan()
        self.sinks: Mapping[QuotaKind, Any] = {
            QuotaKind.ELASTIC_QUOTA_TREE: self._trees,
            QuotaKind.ELASTIC_QUOTA: self._elastic,
            QuotaKind.RESOURCE_QUOTA: self._resource,
        }

    def _note_change(self) -> None:
        self._stale = True

    def look(self, _: Decisions) -> None:
        """On every replica: whoever answers the webhooks has to know the queues of namespaces."""
        self.refresh()

    def refresh(self) -> None:
        """Plan again if anything has changed, and tell the ledger which namespace enters which queue."""
        with self._lock:
            if not self._stale:
                return
            self._stale = False
            quotas = Quotas(self._trees.all(), self._elastic.all(), self._resource.all())
            self.plan = plan_of(quotas, self._max_depth, self._guard.run)
            self._ledger.set_quota_namespaces(self.plan.namespaces)
