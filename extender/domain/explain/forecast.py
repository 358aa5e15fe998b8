"""Forecast: when each pending group is expected to start.

decide() is run in several futures with different run times. Their starts form an interval. If a start depends
on a run without a known end, the forecast names that cause. The forecast is computed in slices of one
scheduling cycle, so that the caller can control its pace.

Forecasts have errors: new groups overtake waiting groups, owners declare run times that are too long, and run
times vary more than their distribution. Therefore, each start corrects later forecasts: it moves every
quantile by a step. The steps are such that, in the long run, the fraction of starts before a quantile equals
the quantile (Gibbs and Candès, Adaptive conformal inference under distribution shift, 2021).
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
from extender.domain.explain.future import FindEnd, Future, Method
from extender.domain.explain.holders import WaitingCase
from extender.domain.explain.hypotheses import placements
from extender.domain.model.reasons import REASONS_ENDED_BY_OTHERS, Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.model.resources import total
from extender.domain.model.shapes import Shapes
from extender.domain.placement.departures import RunEnd, expected_end
from extender.domain.scheduling.memory import CarriedFacts, read_facts
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.group_info import GroupInfo, kind_of
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import Signature, missing

MAX_CYCLES = 1500  # number of cycles of one future
# Limits per queue on groups and on different requests, which cost the most. So no queue delays all others.
_MAX_POSITION, _MAX_KINDS = 100, 32
_MERGE_RATIO = 1.05  # two ends count as one up to this ratio; intervals are wider than it
_MAX_CAUSES = 200  # number of causes that are examined in one forecast; each takes a pass over all groups
_MAX_LISTED_NAMES = 3  # number of names in one sentence
_MAX_DEPTH = 8  # number of groups in a chain of waits; the cause of the first group counts
_LIMIT_TEXT = "the simulation limit was reached before it started"

_PARTS = (0.08, 0.5, 0.92)  # fractions of starts before p10, p50 and p90, which make intervals slightly wide
_STEP = 0.08  # change of the logarithm of a factor by one start
_EXACT_FACTORS = (1.0, 1.0, 1.0)  # factors that correct nothing
_MAX_FACTOR = 20.0  # largest factor; its inverse is the smallest factor
_MAX_FACTOR_KEYS = 400  # number of namespaces and methods with recent starts whose factors are kept
MIN_DEVIATION = 10.0  # seconds; shorter deviations do not count


class ExpectedStart(msgspec.Struct, frozen=True):
    """Expected start of one group, in seconds on the ledger's clock. Unknown times are infinite."""

    made_at: float
    p10: float = inf
    p50: float = inf
    p90: float = inf
    method: Method = Method.DECLARED
    unknown: str = ""  # why the times are unknown, as a sentence; empty if they are known

    @property
    def is_known(self) -> bool:
        return not self.unknown


ExpectedStarts = Mapping[GroupKey, ExpectedStart]


def forecasts(decisions: Decisions, limit: int = MAX_CYCLES) -> Generator[None, None, ExpectedStarts]:
    """Yield after each cycle, or similar work, and return the forecasts of all pending groups.

    `limit` limits the number of cycles in each simulated course of events.
    """
    facts = read_facts(decisions)
    waiting_keys = [key for key, decision in decisions.groups.items() if decision.verdict is Verdict.WAITING]
    if facts is None or not waiting_keys:
        return {}
    unknown_texts = dict.fromkeys(_groups_too_far_back(facts), _LIMIT_TEXT)
    snapshot = _shortened_snapshot(facts.snapshot, unknown_texts)
    laws = RunLaws(snapshot)
    starts: list[Mapping[GroupKey, float]] = []
    reclaim_counts = Counter[GroupKey]()  # number of futures with a reclaim, by group
    for number in range(FUTURES):
        future = Future(snapshot, laws.ends_in_future(number), _MERGE_RATIO)
        yield
        future.step()  # this step makes the first decisions
        yield
        is_limited = yield from _run_until_started(future, set(waiting_keys).difference(unknown_texts), limit)
        causes = _Causes(future, is_limited)
        for key in waiting_keys:
            if key not in future.starts and key not in unknown_texts:
                old_count = causes.examined_count
                unknown_texts[key] = causes.cause_of(key)
                if causes.examined_count > old_count:
                    yield
        starts.append(future.starts)
        reclaim_counts.update(key for key in future.starts if future.start_method(key) is Method.RECLAIM)
    made_at = snapshot.now
    forecast_by_key: dict[GroupKey, ExpectedStart] = {}
    for key in waiting_keys:
        if key in unknown_texts:
            forecast_by_key[key] = ExpectedStart(made_at, unknown=unknown_texts[key])
            continue
        instants = [starts_of_future[key] for starts_of_future in starts]
        is_empirical = any(at >= learnt_at for at, learnt_at in zip(instants, laws.learnt_ends, strict=True))
        earliest, *_, latest = sorted_instants = sorted(instants)
        method = Method.LEARNT if is_empirical else Method.DECLARED
        if reclaim_counts[key] > FUTURES // 2:
            method = Method.RECLAIM
        forecast_by_key[key] = ExpectedStart(made_at, earliest, sorted_instants[FUTURES // 2], latest, method)
    return forecast_by_key


def _groups_too_far_back(facts: CarriedFacts) -> Iterator[GroupKey]:
    """Yield the groups without members on nodes that are too far back in line for a forecast."""
    for line in facts.lines.values():
        signatures = set[Signature]()
        for place, group in enumerate(line):
            signatures.add(missing(group).signature)
            if (place >= _MAX_POSITION or len(signatures) > _MAX_KINDS) and not placements(group):
                yield group.key


def _shortened_snapshot(snapshot: Snapshot, keys: Collection[GroupKey]) -> Snapshot:
    """Return the snapshot without some groups, but with their requests.

    Each queue gets one group that can never start. It requests as much as all removed groups of the queue.
    Therefore, the request and the share of the queue do not change.
    """
    groups = {key: group for key, group in snapshot.groups.items() if key not in keys}
    groups_by_queue = defaultdict[str, list[GroupInfo]](list)
    for group in (snapshot.groups[key] for key in keys):
        if group.missing_request and group.waiting_pods:
            groups_by_queue[group.queue].append(group)
    for first_group, *other_groups in groups_by_queue.values():
        requests = total(group.pending_requests for group in (first_group, *other_groups))
        pod = first_group.waiting_pods[0]
        pod = replace(pod, shape=Shapes().with_requests(pod.shape, requests), is_expected=False)
        spec = replace(first_group.spec, min_resources={}, composite=None)
        group = replace(first_group, spec=spec, min_member=2, min_task_member={}, pending_requests=requests)
        group = replace(group, job=replace(first_group.job, is_managed=False))
        groups[first_group.key] = replace(group, waiting_pods=(pod,), planned_nodes={}, attempts={})
    return replace(snapshot, groups=groups)


def _run_until_started(future: Future, keys: set[GroupKey], limit: int) -> Generator[None, None, bool]:
    """Run cycles until the groups of `keys` have started. Return whether the limit of cycles was reached."""
    for _ in range(limit):
        if not keys or not future.step():
            return False
        keys -= future.starts.keys()
        yield
    return True


class _Causes:
    """Causes why groups have not started by the end of a future.

    Groups of one queue that wait for the same reason and lack the same members are equal. Only one of them is
    examined.
    """

    def __init__(self, future: Future, is_cut_short: bool) -> None:
        self._snapshot, self._decisions = future.snapshot, future.decisions
        self._endless_keys = future.endless_groups
        self._is_cut_short = is_cut_short
        self._cause_by_key: dict[object, str] = {}

    @property
    def examined_count(self) -> int:
        """Return the number of causes that were examined so far."""
        return len(self._cause_by_key)

    def cause_of(self, key: GroupKey, depth: int = 0) -> str:
        """Return why a group has not started by the end of the future."""
        decision, group = self._decisions.groups.get(key), self._snapshot.groups.get(key)
        if decision is None or group is None or decision.reason is None:
            return "its next decision is unknown"
        if decision.reason not in REASONS_ENDED_BY_OTHERS:
            return f"nothing that is expected to happen starts it: {decision.reason.meaning}"
        if self._is_cut_short:
            return _LIMIT_TEXT
        equality_key = (group.queue, decision.reason, missing(group).signature)
        if equality_key not in self._cause_by_key:
            if len(self._cause_by_key) >= _MAX_CAUSES:
                return "groups without a known end hold what it lacks"
            self._cause_by_key[equality_key] = self._examine(group, decision.reason, depth)
        return self._cause_by_key[equality_key]

    def _examine(self, group: GroupInfo, reason: Reason, depth: int) -> str:
        """Return the cause of a wait: holders without a known end, or the cause of a group ahead."""
        case = WaitingCase(self._snapshot, self._decisions, group, max_cycles=0)
        holders = case.holders(reason)
        endless_holders = [holder for holder in holders if holder.group in self._endless_keys]
        names = [f"{holder.called} of queue {holder.queue}" for holder in endless_holders]
        if names:
            verb = "has" if len(names) == 1 else "have"
            return f"{listed(names, _MAX_LISTED_NAMES)} {verb} no known end (annotation {RUN_TIME})"
        ahead = next((holder.group for holder in holders if holder.group and holder.group != group.key), None)
        if ahead is not None and reason in _CHAIN_REASONS and depth < _MAX_DEPTH:
            return self.cause_of(ahead, depth + 1)
        return f"nothing that is expected to happen starts it: {reason.meaning}"


_CHAIN_REASONS = (Reason.BEHIND_OTHERS, Reason.RESERVED, Reason.WINDOW_FULL)  # such groups wait for others

FUTURES = 5  # a start that depends on one run comes at 10, 30, 50, 70 and 90 % of its distribution
_STEPS = (1, 2, 3, 4)  # none of them has a common divisor with FUTURES
_MIN_RUN_SECONDS = 1.0  # seconds of the shortest run
_USUAL_DEVIATION, _VIRTUAL_RUNS = 0.3, 2  # usual deviation of logarithms, and its weight as a number of runs
_AS_DECLARED = 0.1  # deviation of the logarithm of runs with a declared time
_MAX_PART = 0.9999  # a run beyond this part of its law is longer than its law explains
_LATER_FACTOR = 1.0 + 1e-9  # factor that keeps ends of running groups later than now


class RunLaw(NamedTuple):
    """Probability distribution of a run time, in seconds."""

    median_seconds: float  # median
    deviation: float  # standard deviation of the logarithm
    limit: float  # run time limit of Kubernetes; infinite if there is none
    is_empirical: bool  # whether the law follows from earlier runs

    def end(self, chance: float, started_at: float, now: float) -> RunEnd:
        """Return the expected end of a run as of `now`, at the quantile `chance` (from 0 to 1).

        `started_at` is the start of the run.
        """
        law, run_seconds = NormalDist(log(self.median_seconds), self.deviation), now - started_at
        passed_part = law.cdf(log(run_seconds)) if run_seconds > 0.0 else 0.0
        if passed_part > _MAX_PART:
            end = expected_end(min(self.median_seconds, self.limit), started_at, now)
            return end if run_seconds >= self.limit else end._replace(at=min(end.at, started_at + self.limit))
        seconds = exp(law.inv_cdf(passed_part + chance * (1.0 - passed_part)))
        return expected_end(min(max(seconds, run_seconds * _LATER_FACTOR), self.limit), started_at, now)


class RunLaws:
    """Distributions of run times, from declared times and from runs of the same kind, and the ends of runs.

    The ends are not random. Each future has a number. In each future, the run time of a group is at another
    quantile of its distribution, so that all futures together use each of `FUTURES` quantiles once. The order
    of the quantiles depends on the group. Run times are assumed to be log-normal. The fewer runs are known,
    the wider is the distribution: virtual runs with the usual deviation are counted, too.

    Attributes:
        learnt_ends: For each future, the earliest end of a run whose law follows from earlier runs.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._history = snapshot.history
        self._laws: dict[GroupKey, RunLaw | None] = {}
        self.learnt_ends = [inf] * FUTURES

    def ends_in_future(self, number: int) -> FindEnd:
        """Return a function that returns the ends of runs in the future with this number."""

        def end_of(group: GroupInfo, since: float, now: float) -> RunEnd:
            """Return the end of a run in future `number`, at the quantile of the group there."""
            law = self.run_law(group)
            if law is None:
                return RunEnd(inf, is_known=False)
            end = law.end(_quantile_of(group.key, number), min(since, now), now)
            if law.is_empirical:
                self.learnt_ends[number] = min(self.learnt_ends[number], end.at)
            return end

        return end_of

    def run_law(self, group: GroupInfo) -> RunLaw | None:
        """Return the law of a group; None if it is unknown."""
        if group.key not in self._laws:
            self._laws[group.key] = self._make_law(group)
        return self._laws[group.key]

    def _make_law(self, group: GroupInfo) -> RunLaw | None:
        """Return the law from the declared run time, or else from earlier runs, or else from the limit."""
        declared_seconds, history = group.spec.run_time, self._history
        limit = inf if group.run_limit is None else max(group.run_limit, _MIN_RUN_SECONDS)
        if declared_seconds is not None:
            seconds = max(declared_seconds, _MIN_RUN_SECONDS)
            runs = [seconds * ratio for ratio in history.stretches.get(group.spec.series, ())]
            return _empirical_law(runs, limit) or RunLaw(seconds, _AS_DECLARED, limit, is_empirical=False)
        if (learnt_law := _empirical_law(history.run_times.get(kind_of(group), ()), limit)) is not None:
            return learnt_law
        return None if limit == inf else RunLaw(limit, _AS_DECLARED, limit, is_empirical=False)


def _empirical_law(run_times: Sequence[float], limit: float) -> RunLaw | None:
    """Return the law that follows from earlier runs; None if there are none."""
    if not run_times:
        return None
    logs = [log(max(seconds, _MIN_RUN_SECONDS)) for seconds in run_times]
    mean_log, count = fmean(logs), len(logs)
    square_sum = sum((value - mean_log) ** 2 for value in logs) + _VIRTUAL_RUNS * _USUAL_DEVIATION**2
    degrees = count - 1 + _VIRTUAL_RUNS
    # the deviation of the next run includes the uncertainty of the mean
    deviation = sqrt(square_sum / degrees * (1.0 + 1.0 / count)) * (1.0 + 0.7 / degrees)
    return RunLaw(exp(mean_log), deviation, limit, is_empirical=True)


def _quantile_of(key: GroupKey, number: int) -> float:
    """Return the quantile of a group's run time in a future. Each group has its own order of quantiles."""
    group_hash = crc32(key.encode())
    return ((number * _STEPS[group_hash % len(_STEPS)] + group_hash // len(_STEPS)) % FUTURES + 0.5) / FUTURES


_Factors = tuple[float, float, float]


class Calibration(msgspec.Struct, frozen=True, dict=True):
    """Calibration: factors that correct the time until p10, p50 and p90, by method and namespace."""

    factors: Mapping[tuple[Method, str], _Factors] = {}

    @cached_property
    def _default_factors(self) -> Mapping[Method, _Factors]:
        """Return the factors of a namespace without starts: the median of all factors and of two exact ones.

        The exact factors limit the effect that declarations in one namespace have on other namespaces.
        """
        factors_by_method: dict[Method, _Factors] = {}
        for method in Method:
            factors = [item for (each_method, _), item in self.factors.items() if each_method is method]
            p10, p50, p90 = map(median, zip(_EXACT_FACTORS, _EXACT_FACTORS, *factors, strict=True))
            factors_by_method[method] = p10, p50, p90
        return factors_by_method

    def _factors_of(self, key: GroupKey, method: Method) -> _Factors:
        return self.factors.get((method, _namespace(key))) or self._default_factors[method]

    def correct_forecast(self, key: GroupKey, forecast: ExpectedStart) -> ExpectedStart:
        """Return the forecast with its times corrected by the factors of the group's namespace."""
        if not forecast.is_known:
            return forecast
        start, instants = forecast.made_at, (forecast.p10, forecast.p50, forecast.p90)
        factors = self._factors_of(key, forecast.method)
        p10, p50, p90 = sorted(start + (at - start) * n for at, n in zip(instants, factors, strict=True))
        return replace(forecast, p10=p10, p50=p50, p90=p90)

    def after(self, key: GroupKey, forecast: ExpectedStart, start: float) -> "Calibration":
        """Return the calibration after a group has started, for which `forecast` was published.

        A forecast without known times changes nothing.
        """
        if not forecast.is_known:
            return self
        new_factors, instants = list[float](), (forecast.p10, forecast.p50, forecast.p90)
        for factor, at, part in zip(self._factors_of(key, forecast.method), instants, _PARTS, strict=True):
            step = part if start > max(at, forecast.made_at + MIN_DEVIATION) else part - 1.0
            new_factors.append(min(max(factor * exp(_STEP * step), 1.0 / _MAX_FACTOR), _MAX_FACTOR))
        p10, p50, p90 = new_factors
        new_key = forecast.method, _namespace(key)
        other_factors = [item for item in self.factors.items() if item[0] != new_key]
        return Calibration({**dict(other_factors[1 - _MAX_FACTOR_KEYS :]), new_key: (p10, p50, p90)})


def _namespace(key: GroupKey) -> str:
    return key.partition("/")[0]


def interval_of(forecast: ExpectedStart, start: float) -> str:
    """Return whether a start came `before`, `inside` or `after` the interval of its forecast."""
    if start > max(forecast.p90, forecast.made_at + MIN_DEVIATION):
        return "after"
    return "before" if start < forecast.p10 else "inside"
