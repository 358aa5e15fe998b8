"""A queue compared with the queues around it: its parent, its depth, and amounts that must fit into those of
the parent.

A resource that a queue does not list is unlimited in a capability and 0 in a guarantee or a deserved amount.
Queues directly below root are not compared with it: root is the whole cluster.
"""

from collections.abc import Callable, Iterator

import msgspec

from extender.api.keys import ROOT_QUEUE
from extender.api.objects.queues import Queue
from extender.domain.admission.faults import Code, Fault
from extender.domain.model.resources import Resources, offered, show, total
from extender.domain.queues.queue_records import QueueRecord
from extender.domain.queues.queue_tree import QueueTree


def _parent_of(queue: Queue) -> str:
    """The parent, or empty for a queue directly below root."""
    return queue.spec.parent if queue.spec.parent != ROOT_QUEUE else ""


# ---- place


def judge_place(queue: Queue, before: Queue | None, tree: QueueTree, max_depth: int) -> Iterator[Fault]:
    """A new parent must exist, must not be the queue itself or below it, must not make the tree too deep, and
    must hold no pods of its own."""
    parent = _parent_of(queue)
    if not parent or (before is not None and parent == _parent_of(before)):
        return
    fault = _judge_parent(queue.metadata.name, parent, tree, max_depth)
    if fault is not None:
        yield fault


def _judge_parent(name: str, parent: str, tree: QueueTree, max_depth: int) -> Fault | None:
    def fault(code: Code, text: str) -> Fault:
        return Fault(code, "spec.parent", f"got {parent!r}; {text}")

    above = [record.name for record in tree.ancestry(parent)]
    if parent == name or name in above:
        return fault(Code.SELF_PARENT, "allowed is a queue that is not this one and not below it")
    if not above:
        return fault(Code.PARENT_NOT_FOUND, "there is no such queue: create it, or name an existing one")
    depth = len(above) + tree.height(name)
    if depth > max_depth:
        return fault(
            Code.DEPTH_EXCEEDED, f"that makes {depth} levels below root; at most {max_depth} are allowed"
        )
    if not tree.children(parent) and (pods := tree.pods(parent)):
        text = f"that queue has {pods} pods of its own, and only queues without children may have pods"
        return fault(Code.PARENT_HAS_PODS, f"{text}: wait until they are gone, or name another parent")
    return None


# ---- amounts


class _Amounts(msgspec.Struct, frozen=True):
    """A queue's amounts as they are to be written."""

    capability: Resources
    deserved: Resources
    guarantee: Resources


def _amounts(queue: Queue) -> _Amounts:
    spec = queue.spec
    guarantee = spec.guarantee.resource if spec.guarantee else None
    return _Amounts(offered(spec.capability), offered(spec.deserved), offered(guarantee))


def judge_resources(queue: Queue, before: Queue | None, tree: QueueTree) -> Iterator[Fault]:
    """The first amount that does not fit with those of the queues around it, if amounts or parent are new."""
    if queue.metadata.name == ROOT_QUEUE or not _moved(queue, before):
        return
    fault = next(_misfits(queue, _amounts(queue), tree), None)
    if fault is not None:
        yield fault


def _moved(queue: Queue, before: Queue | None) -> bool:
    return before is None or _parent_of(queue) != _parent_of(before) or _amounts(queue) != _amounts(before)


def _misfits(queue: Queue, own: _Amounts, tree: QueueTree) -> Iterator[Fault]:
    name, parent = queue.metadata.name, _parent_of(queue)
    if parent:
        siblings = [tree.queues[each] for each in tree.children(parent) if each != name]
        yield from _above_ancestor(own.capability, parent, tree)
        yield from _sums_above_parent(own, siblings, tree.queues[parent])
    yield from _below_descendant(own.capability, name, tree)
    yield from _sums_above_own(own, [tree.queues[each] for each in tree.children(name)])


def _above_ancestor(capability: Resources, parent: str, tree: QueueTree) -> Iterator[Fault]:
    """Compare each resource with the nearest queue above that lists it."""
    for name, amount in capability.items():
        for record in tree.ancestry(parent):
            limit = (record.capability or {}).get(name)
            if limit is None:
                continue
            if amount > limit:
                text = f"got {show(name, amount)}; allowed is at most {show(name, limit)}, "
                yield Fault(
                    Code.CAPABILITY_ABOVE_ANCESTOR,
                    f"spec.capability[{name}]",
                    f"{text}the capability of queue {record.name!r} above it",
                )
            break


def _below_descendant(capability: Resources, queue: str, tree: QueueTree) -> Iterator[Fault]:
    for name, amount in capability.items():
        for child in tree.children(queue):
            owner, largest = tree.largest(name, child)
            if largest > amount:
                text = f"got {show(name, amount)}; allowed is at least {show(name, largest)}, "
                yield Fault(
                    Code.CAPABILITY_BELOW_DESCENDANT,
                    f"spec.capability[{name}]",
                    f"{text}the capability of queue {owner!r} below it",
                )


_GUARANTEE = (Code.CHILDREN_GUARANTEE_SUM, "spec.guarantee.resource")
_DESERVED = (Code.CHILDREN_DESERVED_SUM, "spec.deserved")


def _sums_above_parent(own: _Amounts, siblings: list[QueueRecord], parent: QueueRecord) -> Iterator[Fault]:
    def text(resource: str, amount: int, limit: int) -> str:
        sum_of = f"together with its siblings that makes {show(resource, amount)}"
        return f"{sum_of}; allowed is at most {show(resource, limit)}, that of their parent {parent.name!r}"

    guarantees = [own.guarantee, *(each.guarantee for each in siblings)]
    yield from _above(_GUARANTEE, guarantees, parent.guarantee, text)
    deserved = [own.deserved, *(each.deserved or {} for each in siblings)]
    yield from _above(_DESERVED, deserved, parent.deserved or {}, text)


def _sums_above_own(own: _Amounts, children: list[QueueRecord]) -> Iterator[Fault]:
    def text(resource: str, amount: int, limit: int) -> str:
        got = f"got {show(resource, limit)}"
        return f"{got}; allowed is at least {show(resource, amount)}, the sum of the queues directly below it"

    yield from _above(_GUARANTEE, [each.guarantee for each in children], own.guarantee, text)
    yield from _above(_DESERVED, [each.deserved or {} for each in children], own.deserved, text)


def _above(
    what: tuple[Code, str],
    parts: list[Resources],
    limit: Resources,
    text: Callable[[str, int, int], str],
) -> Iterator[Fault]:
    code, field = what
    for name, amount in total(parts).items():
        if amount > limit.get(name, 0):
            yield Fault(code, f"{field}[{name}]", text(name, amount, limit.get(name, 0)))
