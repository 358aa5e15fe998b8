"""What queues say of themselves, a row for each node of their tree."""

from collections.abc import Sequence
from math import inf

import msgspec
import numpy as np

from extender.domain.shares.ceiling import borrowing_of, given_to, kept_for, limits_of
from extender.domain.shares.demand import Portion, PortionRows, QueueDemand, put_row
from extender.domain.shares.pouring import Mask
from extender.domain.shares.share_tree import Nodes


class Specified(msgspec.Struct, eq=False):
    """A seat has the groups and the request of its queue, and weight 1; all the rest is its queue's."""

    requests: PortionRows
    """What its own groups hold and wait for."""
    groups: Mask
    """Whether it has groups of its own."""
    weights: Portion
    """Its part in the division."""
    limits: PortionRows
    """What it may hold by its own specification; inf: no limit."""
    borrowing: PortionRows
    """What it may hold above what the division gives it; inf: no limit."""
    kept: PortionRows
    """What no other queue may hold."""
    given: PortionRows
    """What it deserves by name."""
    oversell: Portion
    """The factor on its limits."""

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

    def most(self, nodes: Nodes | int) -> PortionRows:
        """What they may hold by their own specification, with what may be oversold; inf: no limit."""
        factors: PortionRows = self.limits[nodes] * self.oversell[nodes][..., None]
        return factors

    def set(self, node: int, seat: int, demand: QueueDemand, names: Sequence[str]) -> None:
        put_row(self.requests, seat, demand.request, names)
        self.groups[seat] = demand.groups
        self.weights[node] = demand.weight
        put_row(self.limits, node, limits_of(demand), names, inf)
        put_row(self.borrowing, node, borrowing_of(demand), names, inf)
        put_row(self.kept, node, kept_for(demand), names)
        put_row(self.given, node, given_to(demand), names)
        self.oversell[node] = demand.oversell
