"""Exhaustive search of placements: whether pods fit on nodes at the same time."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

Amounts = Mapping[str, int]


class Node(NamedTuple):
    name: str
    offers: tuple[tuple[str, int], ...]
    kind: str = ""  # the value of its label
    is_tainted: bool = False


class Pod(NamedTuple):
    """Properties of a pod for its placement. Equal pods are interchangeable."""

    requests: tuple[tuple[str, int], ...]
    kind: str = ""  # the label that its node must have; empty: any
    tolerates: bool = False

    def suits(self, node: Node) -> bool:
        return self.kind in ("", node.kind) and (self.tolerates or not node.is_tainted)


FreeCapacity = Mapping[Node, Amounts]


def free_capacity(
    nodes: Iterable[Node], placed_pods: Iterable[tuple[Pod, str]]
) -> dict[Node, dict[str, int]]:
    """Return the free capacity of nodes, with placed pods given by the names of their nodes."""
    capacity = {node: dict(node.offers) for node in nodes}
    by_name = {node.name: node for node in capacity}
    for pod, name in placed_pods:
        for resource, amount in pod.requests:
            capacity[by_name[name]][resource] = capacity[by_name[name]].get(resource, 0) - amount
    return capacity


def total(pods: Iterable[Pod]) -> Counter[str]:
    sums = Counter[str]()
    for pod in pods:
        sums.update(dict(pod.requests))
    return sums


def fit(pods: Sequence[Pod], capacity: FreeCapacity) -> bool:
    """Return whether all pods fit at the same time.

    Larger pods are placed first. States that have failed are remembered. Only one of several equal
    nodes is tried.
    """
    ordered = sorted(pods, key=lambda pod: (sorted(n for _, n in pod.requests), pod), reverse=True)
    names = sorted({name for pod in pods for name, _ in pod.requests})
    failed: set[Hashable] = set()

    def fit_from(number: int, rows: list[tuple[Node, tuple[int, ...]]]) -> bool:
        if number == len(ordered):
            return True
        state = number, tuple(sorted((*node[2:], amounts) for node, amounts in rows))
        if state in failed:
            return False
        pod, tried = ordered[number], set[Hashable]()
        requested = tuple(dict(pod.requests).get(name, 0) for name in names)
        for index, (node, amounts) in enumerate(rows):
            kind = (*node[2:], amounts)
            has_capacity = all(n <= free for n, free in zip(requested, amounts, strict=True) if n)
            if kind in tried or not has_capacity or not pod.suits(node):
                continue
            tried.add(kind)
            remaining = tuple(free - n for n, free in zip(requested, amounts, strict=True))
            if fit_from(number + 1, [*rows[:index], (node, remaining), *rows[index + 1 :]]):
                return True
        failed.add(state)
        return False

    rows = [(node, tuple(free.get(name, 0) for name in names)) for node, free in capacity.items()]
    return fit_from(0, rows)


def any_fit(pods: Sequence[Pod], number: int, capacity: FreeCapacity) -> bool:
    """Return whether any `number` of the pods fit at the same time."""
    return any(fit(subset, capacity) for subset in sorted(set(combinations(sorted(pods), number))))


def most_that_fit(pods: Sequence[Pod], capacity: FreeCapacity) -> int:
    """Return the largest number of pods that fit at the same time."""
    return next(n for n in range(len(pods), -1, -1) if any_fit(pods, n, capacity))


def fits_in_sum(pods: Sequence[Pod], capacity: FreeCapacity) -> bool:
    """Return whether the sum of free capacity on suitable nodes covers the pods: of each kind, and of all."""
    pods_by_kind = [[pod] * n for pod, n in Counter(pods).items()]
    for kind_pods in (*pods_by_kind, list(pods)):
        sums = Counter[str]()
        for node, amounts in capacity.items():
            if any(pod.suits(node) for pod in kind_pods):
                sums.update({name: max(n, 0) for name, n in amounts.items()})
        if any(sums[name] < n for name, n in total(kind_pods).items()):
            return False
    return True
