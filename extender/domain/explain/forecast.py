"""Forecast: when each pending group is expected to start.

The same decisions in several futures with different run times give an interval; if a start depends on a run
without a known end, that cause is named. The forecast is computed in slices, one scheduling cycle each, so
that a caller can pace it.

Errors of earlier forecasts correct the next ones: new groups overtake, owners declare too much, runs vary
more than their law. After each start every quantile is moved by a step, such that in the long run the
fraction of earlier starts is that of the quantile (Gibbs and Candès, Adaptive conformal inference under
distribution shift, 2021).
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from functools import cached_property
from math import exp, inf, log, sqrt
from statistics import NormalDist, fmean, median
from typing import NamedTuple
from zlib import crc32

import msgspec
from msgspec.structs import replace

from extender.api.keys import RUN_TIME
from extender.api.units import listed
from extender.domain.explain.future import EndOf, Future, Method
from extender.domain.explain.holders import WaitingCase
from extender.domain.explain.hypotheses import placements
from extender.domain.model.reasons import ENDED_BY_OTHERS, Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.model.resources import total
from extender.domain.model.shapes import Shapes
from extender.domain.placement.departures import RunEnd, expected_end
from extender.domain.scheduling.memory import CarriedFacts, carried_facts_of
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.group_info import GroupInfo, kind_of
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import Signature, missing

MOST_CYCLES = 1500  # cycles of one future
# Limits per queue on groups and on distinct requests, which cost the most, so that one queue does not delay
# all others.
_MOST_PLACES, _MOST_KINDS = 100, 32
_MERGE_RATIO = 1.05  # factor between two ends that count as one: intervals are wider than that
_MOST_CAUSES = 200  # causes examined in one forecast: each takes a pass over all groups
_MOST_NAMES = 3  # names in one sentence
_DEEPEST = 8  # groups in a chain of waits, of which the first one's cause counts
_TOO_FAR = "the simulation limit was reached before it started"

_SHARES = (0.08, 0.5, 0.92)  # parts of starts before p10, p50 and p90: intervals are slightly wide
_STEP = 0.08  # change of a factor's logarithm for one start
_EXACT = (1.0, 1.0, 1.0)  # factors
_MOST = 20.0  # the largest factor; its inverse is the smallest
_MOST_KNOWN = 400  # factors: those of namespaces with recent starts
SHORTEST = 10.0  # seconds: shorter deviations do not count


class ExpectedStart(msgspec.Struct, frozen=True):
    """Expected start of one group, in seconds on the ledger's clock; inf where unknown."""

    made_at: float
    p10: float = inf
    p50: float = inf
    p90: float = inf
    method: Method = Method.DECLARED
    unknown: str = ""  # why the times are unknown, as a sentence; empty: they are known

    @property
    def is_known(self) -> bool:
        return not self.unknown


ExpectedStarts = Mapping[GroupKey, ExpectedStart]


def forecasts(decisions: Decisions, cycles: int = MOST_CYCLES) -> Generator[None, None, ExpectedStarts]:
    """Yield after each cycle, or similar work, and return the forecasts of all pending groups.

    `cycles`: the most cycles of each future.
    """
    memory = carried_facts_of(decisions)
    waiting = [key for key, decision in decisions.groups.items() if decision.verdict is Verdict.WAITING]
    if memory is None or not waiting:
        return {}
    unknown = dict.fromkeys(_groups_further_back(memory), _TOO_FAR)
    snapshot = _snapshot_without(memory.snapshot, unknown)
    laws = RunLaws(snapshot)
    starts: list[Mapping[GroupKey, float]] = []
    reclaiming = Counter[GroupKey]()  # number of futures with a reclaim, by group
    for number in range(FUTURES):
        future = Future(snapshot, laws.ends_in_future(number), _MERGE_RATIO)
        yield
        future.step()  # makes the first decisions
        yield
        is_cut = yield from _run_until_started(future, set(waiting).difference(unknown), cycles)
        causes = _Causes(future, is_cut)
        for key in waiting:
            if key not in future.starts and key not in unknown:
                examined = causes.examined
                unknown[key] = causes.cause_of(key)
                if causes.examined > examined:
                    yield
        starts.append(future.starts)
        reclaiming.update(key for key in future.starts if future.method(key) is Method.RECLAIM)
    made_at = snapshot.now
    found: dict[GroupKey, ExpectedStart] = {}
    for key in waiting:
        if key in unknown:
            found[key] = ExpectedStart(made_at, unknown=unknown[key])
            continue
        instants = [each[key] for each in starts]
        is_learnt = any(at >= learnt for at, learnt in zip(instants, laws.learnt_from, strict=True))
        first, *_, last = ordered = sorted(instants)
        method = Method.LEARNT if is_learnt else Method.DECLARED
        if reclaiming[key] > FUTURES // 2:
            method = Method.RECLAIM
        found[key] = ExpectedStart(made_at, first, ordered[FUTURES // 2], last, method)
    return found


def _groups_further_back(memory: CarriedFacts) -> Iterator[GroupKey]:
    """Yield the groups without holdings that are further back in line than the forecast."""
    for line in memory.lines.values():
        kinds = set[Signature]()
        for place, group in enumerate(line):
            kinds.add(missing(group).signature)
            if (place >= _MOST_PLACES or len(kinds) > _MOST_KINDS) and not placements(group):
                yield group.key


def _snapshot_without(snapshot: Snapshot, keys: Collection[GroupKey]) -> Snapshot:
    """Return the snapshot without groups, but with their requests.

    In each queue one incomplete group asks for as much as all removed groups, so that the queue's request and
    share stay the same.
    """
    groups = {key: group for key, group in snapshot.groups.items() if key not in keys}
    by_queue = defaultdict[str, list[GroupInfo]](list)
    for group in (snapshot.groups[key] for key in keys):
        if group.missing_request and group.waiting:
            by_queue[group.queue].append(group)
    for first, *others in by_queue.values():
        requests = total(group.pending for group in (first, *others))
        pod = replace(
            first.waiting[0], shape=Shapes().with_requests(first.waiting[0].shape, requests), expected=False
        )
        spec = replace(first.spec, min_resources={}, composite=None)
        job = replace(first.job, managed=False)
        group = replace(first, spec=spec, job=job, min_member=2, min_task_member={}, pending=requests)
        groups[first.key] = replace(group, waiting=(pod,), planned={}, attempts={})
    return replace(snapshot, groups=groups)


def _run_until_started(future: Future, waiting: set[GroupKey], cycles: int) -> Generator[None, None, bool]:
    """Run cycles until all `waiting` groups have started; return whether the limit of cycles was reached."""
    for _ in range(cycles):
        if not waiting or not future.step():
            return False
        waiting -= future.starts.keys()
        yield
    return True


class _Causes:
    """Causes of groups that have not started at the end of a future. Of equal groups, one is examined."""

    def __init__(self, future: Future, is_cut: bool) -> None:
        self._snapshot, self._decisions = future.snapshot, future.decisions
        self._endless = future.endless_groups
        self._is_cut = is_cut
        self._known: dict[object, str] = {}

    @property
    def examined(self) -> int:
        """Return the number of examined causes so far."""
        return len(self._known)

    def cause_of(self, key: GroupKey, depth: int = 0) -> str:
        """Return why a group has not started by the end of the future."""
        decision, group = self._decisions.groups.get(key), self._snapshot.groups.get(key)
        if decision is None or group is None or decision.reason is None:
            return "its next decision is unknown"
        if decision.reason not in ENDED_BY_OTHERS:
            return f"nothing that is expected to happen starts it: {decision.reason.meaning}"
        if self._is_cut:
            return _TOO_FAR
        similar = (group.queue, decision.reason, missing(group).signature)
        if similar not in self._known:
            if len(self._known) >= _MOST_CAUSES:
                return "groups without a known end hold what it lacks"
            self._known[similar] = self._examine(group, decision.reason, depth)
        return self._known[similar]

    def _examine(self, group: GroupInfo, reason: Reason, depth: int) -> str:
        """Return what prevents a start: holders without a known end, or what prevents a group ahead."""
        case = WaitingCase(self._snapshot, self._decisions, group, cycles=0)
        holders = case.holders(reason)
        endless = [holder for holder in holders if holder.group in self._endless]
        named = [f"{holder.called} of queue {holder.queue}" for holder in endless]
        if named:
            has = "has" if len(named) == 1 else "have"
            return f"{listed(named, _MOST_NAMES)} {has} no known end (annotation {RUN_TIME})"
        ahead = next((holder.group for holder in holders if holder.group and holder.group != group.key), None)
        if ahead is not None and reason in _BEHIND and depth < _DEEPEST:
            return self.cause_of(ahead, depth + 1)
        return f"nothing that is expected to happen starts it: {reason.meaning}"


_BEHIND = (Reason.BEHIND_OTHERS, Reason.RESERVED, Reason.WINDOW_FULL)  # waits for pending groups

FUTURES = 5  # futures: a start that depends on one run comes at 10, 30, 50, 70 and 90 % of its distribution
_STEPS = (1, 2, 3, 4)  # no divisor in common with FUTURES
_SHORTEST = 1.0  # seconds
_USUAL, _COUNTS = 0.3, 2  # usual deviation of logarithms, and its weight in runs
_AS_DECLARED = 0.1  # deviation of runs from their declared time
_CERTAIN = 0.9999  # a run beyond this part of its law has outrun it
_LATER = 1.0 + 1e-9  # factor by which ends of running groups stay later than now


class RunLaw(NamedTuple):
    """Probability distribution of a run time, in seconds."""

    usual: float  # the median
    varies: float  # the standard deviation of the logarithm
    limit: float  # run time limit of Kubernetes; inf: none
    is_learnt: bool  # whether it follows from earlier runs

    def end(self, chance: float, since: float, now: float) -> RunEnd:
        """Return the quantile `chance` (0 to 1) of the end of a run that began at `since`, as of `now`."""
        law, ran = NormalDist(log(self.usual), self.varies), now - since
        passed = law.cdf(log(ran)) if ran > 0.0 else 0.0
        if passed > _CERTAIN:
            end = expected_end(min(self.usual, self.limit), since, now)
            return end if ran >= self.limit else end._replace(at=min(end.at, since + self.limit))
        seconds = exp(law.inv_cdf(passed + chance * (1.0 - passed)))
        return expected_end(min(max(seconds, ran * _LATER), self.limit), since, now)


class RunLaws:
    """Distributions of run times from declared times and from runs of the same kind, and the ends of runs.

    There is no randomness: a future is a number, and over all futures a group takes each part of its
    distribution once, in an order of its own. Run times are taken as log-normal. The fewer runs are known,
    the wider is the distribution: it also counts virtual runs with the usual deviation.

    `learnt_from`: for each future, when the first run with a learned law ends.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._history = snapshot.history
        self._laws: dict[GroupKey, RunLaw | None] = {}
        self.learnt_from = [inf] * FUTURES

    def ends_in_future(self, number: int) -> EndOf:
        """Return a function for the ends of runs in the future with this number."""

        def end_of(group: GroupInfo, since: float, now: float) -> RunEnd:
            """Return the end of a run in future `number`, at the quantile of the group there."""
            law = self.law_of(group)
            if law is None:
                return RunEnd(inf, is_known=False)
            end = law.end(_quantile_of(group.key, number), min(since, now), now)
            if law.is_learnt:
                self.learnt_from[number] = min(self.learnt_from[number], end.at)
            return end

        return end_of

    def law_of(self, group: GroupInfo) -> RunLaw | None:
        """Return the law of a group; None: unknown."""
        if group.key not in self._laws:
            self._laws[group.key] = self._law(group)
        return self._laws[group.key]

    def _law(self, group: GroupInfo) -> RunLaw | None:
        """Return the law by the declared run time, else by earlier runs, else by the run time limit."""
        declared, history = group.spec.run_time, self._history
        limit = inf if group.run_limit is None else max(group.run_limit, _SHORTEST)
        if declared is not None:
            usual = max(declared, _SHORTEST)
            runs = [usual * ratio for ratio in history.stretches.get(group.spec.series, ())]
            return _empirical_law(runs, limit) or RunLaw(usual, _AS_DECLARED, limit, is_learnt=False)
        if (learnt := _empirical_law(history.runs.get(kind_of(group), ()), limit)) is not None:
            return learnt
        return None if limit == inf else RunLaw(limit, _AS_DECLARED, limit, is_learnt=False)


def _empirical_law(runs: Sequence[float], limit: float) -> RunLaw | None:
    """Return the law that follows from runs; None without any."""
    if not runs:
        return None
    logs = [log(max(seconds, _SHORTEST)) for seconds in runs]
    middle, count = fmean(logs), len(logs)
    spread = sum((each - middle) ** 2 for each in logs) + _COUNTS * _USUAL**2
    known = count - 1 + _COUNTS
    # deviation of the next run, with the uncertainty of the mean
    varies = sqrt(spread / known * (1.0 + 1.0 / count)) * (1.0 + 0.7 / known)
    return RunLaw(exp(middle), varies, limit, is_learnt=True)


def _quantile_of(key: GroupKey, number: int) -> float:
    """Return the quantile of a group's run time in a future; the order of quantiles depends on the group."""
    mixed = crc32(key.encode())
    return ((number * _STEPS[mixed % len(_STEPS)] + mixed // len(_STEPS)) % FUTURES + 0.5) / FUTURES


_Factors = tuple[float, float, float]


class Calibration(msgspec.Struct, frozen=True, dict=True):
    """Calibration: factors of the time until p10, p50 and p90, by method and namespace."""

    factors: Mapping[tuple[Method, str], _Factors] = {}

    @cached_property
    def _default_factors(self) -> Mapping[Method, _Factors]:
        """Return the factors of a namespace without starts: the median of all, and of two exact ones.

        The exact ones limit the effect that declarations in one namespace have on others.
        """
        usual: dict[Method, _Factors] = {}
        for method in Method:
            known = [each for (each_method, _), each in self.factors.items() if each_method is method]
            p10, p50, p90 = map(median, zip(_EXACT, _EXACT, *known, strict=True))
            usual[method] = p10, p50, p90
        return usual

    def _factors_of(self, key: GroupKey, method: Method) -> _Factors:
        return self.factors.get((method, _namespace(key))) or self._default_factors[method]

    def applied(self, key: GroupKey, forecast: ExpectedStart) -> ExpectedStart:
        """Return the forecast with its times corrected by the factors of its namespace."""
        if not forecast.is_known:
            return forecast
        start, instants = forecast.made_at, (forecast.p10, forecast.p50, forecast.p90)
        factors = self._factors_of(key, forecast.method)
        p10, p50, p90 = sorted(start + (at - start) * by for at, by in zip(instants, factors, strict=True))
        return replace(forecast, p10=p10, p50=p50, p90=p90)

    def after(self, key: GroupKey, reported: ExpectedStart, start: float) -> "Calibration":
        """Return the calibration after the start of a group with a published estimate."""
        if not reported.is_known:
            return self
        moved, instants = list[float](), (reported.p10, reported.p50, reported.p90)
        for factor, at, share in zip(self._factors_of(key, reported.method), instants, _SHARES, strict=True):
            step = share if start > max(at, reported.made_at + SHORTEST) else share - 1.0
            moved.append(min(max(factor * exp(_STEP * step), 1.0 / _MOST), _MOST))
        p10, p50, p90 = moved
        latest = reported.method, _namespace(key)
        others = [each for each in self.factors.items() if each[0] != latest]
        return Calibration({**dict(others[1 - _MOST_KNOWN :]), latest: (p10, p50, p90)})


def _namespace(key: GroupKey) -> str:
    return key.partition("/")[0]


def interval_of(reported: ExpectedStart, start: float) -> str:
    """Return whether a start came `before`, `inside` or `after` the estimated interval."""
    if start > max(reported.p90, reported.made_at + SHORTEST):
        return "after"
    return "before" if start < reported.p10 else "inside"
