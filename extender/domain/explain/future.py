"""A cluster in virtual time: a ledger, planned actions, and decisions that are carried out at once.

    snapshot, arrivals ──► ledger ──► decide() ──► pods start, leave and are recreated
                             ▲                                  │
                             └── the next instant: a planned action, or time alone changes a decision

`VirtualCluster` is the common part of all simulations. `Future`, for estimates and plans, continues from a
snapshot: no new objects are created, and groups end when they are expected to end. extender.sim.virtual
simulates traces and files.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Sequence, Set
from enum import StrEnum
from functools import partial
from itertools import count
from math import inf
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

from extender.api.units import timestamp_at
from extender.domain.ledger.claims import Claim, ClaimStage
from extender.domain.ledger.ledger import Ledger
from extender.domain.ledger.restore import restore
from extender.domain.model.evictions import ReclaimVictim
from extender.domain.model.ownership import Ownership
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.placement.departures import RunEnd
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.jobs import JobRecord
from extender.domain.snapshot.snapshot import Limits, Snapshot, clock_time_of
from extender.domain.snapshot.wholeness import is_whole_with, running_since

_QUIET = 3600.0  # seconds without events after which no further change is expected
_LAST_SECOND = 253_402_300_799.0  # the last second that a timestamp can express

FindEnd = Callable[[GroupInfo, float, float], RunEnd]  # arguments: the group, its start, and the present time


class Method(StrEnum):
    """Kind of event that an expected start depends on."""

    DECLARED = "Declared"  # earlier run times are declared, or limited by Kubernetes
    LEARNT = "Learnt"  # some earlier run times are learned from groups of the same kind
    RECLAIM = "Reclaim"  # other groups are evicted for it
    RESERVATION = "Reservation"  # nodes are reserved for it until their free capacity suffices


class TimeStep(NamedTuple):
    """Coarseness of virtual time.

    Attributes:
        pause: The minimum number of seconds until the next cycle, if only time causes the cycle.
        pause_ratio: The minimum wait until the next cycle, as a part of the time since the last event. It
            also applies only if time alone causes the cycle.
        quiet: The number of seconds after the last event from which time alone causes no cycle, while an
            action is planned.
        merge_ratio: The largest factor between two times, counted from the beginning, whose actions run
            together. Such actions run at their mean time, because a cycle is expensive in large clusters.
    """

    pause: float = 0.001
    pause_ratio: float = 0.0
    quiet: float = inf
    merge_ratio: float = 1.0


_COARSE_STEP = TimeStep(5.0, 0.05, _QUIET)  # decide() may request a cycle each second


class _Action(NamedTuple):
    """Planned action. Actions at the same time run in the order of their numbers."""

    at: float
    number: int
    act: Callable[[], object]


class PodChanges(NamedTuple):
    """Pods that decisions started or removed."""

    started: list[PodRecord]
    evicted: list[PodRecord]  # pods evicted for other groups
    undone: list[PodRecord]  # pods of starts that have failed


class VirtualCluster:
    """Ledger whose decisions an ideal scheduler and ideal controllers carry out at once.

    Args:
        ownership: The rules by which pods belong to groups.
        limits: The limits of the scheduler.
        began_at: The time of the ledger's clock at the beginning.
        epoch: Seconds since 1970 minus that clock.
        step: The coarseness of virtual time.
    """

    def __init__(
        self, ownership: Ownership, limits: Limits, began_at: float, epoch: float, step: TimeStep
    ) -> None:
        self.now = self.began_at = self.last_at = began_at  # `last_at`: time of the last action
        self.ledger = Ledger(ownership, limits, lambda: self.now, wall_clock=lambda: epoch + self.now)
        self.cycle_count = 0
        self._epoch, self._step = epoch, step
        self._actions: list[_Action] = []
        self._serials = count()
        self._waiting_jobs: dict[GroupKey, JobRecord] = {}  # jobs before their admission

    @property
    def timestamp(self) -> str:
        return timestamp_at(min(self._epoch + self.now, _LAST_SECOND))

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot. Terminating pods are removed at the end of their grace period."""
        restore(self.ledger, snapshot)
        departing_pods = [pod for group in snapshot.groups.values() for pod in group.departing_pods]
        for pod in (*departing_pods, *snapshot.other_pods.leaving.values()):
            gone_at = max(clock_time_of(pod.deletion_deadline, snapshot.epoch), self.began_at + 1.0)
            self.plan(gone_at, partial(self.remove, pod.uid))

    def plan(self, at: float, act: Callable[[], object]) -> None:
        """Plan an action for a time."""
        heapq.heappush(self._actions, _Action(at, next(self._serials), act))

    def advance(self) -> bool:
        """Advance to the next instant with an action or a requested cycle. Return False if there is none.

        Actions of that instant are run.
        """
        if (span := self._next_instant(self.requeue_at())) is None:
            return False
        self.now, latest_at = span
        while self._actions and self._actions[0].at <= latest_at:
            self.last_at = self.now
            heapq.heappop(self._actions).act()
        return True

    def requeue_at(self) -> float | None:
        """Return when time alone changes a decision; None if it never does."""
        return self.ledger.decisions.requeue_at

    def _next_instant(self, due: float | None) -> tuple[float, float] | None:
        """Return the next instant, and the time up to which actions run at it; None without an instant."""
        first_at = self._actions[0].at if self._actions else inf
        if due is not None and due <= self.last_at + (self._step.quiet if self._actions else _QUIET):
            pause = max(self._step.pause, (self.now - self.last_at) * self._step.pause_ratio)
            due = max(due, self.now + pause)
            if due < first_at:
                return due, due
        if not self._actions:
            return None
        latest_at = max(first_at, self.began_at + (first_at - self.began_at) * self._step.merge_ratio)
        return fmean(action.at for action in self._actions if action.at <= latest_at), latest_at

    def decide(self) -> Snapshot:
        """Make new decisions. Return the snapshot that they are based on."""
        snapshot = self.ledger.snapshot()
        self.ledger.publish(decide(snapshot, self.ledger.decisions))
        self.cycle_count += 1
        return snapshot

    def carry_out(self) -> PodChanges:
        """Carry out the last decisions: start, evict and suspend pods."""
        decisions = self.ledger.decisions
        undone_uids = [uid for decision in decisions.groups.values() for uid in decision.undo]
        pod_lists = [[*filter(None, map(self.remove, uids))] for uids in (undone_uids, decisions.evictions)]
        return PodChanges(self._start(decisions), evicted=pod_lists[1], undone=pod_lists[0])

    def remove(self, uid: Uid) -> PodRecord | None:
        """Remove a pod, and return its last record. None means that it no longer exists."""
        pod = self.ledger.pods.get(uid)
        self.ledger.pods.drop(uid)
        return pod

    def _start(self, decisions: Decisions) -> list[PodRecord]:
        """Start the pods of planned claims, and the pods that are assumed on a node. Return them."""
        started_pods, claims = list[PodRecord](), self.ledger.claims
        claims_by_group: dict[GroupKey, list[Claim]] = {}
        for claim in [*claims.in_stage(ClaimStage.ANSWERED), *claims.in_stage(ClaimStage.PLANNED)]:
            decision = decisions.groups.get(claim.pod.group)
            if claim.is_fixed or (decision is not None and claim.pod.uid in decision.plan):
                claims_by_group.setdefault(claim.pod.group, []).append(claim)
        for key, group_claims in claims_by_group.items():
            pairs = [(pod, claim.node) for claim in group_claims if (pod := self.pod_of(claim)) is not None]
            if len(pairs) == len(group_claims) or self._is_quorate(key, [pod for pod, _ in pairs]):
                started_pods += [self.start(pod, node) for pod, node in pairs]
        return started_pods

    def _is_quorate(self, key: GroupKey, coming_pods: Sequence[PodRecord]) -> bool:
        """Return whether a group is whole even if some of its expected pods are not created."""
        group = self.ledger.registry.group(key)
        roles = Counter([*group.standing_roles.values(), *(pod.role for pod in coming_pods)])
        return group.has_fully_run or is_whole_with(group.needs, roles, roles.total())

    def start(self, pod: PodRecord, node: str) -> PodRecord:
        """Run a pod on a node from now on. Return the previous record of the pod."""
        now, changes = self.timestamp, {"phase": "Running", "has_started": True, "is_gated": False}
        self.ledger.pods.put(replace(pod, node=node, running_since=now, **changes))
        return pod

    def pod_of(self, claim: Claim) -> PodRecord | None:
        """Return the pod for a claim. None means that there is no pod yet.

        Controllers create the expected pods when they start.
        """
        pod = claim.pod
        if not pod.is_expected or pod.is_for_min_resources:
            return None if pod.is_expected else pod
        if not pod.reserved_for:
            self._unsuspend(pod.group)
        pod = replace(pod, is_expected=False, reserved_for=Uid(""))
        return replace(pod, uid=_new_uid(pod), created_at=self.timestamp)

    def _unsuspend(self, key: GroupKey) -> None:
        """Unsuspend a job that starts. A partial start has fewer pods."""
        job, decision = self.ledger.registry.jobs.get(key), self.ledger.decisions.groups[key]
        if job is None or not job.is_suspended:
            return
        self._waiting_jobs[key] = job
        if decision.reduced_to is not None:
            counts = Counter(int(uid.rsplit("/", 2)[1]) for uid in decision.plan)
            pod_sets = tuple(replace(part, count=counts[number]) for number, part in enumerate(job.pods))
            job = replace(job, pods=pod_sets, declared_count=counts.total())
        self.ledger.intake.put_job(replace(job, is_suspended=False, started_at=self.timestamp))

    def replace_pods(self, lost_pods: Sequence[PodRecord]) -> None:
        """Act as the controllers of lost pods: suspend a Job of Muster's, or create other pods again."""
        for key in dict.fromkeys(pod.group for pod in lost_pods):
            job = self.ledger.registry.jobs.get(key)
            if job is not None and job.is_unsuspended:
                job = self._waiting_jobs.pop(key, job)
                self.ledger.intake.put_job(replace(job, is_suspended=True, started_at=""))
                for pod in [*self.ledger.registry.group(key).pods.values()]:
                    self.ledger.pods.drop(pod.uid)
            else:
                replaced_pods = [pod for pod in lost_pods if pod.group == key and pod.is_replaceable]
                for pod in replaced_pods:
                    self.ledger.pods.put(self.replacement_of(pod))

    def replacement_of(self, pod: PodRecord) -> PodRecord:
        """Return the pod that a controller creates in the place of another pod."""
        state = {"node": "", "phase": "Pending", "has_started": False, "running_since": "", "deleting": False}
        return replace(pod, uid=_new_uid(pod), created_at=self.timestamp, **state)


def _new_uid(pod: PodRecord) -> Uid:
    return Uid(f"{pod.uid}+")


class Future(VirtualCluster):
    """Course of events from a snapshot on.

    Args:
        snapshot: The state at the beginning.
        end_of: Returns when a group ends.
        merge_ratio: As in `TimeStep`.
    """

    def __init__(self, snapshot: Snapshot, find_end: FindEnd, merge_ratio: float = 1.005) -> None:
        step = _COARSE_STEP._replace(merge_ratio=merge_ratio)
        super().__init__(Ownership(frozenset()), snapshot.limits, snapshot.now, snapshot.epoch, step)
        self.restore(snapshot)
        self.starts: dict[GroupKey, float] = {}  # first start of each group
        self.victims: dict[GroupKey, tuple[ReclaimVictim, ...]] = {}  # pods evicted for the start of a group
        self.ends: dict[GroupKey, RunEnd] = {}  # ends of running groups
        self._reserving_keys: set[GroupKey] = set()  # groups with reserved nodes before their start
        self._end_of = find_end
        self.snapshot = snapshot
        for group in snapshot.groups.values():
            if group.is_on_nodes:
                started_at = running_since(group, snapshot.instant)
                self._expect_end(group, self.began_at if started_at is None else started_at)

    @property
    def decisions(self) -> Decisions:
        return self.ledger.decisions

    @property
    def endless_groups(self) -> Set[GroupKey]:
        """Return the running groups without a known end."""
        return {key for key, end in self.ends.items() if end.at == inf}

    def start_method(self, key: GroupKey) -> Method:
        """Return the event that a start in this future depends on.

        Learned run times count as declared here.
        """
        if self.victims.get(key):
            return Method.RECLAIM
        return Method.RESERVATION if key in self._reserving_keys else Method.DECLARED

    def step(self) -> bool:
        """Run the next scheduling cycle. Return False if no further change is expected."""
        if not self.cycle_count:
            self._decide()
            return True
        changes = self.carry_out()
        self._follow_groups(changes)
        is_event, frees = any(changes), bool(changes.evicted or changes.undone or self._opens_window(changes))
        self.last_at = self.now if is_event else self.last_at
        if not frees and not self.advance() and not is_event:
            return False
        self._decide()
        return True

    def _opens_window(self, changes: PodChanges) -> bool:
        """Return whether groups that waited for places in the window may start now."""
        decisions = self.decisions.groups.values()
        return bool(changes.started) and any(decision.reason is Reason.WINDOW_FULL for decision in decisions)

    def _follow_groups(self, changes: PodChanges) -> None:
        """Replace removed pods, and plan the ends of groups that have started."""
        removed_pods = [*changes.evicted, *changes.undone]
        self.replace_pods(removed_pods)
        for key in dict.fromkeys(pod.group for pod in removed_pods if pod.group):
            group = self.ledger.registry.groups.get(key)
            if group is None or not any(pod.is_placed for pod in group.pods.values()):
                self.ends.pop(key, None)
        for key in dict.fromkeys(pod.group for pod in changes.started):
            if key not in self.ends:
                self._expect_end(self.snapshot.groups[key], self.now)

    def _expect_end(self, group: GroupInfo, started_at: float) -> None:
        """Plan the expected end of a group that has run since a time."""
        end = self.ends[group.key] = self._end_of(group, started_at, self.now)
        if end.at < inf:
            self.plan(end.at, partial(self._end, group.key, end))

    def _end(self, key: GroupKey, end: RunEnd) -> None:
        """End a group and remove all its pods, unless the group has been evicted meanwhile."""
        if self.ends.get(key) is not end:
            return
        del self.ends[key]
        self.ledger.intake.drop_job(key)
        self.ledger.intake.drop_group(key)
        for uid in [*self.ledger.registry.group(key).pods]:
            self.ledger.pods.drop(uid)

    def _decide(self) -> None:
        """Make new decisions, and record starts, victims and reservations."""
        self.snapshot = self.decide()
        for key in self.decisions.changed_groups:
            decision = self.decisions.groups.get(key)
            if decision is None or key in self.starts:
                continue
            if decision.reclaim is not None or decision.verdict is Verdict.WAITING:
                self.victims[key] = decision.reclaim.victims if decision.reclaim is not None else ()
            if decision.reservation is not None:
                self._reserving_keys.add(key)
            elif decision.verdict is Verdict.WAITING:
                self._reserving_keys.discard(key)
            if decision.plan:
                self.starts[key] = self.now
