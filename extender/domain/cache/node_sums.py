"""What claims take of one node, by resource.

Python's integers have no limit, so whatever pods ask for, and however many there are, removing a claim
subtracts exactly what it added. The arrays that decide() works with are made from these sums, limited to 64
bits.
"""

from extender.domain.model.resources import Resources


class NodeSums:
    """The sums of `pinned` and of `planned` claims, and of the room `kept` for groups it is taken back for;
    without zeros."""

    __slots__ = ("kept", "pinned", "planned")

    def __init__(self) -> None:
        self.pinned: dict[str, int] = {}
        self.planned: dict[str, int] = {}
        self.kept: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.pinned or self.planned or self.kept)

    def add(self, asked: Resources, pinned: bool, times: int) -> None:
        """Add what a claim asks for; with `times` -1, subtract it."""
        _add(self.pinned if pinned else self.planned, asked, times)

    def keep(self, amounts: Resources, times: int) -> None:
        """Add to what is kept; with `times` -1, subtract it."""
        _add(self.kept, amounts, times)

    def taken(self, name: str) -> int:
        """What all claims take of a resource."""
        return self.pinned.get(name, 0) + self.planned.get(name, 0)


def _add(sums: dict[str, int], asked: Resources, times: int) -> None:
    for name, amount in asked.items():
        now = sums.get(name, 0) + amount * times
        if now:
            sums[name] = now
        else:
            sums.pop(name, None)
