"""All quotas together: of two that claim the same name or namespace, the first counts.

Trees come first, then ElasticQuotas, then ResourceQuotas; of one kind, the older. A namespace that a tree
covers usually has ResourceQuotas as well: that is no fault, and they make no queue there.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from extender.api.keys import SYSTEM_NAMESPACE
from extender.api.objects.base import Meta
from extender.api.quotas import ElasticQuota, ElasticQuotaTree, ResourceQuota
from extender.domain.quotas.namespaced import (
    ELASTIC_KIND,
    ELASTIC_VERSION,
    RESOURCE_KIND,
    RESOURCE_VERSION,
    Found,
    queue_of_elastic_quota,
    queue_of_resource_quotas,
)
from extender.domain.quotas.records import QuotaFault, QuotaPlan, QuotaQueue, QuotaSource
from extender.domain.quotas.tree import TREE_KIND, TREE_VERSION, TreeReader

Judge = Callable[[str, Callable[[], object]], bool]
_NAMESPACED = (ELASTIC_KIND, RESOURCE_KIND)


class Quotas(NamedTuple):
    """As the API has them."""

    trees: Sequence[ElasticQuotaTree] = ()
    elastic: Sequence[ElasticQuota] = ()
    resource: Sequence[ResourceQuota] = ()


class _Object(Protocol):
    @property
    def metadata(self) -> Meta: ...


def _bare(_: str, act: Callable[[], object]) -> bool:
    act()
    return True


def plan_of(quotas: Quotas, max_depth: int, judge: Judge = _bare) -> QuotaPlan:
    """`max_depth`: how many levels of queues there may be below root. `judge`: calls something for one quota,
    and says whether it succeeded."""
    made = _Plan(judge)
    for tree in sorted(quotas.trees, key=_age):
        source = QuotaSource.of(TREE_VERSION, TREE_KIND, tree.metadata)
        made.take(source, partial(made.read_tree, tree, source, max_depth))
    for quota in sorted(quotas.elastic, key=_age):
        source = QuotaSource.of(ELASTIC_VERSION, ELASTIC_KIND, quota.metadata)
        made.take(source, partial(queue_of_elastic_quota, quota))
    by_namespace = groupby(sorted(quotas.resource, key=_place), key=attrgetter("metadata.namespace"))
    for _, several in by_namespace:
        held = list(several)
        source = QuotaSource.of(RESOURCE_VERSION, RESOURCE_KIND, held[0].metadata)
        made.take(source, partial(queue_of_resource_quotas, held))
    return made.done()


def _age(each: _Object) -> tuple[str, str, str]:
    return each.metadata.creation_timestamp or "", *_place(each)


def _place(each: _Object) -> tuple[str, str]:
    return each.metadata.namespace, each.metadata.name


class _Plan:
    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._queues: dict[str, QuotaQueue] = {}
        self._namespaces: dict[str, str] = {}
        self._faults: list[QuotaFault] = []
        self._unsure: set[str] = set()
        self._left_out: set[tuple[QuotaSource, str]] = set()  # names that another source has

    def done(self) -> QuotaPlan:
        return QuotaPlan(self._queues, self._namespaces, tuple(self._faults), frozenset(self._unsure))

    def take(self, source: QuotaSource, read: Callable[[], Found]) -> None:
        """Of a quota that makes `read` raise, nothing is closed."""
        if not self._judge(str(source), lambda: self._add(read())):
            self._unsure.add(str(source))

    def read_tree(self, tree: ElasticQuotaTree, source: QuotaSource, max_depth: int) -> Found:
        if source.namespace != SYSTEM_NAMESPACE:
            why = f"got {source.namespace}; allowed is {SYSTEM_NAMESPACE}: elsewhere a tree has no effect"
            return iter([QuotaFault(source, "metadata.namespace", why)])
        read = TreeReader(tree, max_depth)
        if read.unsure:
            self._unsure.add(str(source))
        return iter([*read.faults, *read.found])

    def _add(self, found: Found) -> None:
        for each in found:
            if isinstance(each, QuotaFault):
                self._faults.append(each)
            else:
                self._add_queue(each)

    def _add_queue(self, queue: QuotaQueue) -> None:
        other = self._queues.get(queue.name)
        if other is not None or (queue.source, queue.parent) in self._left_out:
            self._left_out.add((queue.source, queue.name))
            if other is not None and queue.source.kind != RESOURCE_KIND:
                self._refuse(queue, f"queue {queue.name!r} is made from {other.source}")
            return
        entering = tuple(each for each in queue.namespaces if self._enters(queue, each))
        if queue.source.kind in _NAMESPACED and not entering:
            return
        self._queues[queue.name] = replace(queue, namespaces=entering)

    def _enters(self, queue: QuotaQueue, namespace: str) -> bool:
        other = self._namespaces.setdefault(namespace, queue.name)
        if other == queue.name:
            return True
        if queue.source.kind != RESOURCE_KIND:
            self._refuse(queue, f"namespace {namespace!r} enters queue {other!r} already")
        return False

    def _refuse(self, queue: QuotaQueue, why: str) -> None:
        self._faults.append(QuotaFault(queue.source, f"queue {queue.name!r}", why))
