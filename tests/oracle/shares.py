"""Division of a cluster over a tree of queues, in exact fractions.

docs/explanation/concepts.md defines it. At each level the children have start + level * speed, but no less
than their guarantee nor more than they ask for and may hold, with the level at which together they have all
of the capacity: first in proportion to their nominal amounts, then by weight. The own groups of a queue that
has others below it are one more child.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from math import inf
from typing import NamedTuple

from extender.domain.queues.share_tree import QueueDemand

ZERO = Fraction(0)
ROOT = "root"
Amount = Fraction | float  # a float: no limit
Bounds = tuple[Fraction, Fraction, Fraction, Fraction]  # start, speed, least and most of a child


def levelled(capacity: Fraction, children: Sequence[Bounds]) -> list[Fraction]:
    """Return the amount of each child.

    The sum of all rises with the level, in straight lines between the levels at which a child leaves its
    lower bound or reaches its upper one.
    """

    def at(level: Fraction) -> list[Fraction]:
        return [
            min(max(start + level * speed, least), max(most, least)) for start, speed, least, most in children
        ]

    bends = {(bound - start) / speed for start, speed, *bounds in children for bound in bounds if speed}
    levels = sorted({bend for bend in bends if bend > 0} | {ZERO})
    below = max((bend for bend in levels if sum(at(bend)) <= capacity), default=levels[0])
    above = min((bend for bend in levels if bend > below), default=below)
    slope = sum(at(above)) - sum(at(below))
    part = Fraction(capacity - sum(at(below)), slope) if slope else ZERO
    return at(below + max(part, ZERO) * (above - below))


class Part(NamedTuple):
    """Amount of one resource for a queue, or for the own groups of one."""

    deserved: Fraction
    ceiling: Amount  # the most that it may hold
    potential: Amount  # the same, if borrowing above what it deserves were not limited


class Queues:
    """The tree. The own groups of a queue with others below it are the queue `name/`; of others, `name`."""

    def __init__(self, demands: Iterable[QueueDemand]) -> None:
        self.demands = {demand.name: demand for demand in demands}
        self.below: dict[str, list[str]] = {ROOT: []}
        for name in self.demands:
            self.below.setdefault(name, [])
        for name, demand in self.demands.items():
            if name != ROOT:
                self.below[demand.parent or ROOT].append(name)
        for name in [name for name, children in self.below.items() if children]:
            self.below[name].append(f"{name}/")
        self.limit, self.reserved = cache(self._limit), cache(self._reserved)  # nothing said changes
        self.wanted, self.takes_part = cache(self._wanted), cache(self._takes_part)
        self.parent = {child: name for name, children in self.below.items() for child in children}

    def own(self, queue: str) -> str:
        """Return the name under which the own groups of a queue count."""
        return f"{queue}/" if self.below.get(queue) else queue

    def path(self, queue: str) -> list[str]:
        """Return the queues from there up to root."""
        way = [self.own(queue)]
        while way[-1] != ROOT:
            way.append(self.parent[way[-1]])
        return way

    # ---- what is said of them, of one resource

    def demand(self, name: str) -> QueueDemand:
        if name.endswith("/"):
            whose = self.demands.get(name[:-1], QueueDemand(name, 1, {}, groups=False))
            return QueueDemand(name, 1, whose.request, groups=whose.groups)
        return self.demands.get(name, QueueDemand(name, 1, {}, groups=False))

    def _limit(self, name: str, it: str) -> Amount:
        """Return the limit by the queue's own settings alone.

        These are its capability (of cpu and memory, zero is none), and its nominal amount with its
        borrowing limit.
        """
        demand = self.demand(name)
        most: Amount = inf
        if it in (demand.capability or {}):
            said = (demand.capability or {})[it]
            most = inf if it in ("cpu", "memory") and said <= 0 else Fraction(said)
        if it in (demand.borrowing_limit or {}) and it in (demand.deserved or {}):
            borrowed = Fraction((demand.deserved or {})[it] + (demand.borrowing_limit or {})[it])
            most = min(most, borrowed)
        return most

    def _reserved(self, name: str, it: str) -> Fraction:
        """Return the amount that no other queue may hold.

        It is guaranteed, or nominal and not borrowed, to this queue or those below.
        """
        demand, below = (
            self.demand(name),
            sum((self.reserved(child, it) for child in self.children(name)), ZERO),
        )
        own = Fraction(demand.guarantee.get(it, 0))
        if it in (demand.lending_limit or {}):
            own = max(own, Fraction((demand.deserved or {}).get(it, 0) - (demand.lending_limit or {})[it]))
        return max(own, below)

    def children(self, name: str) -> list[str]:
        return self.below.get(name, [])

    def _takes_part(self, name: str) -> bool:
        children = self.children(name)
        return any(map(self.takes_part, children)) if children else self.demand(name).groups

    def asked(self, name: str, it: str) -> Fraction:
        """Return the request with the reserved amount, and no more than it may hold."""
        if not self.takes_part(name):
            return self.reserved(name, it)
        return max(Fraction(min(self.wanted(name, it), self.limit(name, it))), self.reserved(name, it))

    def _wanted(self, name: str, it: str) -> Fraction:
        """Return the amounts held and waited for, with those below."""
        children = self.children(name)
        if children:
            return sum((self.asked(child, it) for child in children), ZERO)
        return Fraction(self.demand(name).request.get(it, 0))

    # ---- the division

    def divide(self, it: str, total: int) -> dict[str, Part]:
        most = min(Fraction(total), self.limit(ROOT, it))
        due = max(min(self.wanted(ROOT, it), most), self.reserved(ROOT, it))
        parts = {ROOT: Part(Fraction(due), most, most)}
        self._divide_below(ROOT, it, Fraction(most), parts)
        return parts

    def _divide_below(self, name: str, it: str, capacity: Fraction, parts: dict[str, Part]) -> None:
        children = self.children(name)
        reserved = {child: self.reserved(child, it) for child in children}
        may_hold = {child: self._below(parts[name].ceiling, child, reserved, it) for child in children}
        allocation = [child for child in children if self.takes_part(child)]
        capacity = max(
            capacity - sum((reserved[child] for child in children if child not in allocation), ZERO), ZERO
        )
        most = {
            child: Fraction(min(may_hold[child], self.limit(child, it), self.wanted(child, it)))
            for child in allocation
        }
        given: list[Bounds] = []
        for child in allocation:
            named = Fraction((self.demand(child).deserved or {}).get(it, 0))
            named = min(named, self.wanted(child, it))
            given.append((ZERO, named, reserved[child], min(named, most[child])))
        first = levelled(capacity, given)
        by_weight: list[Bounds] = []
        for child, least, (_, _, _, named) in zip(allocation, first, given, strict=True):
            by_weight.append((min(least, named), Fraction(self.demand(child).weight), least, most[child]))
        shares = dict(zip(allocation, levelled(capacity, by_weight), strict=True))
        for child in children:
            demand, share = self.demand(child), shares.get(child, ZERO)
            ceiling = may_hold[child]
            if it in (demand.borrowing_limit or {}) and it not in (demand.deserved or {}):
                ceiling = min(ceiling, share + (demand.borrowing_limit or {})[it])
            potential = self._below(parts[name].potential, child, reserved, it)
            parts[child] = Part(share, ceiling, potential)
            self._divide_below(child, it, share, parts)

    def _below(self, most: Amount, child: str, reserved: Mapping[str, Fraction], it: str) -> Amount:
        """Return the part of the parent's limit that a child may hold, without that reserved for others."""
        unclaimed = max(most - sum(reserved.values(), ZERO), ZERO)
        return min(unclaimed + reserved[child], self.limit(child, it))
