"""Recovery times after each fault, until Muster answers and pods are bound again."""

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

ANSWERS, BINDS = "answers", "binds"
NOT_REPAIRED = float("inf")
Times = dict[str, dict[str, list[float]]]  # seconds, by ANSWERS or BINDS and by kind of fault


@dataclass
class Breakage:
    """A fault with its begin and end, in seconds of `time.monotonic`."""

    kind: str
    outage: bool  # no process can recover while it lasts
    began: float
    ended: float = NOT_REPAIRED

    def end(self, at: float | None = None) -> None:
        """End the fault; only the first call counts."""
        if self.ended == NOT_REPAIRED:
            self.ended = time.monotonic() if at is None else at


@dataclass
class Recovery:
    """Recovery times of faults.

    A fault is left out if an outage begins before the recovery from it, or if it lasts until the end.
    """

    _answers: list[float] = field(default_factory=list)
    _breakages: list[Breakage] = field(default_factory=list)

    def begin(self, kind: str, *, outage: bool, at: float | None = None) -> Breakage:
        breakage = Breakage(kind, outage, time.monotonic() if at is None else at)
        self._breakages.append(breakage)
        return breakage

    def answered(self, at: float) -> None:
        """Record that Muster was ready to decide at this time."""
        self._answers.append(at)

    def times(self, bindings: Sequence[float]) -> Times:
        return {ANSWERS: self._recovery_times(self._answers), BINDS: self._recovery_times(bindings)}

    def _recovery_times(self, recoveries: Sequence[float]) -> dict[str, list[float]]:
        by_kind = defaultdict[str, list[float]](list)
        for breakage in self._breakages:
            index = bisect_left(recoveries, breakage.ended)
            if index < len(recoveries) and not self._is_overtaken(breakage, recoveries[index]):
                by_kind[breakage.kind].append(round(recoveries[index] - breakage.ended, 2))
        return dict(by_kind)

    def _is_overtaken(self, breakage: Breakage, until: float) -> bool:
        """Return whether another outage falls between the end of a fault and the recovery from it."""
        outages = (other for other in self._breakages if other.outage and other is not breakage)
        return any(
            outage.began < until and breakage.ended < self._answered_after(outage.ended) for outage in outages
        )

    def _answered_after(self, instant: float) -> float:
        index = bisect_left(self._answers, instant)
        return self._answers[index] if index < len(self._answers) else NOT_REPAIRED


def percentile(times: Sequence[float], share: float) -> float:
    """Return a percentile of times; `share` is 0.99 for the 99th."""
    ordered = sorted(times)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
