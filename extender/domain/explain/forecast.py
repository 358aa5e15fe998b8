"""When each group that waits is expected to start: the same decisions in several futures, which differ in how
long groups run, give an interval; or what it waits for has no known end, and is named.

Worked out in slices, one round of decisions each, so that a caller can pace it.

What forecasts have missed corrects the next ones: others come meanwhile and overtake, owners declare too
much, runs vary more than their law. After each start every quantile is moved by a step, so far that in the
long run the part of starts that come before it is the part that it stands for, whatever the reason was
(Gibbs and Candès, Adaptive conformal inference under distribution shift, 2021)."""

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from functools import cached_property
from math import exp, inf
from statistics import median

import msgspec
from msgspec.structs import replace

from extender.api.keys import RUN_TIME
from extender.api.texts import listed
from extender.domain.explain.future import Future, Method
from extender.domain.explain.holders import WaitingCase
from extender.domain.explain.hypotheses import on_nodes
from extender.domain.explain.run_laws import FUTURES, RunLaws
from extender.domain.model.reasons import FOR_OTHERS, Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.scheduling.decide import decide
from extender.domain.scheduling.memory import Notes, notes_of
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.wholeness import Signature, missing

MOST_ROUNDS = 1500  # of one future
# The first in line of each queue that are worked out, and what they ask for that differs, which costs most:
# else one queue would hold up the estimates of all.
_MOST_PLACES, _MOST_KINDS = 100, 32
_PACE = 1.05  # ends that are so close together are taken as one: intervals are wider
_MOST_CAUSES = 200  # that are looked for in one forecast: each goes through all groups
_MOST_NAMES = 3  # in one sentence
_DEEPEST = 8  # groups behind one another, of which the first one's cause is meant
_TOO_FAR = "more happens before it starts than is worked out"

_SHARES = (0.08, 0.5, 0.92)  # of starts before p10, p50 and p90: the interval is rather too wide
_STEP = 0.08  # of the logarithm of a factor, for one start
_EXACT = (1.0, 1.0, 1.0)  # factors
_MOST = 20.0  # a factor, or one divided by it
_MOST_KNOWN = 400  # factors: of namespaces in which something has started lately
SHORTEST = 10.0  # seconds: what comes so soon is on time


class ExpectedStart(msgspec.Struct, frozen=True):
    """Of one group. Moments on the ledger's clock, in seconds; inf where they are unknown."""

    made_at: float
    p10: float = inf
    p50: float = inf
    p90: float = inf
    method: Method = Method.DECLARED
    unknown: str = ""  # a sentence: what has no known end; empty: the moments are known

    @property
    def is_known(self) -> bool:
        return not self.unknown


ExpectedStarts = Mapping[GroupKey, ExpectedStart]


def forecasts(decisions: Decisions, rounds: int = MOST_ROUNDS) -> Generator[None, None, ExpectedStarts]:
    """Of all groups that wait by these decisions. It stops after each round, or what takes about as long, and
    returns them at last. `rounds`: how many are made in each future at most."""
    memory = notes_of(decisions)
    waiting = [key for key, made in decisions.groups.items() if made.verdict is Verdict.WAITING]
    if memory is None or not waiting:
        return {}
    unknown = dict.fromkeys(_beyond(memory), _TOO_FAR)
    snapshot, begins = memory.snapshot, decisions
    if unknown:
        # Their queues ask for as much as before: others of them are next in line all the time.
        groups = {key: group for key, group in snapshot.groups.items() if key not in unknown}
        touched = frozenset(unknown)
        snapshot = replace(snapshot, version=snapshot.version + 1, groups=groups, touched=touched)
        begins = decide(snapshot, decisions)
        yield
    laws = RunLaws(snapshot)
    starts: list[Mapping[GroupKey, float]] = []
    reclaiming = Counter[GroupKey]()  # by group the futures in which other groups give up capacity for it
    for number in range(FUTURES):
        future = Future(snapshot, begins, laws.of_future(number), _PACE)
        is_cut = yield from _played(future, set(waiting).difference(unknown), rounds)
        causes = _Causes(future, is_cut)
        for key in waiting:
            if key not in future.starts and key not in unknown:
                looked_for = causes.looked_for
                unknown[key] = causes.of(key)
                if causes.looked_for > looked_for:
                    yield
        starts.append(future.starts)
        reclaiming.update(key for key in future.starts if future.method(key) is Method.RECLAIM)
    made_at = snapshot.now
    found: dict[GroupKey, ExpectedStart] = {}
    for key in waiting:
        if key in unknown:
            found[key] = ExpectedStart(made_at, unknown=unknown[key])
            continue
        moments = [each[key] for each in starts]
        is_learnt = any(at >= learnt for at, learnt in zip(moments, laws.learnt_from, strict=True))
        first, *_, last = ordered = sorted(moments)
        method = Method.LEARNT if is_learnt else Method.DECLARED
        if reclaiming[key] > FUTURES // 2:
            method = Method.RECLAIM
        found[key] = ExpectedStart(made_at, first, ordered[FUTURES // 2], last, method)
    return found


def _beyond(memory: Notes) -> Iterator[GroupKey]:
    """Those that hold nothing and are further back in the line of their queue than is worked out."""
    for line in memory.lines.values():
        kinds = set[Signature]()
        for place, group in enumerate(line):
            kinds.add(missing(group).signature)
            if (place >= _MOST_PLACES or len(kinds) > _MOST_KINDS) and not on_nodes(group):
                yield group.key


def _played(future: Future, left: set[GroupKey], rounds: int) -> Generator[None, None, bool]:
    """Until all of them have started; whether more would happen than is looked at."""
    for _ in range(rounds):
        if not left or not future.step():
            return False
        left -= future.starts.keys()
        yield
    return True


class _Causes:
    """Why groups have not started at the end of a future. Of those alike, one is looked at."""

    def __init__(self, future: Future, is_cut: bool) -> None:
        self._snapshot, self._decisions = future.snapshot, future.decisions
        self._endless = future.endless
        self._is_cut = is_cut
        self._known: dict[object, str] = {}

    @property
    def looked_for(self) -> int:
        """How many causes so far."""
        return len(self._known)

    def of(self, key: GroupKey, depth: int = 0) -> str:
        made, group = self._decisions.groups.get(key), self._snapshot.groups.get(key)
        if made is None or group is None or made.reason is None:
            return "it is not known what becomes of it"
        if made.reason not in FOR_OTHERS:
            return f"nothing that is expected to happen starts it: {made.reason.meaning}"
        if self._is_cut:
            return _TOO_FAR
        alike = (group.queue, made.reason, missing(group).signature)
        if alike not in self._known:
            if len(self._known) >= _MOST_CAUSES:
                return "groups without a known end hold what it lacks"
            self._known[alike] = self._looked_for(group, made.reason, depth)
        return self._known[alike]

    def _looked_for(self, group: GroupView, reason: Reason, depth: int) -> str:
        case = WaitingCase(self._snapshot, self._decisions, group, rounds=0)
        holders = case.holders(reason)
        named = [f"{it.called} of queue {it.queue}" for it in holders if it.group in self._endless]
        if named:
            has = "has" if len(named) == 1 else "have"
            return f"{listed(named, _MOST_NAMES)} {has} no known end (annotation {RUN_TIME})"
        ahead = next((it.group for it in holders if it.group and it.group != group.key), None)
        if ahead is not None and reason in _BEHIND and depth < _DEEPEST:
            return self.of(ahead, depth + 1)
        return f"nothing that is expected to happen starts it: {reason.meaning}"


_BEHIND = (Reason.BEHIND_OTHERS, Reason.RESERVED, Reason.WINDOW_FULL)  # what it waits for waits itself


# ---- what forecasts have missed

_Factors = tuple[float, float, float]


class Calibration(msgspec.Struct, frozen=True, dict=True):
    """By method and namespace the factors of the time until p10, p50 and p90."""

    factors: Mapping[tuple[Method, str], _Factors] = {}

    @cached_property
    def _usual(self) -> Mapping[Method, _Factors]:
        """Those of a namespace of which nothing has started: the middle of all, and of two that are exact, so
        that what is declared in one moves others little."""
        usual: dict[Method, _Factors] = {}
        for method in Method:
            known = [each for (of, _), each in self.factors.items() if of is method]
            p10, p50, p90 = map(median, zip(_EXACT, _EXACT, *known, strict=True))
            usual[method] = p10, p50, p90
        return usual

    def _of(self, key: GroupKey, method: Method) -> _Factors:
        return self.factors.get((method, _namespace(key))) or self._usual[method]

    def applied(self, key: GroupKey, forecast: ExpectedStart) -> ExpectedStart:
        if not forecast.is_known:
            return forecast
        made, moments = forecast.made_at, (forecast.p10, forecast.p50, forecast.p90)
        factors = self._of(key, forecast.method)
        p10, p50, p90 = sorted(made + (at - made) * n for at, n in zip(moments, factors, strict=True))
        return replace(forecast, p10=p10, p50=p50, p90=p90)

    def after(self, key: GroupKey, told: ExpectedStart, start: float) -> "Calibration":
        """Once a group has started of which that was told."""
        if not told.is_known:
            return self
        moved, moments = list[float](), (told.p10, told.p50, told.p90)
        for n, at, share in zip(self._of(key, told.method), moments, _SHARES, strict=True):
            step = share if start > max(at, told.made_at + SHORTEST) else share - 1.0
            moved.append(min(max(n * exp(_STEP * step), 1.0 / _MOST), _MOST))
        p10, p50, p90 = moved
        latest = told.method, _namespace(key)
        others = [each for each in self.factors.items() if each[0] != latest]
        return Calibration({**dict(others[1 - _MOST_KNOWN :]), latest: (p10, p50, p90)})


def _namespace(key: GroupKey) -> str:
    return key.partition("/")[0]


def interval_of(told: ExpectedStart, start: float) -> str:
    """Whether a start came `before` the interval that was told, `inside` or `after` it."""
    if start > max(told.p90, told.made_at + SHORTEST):
        return "after"
    return "before" if start < told.p10 else "inside"
