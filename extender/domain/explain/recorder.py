"""Recorder of history: compares each decision with the previous decision, at the cost of the changes.

After a restart, records of a file continue if they are still valid. Running groups are added from their
objects. Each group is added only once, since its start is the same in the file and in the objects.
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

_MIN_RUN_SECONDS = 60.0  # seconds; changes of held amounts within this time are reported as one run
_MAX_USER_LENGTH = 253  # number of characters of a user name, which the API does not limit
_SLACK_SECONDS = 1.0  # seconds; timestamps of the API are whole seconds
_HOUR_SECONDS = 3600.0
Guard = Callable[[GroupKey, Callable[[], None]], object]
_WAITING_VERDICTS = (Verdict.WAITING, Verdict.STARTING)


class _Step(NamedTuple):
    """Step from one decision on a group to the next decision."""

    snapshot: Snapshot
    now: float
    since: float  # earliest time of the changes; differs from `now` only at the first step after a restart
    is_first: bool  # whether this is the first observation

    def running_since(self, info: GroupInfo, pod: PodRecord) -> float:
        """Return when a member on a node began to run: by its object, otherwise by the watch."""
        bound_at = self.snapshot.epoch + info.bound_since.get(pod.uid, self.snapshot.now)
        return min(unix_seconds(pod.running_since) or bound_at, self.now)

    def is_new_run(self, info: GroupInfo) -> bool:
        """Return whether all members on nodes began to run after the previous process had stopped."""
        start_times = (unix_seconds(pod.running_since) for pod in info.placed_pods if pod.holds_capacity)
        return self.is_first and min(start_times, default=0.0) > self.since + _SLACK_SECONDS


class _Group(NamedTuple):
    """Group that exists, with the decision on it."""

    decision: GroupDecision
    info: GroupInfo

    @property
    def created_at(self) -> float:
        return unix_seconds(self.info.created_at)

    @property
    def group_fields(self) -> dict[str, Any]:
        """Return the fields of a record that name its group."""
        key, user = self.info.key, self.info.spec.submitter[:_MAX_USER_LENGTH]
        return {"group": key, "queue": self.decision.queue, "namespace": key.partition("/")[0], "user": user}

    def is_equivalent(self, other_group: "_Group") -> bool:
        """Return whether both groups have the same records. Most decisions differ only in numbers."""
        old, new = self.decision, other_group.decision
        return (
            old.verdict is new.verdict
            and old.reason is new.reason
            and old.queue == new.queue
            and old.reclaim is new.reclaim
            and not (old.undo or new.undo)
            and (self.info is other_group.info or self.info.created_at == other_group.info.created_at)
            and (self.info is other_group.info or self.info.allocated == other_group.info.allocated)
        )

    def owns(self, record: GroupRun | Wait) -> bool:
        """Return whether a record belongs to this group in its present queue, and not to an earlier group."""
        return self.created_at <= record.start + _SLACK_SECONDS and self.decision.queue == record.queue


class Recorder:
    """Recorder of runs, waits and evictions.

    Args:
        open_records: Records without an end, from earlier recording until `seen_at`.
        seen_at: The time of the last earlier recording.
        is_going: Returns whether a pod no longer exists or is being deleted.
        guard: Calls a function about a group, and may catch its errors.
    """

    def __init__(
        self, open_records: Iterable[AnyRecord], seen_at: float, is_going: Callable[[Uid], bool], guard: Guard
    ) -> None:
        self._guard = guard
        self._runs, self._waits, self._evictions = _Runs(), _Waits(), _Evictions(is_going)
        self._last_decisions, self._seen_at, self._is_first = Decisions(), seen_at, True
        self._infos: Mapping[GroupKey, GroupInfo] = {}  # last info of each group
        for record in sorted(open_records, key=lambda open_record: open_record.start):
            match record:
                case GroupRun():
                    self._runs.runs[record.group] = record
                case Wait():
                    self._waits.waits[record.group] = record

    def observe(self, decisions: Decisions, snapshot: Snapshot) -> list[AnyRecord]:
        """Return new or changed records. `snapshot` is the snapshot of these decisions."""
        previous, now = self._last_decisions, snapshot.epoch + snapshot.now
        if decisions is previous:
            return []
        step = _Step(snapshot, now, min(self._seen_at, now) if self._is_first else now, self._is_first)
        records: list[AnyRecord] = []
        recorded_keys = (*self._runs.runs, *self._waits.waits) if self._is_first else ()
        for key in dict.fromkeys((*decisions.changed_since(previous), *map(GroupKey, recorded_keys))):
            old = _seen_group(previous, self._infos, key)
            group = _seen_group(decisions, snapshot.groups, key)
            if group is not None and old is not None and old.is_equivalent(group) and not self._is_first:
                continue
            self._guard(key, partial(self._follow, key, group, step, old is not None, records))
        records += self._evictions.observe(decisions, step)
        self._last_decisions, self._infos = decisions, snapshot.groups
        self._seen_at, self._is_first = now, False
        return records

    def _follow(
        self, key: GroupKey, group: _Group | None, step: _Step, has_existed: bool, records: list[AnyRecord]
    ) -> None:
        """Add the new or changed records of one group to `records`."""
        self._evictions.record(key, group)
        records += self._runs.observe(key, group, step)
        records += self._waits.observe(key, group, step, has_existed)

    @property
    def open(self) -> list[AnyRecord]:
        """Return the records without an end."""
        return [*self._runs.runs.values(), *self._waits.waits.values()]


def _seen_group(decisions: Decisions, infos: Mapping[GroupKey, GroupInfo], key: GroupKey) -> _Group | None:
    decision, info = decisions.groups.get(key), infos.get(key)
    return _Group(decision, info) if decision is not None and info is not None else None


class _Runs:
    """Open records of runs."""

    def __init__(self) -> None:
        self.runs: dict[str, GroupRun] = {}

    def observe(self, key: GroupKey, group: _Group | None, step: _Step) -> Iterator[GroupRun]:
        """Yield the records of the group's run that begin, change or end with this step."""
        held_amounts = group.info.allocated if group is not None else {}
        if (run := self.runs.get(key)) is None:
            if group is not None and held_amounts:
                yield self._begin(group, step, earliest_start=0.0)
            return
        continues = group is not None and held_amounts and group.owns(run) and not step.is_new_run(group.info)
        if continues and held_amounts == run.held:
            return
        if continues and step.since - run.start < _MIN_RUN_SECONDS:
            self.runs[key] = replace(run.up_to(step.since), held=held_amounts)
            yield self.runs[key]
            return
        run = self.runs.pop(key).with_end(step.since)
        yield replace(run, held={})
        if group is not None and held_amounts:
            yield self._begin(group, step, earliest_start=run.until, continues=bool(continues))

    def _begin(self, group: _Group, step: _Step, earliest_start: float, continues: bool = False) -> GroupRun:
        """Begin a record of a run.

        Args:
            group: The group that runs.
            step: The present step.
            earliest_start: The end of the earlier records.
            continues: Whether the group has run without a break since the earlier records.
        """
        spent_amounts, starts = dict[str, float](), [step.now]
        if continues:
            starts = [step.since]
        elif step.is_first:  # take run times from the objects
            for pod in (*group.info.placed_pods, *group.info.departing_pods):
                if pod.holds_capacity:
                    starts.append(max(step.running_since(group.info, pod), earliest_start))
                    for name, amount in pod.shape.requests.items():
                        spent_amounts[name] = spent_amounts.get(name, 0.0) + amount * (step.now - starts[-1])
        start, held_amounts = min(starts), group.info.allocated
        end = step.now if spent_amounts else start
        run = GroupRun(**group.group_fields, start=start, until=end, spent=spent_amounts, held=held_amounts)
        self.runs[run.group] = run
        return run


class _Waits:
    """Open records of waits."""

    def __init__(self) -> None:
        self.waits: dict[str, Wait] = {}

    def observe(self, key: GroupKey, group: _Group | None, step: _Step, has_existed: bool) -> Iterator[Wait]:
        """Yield the records of the group's wait that begin, change or end with this step."""
        wait, verdict = self.waits.get(key), group.decision.verdict if group is not None else Verdict.ENDED
        if wait is None and group is not None and step.is_first and verdict is Verdict.RUNNING:
            yield from self._waits_from_objects(group, step)
        is_earlier = wait is not None and group is not None and not group.owns(wait)
        if wait is not None and (is_earlier or verdict not in _WAITING_VERDICTS):
            del self.waits[key]
            yield self._end_of_wait(wait, None if is_earlier else group, step)
            wait = None
        if group is None or verdict not in _WAITING_VERDICTS:
            return
        reason = group.decision.reason or ""
        if wait is None:
            begun_at = step.now if has_existed else min(group.created_at or step.now, step.now)
            wait = Wait(**group.group_fields, start=begun_at, until=begun_at)
        elif wait.reason == reason:
            return
        self.waits[key] = replace(wait.up_to(step.now), reason=reason)
        yield self.waits[key]

    def _end_of_wait(self, wait: Wait, group: _Group | None, step: _Step) -> Wait:
        """Return the wait with its end. The group runs, has run, or no longer exists."""
        decision = group.decision if group is not None else None
        is_running, ended_at = decision is not None and decision.verdict is Verdict.RUNNING, step.since
        if is_running and group is not None and step.is_first:
            ended_at = max(self._wait_ended_at(group, step), wait.start)
        has_run = decision is not None and decision.life.outcome is Outcome.COMPLETED
        return replace(wait.with_end(ended_at), has_started=is_running or has_run)

    def _waits_from_objects(self, group: _Group, step: _Step) -> Iterator[Wait]:
        """Yield the wait of a running group whose wait was not observed.

        Nothing is yielded if the group may have waited twice.
        """
        start, end = group.created_at, self._wait_ended_at(group, step)
        if start and not group.info.history.lost_work:
            seconds = {"": max(end - start, 0.0)}
            wait = Wait(**group.group_fields, start=start, until=end, waited=seconds, has_started=True)
            yield replace(wait, end=max(end, start), from_objects=True)

    @staticmethod
    def _wait_ended_at(group: _Group, step: _Step) -> float:
        """Return when the group's wait ended: when its first member on a node began to run."""
        pods_on_nodes = (pod for pod in group.info.placed_pods if pod.holds_capacity)
        return min((step.running_since(group.info, pod) for pod in pods_on_nodes), default=step.now)


class _Evictions:
    """Evictions that decisions contain, until the recorder has reported them."""

    def __init__(self, is_going: Callable[[Uid], bool]) -> None:
        self._is_going = is_going
        self._reclaims: dict[GroupKey, Reclaim] = {}  # active reclaims by the group that gets the capacity
        self._undone_members: dict[GroupKey, list[ReclaimVictim]] = {}  # members of failed starts
        self._record_by_uid: dict[Uid, Evicted | None] = {}  # pods to evict; None if already reported

    def record(self, key: GroupKey, group: _Group | None) -> None:
        """Record the evictions that the decision on a group contains."""
        self._reclaims.pop(key, None)
        self._undone_members.pop(key, None)
        if group is not None and group.decision.reclaim is not None:
            self._reclaims[key] = group.decision.reclaim
        if group is not None and group.decision.undo:
            shared_fields = key, group.decision.queue, EvictionCause.UNDO
            members = (pod for pod in group.info.placed_pods if pod.uid in group.decision.undo)
            self._undone_members[key] = [
                ReclaimVictim(pod.uid, pod.namespace, pod.name, *shared_fields) for pod in members
            ]

    def observe(self, decisions: Decisions, step: _Step) -> Iterator[Evicted]:
        """Yield the evicted pods that no longer exist or are terminating."""
        victim_by_uid = {item.uid: item for item in chain.from_iterable(self._undone_members.values())}
        victim_by_uid |= {uid: item.victim for uid, item in decisions.evictions.items() if not item.is_slow}
        for uid, victim in victim_by_uid.items():
            if uid not in self._record_by_uid:
                self._record_by_uid[uid] = self._eviction_record(victim, step)
        for uid, record in tuple(self._record_by_uid.items()):
            if record is not None and self._is_going(uid):
                yield replace(record, start=step.now, end=step.now)
                self._record_by_uid[uid] = None
            if uid not in victim_by_uid and uid not in decisions.evictions:
                del self._record_by_uid[uid]

    def _eviction_record(self, victim: ReclaimVictim, step: _Step) -> Evicted:
        """Return the record of an evicted pod, with the group that gets its capacity."""
        info, reclaims = step.snapshot.groups.get(victim.group), self._reclaims.items()
        held_amounts = info.allocated if info is not None else {}
        claimants = (key for key, reclaim in reclaims if victim.uid in {pod.uid for pod in reclaim.victims})
        return Evicted(
            uid=victim.uid,
            pod=f"{victim.namespace}/{victim.name}",
            group=victim.group,
            queue=victim.queue,
            namespace=victim.namespace,
            user=info.spec.submitter[:_MAX_USER_LENGTH] if info is not None else "",
            cause=victim.cause,
            claimant=next(claimants, ""),
            start=step.now,
            lost={name: amount * victim.lost for name, amount in held_amounts.items() if victim.lost},
        )


class QueueHours:
    """Recorder of the hours of queues. `open_records` are earlier records without an end."""

    def __init__(self, open_records: Iterable[AnyRecord] = ()) -> None:
        self._records = {record.queue: record for record in open_records if isinstance(record, QueueHour)}
        self._sampled_at: float | None = None

    def sample(self, queues: Mapping[str, QueueDecision], now: float, max_gap: float) -> Iterator[QueueHour]:
        """Yield new or changed records.

        The present decisions count for the time since the last sample, up to `max_gap` seconds.
        """
        hour_start = now // _HOUR_SECONDS * _HOUR_SECONDS
        seconds = max(min(now - (self._sampled_at or now), max_gap), 0.0)
        self._sampled_at = now
        for name in [name for name, hour_record in self._records.items() if hour_record.start != hour_start]:
            yield self._records.pop(name).with_end(hour_start)
        for name, queue in queues.items():
            if seconds and (queue.allocated or queue.requested):
                hour_record = self._records.get(name) or QueueHour(queue=name, start=hour_start)
                self._records[name] = _with_sample(hour_record, queue, seconds)
                yield self._records[name]

    @property
    def open(self) -> list[QueueHour]:
        """Return the records without an end."""
        return list(self._records.values())


def _with_sample(record: QueueHour, queue: QueueDecision, seconds: float) -> QueueHour:
    """Return the record of the hour with more seconds of the queue's present state."""
    is_wanting = any(amount > queue.allocated.get(name, 0) for name, amount in queue.requested.items())
    names = record.deserved.keys() | queue.deserved.keys()
    sums = {name: record.deserved.get(name, 0.0) + queue.deserved.get(name, 0.0) * seconds for name in names}
    wanting, share = record.wanting + seconds * is_wanting, record.share + queue.share * seconds * is_wanting
    return replace(record, deserved=sums, wanting=wanting, share=share)
