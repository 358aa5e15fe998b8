"""What queues hold, summed up the tree: of everything that the queues below one hold, and of its own.

What is kept for a queue counts at its parent whether it is held or not, so that others do not take it. Source
of the rule: Kueue's local quota, of which only what exceeds it is taken from the parent.
"""

from collections.abc import Callable, Mapping

from extender.domain.model.resources import Resources, add, largest
from extender.domain.shares.division import Division
from extender.domain.shares.share_tree import TOP, ShareTree


class Holdings:
    """By node of the tree. The sums of a node are replaced, never changed, so a copy is cheap."""

    def __init__(self, division: Division, own: Mapping[str, Resources]) -> None:
        """`own`: what the groups of each queue itself hold."""
        self._division = division
        self._own = own
        self._kept: dict[int, Resources] = {}
        self._held = summed_up(division.tree, own)
        self._filled = self._held
        if division.kept.any():
            self._filled = summed_up(division.tree, own, self.kept)

    def after(self, division: Division, own: Mapping[str, Resources]) -> "Holdings":
        """The same as made anew; only what is different is counted again."""
        alike = division.tree is self._division.tree and bool((division.kept == self._division.kept).all())
        if not alike or own.keys() != self._own.keys():
            return Holdings(division, own)
        later = self.copy()
        later._division, later._own = division, own
        for queue, amounts in own.items():
            if (before := self._own[queue]) != amounts:
                later.take(queue, before, -1)
                later.take(queue, amounts)
        return later

    def copy(self) -> "Holdings":
        later = object.__new__(Holdings)
        later.__dict__.update(self.__dict__)
        later._held = list(self._held)
        later._filled = list(self._filled) if self._filled is not self._held else later._held
        return later

    # ---- looking

    def are_alike(self, other: "Holdings") -> bool:
        """Whether all hold as much, where what is kept for them is the same."""
        return self._held == other._held and self._filled == other._filled

    def held(self, node: int) -> Resources:
        """What the queue and those below it hold."""
        return self._held[node]

    def filled(self, node: int) -> Resources:
        """The same, and what is kept for queues below it."""
        return self._filled[node]

    def taken_above(self, node: int, more: Resources) -> Resources:
        """What of `more` at a node its parent has to give: not what is kept for it anyway."""
        kept, filled = self.kept(node), self._filled[node]
        if not kept:
            return more
        return {
            name: max(filled.get(name, 0) + amount, kept.get(name, 0))
            - max(filled.get(name, 0), kept.get(name, 0))
            for name, amount in more.items()
        }

    def kept(self, node: int) -> Resources:
        """What of this the queues that are not below the node may never have."""
        if node not in self._kept:
            amounts = zip(self._division.names, self._division.kept[node].tolist(), strict=True)
            self._kept[node] = {name: int(amount) for name, amount in amounts if amount}
        return self._kept[node]

    def unused(self, node: int, name: str) -> int:
        """What of a resource is kept for a node and not held."""
        return max(self.kept(node).get(name, 0) - self._filled[node].get(name, 0), 0)

    # ---- taking

    def take(self, queue: str, asked: Resources, times: int = 1) -> None:
        """The groups of a queue hold so many times more; negative: less."""
        path = self._division.tree.path(queue)
        more: Resources = {name: amount * times for name, amount in asked.items()}
        for node in path:
            self._held[node] = _sum(self._held[node], more)
        if self._filled is self._held:
            return
        for node in path:
            above = self.taken_above(node, more)
            self._filled[node] = _sum(self._filled[node], more)
            more = above


def summed_up(
    tree: ShareTree,
    own: Mapping[str, Resources],
    kept_at: Callable[[int], Resources] = lambda _: {},
) -> list[Resources]:
    """By node: what queues and those below them have; `kept_at` a node is the least that counts of it."""
    sums: list[dict[str, int]] = [{} for _ in tree.queues]
    for queue, amounts in own.items():
        sums[tree.seat[queue]].update(amounts)
    for node in range(len(tree) - 1, TOP, -1):  # children have higher numbers
        kept = kept_at(node)
        add(sums[tree.parents[node]], largest(sums[node], kept) if kept else sums[node])
    return list(sums)


def _sum(amounts: Resources, more: Resources) -> Resources:
    """Without zeros."""
    sums = dict(amounts)
    add(sums, more)
    return {name: amount for name, amount in sums.items() if amount}
