"""Division of a cluster over a tree of queues, in exact fractions (docs/explanation/concepts.md).

A child of a node gets start + level * speed, but at least its guarantee, and at most its requests and limits.
The level is the one at which the children together have the whole capacity. The division is first by nominal
amounts, then by weight. The own groups of a parent queue count as one more child.
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
Bounds = tuple[Fraction, Fraction, Fraction, Fraction]  # start, speed, minimum and maximum of a child


def levelled(capacity: Fraction, children: Sequence[Bounds]) -> list[Fraction]:
    """Return the amount of each child.

    The sum of all amounts is linear between the levels at which a child reaches one of its bounds.
    """

    def amounts_at(level: Fraction) -> list[Fraction]:
        return [
            min(max(start + level * speed, minimum), max(maximum, minimum))
            for start, speed, minimum, maximum in children
        ]

    bends = {(bound - start) / speed for start, speed, *bounds in children for bound in bounds if speed}
    levels = sorted({bend for bend in bends if bend > 0} | {ZERO})
    below = max((bend for bend in levels if sum(amounts_at(bend)) <= capacity), default=levels[0])
    above = min((bend for bend in levels if bend > below), default=below)
    slope = sum(amounts_at(above)) - sum(amounts_at(below))
    part = Fraction(capacity - sum(amounts_at(below)), slope) if slope else ZERO
    return amounts_at(below + max(part, ZERO) * (above - below))


class Part(NamedTuple):
    """Amount of one resource for a queue, or for the own groups of one."""

    deserved: Fraction
    ceiling: Amount  # maximum usage
    potential: Amount  # maximum usage without the borrowing limit


class Queues:
    """Tree of queues. The own groups of a parent queue are the leaf `name/`."""

    def __init__(self, demands: Iterable[QueueDemand]) -> None:
        self.demands = {demand.name: demand for demand in demands}
        self.children_of: dict[str, list[str]] = {ROOT: []}
        for name in self.demands:
            self.children_of.setdefault(name, [])
        for name, demand in self.demands.items():
            if name != ROOT:
                self.children_of[demand.parent or ROOT].append(name)
        for name in [name for name, children in self.children_of.items() if children]:
            self.children_of[name].append(f"{name}/")
        self.limit, self.reserved = cache(self._limit), cache(self._reserved)  # the settings do not change
        self.request, self.takes_part = cache(self._request), cache(self._takes_part)
        self.parent = {child: name for name, children in self.children_of.items() for child in children}

    def own_leaf(self, queue: str) -> str:
        """Return the name of the leaf with the own groups of a queue."""
        return f"{queue}/" if self.children_of.get(queue) else queue

    def path(self, queue: str) -> list[str]:
        """Return the queues from this one up to root."""
        path = [self.own_leaf(queue)]
        while path[-1] != ROOT:
            path.append(self.parent[path[-1]])
        return path

    # ---- settings and requests for one resource

    def demand(self, name: str) -> QueueDemand:
        if name.endswith("/"):
            parent = self.demands.get(name[:-1], QueueDemand(name, 1, {}, has_groups=False))
            return QueueDemand(name, 1, parent.request, has_groups=parent.has_groups)
        return self.demands.get(name, QueueDemand(name, 1, {}, has_groups=False))

    def _limit(self, name: str, resource: str) -> Amount:
        """Return the limit by the queue's own settings: capability, and nominal amount plus borrowing limit.

        A capability of zero cpu or memory is no limit.
        """
        demand = self.demand(name)
        maximum: Amount = inf
        if resource in (demand.capability or {}):
            capability = (demand.capability or {})[resource]
            maximum = inf if resource in ("cpu", "memory") and capability <= 0 else Fraction(capability)
        if resource in (demand.borrowing_limit or {}) and resource in (demand.deserved or {}):
            borrowed = Fraction((demand.deserved or {})[resource] + (demand.borrowing_limit or {})[resource])
            maximum = min(maximum, borrowed)
        return maximum

    def _reserved(self, name: str, resource: str) -> Fraction:
        """Return the amount that other queues may not use: guarantees, and amounts that are not lent."""
        demand = self.demand(name)
        reserved_by_children = sum((self.reserved(child, resource) for child in self.children(name)), ZERO)
        own_reserve = Fraction(demand.guarantee.get(resource, 0))
        if resource in (demand.lending_limit or {}):
            own_reserve = max(
                own_reserve,
                Fraction((demand.deserved or {}).get(resource, 0) - (demand.lending_limit or {})[resource]),
            )
        return max(own_reserve, reserved_by_children)

    def children(self, name: str) -> list[str]:
        return self.children_of.get(name, [])

    def _takes_part(self, name: str) -> bool:
        children = self.children(name)
        return any(map(self.takes_part, children)) if children else self.demand(name).has_groups

    def effective_request(self, name: str, resource: str) -> Fraction:
        """Return the request, at least the reserved amount, and at most the limit."""
        if not self.takes_part(name):
            return self.reserved(name, resource)
        return max(
            Fraction(min(self.request(name, resource), self.limit(name, resource))),
            self.reserved(name, resource),
        )

    def _request(self, name: str, resource: str) -> Fraction:
        """Return usage and pending requests of a queue and those below it."""
        children = self.children(name)
        if children:
            return sum((self.effective_request(child, resource) for child in children), ZERO)
        return Fraction(self.demand(name).request.get(resource, 0))

    # ---- the division

    def divide(self, resource: str, total: int) -> dict[str, Part]:
        maximum = min(Fraction(total), self.limit(ROOT, resource))
        deserved = max(min(self.request(ROOT, resource), maximum), self.reserved(ROOT, resource))
        parts = {ROOT: Part(Fraction(deserved), maximum, maximum)}
        self._divide_below(ROOT, resource, Fraction(maximum), parts)
        return parts

    def _divide_below(self, name: str, resource: str, capacity: Fraction, parts: dict[str, Part]) -> None:
        children = self.children(name)
        reserved = {child: self.reserved(child, resource) for child in children}
        ceilings = {
            child: self._unreserved_part(parts[name].ceiling, child, reserved, resource) for child in children
        }
        participants = [child for child in children if self.takes_part(child)]
        capacity = max(
            capacity - sum((reserved[child] for child in children if child not in participants), ZERO), ZERO
        )
        maximum = {
            child: Fraction(min(ceilings[child], self.limit(child, resource), self.request(child, resource)))
            for child in participants
        }
        bounds: list[Bounds] = []
        for child in participants:
            nominal = Fraction((self.demand(child).deserved or {}).get(resource, 0))
            nominal = min(nominal, self.request(child, resource))
            bounds.append((ZERO, nominal, reserved[child], min(nominal, maximum[child])))
        nominal_shares = levelled(capacity, bounds)
        by_weight: list[Bounds] = []
        for child, minimum, (_, _, _, nominal) in zip(participants, nominal_shares, bounds, strict=True):
            by_weight.append(
                (min(minimum, nominal), Fraction(self.demand(child).weight), minimum, maximum[child])
            )
        shares = dict(zip(participants, levelled(capacity, by_weight), strict=True))
        for child in children:
            demand, share = self.demand(child), shares.get(child, ZERO)
            ceiling = ceilings[child]
            if resource in (demand.borrowing_limit or {}) and resource not in (demand.deserved or {}):
                ceiling = min(ceiling, share + (demand.borrowing_limit or {})[resource])
            potential = self._unreserved_part(parts[name].potential, child, reserved, resource)
            parts[child] = Part(share, ceiling, potential)
            self._divide_below(child, resource, share, parts)

    def _unreserved_part(
        self, maximum: Amount, child: str, reserved: Mapping[str, Fraction], resource: str
    ) -> Amount:
        """Return the part of the parent's limit that is not reserved for the child's siblings."""
        unclaimed = max(maximum - sum(reserved.values(), ZERO), ZERO)
        return min(unclaimed + reserved[child], self.limit(child, resource))
