"""Queues that are made from ResourceQuotas, ElasticQuotas and ElasticQuotaTrees."""

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
    Amounts,
    QuotaAmounts,
    QuotaFault,
    QuotaPlan,
    QuotaQueue,
    QuotaSource,
    amounts_of,
    queue_name,
)

ELASTIC_VERSION, ELASTIC_KIND = "scheduling.x-k8s.io/v1alpha1", "ElasticQuota"
RESOURCE_VERSION, RESOURCE_KIND = "v1", "ResourceQuota"
_PREFIX = "requests."
_PLAIN_NAMES = ("cpu", "memory", "ephemeral-storage", "pods")  # these mean requests, as requests.cpu does

Findings = Iterator[QuotaQueue | QuotaFault]


def queue_of_elastic_quota(quota: ElasticQuota) -> Findings:
    """Yield the faults and the queue of an ElasticQuota."""
    source = QuotaSource.from_meta(ELASTIC_VERSION, ELASTIC_KIND, quota.metadata)
    amounts = amounts_of(quota.spec.min, quota.spec.max)
    yield from _faults_of(source, amounts)
    yield _queue_of(source.namespace, ROOT_QUEUE, source, amounts, [source.namespace], bool(amounts.faults))


def queue_of_resource_quotas(quotas: Sequence[ResourceQuota]) -> Findings:
    """Yield the faults and the queue of all ResourceQuotas of one namespace.

    All quotas apply at once, so the smallest amount of each resource counts. Quotas with scopes concern only
    some pods, and are left out.

    Args:
        quotas: The quotas, ordered by name. The first quota without scopes becomes the source of the queue.
    """
    min_amounts: Amounts = {}
    first: QuotaSource | None = None
    is_unreadable = False
    for quota in quotas:
        if quota.spec.scopes or quota.spec.scope_selector:
            continue
        source = QuotaSource.from_meta(RESOURCE_VERSION, RESOURCE_KIND, quota.metadata)
        # Only limits on requests concern the scheduler.
        hard = quota.spec.hard or {}
        plain_amounts = {name: hard[name] for name in _PLAIN_NAMES if name in hard}
        request_amounts = {key.removeprefix(_PREFIX): hard[key] for key in hard if key.startswith(_PREFIX)}
        amounts = amounts_of(None, plain_amounts | request_amounts)
        yield from _faults_of(source, amounts)
        first, is_unreadable = first or source, is_unreadable or bool(amounts.faults)
        for name, amount in amounts.capability.items():
            if name not in min_amounts or rounded_down(amount, 1000) < rounded_down(min_amounts[name], 1000):
                min_amounts[name] = amount
    if first is not None:
        yield _queue_of(
            first.namespace, ROOT_QUEUE, first, QuotaAmounts(min_amounts), [first.namespace], is_unreadable
        )


def _faults_of(source: QuotaSource, amounts: QuotaAmounts) -> Iterator[QuotaFault]:
    """Return the faults of a quota's amounts, for users."""
    return (QuotaFault(source, f"spec.{field}", why) for field, why in amounts.faults)


def _queue_of(
    quota_name: str,
    parent: str,
    source: QuotaSource,
    amounts: QuotaAmounts,
    namespaces: Iterable[str],
    is_unreadable: bool,
) -> QuotaQueue:
    """Return the queue of a quota.

    Args:
        quota_name: The name of the quota, from which the queue's name is made.
        parent: The name of the parent queue.
        source: The quota.
        amounts: The amounts of the quota.
        namespaces: The namespaces whose pods enter the queue.
        is_unreadable: Whether the quota cannot be read.
    """
    return QuotaQueue(
        name=queue_name(quota_name),
        source=source,
        parent=parent,
        capability=amounts.capability,
        guarantee=amounts.guarantee,
        max_groups=amounts.max_groups,
        namespaces=tuple(sorted(namespaces)),
        is_unreadable=is_unreadable,
    )


TREE_VERSION, TREE_KIND = "scheduling.sigs.k8s.io/v1beta1", "ElasticQuotaTree"


class _Position(msgspec.Struct):
    """Position of a quota node in its tree: its parent, and the amounts that limit it."""

    queue: str = ROOT_QUEUE
    depth: int = 0  # number of levels below Muster's root
    limits: Mapping[str, tuple[int, str]] = {}  # by resource: the nearest max above, and its node
    unassigned_amounts: dict[str, int] | None = None  # parent's min minus earlier children's; None: no limit
    is_unreadable: bool = False


class TreeReader:
    """Reader of an ElasticQuotaTree, which reads parents before their children.

    The root of the tree becomes a queue directly below Muster's root, so that its max limits the whole tree.
    The root's min is the size of the tree, often the size of the cluster. The part of this min beyond the
    guarantees of the nodes directly below is reserved for no queue. If a node cannot be read, its descendants
    get no queues either.

    Attributes:
        queues: The queues, parents before children.
        faults: The faults in the tree.
        is_unsure: Whether a node could not be read, so that its queues are unknown.
    """

    def __init__(self, tree: ElasticQuotaTree, max_depth: int) -> None:
        self.source = QuotaSource.from_meta(TREE_VERSION, TREE_KIND, tree.metadata)
        self.faults: list[QuotaFault] = []
        self.queues: list[QuotaQueue] = []
        self.is_unsure = False
        self._max_depth = max_depth
        self._names: set[str] = set()
        if bytes(tree.spec.root):
            self._read(tree.spec.root, "spec.root", _Position())
        if self.queues:
            root, *others = self.queues
            top_queues = (queue for queue in others if queue.parent == root.name and not queue.is_unreadable)
            guarantee = {**quantities(total(offered(queue.guarantee) for queue in top_queues))}
            self.queues[0] = replace(root, guarantee=guarantee)  # the sum over the nodes directly below

    def _read(self, raw: msgspec.Raw, path: str, place: _Position) -> None:
        """Read a node and its descendants, and report their faults.

        A node is left out with its descendants if it has no readable name of its own, or is too deep in the
        tree. If its amounts have a fault, its queue and the queues of its descendants count as unreadable.

        Args:
            raw: The node, as written.
            path: The path of the node in the object, for messages.
            place: The position of the node in the tree.
        """
        node = self._read_node(raw, path)
        if node is None:
            return
        queue = queue_name(node.name)
        where = f"node {node.name!r}"
        if queue in self._names:
            return self._add_fault(where, f"{path} has the name of another node; each name is allowed once")
        if (depth := place.depth + 1) > self._max_depth:
            return self._add_fault(where, f"it is on level {depth}; at most {self._max_depth} are allowed")
        self._names.add(queue)
        amounts = amounts_of(node.min, node.max)
        is_unreadable = place.is_unreadable
        for field, why in () if is_unreadable else [*amounts.faults] or [*_excess_amounts(amounts, place)]:
            self._add_fault(f"{where}: {field}", why)
            is_unreadable = True
        namespaces = {namespace for namespace in node.namespaces or () if namespace}
        if namespaces and node.children:
            self._add_fault(f"{where}: namespaces", "only nodes without children have namespaces")
            namespaces = set()
        self.queues.append(_queue_of(node.name, place.queue, self.source, amounts, namespaces, is_unreadable))
        limits = {**place.limits, **{name: (n, node.name) for name, n in amounts.max_amounts.items()}}
        guarantee: dict[str, int] | None = amounts.min_amounts
        if place.queue == ROOT_QUEUE and not node.min:  # the max, if any, is then the size of the tree
            guarantee = amounts.max_amounts or None
        child_position = _Position(queue, depth, limits, guarantee, is_unreadable)
        for number, child in enumerate(node.children or ()):
            self._read(child, f"{path}.children[{number}]", child_position)

    def _read_node(self, raw: msgspec.Raw, path: str) -> QuotaNode | None:
        """Return a node of the tree; None if it cannot be read, or has no name.

        In both cases, the name of its queue is unknown.
        """
        try:
            node = msgspec.json.decode(raw, type=QuotaNode)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
            why = f"it cannot be read ({fault})"
        else:
            if node.name:
                return node
            why = "it has no name"
        self.is_unsure = True
        self._add_fault(path, why)
        return None

    def _add_fault(self, where: str, why: str) -> None:
        self.faults.append(QuotaFault(self.source, where, why))


def _excess_amounts(amounts: QuotaAmounts, position: _Position) -> Iterator[tuple[str, str]]:
    """Yield the first amount that the nodes above do not allow, as a field and a message.

    If all amounts are allowed, subtract the node's guaranteed amounts from the unassigned amounts of its
    parent.
    """
    for name, max_amount in amounts.max_amounts.items():
        limit, owner = position.limits.get(name, (max_amount, ""))
        if max_amount > limit:
            value, limit_text = f"invalid value {show(name, max_amount)}", show(name, limit)
            yield f"max[{name}]", f"{value}: must be at most {limit_text}, the max of {owner!r}"
            return
    if position.unassigned_amounts is None:
        return
    for name, amount in amounts.min_amounts.items():
        unassigned_amount = position.unassigned_amounts.get(name, 0)
        if amount > unassigned_amount:
            value = f"invalid value {show(name, amount)}"
            text = f"{value}: the min of its parent leaves {show(name, unassigned_amount)} to it"
            yield f"min[{name}]", text
            return
    add(position.unassigned_amounts, amounts.min_amounts, times=-1)


Review = Callable[[str, Callable[[], object]], bool]
_NAMESPACED_KINDS = (ELASTIC_KIND, RESOURCE_KIND)


class Quotas(NamedTuple):
    """All quotas in the API server."""

    trees: Sequence[ElasticQuotaTree] = ()
    elastic_quotas: Sequence[ElasticQuota] = ()
    resource_quotas: Sequence[ResourceQuota] = ()


class _Object(Protocol):
    @property
    def metadata(self) -> Meta: ...


def plan_of(quotas: Quotas, max_depth: int, review: Review | None = None) -> QuotaPlan:
    """Return the queues that quotas ask for.

    The ResourceQuotas of a namespace become one queue below `root`, with the name of the namespace.

    If two quotas claim the same name or namespace, the first quota gets it. Trees come first, then
    ElasticQuotas, then ResourceQuotas. Within a kind, the oldest quota comes first. A ResourceQuota in a
    namespace that a tree covers is no fault, and makes no queue.

    Args:
        quotas: The quotas to read.
        max_depth: The number of levels of queues that are allowed below root.
        review: Calls a function for one quota, and returns whether the call succeeded. If it is None, errors
            are raised.
    """
    plan = _Plan(review)
    for tree in sorted(quotas.trees, key=_age_key):
        source = QuotaSource.from_meta(TREE_VERSION, TREE_KIND, tree.metadata)
        plan.add_quota(source, partial(plan.read_tree, tree, source, max_depth))
    for quota in sorted(quotas.elastic_quotas, key=_age_key):
        source = QuotaSource.from_meta(ELASTIC_VERSION, ELASTIC_KIND, quota.metadata)
        plan.add_quota(source, partial(queue_of_elastic_quota, quota))
    ordered_quotas = sorted(quotas.resource_quotas, key=_full_name)
    for _, group in groupby(ordered_quotas, key=attrgetter("metadata.namespace")):
        namespace_quotas = list(group)
        source = QuotaSource.from_meta(RESOURCE_VERSION, RESOURCE_KIND, namespace_quotas[0].metadata)
        plan.add_quota(source, partial(queue_of_resource_quotas, namespace_quotas))
    return plan.result()


def _age_key(quota: _Object) -> tuple[str, str, str]:
    """Return the sort key by age: the oldest quota comes first."""
    return quota.metadata.creation_timestamp or "", *_full_name(quota)


def _full_name(quota: _Object) -> tuple[str, str]:
    """Return namespace and name of a quota."""
    return quota.metadata.namespace, quota.metadata.name


class _Plan:
    """Plan of queues in the making."""

    def __init__(self, review: Review | None) -> None:
        self._review = review
        self._queues: dict[str, QuotaQueue] = {}
        self._namespaces: dict[str, str] = {}
        self._faults: list[QuotaFault] = []
        self._unsure_quotas: set[str] = set()
        self._omitted_queues: set[tuple[QuotaSource, str]] = set()  # queues without a free name

    def result(self) -> QuotaPlan:
        return QuotaPlan(self._queues, self._namespaces, tuple(self._faults), frozenset(self._unsure_quotas))

    def add_quota(self, source: QuotaSource, read_queues: Callable[[], Findings]) -> None:
        """Add the queues of a quota.

        If `review` reports that `read_queues` has failed, the quota counts as unsure. Then none of the
        existing queues of the quota is closed.
        """
        if self._review is None:
            self._add(read_queues())
        elif not self._review(str(source), lambda: self._add(read_queues())):
            self._unsure_quotas.add(str(source))

    def read_tree(self, tree: ElasticQuotaTree, source: QuotaSource, max_depth: int) -> Findings:
        """Return the queues and faults of an ElasticQuotaTree. Trees count only in the system namespace."""
        if source.namespace != SYSTEM_NAMESPACE:
            why = f"invalid value {source.namespace}: must be {SYSTEM_NAMESPACE}, where trees are read"
            return iter([QuotaFault(source, "metadata.namespace", why)])
        reader = TreeReader(tree, max_depth)
        if reader.is_unsure:
            self._unsure_quotas.add(str(source))
        return iter([*reader.faults, *reader.queues])

    def _add(self, findings: Findings) -> None:
        """Add the queues of one quota. The first quota that claims a name or namespace gets it."""
        for item in findings:
            if isinstance(item, QuotaFault):
                self._faults.append(item)
                continue
            other_queue = self._queues.get(item.name)
            if other_queue is not None or (item.source, item.parent) in self._omitted_queues:
                self._omitted_queues.add((item.source, item.name))
                if other_queue is not None and item.source.kind != RESOURCE_KIND:
                    self._refuse(item, f"queue {item.name!r} is made from {other_queue.source}")
                continue
            own_namespaces = []
            for namespace in item.namespaces:
                claiming_queue = self._namespaces.setdefault(namespace, item.name)
                if claiming_queue == item.name:
                    own_namespaces.append(namespace)
                elif item.source.kind != RESOURCE_KIND:
                    self._refuse(item, f"namespace {namespace!r} enters queue {claiming_queue!r} already")
            if own_namespaces or item.source.kind not in _NAMESPACED_KINDS:
                self._queues[item.name] = replace(item, namespaces=tuple(own_namespaces))

    def _refuse(self, queue: QuotaQueue, why: str) -> None:
        self._faults.append(QuotaFault(queue.source, f"queue {queue.name!r}", why))
