"""An ElasticQuotaTree, node by node: parents before their children.

Its root becomes a queue directly below Muster's own `root`, so that its max holds for all of the tree. What
its min says beyond what its nodes are guaranteed is promised to nobody: it is the size of the tree, often
that of the whole cluster, and is not kept from the queues beside it.

A node that cannot be read costs itself and what is below it: those queues stay as they are.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from extender.api.keys import ROOT_QUEUE
from extender.api.quotas import ElasticQuotaTree, QuotaNode
from extender.domain.model.resources import Resources, add, offered, quantities, show, total
from extender.domain.quotas.amounts import QuotaAmounts, amounts_of
from extender.domain.quotas.names import queue_name
from extender.domain.quotas.records import QuotaFault, QuotaQueue, QuotaSource, Written

TREE_VERSION, TREE_KIND = "scheduling.sigs.k8s.io/v1beta1", "ElasticQuotaTree"


class _Place:
    """Where a node is: what is above it, and what its parent has not promised to others yet."""

    def __init__(
        self,
        queue: str = ROOT_QUEUE,
        depth: int = 0,
        limits: Mapping[str, tuple[int, str]] | None = None,
        promised: Resources | None = None,
        kept: bool = False,
    ) -> None:
        self.queue = queue
        self.depth = depth  # levels below Muster's root
        self.limits = limits or {}  # by resource: the nearest max above, and the node that has it
        self.left = None if promised is None else dict(promised)  # None: no parent limits it
        self.kept = kept


class TreeReader:
    """`found`: what has been read, in order. `max_depth`: levels of queues below Muster's root."""

    def __init__(self, tree: ElasticQuotaTree, max_depth: int) -> None:
        self.source = QuotaSource.of(TREE_VERSION, TREE_KIND, tree.metadata)
        self.faults: list[QuotaFault] = []
        self.found: list[QuotaQueue] = []
        self.unsure = False
        self._max_depth = max_depth
        self._names: set[str] = set()
        if bytes(tree.spec.root):
            self._read(tree.spec.root, "spec.root", _Place())
        if self.found:
            root, *below = self.found
            self.found[0] = replace(root, guarantee=_promised(below, root.name))

    def _read(self, raw: msgspec.Raw, path: str, place: _Place) -> None:
        node = self._node(raw, path)
        if node is None:
            return
        name = queue_name(node.name)
        at = f"node {node.name!r}"
        if name in self._names:
            return self._fault(at, f"{path} has the name of another node; each name is allowed once")
        if place.depth >= self._max_depth:
            return self._fault(at, f"it is on level {place.depth + 1}; at most {self._max_depth} are allowed")
        self._names.add(name)
        amounts = amounts_of(node.min, node.max)
        kept = place.kept or self._judge(at, amounts, place)
        self.found.append(self._queue(node, name, place, amounts, kept))
        below = _below(node, name, place, amounts, kept)
        for number, child in enumerate(node.children or ()):
            self._read(child, f"{path}.children[{number}]", below)

    def _judge(self, at: str, amounts: QuotaAmounts, place: _Place) -> bool:
        """Whether a node is at fault."""
        faults = [*amounts.faults] or [*_misfits(amounts, place)]
        for field, why in faults:
            self._fault(f"{at}: {field}", why)
        return bool(faults)

    def _node(self, raw: msgspec.Raw, path: str) -> QuotaNode | None:
        """None if it cannot be read, or has no name. Nobody knows then which queue is meant."""
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

    def _queue(
        self, node: QuotaNode, name: str, place: _Place, amounts: QuotaAmounts, kept: bool
    ) -> QuotaQueue:
        entering = frozenset(each for each in node.namespaces or () if each)
        if entering and node.children:
            self._fault(f"node {node.name!r}: namespaces", "only nodes without children have namespaces")
            entering = frozenset()
        return QuotaQueue(
            name=name,
            source=self.source,
            parent=place.queue,
            capability=amounts.capability,
            guarantee=amounts.guarantee,
            most_groups=amounts.most_groups,
            namespaces=tuple(sorted(entering)),
            kept=kept,
        )

    def _fault(self, where: str, why: str) -> None:
        self.faults.append(QuotaFault(self.source, where, why))


def _below(node: QuotaNode, queue: str, place: _Place, amounts: QuotaAmounts, kept: bool) -> _Place:
    limits = {**place.limits, **{name: (most, node.name) for name, most in amounts.largest.items()}}
    promised: Resources | None = amounts.promised
    if place.queue == ROOT_QUEUE and not node.min:  # its size is its max then, if it has one
        promised = amounts.largest or None
    return _Place(queue, place.depth + 1, limits, promised, kept)


def _misfits(amounts: QuotaAmounts, place: _Place) -> Iterator[tuple[str, str]]:
    """What does not fit with the nodes above. What fits is taken from what the parent may promise."""
    for name, most in amounts.largest.items():
        limit, owner = place.limits.get(name, (most, ""))
        if most > limit:
            text = f"got {show(name, most)}; allowed is the max of {owner!r}, {show(name, limit)}, or less"
            yield f"max[{name}]", text
            return
    if place.left is None:
        return
    for name, asked in amounts.promised.items():
        left = place.left.get(name, 0)
        if asked > left:
            text = f"got {show(name, asked)}; the min of its parent leaves {show(name, left)} to it"
            yield f"min[{name}]", text
            return
    add(place.left, amounts.promised, times=-1)


def _promised(below: Iterable[QuotaQueue], root: str) -> Written:
    """What the nodes directly below the root are guaranteed together."""
    ours = (each for each in below if each.parent == root and not each.kept)
    return {**quantities(total(offered(each.guarantee) for each in ours))}
