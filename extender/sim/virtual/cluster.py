"""A cluster in virtual time. The Ledger hears of it as it would of a real one, and the scheduler is ideal:
what is planned is taken at once. Pods come without our gate, which nothing here would open. They are bound,
run, and end; once all of a group has ended, it goes with its pods, as after the time to live of a Job.
Suspended jobs wait as in a cluster, and make their pods when room has been claimed for them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from extender.api.objects.base import Condition
from extender.api.objects.cluster import Workload
from extender.api.objects.pods import Pod, PodStatus
from extender.api.workloads.table import WORKLOADS
from extender.domain.ledger.claims import Claim
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.ownership import Ownership
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.job_suspension import JobStep, next_step
from extender.domain.snapshot.jobs import AnyJob
from extender.domain.snapshot.snapshot import Limits
from extender.sim.apiserver.kinds import Json
from extender.sim.apiserver.quotas import charged, refusal
from extender.sim.virtual.workload import BEGIN, JobArrival, VirtualWorkload, key_of_group, stamp

SUCCEEDED, FAILED = PodStatus("Succeeded"), PodStatus("Failed")


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
        self.ledger.intake.leave_jobs(())  # Muster runs Volcano Jobs here, too
        self.ledger.intake.trust_authors(True)  # no user writes here
        self.rounds = 0
        self._clock = clock
        self._pods: dict[Uid, Pod] = {}  # those that have not ended
        self._present: dict[GroupKey, list[Uid]] = {}  # by group, ended ones too
        self._left = Counter(key_of_group(member.pod) for member in workload.members)
        self._over: list[GroupKey] = []  # groups of which all pods have ended
        self._seen = -1
        self._quotas = defaultdict[str, list[Json]](list)  # by namespace, with what is used of them
        for quota in workload.quotas:
            self._quotas[quota["metadata"]["namespace"]].append(quota)
        for node in workload.nodes:
            self.ledger.intake.set_node(node)
        for flavor in workload.flavors:
            self.ledger.intake.set_flavor(flavor)
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
        for kind, maker in workload.makers:
            self.ledger.intake.set_maker(kind, maker)
        self._jobs: dict[GroupKey, JobArrival] = {}  # that have come and wait
        self._started: dict[GroupKey, JobArrival] = {}  # that were let go, until all their pods run

    # ---- jobs

    def queue_job(self, job: JobArrival) -> None:
        """A suspended job comes, and its group."""
        self._jobs[job.unit.key] = job
        if job.runtime is not None:
            self.ledger.intake.set_runtime(*job.runtime)
        self.ledger.intake.set_group(job.unit.group)
        self.ledger.intake.set_job(job.kind, job.waiting)

    def let_go(self) -> list[tuple[JobArrival, int | None]]:
        """Jobs for which room has just been claimed, and with how many pods they start if not with all."""
        found = []
        for key, job in [*self._jobs.items()]:
            managed = self.ledger.managed_job(key)
            if managed is None or next_step(managed, self._clock()) is not JobStep.UNSUSPEND:
                continue
            self._started[key] = self._jobs.pop(key)
            found.append((job, managed.reduced_to))
            self._left[key] += len(job.pods[: managed.reduced_to])
            self._tell(job, job.let_go(self._clock(), managed.reduced_to))
            if (going := self.ledger.managed_job(key)) is not None:
                spec = replace(job.unit.group.spec, min_member=going.members)
                self.ledger.intake.set_group(replace(job.unit.group, spec=spec))
        return found

    def job_step(self, key: GroupKey) -> tuple[JobStep, float | None]:
        """What is to be done about a job that was let go, and when it is asked why its pods do not come."""
        managed = self.ledger.managed_job(key) if key in self._started else None
        return (next_step(managed, self._clock()), managed.asks_at) if managed else (JobStep.NOTHING, None)

    def suspend(self, key: GroupKey) -> None:
        """A job whose pods are refused waits again, and those that it has go."""
        job, managed = self._started.pop(key), self.ledger.managed_job(key)
        self.ledger.give_up_start(key, managed.failure if managed else "")
        for uid in self._present.pop(key, ()):
            self._charge(self._pods.pop(uid), -1)
            self.ledger.pods.drop(uid)
        del self._left[key]
        self._jobs[key] = job
        self.ledger.intake.set_group(job.unit.group)
        self._tell(job, job.waiting)

    def _tell(self, job: JobArrival, now: AnyJob) -> None:
        """A job has changed, which may be the owner of its pods."""
        known = self.ledger.intake.set_job(job.kind, now)
        if WORKLOADS[job.kind].makes_groups:
            self.ledger.intake.set_maker(job.kind, now, known)
        else:
            self.ledger.intake.set_owner(msgspec.convert(msgspec.to_builtins(now), Workload))

    def refusal(self, pod: Pod) -> str:
        """Why a quota does not take a new pod, in the API's words; empty if all do."""
        quotas = self._quotas.get(pod.metadata.namespace)
        why = refusal(quotas, pod) if quotas else ""
        return f'pods "{pod.metadata.name}" is forbidden: {why}' if why else ""

    def _charge(self, pod: Pod, times: int) -> None:
        if quotas := self._quotas.get(pod.metadata.namespace):
            quotas[:] = [charged(quota, pod, times) for quota in quotas]

    def add(self, pod: Pod) -> PodRecord:
        """A pod comes; one that names a node runs there."""
        if pod.spec.node_name:
            pod = replace(pod, status=self._running())
        uid = Uid(pod.metadata.uid)
        self._charge(pod, 1)
        self._pods[uid] = pod
        self._present.setdefault(key_of_group(pod), []).append(uid)
        self.ledger.pods.set(pod)
        return self._record(uid)

    def _running(self) -> PodStatus:
        """As a kubelet says it of a pod that starts now: to the second."""
        now = stamp(self._clock())
        return PodStatus("Running", [Condition("Ready", "True", last_transition_time=now)], start_time=now)

    def end(self, uid: Uid, status: PodStatus) -> PodRecord | None:
        """A pod ends; None where it is gone already."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return None
        self._charge(pod, -1)
        over = replace(pod, status=status)
        self._charge(over, 1)
        self.ledger.pods.set(over)
        record = self._record(uid)
        group = key_of_group(pod)
        self._left[group] -= 1
        if not self._left[group]:
            self._over.append(group)
        return record

    def _forget(self) -> None:
        """Groups that have ended go only now that a decision has seen them so."""
        for group in self._over:
            for ended in self._present.pop(group):
                self.ledger.pods.drop(ended)
            self.ledger.intake.drop_group(group)
        self._over.clear()

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
            self._forget()
            out: list[PodRecord | None] = []
            for uid in [uid for decision in decisions.groups.values() for uid in decision.undo]:
                out.append(self.end(uid, FAILED))  # of a start that failed finally; nothing creates it again
                self.ledger.pods.drop(uid)
            for uid in decisions.evictions:  # room reclaimed for others; its controller creates the pod again
                if (pod := self._pods.pop(uid, None)) is not None:
                    self._charge(pod, -1)
                    out.append(self._record(uid))
                    self._present[key_of_group(pod)].remove(uid)
                    self.ledger.pods.drop(uid)
            gone = [record for record in out if record is not None]
            taken = self._take()
            for key, job in [*self._started.items()]:  # a gang like others once all its pods run
                there = [self._pods[uid] for uid in self._present.get(key, ()) if uid in self._pods]
                if there and all(pod.spec.node_name for pod in there):
                    del self._started[key]
                    self.ledger.intake.drop_job(job.unit.key)
            bound, evicted, due = bound + taken, evicted + gone, bool(taken or gone)
        self._seen = self.ledger.version
        return bound, evicted

    def _take(self) -> list[Claim]:
        """The scheduler asks for each planned pod and binds it to its node; the barrier releases it."""
        planned = [claim for claim in self.ledger.to_release() if claim.pod.uid in self._pods]
        for claim in planned:
            if isinstance(self.ledger.assumed.assume(claim.pod.uid, [claim.node]), list):
                self.ledger.assumed.hold(claim.pod.uid, claim.node, token=1)
        taken: list[Claim] = []
        running = self._running()
        for key in dict.fromkeys(claim.pod.group for claim in planned):
            for claim in self.ledger.assumed.confirm(key).posting:
                pod = self._pods[claim.pod.uid]
                spec = replace(pod.spec, node_name=claim.node)
                self._pods[claim.pod.uid] = pod = replace(pod, spec=spec, status=running)
                self.ledger.pods.set(pod)
                taken.append(claim)
        return taken
