"""What claims take of one node, by resource.

Plain integers, without a limit: whatever pods ask for, and however many there are, a claim that goes takes
away just what it brought. The arrays that decide() works with are made of these sums, cut to 64 bits.
"""

from extender.domain.model.resources import Resources


class NodeSums:
    """`pinned` and `planned` claims apart; no zeros are kept."""

    __slots__ = ("pinned", "planned")

    def __init__(self) -> None:
        self.pinned: dict[str, int] = {}
        self.planned: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.pinned or self.planned)

    def add(self, asked: Resources, pinned: bool, times: int) -> None:
        """A claim comes, or goes with -1 times."""
        sums = self.pinned if pinned else self.planned
        for name, amount in asked.items():
            now = sums.get(name, 0) + amount * times
            if now:
                sums[name] = now
            else:
                sums.pop(name, None)

    def taken(self, name: str) -> int:
        """By all claims."""
        return self.pinned.get(name, 0) + self.planned.get(name, 0)
