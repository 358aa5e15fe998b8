"""A run in virtual time: a heap of what happens when, and decisions after each moment that changed something.

The Ledger hears of the cluster as it would of a real one, and the scheduler is ideal: what is planned is
taken at once. Pods come without our gate, which nothing here would open. They are bound, run, and end; once
all of a group has ended, it goes with its pods, as after the time to live of a Job.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count

from msgspec.structs import replace

from extender.api.objects.pods import Pod, PodStatus
from extender.domain.ledger.claims import Claim
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.ownership import Ownership
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.snapshot import Limits
from extender.sim.virtual.workload import BEGIN, PodArrival, VirtualWorkload, key_of_group

RUNNING, SUCCEEDED, FAILED = (PodStatus(phase) for phase in ("Running", "Succeeded", "Failed"))


class VirtualCluster:
    """`rounds` is how many decisions were made."""

    def __init__(
        self,
        workload: VirtualWorkload,
        limits: Limits,
        schedulers: frozenset[str],
        clock: Callable[[], float],
    ) -> None:
        own = Ownership(schedulers, auto_groups=True)
        self.ledger = Ledger(own, limits, clock, wall_clock=lambda: BEGIN.timestamp() + clock())
        self.rounds = 0
        self._clock = clock
        self._pods: dict[Uid, Pod] = {}  # those that have not ended
        self._present: dict[GroupKey, list[Uid]] = {}  # by group, ended ones too
        self._left = Counter(key_of_group(member.pod) for member in workload.members)
        self._seen = -1
        for node in workload.nodes:
            self.ledger.intake.set_node(node)
        for queue in workload.queues:
            self.ledger.intake.set_queue(queue)
        for priority in workload.priority_classes:
            self.ledger.intake.set_priority_class(priority)
        for namespace in workload.namespaces:
            self.ledger.intake.set_namespace(namespace)
        for local in workload.local_queues:
            self.ledger.intake.set_local_queue(local)
        self.ledger.intake.set_quota_namespaces(dict(workload.entering))
        for owner in workload.owners:
            self.ledger.intake.set_owner(owner)
        for kind, job in workload.makers:
            self.ledger.intake.set_maker(kind, job)

    def add(self, pod: Pod) -> PodRecord:
        """A pod comes; one that names a node runs there."""
        if pod.spec.node_name:
            pod = replace(pod, status=RUNNING)
        uid = Uid(pod.metadata.uid)
        self._pods[uid] = pod
        self._present.setdefault(key_of_group(pod), []).append(uid)
        self.ledger.pods.set(pod)
        return self._record(uid)

    def end(self, uid: Uid, status: PodStatus) -> PodRecord | None:
        """A pod ends; None where it is gone already."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return None
        self.ledger.pods.set(replace(pod, status=status))
        record = self._record(uid)
        group = key_of_group(pod)
        self._left[group] -= 1
        if not self._left[group]:
            for ended in self._present.pop(group):
                self.ledger.pods.drop(ended)
            self.ledger.intake.drop_group(group)
        return record

    def _record(self, uid: Uid) -> PodRecord:
        record = self.ledger.pods.get(uid)
        assert record is not None
        return record

    def settle(self) -> tuple[list[Claim], list[PodRecord]]:
        """Decide until no more pods start; returns the claims that were bound, and the evicted pods."""
        bound: list[Claim] = []
        evicted: list[PodRecord] = []
        wake_at = self.ledger.decisions.wake_at
        due = self.ledger.version != self._seen or (wake_at is not None and wake_at <= self._clock())
        while due:
            decisions = decide(self.ledger.snapshot(), self.ledger.decisions)
            self.ledger.publish(decisions)
            self.rounds += 1
            out: list[PodRecord | None] = []
            for uid in [uid for decision in decisions.groups.values() for uid in decision.undo]:
                out.append(self.end(uid, FAILED))  # of a start that failed finally; nothing creates it again
                self.ledger.pods.drop(uid)
            out += [self._take_away(uid) for uid in decisions.evictions]
            gone = [record for record in out if record is not None]
            taken = self._take()
            bound, evicted, due = bound + taken, evicted + gone, bool(taken or gone)
        self._seen = self.ledger.version
        return bound, evicted

    def _take(self) -> list[Claim]:
        """The scheduler asks for each planned pod and binds it to its node; the barrier releases it."""
        planned = self.ledger.to_release()
        for claim in planned:
            if isinstance(self.ledger.assumed.assume(claim.pod.uid, [claim.node]), list):
                self.ledger.assumed.hold(claim.pod.uid, claim.node, token=1)
        taken: list[Claim] = []
        for key in dict.fromkeys(claim.pod.group for claim in planned):
            for claim in self.ledger.assumed.confirm(key).posting:
                pod = self._pods[claim.pod.uid]
                spec = replace(pod.spec, node_name=claim.node)
                self._pods[claim.pod.uid] = pod = replace(pod, spec=spec, status=RUNNING)
                self.ledger.pods.set(pod)
                taken.append(claim)
        return taken

    def _take_away(self, uid: Uid) -> PodRecord | None:
        """A pod whose room is reclaimed for others; its controller creates it again."""
        if (pod := self._pods.pop(uid, None)) is None:
            return None
        record = self._record(uid)
        self._present[key_of_group(pod)].remove(uid)
        self.ledger.pods.drop(uid)
        return record


Act = Callable[[], object]
_TICK = 0.001  # what is due by time alone comes at least so much later, so that time goes on
_QUIET = 3600.0  # seconds without any event after which nothing is expected to change any more


class Observer:
    """Called as things happen; measuring and drawing override what they need."""

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


class Simulation:
    def __init__(
        self,
        workload: VirtualWorkload,
        limits: Limits,
        schedulers: frozenset[str],
        observers: Sequence[Observer],
    ) -> None:
        self.now = 0.0
        self.cluster = VirtualCluster(workload, limits, schedulers, clock=lambda: self.now)
        self._observers = observers
        self._members: dict[Uid, PodArrival] = {}
        self._running: dict[Uid, PodArrival] = {}
        self._order = count()
        self._due: list[tuple[float, int, Act]] = []
        for at, group in workload.groups:
            self._plan(at, partial(self.cluster.ledger.intake.set_group, group))
        for member in workload.members:
            self._plan(member.at, partial(self._come, member))

    def run(self) -> float:
        """Until nothing will change any more by itself; returns when the last thing happened."""
        last = 0.0
        while (moment := self._next(last)) is not None:
            self.now = moment
            while self._due and self._due[0][0] <= moment:
                last = moment
                heapq.heappop(self._due)[-1]()
            bound, evicted = self.cluster.settle()
            self._run(claim.pod for claim in bound)
            for pod in evicted:
                self._leave(pod)
            for observer in self._observers:
                observer.settled(self.cluster.ledger.decisions, self.now)
        return last

    def _plan(self, moment: float, act: Act) -> None:
        heapq.heappush(self._due, (moment, next(self._order), act))

    def _next(self, last: float) -> float | None:
        """The moment at which something happens next, or time alone changes a decision."""
        wake_at = self.cluster.ledger.decisions.wake_at
        woken = None if wake_at is None else max(wake_at, self.now + _TICK)
        if self._due:
            first = self._due[0][0]
            return first if woken is None else min(first, woken)
        return woken if woken is not None and woken <= last + _QUIET else None

    # ---- pods

    def _come(self, member: PodArrival) -> None:
        pod = self._add(member)
        for observer in self._observers:
            observer.came(pod, self.now)
        if pod.node:
            self._run([pod])

    def _add(self, member: PodArrival) -> PodRecord:
        pod = self.cluster.add(member.pod)
        self._members[pod.uid] = member
        return pod

    def _leave(self, pod: PodRecord) -> None:
        """A pod was evicted: one of a start that failed ends; another one comes again."""
        member = self._running.pop(pod.uid, None)
        if member is None or pod.phase != "Running":
            return self._note_end(pod)
        for observer in self._observers:
            observer.reclaimed(pod, self.now)
        # its controller creates another pod, which has all of its work ahead
        metadata = replace(member.pod.metadata, uid=f"{member.pod.metadata.uid}+")
        again = replace(member.pod, metadata=metadata, status=PodStatus())
        self._plan(self.now, partial(self._add, member._replace(pod=again)))

    def _run(self, pods: Iterable[PodRecord]) -> None:
        """Pods run from now on. Those that end together are one event."""
        together: dict[tuple[float | None, bool], list[Uid]] = {}
        for pod in pods:
            member = self._running[pod.uid] = self._members.pop(pod.uid)
            together.setdefault((member.runs, member.fails), []).append(pod.uid)
            for observer in self._observers:
                observer.bound(pod, self.now)
        for (runs, fails), uids in together.items():
            if runs is not None or fails:  # else they run until the end
                end = partial(self._end, uids, FAILED if fails else SUCCEEDED)
                self._plan(self.now + (runs or 0.0), end)

    def _end(self, uids: Sequence[Uid], status: PodStatus) -> None:
        for uid in uids:
            pod = self.cluster.end(uid, status)
            self._running.pop(uid, None)
            if pod is not None:
                self._note_end(pod)

    def _note_end(self, pod: PodRecord) -> None:
        for observer in self._observers:
            observer.ended(pod, self.now)
