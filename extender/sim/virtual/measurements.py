"""Measurements of a simulation: timelines of groups, usage and shares of queues, and fairness of siblings.

Fairness is Jain's index, (sum of x)² / (n · sum of x²). The n siblings are queues with unmet requests, and x
is held/deserved in the dominant resource. The index is 1 if all siblings hold the same part of their deserved
share, and 1/n if one of them holds everything.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from extender.api.keys import ROOT_QUEUE
from extender.api.workloads.gangs import Defaults, gang_size_of
from extender.api.workloads.table import WORKLOADS
from extender.domain.model.ownership import display_group_name, owner_record
from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey, PodRecord, Uid, group_of_owner
from extender.domain.model.resources import total
from extender.domain.model.shapes import Shape
from extender.domain.snapshot.decisions import Decisions, QueueDecision
from extender.domain.snapshot.jobs import job_group_key, owner_of_pods
from extender.sim.virtual.simulation import Observer
from extender.sim.virtual.workload import VirtualWorkload, key_of_group


def jain(shares: Sequence[float]) -> float:
    """Return Jain's index of the shares; 1 if all shares are 0."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


class Fairness:
    """Mean fairness for each level over the time in which siblings compete.

    Level 1 has the children of root.
    """

    def __init__(self) -> None:
        self._sums: defaultdict[int, float] = defaultdict(float)
        self._seconds: defaultdict[int, float] = defaultdict(float)

    def add(self, queues: Mapping[str, QueueDecision], seconds: float) -> None:
        siblings: dict[str, list[float]] = {}
        for queue in queues.values():
            requested = queue.requested.items()
            if queue.parent and any(amount > queue.allocated.get(name, 0) for name, amount in requested):
                siblings.setdefault(queue.parent, []).append(queue.share)
        for parent, shares in siblings.items():
            if len(shares) > 1:
                level, ancestor = 1, parent
                while ancestor != ROOT_QUEUE and ancestor in queues:
                    level, ancestor = level + 1, queues[ancestor].parent
                self._sums[level] += jain(shares) * seconds
                self._seconds[level] += seconds

    def means(self) -> dict[int, float]:
        return {level: self._sums[level] / self._seconds[level] for level in sorted(self._sums)}


# ---- timelines and sums


class MemberRun(NamedTuple):
    """Run of members of one shape. `end` is None while they run."""

    start: float
    end: float | None
    shape: Shape


class GroupTimeline(msgspec.Struct):
    key: GroupKey
    name: str  # NAMESPACE/NAME for users
    needed_count: int
    queue: str = ""
    complete_at: float | None = None  # time at which the needed members existed
    started_at: float | None = None  # time at which the needed members ran
    ended_at: float | None = None  # time at which all members had ended
    present_count: int = 0
    ran_count: int = 0  # number of members that run or ran
    ended_count: int = 0
    runs_of_members: Counter[MemberRun] = msgspec.field(default_factory=Counter)
    evictions: Counter[float] = msgspec.field(default_factory=Counter)  # number of evicted members, by time
    reservations: list[tuple[float, float]] = msgspec.field(default_factory=list)  # starts and ends

    @property
    def unstarted(self) -> int:
        """Return the number of members that never ran or were evicted; at least 1 before the first start."""
        remaining = 0 if self.ended_at is not None else self.present_count - self.ran_count
        return max(remaining, 1) if self.started_at is None else remaining

    @property
    def wait(self) -> float | None:
        if self.complete_at is None or self.started_at is None:
            return None
        return self.started_at - self.complete_at


class QueueIntegrals(msgspec.Struct):
    """Integrals over time of a queue's usage and deserved share, by resource (amount times seconds)."""

    allocated: defaultdict[str, float] = msgspec.field(default_factory=lambda: defaultdict(float))
    deserved: defaultdict[str, float] = msgspec.field(default_factory=lambda: defaultdict(float))

    def add(self, queue: QueueDecision, seconds: float) -> None:
        for name, amount in queue.allocated.items():
            self.allocated[name] += amount * seconds
        for name, deserved in queue.deserved.items():
            self.deserved[name] += deserved * seconds


class Measurements(Observer):
    def __init__(self, workload: VirtualWorkload) -> None:
        self.capacity = total(workload.allocatable)
        self.timelines: dict[GroupKey, GroupTimeline] = {}
        self.sums: defaultdict[str, QueueIntegrals] = defaultdict(QueueIntegrals)
        self.fairness = Fairness()
        self.busy = 0.0  # seconds in which groups had pods
        self.first_time: float | None = None
        self.outsiders = 0
        self.decisions = Decisions()
        self.known_queues = workload.queue_names
        self.known_groups = [arrival.key for arrival in workload.groups]
        self._needed = _needed(workload)
        self.members_of = Counter(key_of_group(member.pod) for member in workload.all_members)
        self._job_groups = {job.podgroup.key for job in workload.jobs}
        self._names: dict[GroupKey, str] = {}
        for pod in (member.pod for member in workload.all_members):
            self._names[key_of_group(pod)] = f"{pod.metadata.namespace}/{display_group_name(pod)}"
        for kind, job in workload.controllers:  # one job can have several owners of pods
            meta = job.metadata
            self._names[job_group_key(kind, meta)] = f"{meta.namespace}/{kind.kind.lower()}/{meta.name}"
        for group in workload.dumped.groups if workload.dumped else ():
            self._names[group.key] = group.display_name
        self._run_starts: dict[Uid, float] = {}
        self._without_queue: list[GroupTimeline] = []  # groups whose queue is unknown
        self._reservation_starts: dict[GroupKey, float] = {}  # start of each current reservation
        self._present_groups = 0  # number of groups with pods that have not ended
        self._now = 0.0
        self._quiet_periods: list[tuple[float, float, Decisions]] = []  # end, duration, decisions

    def job_queued(self, group: GroupKey, pods: int, now: float) -> None:
        self.pass_time(now)
        timeline = self._timeline_of(group, now)
        if timeline.complete_at is None:
            timeline.complete_at = now
            self._present_groups += 1
        else:
            timeline.needed_count = pods
        timeline.present_count = pods

    def pod_created(self, pod: PodRecord, now: float) -> None:
        if not pod.group:
            self.outsiders += 1
            return
        if pod.group in self._job_groups:  # job_queued counts the pods of jobs
            return
        self.pass_time(now)
        timeline = self._timeline_of(pod.group, now)
        if timeline.ended_count == timeline.present_count:
            self._present_groups += 1
        timeline.present_count, timeline.ended_at = timeline.present_count + 1, None
        if timeline.complete_at is None and timeline.present_count >= timeline.needed_count:
            timeline.complete_at = now

    def _timeline_of(self, group: GroupKey, now: float) -> GroupTimeline:
        self.first_time = now if self.first_time is None else self.first_time
        if group not in self.timelines:
            name, needed = self.name_of(group), self._size_of(group)
            self.timelines[group] = GroupTimeline(group, name, needed)
            self._without_queue.append(self.timelines[group])
        return self.timelines[group]

    def name_of(self, group: GroupKey) -> str:
        return self._names.get(group, str(group))

    def pod_bound(self, pod: PodRecord, now: float) -> None:
        if not pod.group:
            return
        timeline = self.timelines[pod.group]
        self._run_starts[pod.uid] = now
        timeline.runs_of_members[MemberRun(now, None, pod.shape)] += 1
        timeline.ran_count += 1
        if timeline.started_at is None and timeline.ran_count >= timeline.needed_count:
            timeline.started_at = now

    def pod_ended(self, pod: PodRecord, now: float) -> None:
        if not pod.group:
            return
        self.pass_time(now)
        timeline = self._record_run(pod, now)
        timeline.ended_count += 1
        if timeline.ended_count == timeline.present_count:
            timeline.ended_at = now
            self._present_groups -= 1

    def pod_reclaimed(self, pod: PodRecord, now: float) -> None:
        if not pod.group:
            return
        self.pass_time(now)
        timeline = self._record_run(pod, now)
        timeline.ran_count -= 1
        timeline.evictions[now] += 1

    def _record_run(self, pod: PodRecord, now: float) -> GroupTimeline:
        """Record the end of a member's run, if the member was running."""
        timeline, since = self.timelines[pod.group], self._run_starts.pop(pod.uid, None)
        if since is not None:
            timeline.runs_of_members[MemberRun(since, None, pod.shape)] -= 1
            timeline.runs_of_members[MemberRun(since, now, pod.shape)] += 1
        return timeline

    def decided(self, decisions: Decisions, now: float) -> None:
        self._extend(now)
        self.decisions = decisions
        holders: set[GroupKey] = set()  # groups that have a reservation now
        if any(queue.reservation for queue in decisions.queues.values()):
            holders = {key for key, group in decisions.groups.items() if group.reservation}
        for key in self._reservation_starts.keys() - holders:
            self.timelines[key].reservations.append((self._reservation_starts.pop(key), now))
        for key in holders - self._reservation_starts.keys():
            self._reservation_starts[key] = now
        for timeline in self._without_queue:
            timeline.queue = decisions.groups[timeline.key].queue
        self._without_queue.clear()

    def closed(self, end: float) -> None:
        """End the measurements. A group that has no pods yet counts as pending."""
        self._quiet_periods = [period for period in self._quiet_periods if period[0] <= end]
        self.pass_time(self._now)
        for key, decision in self.decisions.groups.items():
            if key not in self.timelines and decision.verdict is Verdict.WAITING:
                self.timelines[key] = GroupTimeline(key, str(key), self._size_of(key), decision.queue)

    def _size_of(self, group: GroupKey) -> int:
        """Return the number of members that a group needs to start.

        For a group of a LeaderWorkerSet, this is the number of members of its set.
        """
        group_of_set = GroupKey(group.partition(".")[0])
        return self._needed.get(group) or self._needed.get(group_of_set, 1)

    def pass_time(self, now: float) -> None:
        """Record that the last decisions were in force until now, the time of an event."""
        self._extend(now)
        for _, seconds, decisions in self._quiet_periods:
            self.busy += seconds
            for name, queue in decisions.queues.items():
                self.sums[name].add(queue, seconds)
            self.fairness.add(decisions.queues, seconds)
        self._quiet_periods.clear()

    def _extend(self, now: float) -> None:
        """Record that the decisions were in force until now.

        The period is added to the sums at the next event. If failing attempts repeat forever, no event
        follows, and `closed` drops the period.
        """
        seconds, self._now = now - self._now, now
        if self._present_groups and seconds > 0:
            self._quiet_periods.append((now, seconds, self.decisions))


def _needed(workload: VirtualWorkload) -> dict[GroupKey, int]:
    """Return the minimum of each group: that of its PodGroup, or of the owner of its pods."""
    gangs = {
        group_of_owner(owner.metadata.namespace, owner.metadata.uid): owner_record(owner).gang
        for owner in workload.owners
    }
    for kind, job in workload.controllers:
        gangs[job_group_key(kind, job.metadata)] = owner_of_pods(kind, job, WORKLOADS).gang
    needed = {key: gang_size_of(gang, "", Defaults(), waits=False).members for key, gang in gangs.items()}
    for group in workload.dumped.groups if workload.dumped else ():
        needed[group.key] = group.min_member
    for podgroup in (*workload.groups, *(job.podgroup for job in workload.jobs)):
        needed[podgroup.key] = podgroup.group.spec.min_member
    return {key: max(number, 1) for key, number in needed.items()}
