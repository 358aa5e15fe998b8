"""Result of a storm: counts, and violations with their history."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.storm.journal import Journal
from tests.storm.recovery import Times

Json = dict[str, Any]


@dataclass
class Outcome:
    """Report of a storm at its end."""

    seed: int
    seconds: float
    mix: str
    folder: Path
    calm: float = 0.0  # seconds in which nothing essential was down, so that deadlines counted
    faults: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)  # faults that found no victim
    counts: Counter[str] = field(default_factory=Counter)
    evictions: Counter[str] = field(default_factory=Counter)  # by purpose
    recoveries: Times = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    judges_agree: bool = True  # whether both judges found violations, or neither did

    def violate(self, journal: Journal, at: float, key: str, message: str) -> None:
        """Record a violation, with the journal's last lines about its object `key`."""
        before = "".join(f"\n      {line}" for line in journal.before(at, key))
        self.violations.append(f"{at - journal.began:.1f} s: {message}{before}")
        journal.record("VIOLATION", message)

    def summary(self, counts: Mapping[str, int], alive: int) -> dict[str, int]:
        """Return the counts for the line of progress."""
        return {"faults": self.faults.total(), "violations": len(self.violations), **counts, "alive": alive}

    def record(self) -> Json:
        """Return the whole result as JSON."""
        return {**vars(self), "folder": str(self.folder)}
