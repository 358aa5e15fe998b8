"""Host ports that claims take, counted by node. Few nodes have any."""

from collections import Counter
from collections.abc import Iterable

from extender.domain.model.shapes import HostPort, clashing


class HostPorts:
    """The ports of pinned claims and those of planned claims, separately."""

    def __init__(self) -> None:
        self._pinned: dict[str, Counter[HostPort]] = {}
        self._planned: dict[str, Counter[HostPort]] = {}

    def count(self, node: str, ports: Iterable[HostPort], pinned: bool, times: int) -> None:
        """Add the ports of a claim to a node; with `times` -1, remove them."""
        by_node = self._pinned if pinned else self._planned
        for port in ports:
            taken = by_node.setdefault(node, Counter())
            taken[port] += times
            if not taken[port]:
                del taken[port]
            if not taken:
                del by_node[node]

    def clash(self, node: str, wanted: tuple[HostPort, ...], own: tuple[HostPort, ...] = ()) -> bool:
        """Whether any of `wanted` is taken by another claim than the one that has `own`."""
        if not wanted:
            return False
        taken = self._pinned.get(node, Counter()) + self._planned.get(node, Counter())
        return clashing(wanted, taken - Counter(own))

    def pinned(self) -> dict[str, dict[HostPort, int]]:
        """A copy of what pinned claims take."""
        return {node: dict(taken) for node, taken in self._pinned.items()}
