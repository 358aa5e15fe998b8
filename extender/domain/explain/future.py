"""One course of events from a moment on, as decide() itself would have it: what is planned runs, what runs
ends when it is expected to, what is being deleted goes, and who is evicted waits again. Nothing new comes.

The scheduler is ideal: it takes each planned node at once. Members that a job has yet to make are there."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Set
from enum import StrEnum
from math import inf
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

from extender.domain.explain.hypotheses import on_nodes, with_views
from extender.domain.model.evictions import ReclaimVictim
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.shapes import requests_of
from extender.domain.placement.departures import RunEnd
from extender.domain.queues.past_usage import UsageMeter
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.decisions import Decisions, GroupDecision, start_after
from extender.domain.snapshot.group_view import GroupView, Start, holding_of
from extender.domain.snapshot.nodes import in_all
from extender.domain.snapshot.snapshot import OF_OTHERS, Snapshot, moment_of
from extender.domain.snapshot.wholeness import running_since, whole

# Between two looks for what time alone changes: seconds, and a part of those since anything else has changed.
# decide() may want one each second.
_LOOK, _LOOKS = 5.0, 0.05
_QUIET = 3600.0  # seconds without any event after which nothing is expected to change any more

EndOf = Callable[[GroupView, float, float], RunEnd]  # of a group that has run since the first moment, now


class Method(StrEnum):
    """Event that an expected start depends on."""

    DECLARED = "Declared"  # run times before it are declared, or limited by Kubernetes
    LEARNT = "Learnt"  # some run times before it are learned from groups of the same kind
    RECLAIM = "Reclaim"  # other groups give up capacity for it
    RESERVATION = "Reservation"  # nodes are reserved for it until enough is free on them


class _Changes(NamedTuple):
    """From one round to the next."""

    groups: dict[GroupKey, GroupView | None]  # None: it is gone
    gone: set[Uid]  # pods that are not ours
    is_event: bool  # whether any pod starts, ends or goes
    frees_room: bool  # whether others may start by that at the same moment


class Future:
    """`decisions`: made on `snapshot`. `pace`: what ends so much later, as a multiple of the time since the
    beginning, ends together, in the middle of that: a round costs much on large clusters."""

    def __init__(self, snapshot: Snapshot, decisions: Decisions, end_of: EndOf, pace: float = 1.005) -> None:
        self.snapshot, self.decisions = snapshot, decisions
        self.begun = self._last = snapshot.now  # the last one: when anything but time changed something
        self.starts: dict[GroupKey, float] = {}  # by group the moment at which it first starts
        self.victims: dict[GroupKey, tuple[ReclaimVictim, ...]] = {}  # evicted for the start of a group
        self._reserved: set[GroupKey] = set()  # groups that had reserved nodes before their start
        self.ends: dict[GroupKey, RunEnd] = {}  # of what runs
        self._end_of, self._pace = end_of, pace
        self._meter = UsageMeter(snapshot.past, snapshot.limits.usage_half_life)
        if self._meter.half_life:
            held = {key: holding_of(group) for key, group in snapshot.groups.items() if group.allocated}
            self._meter.follow(held, snapshot.now + snapshot.epoch)
        self._turned: Collection[GroupKey] = tuple(decisions.groups)
        self._note_starts()
        departing = [(pod, key) for key, group in snapshot.groups.items() for pod in group.departing]
        departing += [(pod, OF_OTHERS) for pod in snapshot.others.leaving.values()]
        self._leaving = {pod.uid: (key, self._gone_at(pod)) for pod, key in departing}
        for key, group in snapshot.groups.items():
            if group.is_on_nodes:
                since = running_since(group, snapshot.moment)
                self.ends[key] = end_of(group, self.begun if since is None else since, self.begun)

    def _gone_at(self, pod: PodRecord) -> float:
        return max(moment_of(pod.gone_by, self.snapshot.epoch), self.begun + 1.0)

    @property
    def endless(self) -> Set[GroupKey]:
        """What runs, and nobody knows for how long."""
        return {key for key, end in self.ends.items() if end.at == inf}

    def method(self, key: GroupKey) -> Method:
        """Return the event that a start in this future depends on. Learned run times count as declared."""
        if self.victims.get(key):
            return Method.RECLAIM
        return Method.RESERVATION if key in self._reserved else Method.DECLARED

    def step(self) -> bool:
        """One more round; False: nothing is expected to change any more by itself."""
        now, changes = self.snapshot.now, self._followed()
        if changes.is_event:
            self._last = now
        if not changes.frees_room:
            later = self._next()
            if later is None and not changes.is_event:
                return False
            if later is not None:  # else what has started is followed, and nothing comes after it
                now, changes = later[0], self._over(later[1], changes)
            if changes.is_event:
                self._last = now
        self._decide(now, changes)
        return True

    # ---- what decisions lead to at once

    def _followed(self) -> _Changes:
        snapshot, going = self.snapshot, self._going()
        is_event = frees_room = False
        changed: dict[GroupKey, GroupView | None] = {}
        for key in dict.fromkeys((*self._turned, *going)):
            decision, group = self.decisions.groups.get(key), snapshot.groups.get(key)
            if decision is None or group is None:
                continue
            view = _remembering(group, decision, snapshot.now)
            if leaving := going.get(key):
                view, is_event, frees_room = _evicted(view, leaving, snapshot), True, True
                if not view.placed:
                    self.ends.pop(key, None)
            elif view.pinned or any(pod.uid in decision.plan for pod in view.waiting):
                view, is_event = _started(view, decision, snapshot), True
                if key not in self.ends:
                    self.ends[key] = self._end_of(view, snapshot.now, snapshot.now)
            frees_room |= decision.reason is Reason.WINDOW_FULL and is_event
            if view is not group:
                changed[key] = view
        gone = {uid for uid in going.get(OF_OTHERS, ()) if uid in snapshot.others}
        return _Changes(changed, gone, is_event or bool(gone), frees_room or bool(gone))

    def _going(self) -> Mapping[GroupKey, set[Uid]]:
        """By group the pods that are evicted, or of a start that is undone."""
        going = defaultdict[GroupKey, set[Uid]](set)
        for uid, eviction in self.decisions.evictions.items():
            going[eviction.victim.group or OF_OTHERS].add(uid)
        for key in self._turned:
            if (decision := self.decisions.groups.get(key)) is not None and decision.undo:
                going[key].update(decision.undo)
        return going

    # ---- what time leads to

    def _next(self) -> tuple[float, float] | None:
        """When something changes next, and until when what ends counts as ended then."""
        now, woken = self.snapshot.now, self.decisions.wake_at
        ends = [end.at for end in self.ends.values() if end.at < inf]
        ends += [at for _, at in self._leaving.values()]
        first = min((at for at in ends if at > now), default=inf)
        if woken is not None and now < woken < first and woken <= self._last + _QUIET:
            later = min(max(woken, now + max(_LOOK, (now - self._last) * _LOOKS)), first)
            return later, later
        until = self.begun + (first - self.begun) * self._pace
        together = [at for at in ends if now < at <= until]
        return (fmean(together), until) if together else None

    def _over(self, now: float, changes: _Changes) -> _Changes:
        """With all that has ended, or is gone, by then."""
        changed, gone = dict(changes.groups), set(changes.gone)
        over = [uid for uid, (_, at) in self._leaving.items() if at <= now]
        for uid in over:
            key, _ = self._leaving.pop(uid)
            view = changed.get(key, self.snapshot.groups.get(key))
            if key == OF_OTHERS:
                gone.add(uid)
            elif view is not None:
                left = tuple(pod for pod in view.departing if pod.uid != uid)
                changed[key] = _recounted(replace(view, departing=left), self.snapshot)
        ended = [key for key, end in self.ends.items() if end.at <= now]
        for key in ended:
            del self.ends[key]
            changed[key] = None
        return _Changes(changed, gone, bool(over or ended), bool(over or ended))

    def _decide(self, now: float, changes: _Changes) -> None:
        before = self.snapshot
        keeps = now < self.begun + before.limits.refusal_memory
        after = with_views(before, changes.groups, changes.gone)
        self.snapshot = after = replace(
            after,
            version=before.version + 1,
            now=now,
            changed_at=now,
            touched=frozenset(changes.groups),
            refused=before.refused if keeps else {},
            spared=before.spared if keeps else {},
            expires_at=self.begun + before.limits.refusal_memory if before.refused and keeps else None,
            moves={},
            reclaimed={name: it.reclaimed for name, it in self.decisions.queues.items() if it.reclaimed},
            freed=before.freed.noted(now, OF_OTHERS) if changes.is_event else before.freed,
        )
        if self._meter.half_life:
            if self._meter.is_due(now + after.epoch):
                offered = dict(zip(after.dimensions, in_all(after.allocatable), strict=True))
                self._meter.take(now + after.epoch, offered)
                self.snapshot = replace(after, past=self._meter.past)
            changed = {key: holding_of(view) for key, view in changes.groups.items()}
            self._meter.follow(changed, now + after.epoch)
        self.decisions = decide(self.snapshot, self.decisions)
        self._turned = self.decisions.turned
        self._note_starts()

    def _note_starts(self) -> None:
        for key in self._turned:
            made = self.decisions.groups.get(key)
            if made is None or key in self.starts:
                continue
            if made.reclaim is not None or made.verdict is Verdict.WAITING:
                self.victims[key] = made.reclaim.victims if made.reclaim is not None else ()
            if made.reservation is not None:
                self._reserved.add(key)
            elif made.verdict is Verdict.WAITING:
                self._reserved.discard(key)
            if made.plan:
                self.starts[key] = self.snapshot.now


# ---- groups once a decision has been followed


def _remembering(group: GroupView, decision: GroupDecision, now: float) -> GroupView:
    """With what it remembers of the decision."""
    history, undone = group.history, None if group.job.managed else group.job.start_timeouts
    start = start_after(group.start, decision, now, group.stood_whole, history.resumes, undone)
    if start == group.start:
        return group
    if decision.reclaim is not None and decision.reclaim != group.start.reclaim:
        victims = {victim.group: now for victim in decision.reclaim.victims if victim.group}
        history = replace(history, took_from={**history.took_from, **victims})
    return replace(group, start=start, history=history)


def _started(group: GroupView, decision: GroupDecision, snapshot: Snapshot) -> GroupView:
    """Those of its members run that are planned, or were on their way to a node."""
    since = snapshot.timestamp(snapshot.now)
    going = {pod.uid: (pod, decision.plan[pod.uid]) for pod in group.waiting if pod.uid in decision.plan}
    going |= {pod.uid: (pod, node) for pod, node in group.pinned}
    running = [
        replace(pod, node=node, phase="Running", started=True, gated=False, to_be=False, running_since=since)
        for pod, node in going.values()
    ]
    is_smaller, least = decision.reduced_to is not None, decision.reduced_to or group.min_member
    return _recounted(
        replace(
            group,
            min_member=least,
            job=replace(group.job, let_go=group.job.let_go or group.job.managed),
            placed=(*group.placed, *running),
            pinned=(),
            waiting=() if is_smaller else tuple(pod for pod in group.waiting if pod.uid not in going),
            planned={},
            attempts={},
            bound_since={**group.bound_since, **dict.fromkeys(going, snapshot.now)},
            running=group.running + len(running),
            running_since=group.running_since or since,
        ),
        snapshot,
    )


def _evicted(group: GroupView, gone: Set[Uid], snapshot: Snapshot) -> GroupView:
    """Some of its members have gone. Those that a controller makes anew wait as others would."""
    now = snapshot.timestamp(snapshot.now)
    again = [
        replace(
            pod,
            uid=Uid(f"{pod.uid}+"),
            node="",
            phase="Pending",
            started=False,
            created=now,
            running_since="",
        )
        for pod in group.placed
        if pod.uid in gone and (pod.is_replaced or group.job.managed)
    ]
    placed = tuple(pod for pod in group.placed if pod.uid not in gone)
    departing = tuple(pod for pod in group.departing if pod.uid not in gone)
    return _recounted(
        replace(
            group,
            placed=placed,
            departing=departing,
            waiting=(*group.waiting, *again),
            bound_since={uid: at for uid, at in group.bound_since.items() if uid not in gone},
            running=sum(pod.phase == "Running" for pod in placed),
            running_since=min((pod.running_since for pod in placed if pod.running_since), default=""),
        ),
        snapshot,
    )


def _recounted(group: GroupView, snapshot: Snapshot) -> GroupView:
    """With what follows from where its members are."""
    roles, there = Counter(pod.role for pod in group.placed), on_nodes(group)
    stands = whole(*group.needs, roles, roles.total())
    before = group.history.stood_with if group.placed else None
    stood_with = group.needs if stands else before
    return replace(
        group,
        stands=stands,
        stands_as_before=stood_with is not None and whole(*stood_with, roles, roles.total()),
        history=replace(group.history, stood_with=stood_with),
        start=Start(rotation=group.start.rotation) if stands else group.start,
        allocated=requests_of(Counter(pod.shape for pod, _ in there)),
        pending=requests_of(Counter(pod.shape for pod in group.waiting)),
        by_pool=snapshot.in_pools(there) if snapshot.pools.all else {},
    )
