"""Queues from ResourceQuotas, ElasticQuotas and ElasticQuotaTrees."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from extender.api.keys import ROOT_QUEUE, SYSTEM_NAMESPACE
from extender.api.objects.base import Meta
from extender.api.objects.cluster import ElasticQuota, ElasticQuotaTree, QuotaNode, ResourceQuota
from extender.api.units import rounded_down
from extender.domain.model.resources import add, offered, quantities, show, total
from extender.domain.queues.quota_records import (
    QuotaAmounts,
    QuotaFault,
    QuotaPlan,
    QuotaQueue,
    QuotaSource,
    Written,
    amounts_of,
    queue_name,
)

# Quotas of one namespace: each becomes a queue below `root` with the name of the namespace.

ELASTIC_VERSION, ELASTIC_KIND = "scheduling.x-k8s.io/v1alpha1", "ElasticQuota"
RESOURCE_VERSION, RESOURCE_KIND = "v1", "ResourceQuota"
_REQUESTS = "requests."
_PLAIN = ("cpu", "memory", "ephemeral-storage", "pods")  # these mean requests, as requests.cpu does

Found = Iterator[QuotaQueue | QuotaFault]


def queue_of_elastic_quota(quota: ElasticQuota) -> Found:
    source = QuotaSource.from_meta(ELASTIC_VERSION, ELASTIC_KIND, quota.metadata)
    amounts = amounts_of(quota.spec.min, quota.spec.max)
    yield from _faults(source, amounts)
    yield _queue(source.namespace, ROOT_QUEUE, source, amounts, [source.namespace], bool(amounts.faults))


def queue_of_resource_quotas(quotas: Sequence[ResourceQuota]) -> Found:
    """Return the queue of all quotas of one namespace, the first by name first.

    All quotas hold at once, so the smallest amount of each resource counts. Quotas with scopes concern
    some pods only, and are left out.
    """
    smallest: Written = {}
    first: QuotaSource | None = None
    unreadable = False
    for quota in quotas:
        if quota.spec.scopes or quota.spec.scope_selector:
            continue
        source = QuotaSource.from_meta(RESOURCE_VERSION, RESOURCE_KIND, quota.metadata)
        # Only limits on requests concern the scheduler.
        hard = quota.spec.hard or {}
        plain = {name: hard[name] for name in _PLAIN if name in hard}
        named = {name.removeprefix(_REQUESTS): hard[name] for name in hard if name.startswith(_REQUESTS)}
        amounts = amounts_of(None, plain | named)
        yield from _faults(source, amounts)
        first, unreadable = first or source, unreadable or bool(amounts.faults)
        for name, amount in amounts.capability.items():
            if name not in smallest or rounded_down(amount, 1000) < rounded_down(smallest[name], 1000):
                smallest[name] = amount
    if first is not None:
        yield _queue(
            first.namespace, ROOT_QUEUE, first, QuotaAmounts(smallest), [first.namespace], unreadable
        )


def _faults(source: QuotaSource, amounts: QuotaAmounts) -> Iterator[QuotaFault]:
    return (QuotaFault(source, f"spec.{field}", why) for field, why in amounts.faults)


def _queue(
    named: str,
    parent: str,
    source: QuotaSource,
    amounts: QuotaAmounts,
    namespaces: Iterable[str],
    unreadable: bool,
) -> QuotaQueue:
    """Return the queue of a quota. `named`: the name of the quota, from which that of the queue is made."""
    return QuotaQueue(
        name=queue_name(named),
        source=source,
        parent=parent,
        capability=amounts.capability,
        guarantee=amounts.guarantee,
        most_groups=amounts.most_groups,
        namespaces=tuple(sorted(namespaces)),
        unreadable=unreadable,
    )


TREE_VERSION, TREE_KIND = "scheduling.sigs.k8s.io/v1beta1", "ElasticQuotaTree"


class _Place(msgspec.Struct):
    """Place of a node: the nodes above it, and the amounts that its parent has not yet given to children."""

    queue: str = ROOT_QUEUE
    depth: int = 0  # levels below Muster's root
    limits: Mapping[str, tuple[int, str]] = {}  # by resource: the nearest max above, and the node that has it
    unassigned: dict[str, int] | None = None  # None: no parent limits it
    unreadable: bool = False


class TreeReader:
    """Reader of an ElasticQuotaTree, node by node: parents before their children.

    The root of the tree becomes a queue directly below Muster's root, so that its max limits the whole tree.
    Its min beyond the guarantees of its nodes is the size of the tree, often that of the cluster, and is
    reserved for no queue. If a node cannot be read, its descendants have no queues either. `found`: the
    queues in order; `max_depth`: levels of queues below Muster's root.
    """

    def __init__(self, tree: ElasticQuotaTree, max_depth: int) -> None:
        self.source = QuotaSource.from_meta(TREE_VERSION, TREE_KIND, tree.metadata)
        self.faults: list[QuotaFault] = []
        self.found: list[QuotaQueue] = []
        self.unsure = False
        self._max_depth = max_depth
        self._names: set[str] = set()
        if bytes(tree.spec.root):
            self._read(tree.spec.root, "spec.root", _Place())
        if self.found:
            root, *below = self.found
            roots = (queue for queue in below if queue.parent == root.name and not queue.unreadable)
            guarantee = {**quantities(total(offered(queue.guarantee) for queue in roots))}
            self.found[0] = replace(root, guarantee=guarantee)  # sum of the nodes directly below

    def _read(self, raw: msgspec.Raw, path: str, place: _Place) -> None:
        """Read a node and those below it; report their faults.

        A node without a readable name of its own, or too deep, is left out with its descendants. If its
        amounts have a fault, it and its descendants count as unreadable.

        Args:
            raw: The node.
            path: Its place in the object, for messages.
            place: Its parent and the amounts that it inherits.
        """
        node = self._node(raw, path)
        if node is None:
            return
        queue = queue_name(node.name)
        at = f"node {node.name!r}"
        if queue in self._names:
            return self._fault(at, f"{path} has the name of another node; each name is allowed once")
        if place.depth >= self._max_depth:
            return self._fault(at, f"it is on level {place.depth + 1}; at most {self._max_depth} are allowed")
        self._names.add(queue)
        amounts = amounts_of(node.min, node.max)
        unreadable = place.unreadable
        for field, why in () if unreadable else [*amounts.faults] or [*_excess_amounts(amounts, place)]:
            self._fault(f"{at}: {field}", why)
            unreadable = True
        entering = {namespace for namespace in node.namespaces or () if namespace}
        if entering and node.children:
            self._fault(f"{at}: namespaces", "only nodes without children have namespaces")
            entering = set()
        self.found.append(_queue(node.name, place.queue, self.source, amounts, entering, unreadable))
        limits = {**place.limits, **{name: (most, node.name) for name, most in amounts.largest.items()}}
        guaranteed: dict[str, int] | None = amounts.guaranteed
        if place.queue == ROOT_QUEUE and not node.min:  # the size of the tree is then its max, if it has one
            guaranteed = amounts.largest or None
        below = _Place(queue, place.depth + 1, limits, guaranteed, unreadable)
        for number, child in enumerate(node.children or ()):
            self._read(child, f"{path}.children[{number}]", below)

    def _node(self, raw: msgspec.Raw, path: str) -> QuotaNode | None:
        """Return the node of a quota; None if it cannot be read, or has no name.

        Its queue is not known in that case.
        """
        try:
            node = msgspec.json.decode(raw, type=QuotaNode)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
            why = f"it cannot be read ({fault})"
        else:
            if node.name:
                return node
            why = "it has no name"
        self.unsure = True
        self._fault(path, why)
        return None

    def _fault(self, where: str, why: str) -> None:
        self.faults.append(QuotaFault(self.source, where, why))


def _excess_amounts(amounts: QuotaAmounts, place: _Place) -> Iterator[tuple[str, str]]:
    """Yield the first amount that the nodes above do not allow; without one, take all from the parent."""
    for name, most in amounts.largest.items():
        limit, owner = place.limits.get(name, (most, ""))
        if most > limit:
            text = (
                f"invalid value {show(name, most)}: must be at most {show(name, limit)}, the max of {owner!r}"
            )
            yield f"max[{name}]", text
            return
    if place.unassigned is None:
        return
    for name, amount in amounts.guaranteed.items():
        unassigned = place.unassigned.get(name, 0)
        if amount > unassigned:
            value = f"invalid value {show(name, amount)}"
            text = f"{value}: the min of its parent leaves {show(name, unassigned)} to it"
            yield f"min[{name}]", text
            return
    add(place.unassigned, amounts.guaranteed, times=-1)


Review = Callable[[str, Callable[[], object]], bool]
_NAMESPACED = (ELASTIC_KIND, RESOURCE_KIND)


class Quotas(NamedTuple):
    """Quotas of the API server."""

    trees: Sequence[ElasticQuotaTree] = ()
    elastic: Sequence[ElasticQuota] = ()
    resource: Sequence[ResourceQuota] = ()


class _Object(Protocol):
    @property
    def metadata(self) -> Meta: ...


def plan_of(quotas: Quotas, max_depth: int, review: Review | None = None) -> QuotaPlan:
    """Return the queues that quotas ask for; of two that claim the same name or namespace, the first counts.

    Trees come first, then ElasticQuotas, then ResourceQuotas; of one kind, the oldest. ResourceQuotas of a
    namespace that a tree covers are no fault, and make no queue.

    Args:
        quotas: The quotas to read.
        max_depth: How many levels of queues there may be below root.
        review: Calls a function for one quota, and returns whether it succeeded; None raises its errors.
    """
    plan = _Plan(review)
    for tree in sorted(quotas.trees, key=_age):
        source = QuotaSource.from_meta(TREE_VERSION, TREE_KIND, tree.metadata)
        plan.add_quota(source, partial(plan.read_tree, tree, source, max_depth))
    for quota in sorted(quotas.elastic, key=_age):
        source = QuotaSource.from_meta(ELASTIC_VERSION, ELASTIC_KIND, quota.metadata)
        plan.add_quota(source, partial(queue_of_elastic_quota, quota))
    by_namespace = groupby(sorted(quotas.resource, key=_place), key=attrgetter("metadata.namespace"))
    for _, several in by_namespace:
        held = list(several)
        source = QuotaSource.from_meta(RESOURCE_VERSION, RESOURCE_KIND, held[0].metadata)
        plan.add_quota(source, partial(queue_of_resource_quotas, held))
    return plan.result()


def _age(quota: _Object) -> tuple[str, str, str]:
    return quota.metadata.creation_timestamp or "", *_place(quota)


def _place(quota: _Object) -> tuple[str, str]:
    return quota.metadata.namespace, quota.metadata.name


class _Plan:
    def __init__(self, review: Review | None) -> None:
        self._review = review
        self._queues: dict[str, QuotaQueue] = {}
        self._namespaces: dict[str, str] = {}
        self._faults: list[QuotaFault] = []
        self._unsure: set[str] = set()
        self._left_out: set[tuple[QuotaSource, str]] = set()  # sources whose name is taken by another one

    def result(self) -> QuotaPlan:
        return QuotaPlan(self._queues, self._namespaces, tuple(self._faults), frozenset(self._unsure))

    def add_quota(self, source: QuotaSource, read: Callable[[], Found]) -> None:
        """Add the queues of a quota. If `read` raises, none of its queues is closed."""
        if self._review is None:
            self._add(read())
        elif not self._review(str(source), lambda: self._add(read())):
            self._unsure.add(str(source))

    def read_tree(self, tree: ElasticQuotaTree, source: QuotaSource, max_depth: int) -> Found:
        """Return the queues and faults of an ElasticQuotaTree, which counts only in one namespace."""
        if source.namespace != SYSTEM_NAMESPACE:
            why = f"invalid value {source.namespace}: must be {SYSTEM_NAMESPACE}, where trees are read"
            return iter([QuotaFault(source, "metadata.namespace", why)])
        read = TreeReader(tree, max_depth)
        if read.unsure:
            self._unsure.add(str(source))
        return iter([*read.faults, *read.found])

    def _add(self, found: Found) -> None:
        """Add the queues of one source. The first claim of a name or namespace counts."""
        for item in found:
            if isinstance(item, QuotaFault):
                self._faults.append(item)
                continue
            other = self._queues.get(item.name)
            if other is not None or (item.source, item.parent) in self._left_out:
                self._left_out.add((item.source, item.name))
                if other is not None and item.source.kind != RESOURCE_KIND:
                    self._refuse(item, f"queue {item.name!r} is made from {other.source}")
                continue
            entering = []
            for namespace in item.namespaces:
                claimed = self._namespaces.setdefault(namespace, item.name)
                if claimed == item.name:
                    entering.append(namespace)
                elif item.source.kind != RESOURCE_KIND:
                    self._refuse(item, f"namespace {namespace!r} enters queue {claimed!r} already")
            if entering or item.source.kind not in _NAMESPACED:
                self._queues[item.name] = replace(item, namespaces=tuple(entering))

    def _refuse(self, queue: QuotaQueue, why: str) -> None:
        self._faults.append(QuotaFault(queue.source, f"queue {queue.name!r}", why))
