"""The division of a cluster over the tree of queues, kept from round to round: after a change only the levels
that it concerns are divided again.

Requests, guarantees and who takes part are summed up from the leaves to root; then each level divides, from
root down, what the parent deserves. Ceilings go down as well: of what its parent may hold, a queue may hold
all that is not kept for its siblings.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from extender.domain.model.resources import Resources
from extender.domain.shares.demand import Portion, PortionRows, QueueDemand, dimensions_of, put_row
from extender.domain.shares.pouring import Mask, Siblings, pour, sums_by_parent
from extender.domain.shares.share_tree import TOP, Nodes, ShareTree
from extender.domain.shares.specified import Specified

Demands = Mapping[str, QueueDemand]


class Share(msgspec.Struct, frozen=True):
    """The result of the division for one queue, by resource."""

    deserved: dict[str, float]  # without zeros
    ceiling: dict[str, float]  # the most that it may ever hold; inf: no limit


class Division:
    """Frozen once it is made. Rows are nodes of the tree, columns are resources."""

    def __init__(self, tree: ShareTree, names: Sequence[str], total: Resources, demands: Demands) -> None:
        self.tree = tree
        self.names = names
        self.total = total
        self.demands = demands
        self.specified = Specified.empty(len(tree), len(names))
        self.takes_part: Mask = np.zeros(len(tree), dtype=np.bool_)
        self.asked: PortionRows = np.zeros((len(tree), len(names)))
        self.kept: PortionRows = np.zeros_like(self.asked)
        self.deserved: PortionRows = np.zeros_like(self.asked)
        self.ceilings: PortionRows = np.zeros_like(self.asked)
        self.potential: PortionRows = np.zeros_like(self.asked)  # ceilings, were borrowing not limited
        self._built: list[Share | None] = [None] * len(tree)

    @classmethod
    def of(cls, total: Resources, demands: Demands, before: "Division | None" = None) -> "Division":
        """The same, whether or not it is made from the one `before`."""
        if before is not None and (changed := _changed(before, total, demands)) is not None:
            return before._after(demands, changed) if changed else before
        tree = ShareTree({name: demand.parent for name, demand in demands.items()})
        division = cls(tree, dimensions_of(total, demands.values()), total, demands)
        division._work_out(demands)
        return division

    def share(self, node: int) -> Share | None:
        """None for a queue that does not take part."""
        if self._built[node] is None and self.takes_part[node]:
            deserved, ceilings = self.deserved[node].tolist(), self.ceilings[node].tolist()
            due = {name: amount for name, amount in zip(self.names, deserved, strict=True) if amount}
            self._built[node] = Share(due, dict(zip(self.names, ceilings, strict=True)))
        return self._built[node]

    def own_limits(self, node: int) -> dict[str, float]:
        """What a node may hold by its own specification; inf: it has no limit."""
        return dict(zip(self.names, self.specified.most(node).tolist(), strict=True))

    def is_alike(self, other: "Division") -> bool:
        """Whether all may hold as much, in a tree that has not changed, of queues that say the same."""
        rows = ("takes_part", "kept", "ceilings", "potential")
        return self is other or (
            self.tree is other.tree
            and self.total == other.total
            and self.names == other.names
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in rows)
        )

    # ---- working it out

    def _after(self, demands: Demands, changed: Sequence[str]) -> "Division":
        later = Division(self.tree, self.names, self.total, demands)
        later.specified = self.specified.copy()
        for name in ("takes_part", "asked", "kept", "deserved", "ceilings", "potential"):
            setattr(later, name, getattr(self, name).copy())
        later._work_out(changed)
        same = later.takes_part == self.takes_part
        same &= np.all(later.deserved == self.deserved, axis=1)
        same &= np.all(later.ceilings == self.ceilings, axis=1)
        kept = zip(self._built, same.tolist(), strict=True)
        later._built = [share if is_same else None for share, is_same in kept]
        return later

    def _work_out(self, changed: Sequence[str] | Demands) -> None:
        """`changed`: queues whose demands are not yet in the rows."""
        dirty: Mask = np.zeros(len(self.tree), dtype=np.bool_)
        for name in changed:
            node, seat = self.tree.node[name], self.tree.seat[name]
            self.specified.set(node, seat, self.demands[name], self.names)
            dirty[[node, seat]] = True
        self._sum_up(dirty)
        self._divide(dirty)

    def _sum_up(self, dirty: Mask) -> None:
        """From the leaves up; marks the nodes that changed."""
        for level in reversed(self.tree.levels):
            nodes = level[dirty[level]]
            inner = np.array([self.tree.has_children(node) for node in nodes.tolist()], dtype=np.bool_)
            self._take_over(nodes[~inner])
            if inner.any():
                self._sum(nodes[inner])
            if level[0] != TOP:
                dirty[[self.tree.parents[node] for node in nodes.tolist()]] = True

    def _take_over(self, leaves: Nodes) -> None:
        self.asked[leaves] = self.specified.requests[leaves]
        self.takes_part[leaves] = self.specified.groups[leaves]
        self.kept[leaves] = self.specified.kept[leaves]

    def _sum(self, parents: Nodes) -> None:
        """A child asks its parent for no more than it may hold, and always for what is kept for it."""
        rows, of = self.tree.children(parents)
        kept = self.kept[rows]
        asked = np.maximum(np.minimum(self.asked[rows], self.specified.limits[rows]), kept)
        asked = np.where(self.takes_part[rows][:, None], asked, kept)
        self.asked[parents] = sums_by_parent(asked, of, len(parents))
        taking = np.bincount(of, self.takes_part[rows], len(parents))
        self.takes_part[parents] = taking > 0
        sums = sums_by_parent(kept, of, len(parents))
        self.kept[parents] = np.maximum(self.specified.kept[parents], sums)

    # ---- dividing it

    def _divide(self, dirty: Mask) -> None:
        """From root down, below each node that `dirty` marks or whose own share changed."""
        put_row(self.ceilings, TOP, self.total, self.names)
        self.ceilings[TOP] = np.minimum(self.ceilings[TOP], self.specified.most(TOP))
        self.potential[TOP] = self.ceilings[TOP]
        own = np.minimum(self.asked[TOP], self.ceilings[TOP])
        self.deserved[TOP] = np.maximum(own, self.kept[TOP])
        for level in self.tree.levels:
            parents = level[dirty[level]]
            inner = [node for node in parents.tolist() if self.tree.has_children(node)]
            if inner:
                self._divide_below(np.array(inner, dtype=np.intp), dirty)

    def _divide_below(self, parents: Nodes, dirty: Mask) -> None:
        rows, of = self.tree.children(parents)
        may_hold = self._below(self.ceilings[parents], rows, of)
        shares = self._shares(parents, rows, of, may_hold)
        ceilings = np.minimum(may_hold, shares + self.specified.borrowing[rows])
        potential = self._below(self.potential[parents], rows, of)
        now = ((self.deserved, shares), (self.ceilings, ceilings), (self.potential, potential))
        for before, after in now:
            dirty[rows] |= np.any(before[rows] != after, axis=1)
            before[rows] = after

    def _below(self, most: PortionRows, rows: Nodes, of: Nodes) -> PortionRows:
        """Of the `most` that parents may hold, what is not kept for siblings; and no more than the own limits
        allow."""
        kept = self.kept[rows]
        unclaimed = np.maximum(most - sums_by_parent(kept, of, len(most)), 0.0)
        below: PortionRows = np.minimum(unclaimed[of] + kept, self.specified.most(rows))
        return below

    def _shares(self, parents: Nodes, rows: Nodes, of: Nodes, may_hold: PortionRows) -> PortionRows:
        most = np.minimum(np.minimum(may_hold, self.specified.limits[rows]), self.asked[rows])
        siblings = Siblings(
            of,
            self.specified.weights[rows],
            self.asked[rows],
            most,
            self.kept[rows],
            self.specified.given[rows],
        )
        taking, shares = self.takes_part[rows], np.zeros_like(most)
        shares[taking] = pour(self._room(parents, rows, of), siblings.only(taking))
        return shares

    def _room(self, parents: Nodes, rows: Nodes, of: Nodes) -> PortionRows:
        """What there is to divide: at the top all that root may hold. What is kept for those that take no
        part stays out of it."""
        room = np.where((parents == TOP)[:, None], self.ceilings[TOP], self.deserved[parents])
        idle = np.where(self.takes_part[rows][:, None], 0.0, self.kept[rows])
        left: Portion = np.maximum(room - sums_by_parent(idle, of, len(parents)), 0.0)
        return left


def _changed(before: Division, total: Resources, demands: Demands) -> list[str] | None:
    """The queues that ask for something else than before; None where the rows are not the same any more."""
    then = before.demands
    if total != before.total or demands.keys() != then.keys():
        return None
    changed = [name for name, now in demands.items() if now is not then[name] and now != then[name]]
    if any(demands[name].parent != then[name].parent for name in changed):
        return None
    return changed if dimensions_of(total, demands.values()) == before.names else None
