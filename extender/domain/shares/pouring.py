"""Weighted max-min fairness ("water filling") over every resource at once, below many parents at the same
time.

Source of the rule: Volcano's proportion plugin. A share rises in proportion to its weight until the queue has
what it asks for or reaches its ceiling; what it leaves is divided again among its siblings. A share never
exceeds the request, unless the guarantee is larger, and never the ceiling. What a queue is given by name
comes before the rest is divided; where there is less than all are given, each gets the same part of it.
"""

import msgspec
import numpy as np
import numpy.typing as npt

from extender.domain.shares.comparisons import EPSILON
from extender.domain.shares.demand import Portion, PortionRows
from extender.domain.shares.share_tree import Nodes

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
