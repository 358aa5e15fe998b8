"""The ledger's version, which grows with every change that a decision may depend on, and when it last did."""

from collections.abc import Callable


class Changes:
    """`on_change` is called, under the ledger's lock, when a decision may change."""

    def __init__(self, on_change: Callable[[], None], clock: Callable[[], float]) -> None:
        self.version = 0
        self.changed_at = clock()
        self._clock = clock
        self._on_change = on_change

    @property
    def next_version(self) -> int:
        """The version from which on a change that is being made now counts."""
        return self.version + 1

    def mark(self) -> None:
        """Something changed that may change a decision: have one made."""
        self.mark_quietly()
        self._on_change()

    def mark_quietly(self) -> None:
        """Something changed that can wait for the next decision."""
        self.version += 1
        self.changed_at = self._clock()
