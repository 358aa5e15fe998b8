"""How long groups will run, as laws of probability by what is declared and by how those of their kind ran,
and the ends that follow in each of several futures. Without dice: a future is a number, and over all futures
a group takes each part of its law once, in an order of its own.

Run times vary by factors, not by seconds: their logarithms are taken as normal. The fewer are known, the
wider is the law: besides the runs it counts some that vary as much as is usual."""

from collections.abc import Sequence
from math import exp, inf, log, sqrt
from statistics import NormalDist, fmean
from typing import NamedTuple
from zlib import crc32

from extender.domain.explain.future import EndOf
from extender.domain.model.records import GroupKey
from extender.domain.placement.departures import RunEnd, expected_end
from extender.domain.snapshot.group_view import GroupView, kind_of
from extender.domain.snapshot.snapshot import Snapshot

FUTURES = 5  # in which what one run decides ends at 10, 30, 50, 70 and 90 % of its law
_STEPS = (1, 2, 3, 4)  # none has a divisor in common with their number
_SHORTEST = 1.0  # seconds
_USUAL, _COUNTS = 0.3, 2  # how much runs vary, in logarithms, and as how many runs that counts
_AS_DECLARED = 0.1  # how much runs vary about what their owners declare
_CERTAIN = 0.9999  # by then it has outrun the law
_LATER = 1.0 + 1e-9  # what still runs ends later than now, however numbers are rounded


class RunLaw(NamedTuple):
    """Of the seconds of a run."""

    usual: float  # the median
    varies: float  # the standard deviation of the logarithm
    limit: float  # Kubernetes ends it then; inf: it does not
    is_learnt: bool  # by others that ran

    def end(self, chance: float, since: float, now: float) -> RunEnd:
        """The end of a run that has begun `since` then and lasts `now`, in the part `chance` (0 to 1) of what
        may come."""
        law, ran = NormalDist(log(self.usual), self.varies), now - since
        passed = law.cdf(log(ran)) if ran > 0.0 else 0.0
        if passed > _CERTAIN:
            end = expected_end(min(self.usual, self.limit), since, now)
            return end if ran >= self.limit else end._replace(at=min(end.at, since + self.limit))
        seconds = exp(law.inv_cdf(passed + chance * (1.0 - passed)))
        return expected_end(min(max(seconds, ran * _LATER), self.limit), since, now)


class RunLaws:
    """By what was known at the moment of the snapshot. `learnt_from`: by future when the first run of those
    that follow a learnt law ends."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._history = snapshot.history
        self._laws: dict[GroupKey, RunLaw | None] = {}
        self.learnt_from = [inf] * FUTURES

    def of_future(self, number: int) -> EndOf:
        def end_of(group: GroupView, since: float, now: float) -> RunEnd:
            law = self.of(group)
            if law is None:
                return RunEnd(inf, is_known=False)
            end = law.end(_chance(group.key, number), min(since, now), now)
            if law.is_learnt:
                self.learnt_from[number] = min(self.learnt_from[number], end.at)
            return end

        return end_of

    def of(self, group: GroupView) -> RunLaw | None:
        """None: nobody knows."""
        if group.key not in self._laws:
            self._laws[group.key] = self._law(group)
        return self._laws[group.key]

    def _law(self, group: GroupView) -> RunLaw | None:
        declared, history = group.spec.run_time, self._history
        limit = inf if group.run_limit is None else max(group.run_limit, _SHORTEST)
        if declared is not None:
            usual = max(declared, _SHORTEST)
            runs = [usual * ratio for ratio in history.stretches.get(group.spec.series, ())]
            return _by(runs, limit) or RunLaw(usual, _AS_DECLARED, limit, is_learnt=False)
        if (learnt := _by(history.runs.get(kind_of(group), ()), limit)) is not None:
            return learnt
        return None if limit == inf else RunLaw(limit, _AS_DECLARED, limit, is_learnt=False)


def _by(runs: Sequence[float], limit: float) -> RunLaw | None:
    """What follows from runs; None without any."""
    if not runs:
        return None
    logs = [log(max(seconds, _SHORTEST)) for seconds in runs]
    middle, count = fmean(logs), len(logs)
    spread = sum((each - middle) ** 2 for each in logs) + _COUNTS * _USUAL**2
    known = count - 1 + _COUNTS
    # of the next run, by the mean of these: wider by what this is uncertain, and so is how much they vary
    varies = sqrt(spread / known * (1.0 + 1.0 / count)) * (1.0 + 0.7 / known)
    return RunLaw(exp(middle), varies, limit, is_learnt=True)


def _chance(key: GroupKey, number: int) -> float:
    mixed = crc32(key.encode())
    return ((number * _STEPS[mixed % len(_STEPS)] + mixed // len(_STEPS)) % FUTURES + 0.5) / FUTURES
