"""How long groups will run: as declared, as Kubernetes lets them, or as groups of their kind ran before.

What is declared is believed as far as it was true: if groups of a series ran longer than declared, or run
longer now, the others of the series are expected to, as well. A group that has outrun its time is expected to
run for as long again.
"""

from functools import cached_property
from math import floor, log2
from typing import NamedTuple

from extender.domain.lifecycle.start_clock import running_since
from extender.domain.model.records import GroupKey
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.run_kinds import kind_of
from extender.domain.snapshot.snapshot import Snapshot

_SHORTEST = 1.0  # seconds: what is declared shorter counts as this long
_YOUNG = 60.0  # seconds that a group of which nothing is known is expected to run at first


class RunEnd(NamedTuple):
    at: float
    """When a group is expected to end, on the ledger's clock."""
    is_known: bool
    """Whether anything but its age says so."""


class RunTimes:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[GroupKey, float | None] = {}
        self._ends: dict[GroupKey, RunEnd] = {}

    def of(self, group: GroupView) -> float | None:
        """How many seconds a group will run from its start; None: nobody knows."""
        if group.key not in self._known:
            self._known[group.key] = self._of(group)
        return self._known[group.key]

    def _of(self, group: GroupView) -> float | None:
        if group.run_time is None:
            return group.run_limit if group.run_limit is not None else self._usual(group)
        declared = max(group.run_time, _SHORTEST) * self._stretch(group.series)
        return declared if group.run_limit is None else min(declared, group.run_limit)

    def end_of(self, group: GroupView) -> RunEnd:
        """When a group that runs, or starts, is expected to end. Of groups of which nothing is known, those
        that have run for the longest time are expected to run the longest."""
        if group.key not in self._ends:
            self._ends[group.key] = self._end_of(group)
        return self._ends[group.key]

    def _end_of(self, group: GroupView) -> RunEnd:
        since = self._since(group)
        ran, expected = self._snapshot.now - since, self.of(group)
        if expected is None:
            return RunEnd(self._snapshot.now + max(ran, _YOUNG), is_known=False)
        return RunEnd(since + _outrun(ran, max(expected, _SHORTEST)), is_known=True)

    # ---- inside

    def _since(self, group: GroupView) -> float:
        since = running_since(group, self._snapshot.moment)
        return self._snapshot.now if since is None else min(since, self._snapshot.now)

    def _usual(self, group: GroupView) -> float | None:
        return self._snapshot.history.usual(kind_of(group))

    def _stretch(self, series: str) -> float:
        """How many times as long as declared groups of a series run, by those that ended and those that
        run."""
        return max(self._snapshot.history.stretch(series), self._stretches.get(series, 1.0))

    @cached_property
    def _stretches(self) -> dict[str, float]:
        """The same by those that run."""
        stretches: dict[str, float] = {}
        for group in self._snapshot.groups.values():
            if group.run_time is not None and group.is_on_nodes:
                declared = max(group.run_time, _SHORTEST)
                stretch = _outrun(self._snapshot.now - self._since(group), declared) / declared
                stretches[group.series] = max(stretch, stretches.get(group.series, 1.0))
        return stretches


def _outrun(ran: float, expected: float) -> float:
    """How long a group will have run at its end: as expected or, once it has run that long, twice as long,
    then four times, and so on."""
    return expected if ran < expected else expected * 2.0 ** (floor(log2(ran / expected)) + 1)
