"""The ledger's version: it moves on with everything that a decision may depend on."""

from collections.abc import Callable


class Changes:
    """`on_change` is called, under the ledger's lock, when a decision may change."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.version = 0
        self._on_change = on_change

    @property
    def next_version(self) -> int:
        """What is being changed now is so from this version on."""
        return self.version + 1

    def mark(self) -> None:
        """Something changed, and a decision may follow at once."""
        self.version += 1
        self._on_change()

    def mark_quietly(self) -> None:
        """Something changed that the next decision will see, whenever that is made."""
        self.version += 1
