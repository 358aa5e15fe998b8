"""What each queue is guaranteed, and its ceiling: the most that it may ever hold."""

from collections.abc import Mapping, Sequence
from math import inf

import msgspec
import numpy as np
import numpy.typing as npt

from extender.domain.model.resources import CPU, MEMORY, Resources
from extender.domain.queues.share_tree import EPSILON, Nodes, Portion, PortionRows, QueueDemand, put_row

# ---- Weighted max-min fairness ("water filling") over every resource at once, below many parents at
# the same time.
#
# Source of the rule: Volcano's proportion plugin. A share rises in proportion to its weight until the
# queue has what it asks for or reaches its ceiling; what it leaves is divided again among its siblings.
# A share never exceeds the request, unless the guarantee is larger, and never the ceiling. What a queue
# is given by name comes before the rest is divided; where there is less than all are given, each gets
# the same part of it.

Mask = npt.NDArray[np.bool_]
_ROUNDS = 200  # convergence is geometric where queues want different resources


class Siblings(msgspec.Struct, eq=False):
    """Queues that divide something, a row each: those of one parent are next to each other."""

    of: Nodes
    """The position of its parent among the parents."""
    weights: Portion
    asked: PortionRows
    most: PortionRows
    """What they ask for, as far as their ceilings allow."""
    guarantees: PortionRows
    given: PortionRows

    def only(self, rows: Mask) -> "Siblings":
        """Some of them."""
        return Siblings(
            self.of[rows],
            self.weights[rows],
            self.asked[rows],
            self.most[rows],
            self.guarantees[rows],
            self.given[rows],
        )


def sums_by_parent(rows: PortionRows, of: Nodes, parents: int) -> PortionRows:
    """The sum of the rows of each parent."""
    columns = rows.shape[1]
    cells = (of[:, None] * columns + np.arange(columns)).ravel()
    sums = np.bincount(cells, rows.ravel(), parents * columns)
    return sums.astype(np.float64).reshape(parents, columns)


def pour(room: PortionRows, siblings: Siblings) -> PortionRows:
    """The share of each sibling of what its parent has: `room`, a row for each parent."""
    held = _given(room, siblings)
    shares, unmet = held.copy(), np.arange(len(held))
    left = np.maximum(room - sums_by_parent(held, siblings.of, len(room)), 0.0)
    every = siblings
    for _ in range(_ROUNDS):
        heaviness = np.bincount(siblings.of, siblings.weights, len(room))
        portion = siblings.weights / np.maximum(heaviness, 1.0)[siblings.of]
        risen = np.minimum(held + portion[:, None] * left[siblings.of], siblings.most)
        risen = np.maximum(risen, siblings.guarantees)
        shares[unmet] = risen
        remaining = np.maximum(left - sums_by_parent(risen - held, siblings.of, len(room)), 0.0)
        goes_on = np.any(remaining >= EPSILON, axis=1) & np.any(remaining != left, axis=1)
        still = np.any(siblings.asked > risen + EPSILON, axis=1) & np.any(risen != held, axis=1)
        still &= goes_on[siblings.of]
        if not still.any():
            break
        left, held, unmet = remaining, risen[still], unmet[still]
        siblings = siblings.only(still)
    return _trimmed(shares, room, every)


def _given(room: PortionRows, siblings: Siblings) -> PortionRows:
    """What each is given by name, as far as it asks for it and may hold it. Where that is more than there is,
    each has the same part."""
    wanted = np.minimum(siblings.given, siblings.asked)
    sums = sums_by_parent(wanted, siblings.of, len(room))
    parts = np.divide(room, sums, out=np.ones_like(sums), where=sums > room)
    rows: PortionRows = np.minimum(wanted * parts[siblings.of], siblings.most)
    return rows


def _trimmed(shares: PortionRows, room: PortionRows, siblings: Siblings) -> PortionRows:
    """What guarantees took beyond the room, taken from what others have above theirs. Guarantees themselves
    stay, even if they are more than there is."""
    sums = sums_by_parent(shares, siblings.of, len(room))
    firm = sums_by_parent(siblings.guarantees, siblings.of, len(room))
    allowed, over = np.maximum(room, firm), sums - firm
    parts = np.divide(allowed - firm, over, out=np.ones_like(sums), where=sums > allowed + EPSILON)
    if np.all(parts == 1.0):
        return shares
    rows: PortionRows = siblings.guarantees + (shares - siblings.guarantees) * parts[siblings.of]
    return rows


# ---- Ceilings: the most that a queue may ever hold.
#
# Source of the rule: Volcano's real capability. A queue may hold its own guarantee and everything that
# is not guaranteed to its siblings, limited by its capability.


def limits_of(demand: QueueDemand) -> Mapping[str, float]:
    """What limits a queue by its specification alone: its capability, and what it deserves by name and may
    borrow. A resource that is not listed is unlimited; so are a capability's cpu and memory given as zero."""
    limits = {name: _limit(name, amount) for name, amount in (demand.capability or {}).items()}
    for name, more in (demand.borrowing_limit or {}).items():
        if name in (demand.deserved or {}):
            limits[name] = min(limits.get(name, inf), _own(demand.deserved, name) + max(more, 0))
    return limits


def borrowing_of(demand: QueueDemand) -> Mapping[str, float]:
    """How much it may hold above what the division gives it, where it deserves nothing by name."""
    limits, named = demand.borrowing_limit or {}, demand.deserved or {}
    return {name: float(max(more, 0)) for name, more in limits.items() if name not in named}


def kept_for(demand: QueueDemand) -> Mapping[str, float]:
    """What no other queue may hold, whether it asks for it or not: its guarantee, and what it deserves by
    name and does not lend."""
    kept = {name: float(max(amount, 0)) for name, amount in demand.guarantee.items()}
    for name, lent in (demand.lending_limit or {}).items():
        kept[name] = max(kept.get(name, 0.0), _own(demand.deserved, name) - max(lent, 0), 0.0)
    return kept


def given_to(demand: QueueDemand) -> Mapping[str, float]:
    """What it deserves by name."""
    return {name: float(max(amount, 0)) for name, amount in (demand.deserved or {}).items()}


def _own(deserved: Resources | None, name: str) -> float:
    return float(max((deserved or {}).get(name, 0), 0))


def _limit(name: str, amount: int) -> float:
    return inf if name in (CPU, MEMORY) and amount <= 0 else float(amount)


# ---- What queues say of themselves, a row for each node of their tree.


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
