"""A run in virtual time: a heap of what happens when, and decisions after each moment with a change."""

import heapq
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple

from msgspec.structs import replace

from extender.api.objects.pods import PodStatus
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.job_suspension import JobStep
from extender.domain.snapshot.snapshot import Limits
from extender.sim.virtual.cluster import FAILED, SUCCEEDED, VirtualCluster
from extender.sim.virtual.workload import JobArrival, PodArrival, VirtualWorkload, key_of_group, stamp

Act = Callable[[], object]
_TICK = 0.001  # what is due by time alone comes at least so much later, so that time goes on
_QUIET = 3600.0  # seconds without any event after which nothing is expected to change any more


class Observer:
    """Called as things happen; what measures overrides what it needs."""

    def queued(self, group: GroupKey, pods: int, now: float) -> None:
        """A suspended job waits, or starts with fewer pods than before: it makes so many."""

    def came(self, pod: PodRecord, now: float) -> None:
        """A pod has come; the empty group is that of pods that are not ours."""

    def bound(self, pod: PodRecord, now: float) -> None:
        """A pod runs."""

    def ended(self, pod: PodRecord, now: float) -> None:
        """A pod has ended, or was evicted."""

    def reclaimed(self, pod: PodRecord, now: float) -> None:
        """A pod that ran was evicted for others, and comes again."""

    def settled(self, decisions: Decisions, now: float) -> None:
        """What holds from this moment to the next one."""


class RefusedPod(NamedTuple):
    """A pod that a quota did not take; it is created again when others have ended. `again`: after it ran."""

    member: PodArrival
    why: str
    again: bool


class Simulation:
    """`refused`: pods that quotas have not taken yet."""

    def __init__(
        self,
        workload: VirtualWorkload,
        limits: Limits,
        schedulers: frozenset[str],
        observer: Observer,
    ) -> None:
        self.now = 0.0
        self.cluster = VirtualCluster(workload, limits, schedulers, clock=lambda: self.now)
        self._observer = observer
        self._started = 0  # pods, also those that ended
        self._members: dict[Uid, PodArrival] = {}
        self.refused: list[RefusedPod] = []
        self._tries_again = False
        self._running: dict[Uid, PodArrival] = {}
        self._order = count()
        self._due: list[tuple[float, int, Act]] = []
        for at, group in workload.groups:
            self._plan(at, partial(self.cluster.ledger.intake.set_group, group))
        for job in workload.jobs:
            self._plan(job.unit.at, partial(self._queue, job))
        for member in workload.members:
            self._plan(member.at, partial(self._come, member))

    def run(self, advance: Callable[[float], None] = lambda started: None) -> float:
        """Until nothing will change any more by itself; returns when the last thing happened. `advance` hears
        after each moment how many pods have been started."""
        last = 0.0
        while (moment := self._next(last)) is not None:
            self.now = moment
            while self._due and self._due[0][0] <= moment:
                last = moment
                heapq.heappop(self._due)[-1]()
            self._settle()
            while self._let_go() or self._give_up():
                self._settle()
            self._observer.settled(self.cluster.ledger.decisions, self.now)
            advance(self._started)
        return last

    def _settle(self) -> None:
        bound, evicted = self.cluster.settle()
        self._run(claim.pod for claim in bound)
        for pod in evicted:  # one of a start that failed ends; another one comes again
            member = self._running.pop(pod.uid, None)
            if member is None or pod.phase != "Running":
                self._leave(pod)
                continue
            self._observer.reclaimed(pod, self.now)
            # its controller creates another pod, which has all of its work ahead
            uid, created = f"{member.pod.metadata.uid}+", stamp(self.now)
            metadata = replace(member.pod.metadata, uid=uid, creation_timestamp=created)
            again = replace(member.pod, metadata=metadata, status=PodStatus())
            self._plan(self.now, partial(self._come, member._replace(pod=again), again=True))

    def _let_go(self) -> bool:
        """Whether jobs start; their controllers make their pods."""
        started = self.cluster.let_go()
        for job, reduced_to in started:
            if reduced_to is not None:
                self._observer.queued(job.unit.key, reduced_to, self.now)
            for member in job.pods[:reduced_to]:
                self._come(member)
        return bool(started)

    def _give_up(self) -> bool:
        """Whether jobs whose pods are refused are suspended, or are about to be."""
        done = False
        for key, refused in self._refused_groups().items():
            step, _ = self.cluster.job_step(key)
            if step is JobStep.ASK:
                self.cluster.ledger.note_refusal(key, refused.why)
            elif step is JobStep.GIVE_UP:
                self.refused = [each for each in self.refused if key_of_group(each.member.pod) != key]
                self.cluster.suspend(key)
                self._try_again()  # not planned: it changes nothing for good, and is no event of its own
            done |= step in (JobStep.ASK, JobStep.GIVE_UP)
        return done

    def _refused_groups(self) -> dict[GroupKey, RefusedPod]:
        """Of each the pod that was refused first."""
        return {key_of_group(each.member.pod): each for each in reversed(self.refused)}

    def _queue(self, job: JobArrival) -> None:
        self.cluster.queue_job(job)
        self._observer.queued(job.unit.key, len(job.pods), self.now)

    def _plan(self, moment: float, act: Act) -> None:
        heapq.heappush(self._due, (moment, next(self._order), act))

    def _next(self, last: float) -> float | None:
        """The moment at which something happens next, or time alone changes a decision."""
        asks = (self.cluster.job_step(key)[1] for key in self._refused_groups())
        moments = [at for at in (self.cluster.ledger.decisions.wake_at, *asks) if at is not None]
        woken = max(min(moments), self.now + _TICK) if moments else None
        if self._due:
            first = self._due[0][0]
            return first if woken is None else min(first, woken)
        return woken if woken is not None and woken <= last + _QUIET else None

    # ---- pods

    def _come(self, member: PodArrival, again: bool = False) -> bool:
        """False if a quota does not take it. `again`: it has been there, and gave its room back."""
        if why := self.cluster.refusal(member.pod):
            self.refused.append(RefusedPod(member, why, again))
            return False
        pod = self.cluster.add(member.pod)
        self._members[pod.uid] = member
        if not again:
            self._observer.came(pod, self.now)
            if pod.node:
                self._run([pod])
        return True

    def _try_again(self) -> None:
        """The controller of a group goes no further than the first pod that is refused."""
        self._tries_again = False
        waiting, self.refused = self.refused, []
        stopped = set[GroupKey]()
        for each in waiting:
            group = key_of_group(each.member.pod)
            if group in stopped:
                self.refused.append(each)
            elif not self._come(each.member, each.again):
                stopped.add(group)

    def _leave(self, pod: PodRecord) -> None:
        self._observer.ended(pod, self.now)
        if self.refused and not self._tries_again:  # once, however many leave at this moment
            self._tries_again = True
            self._plan(self.now, self._try_again)

    def _run(self, pods: Iterable[PodRecord]) -> None:
        """Pods run from now on. Those that end together are one event."""
        together: dict[tuple[float | None, bool], list[Uid]] = {}
        for pod in pods:
            member = self._running[pod.uid] = self._members.pop(pod.uid)
            together.setdefault((member.runs, member.fails), []).append(pod.uid)
            self._started += 1
            self._observer.bound(pod, self.now)
        for (runs, fails), uids in together.items():
            if runs is not None or fails:  # else they run until the end
                end = partial(self._end, uids, FAILED if fails else SUCCEEDED)
                self._plan(self.now + (runs or 0.0), end)

    def _end(self, uids: Sequence[Uid], status: PodStatus) -> None:
        for uid in uids:
            pod = self.cluster.end(uid, status)
            self._running.pop(uid, None)
            if pod is not None:
                self._leave(pod)
