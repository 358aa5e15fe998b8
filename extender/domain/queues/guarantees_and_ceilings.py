"""What queues specify about their shares, as rows of amounts: what limits each and what is kept for it, from
which `deserved` divides; and whether an amount goes beyond a limit.
"""

from collections.abc import Mapping, Sequence
from math import inf

import msgspec
import numpy as np

from extender.domain.model.resources import CPU, MEMORY, Resources, show
from extender.domain.queues.share_tree import Mask, Nodes, Portion, PortionRows, QueueDemand, put_row

Portions = Mapping[str, float]  # amounts by resource; not whole numbers, since a division makes fractions

EPSILON = 0.1  # of a millicore, a byte, a device: smaller differences do not count


def limits_of(demand: QueueDemand) -> Mapping[str, float]:
    """What limits a queue by its specification alone: its capability (cpu and memory of zero are no limit),
    and what it deserves by name and may borrow. A resource that is not listed is unlimited."""
    limits = {
        name: inf if name in (CPU, MEMORY) and amount <= 0 else float(amount)
        for name, amount in (demand.capability or {}).items()
    }
    for name, more in (demand.borrowing_limit or {}).items():
        if name in (demand.deserved or {}):
            limits[name] = min(limits.get(name, inf), _own(demand.deserved, name) + max(more, 0))
    return limits


def kept_for(demand: QueueDemand) -> Mapping[str, float]:
    """What no other queue may hold: its guarantee, and what it deserves by name and does not lend."""
    kept = {name: float(max(amount, 0)) for name, amount in demand.guarantee.items()}
    for name, lent in (demand.lending_limit or {}).items():
        kept[name] = max(kept.get(name, 0.0), _own(demand.deserved, name) - max(lent, 0), 0.0)
    return kept


def _own(deserved: Resources | None, name: str) -> float:
    return float(max((deserved or {}).get(name, 0), 0))


class Specified(msgspec.Struct, eq=False):
    """A seat has the groups and the request of its queue, and weight 1; all the rest is its queue's."""

    requests: PortionRows  # what its own groups hold and wait for
    groups: Mask  # whether it has groups of its own
    weights: Portion  # its part in the division
    limits: PortionRows  # what it may hold by its own specification; inf: no limit
    borrowing: PortionRows  # above what it is given, where it deserves nothing by name; inf: no limit
    kept: PortionRows  # what no other queue may hold
    given: PortionRows  # what it deserves by name
    oversell: Portion  # the factor on its limits

    @classmethod
    def empty(cls, nodes: int, resources: int) -> "Specified":
        shape = (nodes, resources)
        return cls(
            requests=np.zeros(shape),
            groups=np.zeros(nodes, dtype=np.bool_),
            weights=np.ones(nodes),
            limits=np.full(shape, inf),
            borrowing=np.full(shape, inf),
            kept=np.zeros(shape),
            given=np.zeros(shape),
            oversell=np.ones(nodes),
        )

    def copy(self) -> "Specified":
        return Specified(*(getattr(self, name).copy() for name in self.__struct_fields__))

    def most(self, nodes: Nodes | int | slice) -> PortionRows:
        """What they may hold by their own specification, with what may be oversold; inf: no limit."""
        factors: PortionRows = self.limits[nodes] * self.oversell[nodes][..., None]
        return factors

    def set(self, node: int, seat: int, demand: QueueDemand, names: Sequence[str]) -> None:
        put_row(self.requests, seat, demand.request, names)
        self.groups[seat] = demand.groups
        self.weights[node] = demand.weight
        put_row(self.limits, node, limits_of(demand), names, inf)
        put_row(self.kept, node, kept_for(demand), names)
        given = {name: float(max(amount, 0)) for name, amount in (demand.deserved or {}).items()}
        put_row(self.given, node, given, names)
        limits = demand.borrowing_limit or {}
        borrowing = {name: float(max(more, 0)) for name, more in limits.items() if name not in given}
        put_row(self.borrowing, node, borrowing, names, inf)
        self.oversell[node] = demand.oversell


def share(allocated: Resources, deserved: Portions) -> float:
    """Held/deserved in the dominant resource; of a queue that deserves nothing 1 or, if it holds none, 0."""
    ratios = (allocated.get(name, 0) / due for name, due in deserved.items() if due >= EPSILON)
    return max(ratios, default=1.0 if any(allocated.values()) else 0.0)


def excess(asked: Resources, allocated: Resources, limit: Portions) -> str:
    """A sentence on how `asked` on top of `allocated` would exceed `limit`; empty when it would not."""
    return ", ".join(
        f"{name}: {show(name, allocated.get(name, 0))} held + {show(name, asked[name])} asked"
        f" > {show(name, limit.get(name, 0))}"
        for name in exceeded(asked, allocated, limit)
    )


def exceeded(
    asked: Resources, allocated: Resources, limit: Portions, but: frozenset[str] = frozenset()
) -> list[str]:
    """The asked-for dimensions in which `limit` would be exceeded."""
    return [
        name
        for name, amount in asked.items()
        if amount > 0 and name not in but and allocated.get(name, 0) + amount > limit.get(name, 0.0) + EPSILON
    ]
