"""Recorder of history: compares each decision with the previous one, at the cost of the changes.

After a restart, records of a file continue if they still hold. Running groups are added from their objects,
each once, by the group and its start, which is equal in both.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from msgspec.structs import replace

from extender.api.units import unix_seconds
from extender.domain.explain.history import AnyRecord, Evicted, GroupRun, QueueHour, Wait
from extender.domain.model.evictions import EvictionCause, Reclaim, ReclaimVictim
from extender.domain.model.reasons import Outcome, Verdict
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.snapshot.decisions import Decisions, GroupDecision, QueueDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.snapshot import Snapshot

_FINEST = 60.0  # seconds: changes of what a group holds within this time are reported as one run
_LONGEST_NAME = 253  # characters of a user name, which the API does not limit
_SLACK = 1.0  # seconds: timestamps of the API are whole ones
_HOUR = 3600.0
Guard = Callable[[GroupKey, Callable[[], None]], object]
_WAITS = (Verdict.WAITING, Verdict.STARTING)


class _Step(NamedTuple):
    """Step from one decision on a group to the next."""

    snapshot: Snapshot
    now: float
    since: float  # earliest time of the changes; equals `now` except at the first step after a restart
    is_first: bool  # whether this is the first observation

    def running_since(self, info: GroupInfo, pod: PodRecord) -> float:
        """Return when the first member on a node began to run: by its object, else by the watch."""
        seen = self.snapshot.epoch + info.bound_since.get(pod.uid, self.snapshot.now)
        return min(unix_seconds(pod.running_since) or seen, self.now)

    def is_new_run(self, info: GroupInfo) -> bool:
        """Return whether all members on nodes began to run after the previous process had stopped."""
        since = (unix_seconds(pod.running_since) for pod in info.placed if pod.holds_capacity)
        return self.is_first and min(since, default=0.0) > self.since + _SLACK


class _Seen(NamedTuple):
    """Group that exists."""

    decision: GroupDecision
    info: GroupInfo

    @property
    def created(self) -> float:
        return unix_seconds(self.info.created)

    @property
    def group_fields(self) -> dict[str, Any]:
        """Return the fields that name the group of a record."""
        key, user = self.info.key, self.info.spec.submitter[:_LONGEST_NAME]
        return {"group": key, "queue": self.decision.queue, "namespace": key.partition("/")[0], "user": user}

    def is_like(self, other: "_Seen") -> bool:
        """Return whether both are equal for records: most decisions change only numbers."""
        old, new = self.decision, other.decision
        return (
            old.verdict is new.verdict
            and old.reason is new.reason
            and old.queue == new.queue
            and old.reclaim is new.reclaim
            and not (old.undo or new.undo)
            and (self.info is other.info or self.info.created == other.info.created)
            and (self.info is other.info or self.info.allocated == other.info.allocated)
        )

    def owns(self, record: GroupRun | Wait) -> bool:
        """Return whether a record belongs to this very group (not to an earlier one) in its present queue."""
        return self.created <= record.start + _SLACK and self.decision.queue == record.queue


class Recorder:
    """Recorder of runs, waits and evictions.

    Attributes:
        known: Records without an end, of earlier recording until `seen`.
        is_going: Returns whether a pod is gone or being deleted.
        guard: Calls a function about a group, and may catch its errors.
    """

    def __init__(
        self, known: Iterable[AnyRecord], seen: float, is_going: Callable[[Uid], bool], guard: Guard
    ) -> None:
        self._guard = guard
        self._runs, self._waits, self._evictions = _Runs(), _Waits(), _Evictions(is_going)
        self._before, self._seen, self._is_first = Decisions(), seen, True
        self._infos: Mapping[GroupKey, GroupInfo] = {}  # last seen info of each group
        for record in sorted(known, key=lambda each: each.start):
            match record:
                case GroupRun():
                    self._runs.open[record.group] = record
                case Wait():
                    self._waits.open[record.group] = record

    def observe(self, decisions: Decisions, snapshot: Snapshot) -> list[AnyRecord]:
        """Return new or changed records. `snapshot`: that of these decisions."""
        before, now = self._before, snapshot.epoch + snapshot.now
        if decisions is before:
            return []
        step = _Step(snapshot, now, min(self._seen, now) if self._is_first else now, self._is_first)
        records: list[AnyRecord] = []
        known = (*self._runs.open, *self._waits.open) if self._is_first else ()
        for key in dict.fromkeys((*decisions.changed_since(before), *map(GroupKey, known))):
            former = _seen_group(before, self._infos, key)
            group = _seen_group(decisions, snapshot.groups, key)
            if group is not None and former is not None and former.is_like(group) and not self._is_first:
                continue
            self._guard(key, partial(self._follow, key, group, step, former is not None, records))
        records += self._evictions.observe(decisions, step)
        self._before, self._infos = decisions, snapshot.groups
        self._seen, self._is_first = now, False
        return records

    def _follow(
        self, key: GroupKey, group: _Seen | None, step: _Step, was_there: bool, records: list[AnyRecord]
    ) -> None:
        self._evictions.record(key, group)
        records += self._runs.observe(key, group, step)
        records += self._waits.observe(key, group, step, was_there)

    @property
    def open(self) -> list[AnyRecord]:
        """Return the records without an end."""
        return [*self._runs.open.values(), *self._waits.open.values()]


def _seen_group(decisions: Decisions, infos: Mapping[GroupKey, GroupInfo], key: GroupKey) -> _Seen | None:
    decision, info = decisions.groups.get(key), infos.get(key)
    return _Seen(decision, info) if decision is not None and info is not None else None


class _Runs:
    def __init__(self) -> None:
        self.open: dict[str, GroupRun] = {}

    def observe(self, key: GroupKey, group: _Seen | None, step: _Step) -> Iterator[GroupRun]:
        """Yield the records of the group's run that begin, change or end with this step."""
        held = group.info.allocated if group is not None else {}
        if (run := self.open.get(key)) is None:
            if group is not None and held:
                yield self._begin(group, step, floor=0.0)
            return
        goes_on = group is not None and held and group.owns(run) and not step.is_new_run(group.info)
        if goes_on and held == run.held:
            return
        if goes_on and step.since - run.start < _FINEST:
            self.open[key] = replace(run.up_to(step.since), held=held)
            yield self.open[key]
            return
        run = self.open.pop(key).ended(step.since)
        yield replace(run, held={})
        if group is not None and held:
            yield self._begin(group, step, floor=run.until, is_same=bool(goes_on))

    def _begin(self, group: _Seen, step: _Step, floor: float, is_same: bool = False) -> GroupRun:
        """Begin a record. `floor`: the end of the records before; `is_same`: the group has run since then."""
        spent, starts = dict[str, float](), [step.now]
        if is_same:
            starts = [step.since]
        elif step.is_first:  # run times from the objects
            for pod in (*group.info.placed, *group.info.departing):
                if pod.holds_capacity:
                    starts.append(max(step.running_since(group.info, pod), floor))
                    for name, amount in pod.shape.requests.items():
                        spent[name] = spent.get(name, 0.0) + amount * (step.now - starts[-1])
        start, held = min(starts), group.info.allocated
        until = step.now if spent else start
        run = GroupRun(**group.group_fields, start=start, until=until, spent=spent, held=held)
        self.open[run.group] = run
        return run


class _Waits:
    def __init__(self) -> None:
        self.open: dict[str, Wait] = {}

    def observe(self, key: GroupKey, group: _Seen | None, step: _Step, was_there: bool) -> Iterator[Wait]:
        """Yield the records of the group's wait that begin, change or end with this step."""
        wait, verdict = self.open.get(key), group.decision.verdict if group is not None else Verdict.ENDED
        if wait is None and group is not None and step.is_first and verdict is Verdict.RUNNING:
            yield from self._waits_from_objects(group, step)
        is_another = wait is not None and group is not None and not group.owns(wait)
        if wait is not None and (is_another or verdict not in _WAITS):
            del self.open[key]
            yield self._end_of_wait(wait, None if is_another else group, step)
            wait = None
        if group is None or verdict not in _WAITS:
            return
        reason = group.decision.reason or ""
        if wait is None:
            begun = step.now if was_there else min(group.created or step.now, step.now)
            wait = Wait(**group.group_fields, start=begun, until=begun)
        elif wait.reason == reason:
            return
        self.open[key] = replace(wait.up_to(step.now), reason=reason)
        yield self.open[key]

    def _end_of_wait(self, wait: Wait, group: _Seen | None, step: _Step) -> Wait:
        """Return the wait with its end: the group runs, has run, or is gone."""
        decision = group.decision if group is not None else None
        runs, at = decision is not None and decision.verdict is Verdict.RUNNING, step.since
        if runs and group is not None and step.is_first:
            at = max(self._waiting_since(group, step), wait.start)
        has_run = decision is not None and decision.life.outcome is Outcome.COMPLETED
        return replace(wait.ended(at), has_started=runs or has_run)

    def _waits_from_objects(self, group: _Seen, step: _Step) -> Iterator[Wait]:
        """Yield the wait of a running group that was not seen to wait; none if it may have waited twice."""
        start, end = group.created, self._waiting_since(group, step)
        if start and not group.info.history.lost_work:
            waited = {"": max(end - start, 0.0)}
            wait = Wait(**group.group_fields, start=start, until=end, waited=waited, has_started=True)
            yield replace(wait, end=max(end, start), from_objects=True)

    @staticmethod
    def _waiting_since(group: _Seen, step: _Step) -> float:
        on_nodes = (pod for pod in group.info.placed if pod.holds_capacity)
        return min((step.running_since(group.info, pod) for pod in on_nodes), default=step.now)


class _Evictions:
    def __init__(self, is_going: Callable[[Uid], bool]) -> None:
        self._is_going = is_going
        self._reclaims: dict[GroupKey, Reclaim] = {}  # active reclaims, by the group that gets the capacity
        self._undone: dict[GroupKey, list[ReclaimVictim]] = {}  # members of starts that failed
        self._leaving: dict[Uid, Evicted | None] = {}  # pods to be evicted; None: reported already

    def record(self, key: GroupKey, group: _Seen | None) -> None:
        """Record the evictions that the decision on a group asks for."""
        self._reclaims.pop(key, None)
        self._undone.pop(key, None)
        if group is not None and group.decision.reclaim is not None:
            self._reclaims[key] = group.decision.reclaim
        if group is not None and group.decision.undo:
            beneficiary = key, group.decision.queue, EvictionCause.UNDO
            members = (pod for pod in group.info.placed if pod.uid in group.decision.undo)
            self._undone[key] = [
                ReclaimVictim(pod.uid, pod.namespace, pod.name, *beneficiary) for pod in members
            ]

    def observe(self, decisions: Decisions, step: _Step) -> Iterator[Evicted]:
        """Yield the evicted pods that are gone by now, or terminating."""
        wanted = {each.uid: each for each in chain.from_iterable(self._undone.values())}
        wanted |= {uid: each.victim for uid, each in decisions.evictions.items() if not each.is_slow}
        for uid, victim in wanted.items():
            if uid not in self._leaving:
                self._leaving[uid] = self._about(victim, step)
        for uid, evicted in tuple(self._leaving.items()):
            if evicted is not None and self._is_going(uid):
                yield replace(evicted, start=step.now, end=step.now)
                self._leaving[uid] = None
            if uid not in wanted and uid not in decisions.evictions:
                del self._leaving[uid]

    def _about(self, victim: ReclaimVictim, step: _Step) -> Evicted:
        """Return the record of an evicted pod, with the group that its eviction helps."""
        info, reclaims = step.snapshot.groups.get(victim.group), self._reclaims.items()
        held = info.allocated if info is not None else {}
        claimants = (key for key, reclaim in reclaims if victim.uid in {pod.uid for pod in reclaim.victims})
        return Evicted(
            uid=victim.uid,
            pod=f"{victim.namespace}/{victim.name}",
            group=victim.group,
            queue=victim.queue,
            namespace=victim.namespace,
            user=info.spec.submitter[:_LONGEST_NAME] if info is not None else "",
            cause=victim.cause,
            claimant=next(claimants, ""),
            start=step.now,
            lost={name: amount * victim.lost for name, amount in held.items() if victim.lost},
        )


class QueueHours:
    """Recorder of the hours of queues. `known`: records without an end."""

    def __init__(self, known: Iterable[AnyRecord] = ()) -> None:
        self._open = {record.queue: record for record in known if isinstance(record, QueueHour)}
        self._sampled: float | None = None

    def sample(self, queues: Mapping[str, QueueDecision], now: float, longest: float) -> Iterator[QueueHour]:
        """Yield new or changed records.

        A decision counts from the last sample on, up to `longest` seconds.
        """
        hour = now // _HOUR * _HOUR
        seconds = max(min(now - (self._sampled or now), longest), 0.0)
        self._sampled = now
        for name in [name for name, known in self._open.items() if known.start != hour]:
            yield self._open.pop(name).ended(hour)
        for name, queue in queues.items():
            if seconds and (queue.allocated or queue.requested):
                known = self._open.get(name) or QueueHour(queue=name, start=hour)
                self._open[name] = _sample_times(known, queue, seconds)
                yield self._open[name]

    @property
    def open(self) -> list[QueueHour]:
        """Return the records without an end."""
        return list(self._open.values())


def _sample_times(hour: QueueHour, queue: QueueDecision, seconds: float) -> QueueHour:
    """Return the record of the hour with some more seconds of the queue's current state."""
    wants = any(amount > queue.allocated.get(name, 0) for name, amount in queue.requested.items())
    names = hour.deserved.keys() | queue.deserved.keys()
    sums = {name: hour.deserved.get(name, 0.0) + queue.deserved.get(name, 0.0) * seconds for name in names}
    wanting, share = hour.wanting + seconds * wants, hour.share + queue.share * seconds * wants
    return replace(hour, deserved=sums, wanting=wanting, share=share)
