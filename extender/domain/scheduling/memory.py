"""What one round hands to the next to save work. It says nothing: with or without it, the same is decided."""

from math import inf

from extender.domain.decisions.decisions import Decisions
from extender.domain.placement.kept_totals import KeptTotals
from extender.domain.snapshot.snapshot import Snapshot


class Memory:
    """All memories are equal, since no decision depends on them."""

    def __init__(self, snapshot: Snapshot, totals: KeptTotals | None) -> None:
        self.totals = totals.without_history() if totals is not None else None
        self._groups = snapshot.groups
        self._limits = snapshot.limits
        self._attention = snapshot.attention
        self._now = snapshot.now

    def holds(self, snapshot: Snapshot, previous: Decisions) -> bool:
        """Whether nothing has changed since, and no time has come that would change a decision."""
        wake_at = inf if previous.wake_at is None else previous.wake_at
        return (
            snapshot.version == previous.version
            and self._now <= snapshot.now < wake_at
            and not snapshot.touched
            and snapshot.groups is self._groups
            and snapshot.limits is self._limits
            and snapshot.attention == self._attention
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Memory)

    def __hash__(self) -> int:
        return 0


def memory_of(previous: Decisions | None) -> Memory | None:
    return previous.memory if previous is not None and isinstance(previous.memory, Memory) else None
