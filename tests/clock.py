"""Clock that a test advances."""

from dataclasses import dataclass


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now
