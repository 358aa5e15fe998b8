"""A run of a workload in virtual time. Decisions are carried out at once and never fail.

Pods are created without Muster's gate, bound, run, and end. When all pods of a group have ended, the group is
deleted with its pods, as after the time to live of a Job. Suspended jobs wait as in a cluster, and create
their pods when they are admitted. A simulation of a dump continues at the dump's timestamp.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from extender.api.keys import ENDED_PHASES
from extender.api.objects.base import Meta
from extender.api.objects.cluster import Workload
from extender.api.objects.pods import Pod, PodStatus
from extender.api.objects.queues import PodGroup
from extender.api.workloads.table import WORKLOADS
from extender.apimachinery.kinds import Json
from extender.apimachinery.quotas import refusal, with_pod_usage
from extender.domain.explain.future import PodChanges, TimeStep, VirtualCluster
from extender.domain.ledger.claims import Claim
from extender.domain.ledger.devices import DeviceInventory
from extender.domain.model.ownership import Ownership
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.job_start_and_suspension import JobStep, next_step
from extender.domain.snapshot.jobs import AnyJob
from extender.domain.snapshot.snapshot import Limits
from extender.sim.virtual.workload import (
    BEGIN,
    DumpedState,
    JobArrival,
    PodArrival,
    VirtualWorkload,
    key_of_group,
)

SUCCEEDED, FAILED = "Succeeded", "Failed"


class Observer:
    """Receiver of events. All methods of this base class do nothing."""

    def job_queued(self, group: GroupKey, pods: int, now: float) -> None:
        """Record the number of pods of a suspended job, or of the job's partial start."""

    def pod_created(self, pod: PodRecord, now: float) -> None:
        """Record a new pod. Pods of other schedulers have an empty group."""

    def pod_bound(self, pod: PodRecord, now: float) -> None:
        """Record that a pod starts to run."""

    def pod_ended(self, pod: PodRecord, now: float) -> None:
        """Record that a pod has ended."""

    def pod_reclaimed(self, pod: PodRecord, now: float) -> None:
        """Record that a running pod was evicted for other groups. It will be created again."""

    def decided(self, decisions: Decisions, now: float) -> None:
        """Record the decisions that are in force until the next event."""


class RefusedPod(NamedTuple):
    """Pod that a quota refused. It is created when other pods have ended.

    `is_replacement` says whether it replaces an evicted pod.
    """

    member: PodArrival
    reason: str
    is_replacement: bool


class Simulation(VirtualCluster):
    """Run of one workload. `refused` are the pods that quotas refuse so far."""

    def __init__(
        self, workload: VirtualWorkload, limits: Limits, schedulers: frozenset[str], observer: Observer
    ) -> None:
        dumped = workload.dumped
        begin, epoch = (dumped.snapshot.now, dumped.snapshot.epoch) if dumped else (0.0, BEGIN.timestamp())
        super().__init__(Ownership(schedulers, auto_groups=True), limits, begin, epoch, TimeStep())
        self._observer = observer
        self._started_count = 0  # number of started pods, including ended ones
        self._members: dict[Uid, PodArrival] = {}  # pods that have not ended
        self._run_times: dict[GroupKey, float | None] = {}  # run times, by group of a dump
        self._running_uids: set[Uid] = set()
        self.refused_pods: list[RefusedPod] = []
        self._plans_retry = False
        self._remaining_counts = Counter(key_of_group(member.pod) for member in workload.members)
        self._ended_groups: list[GroupKey] = []  # groups whose pods have all ended
        self._decided_version = -1
        self._pending_jobs: dict[GroupKey, JobArrival] = {}  # pending jobs
        self._starting_jobs: dict[GroupKey, JobArrival] = {}  # unsuspended jobs whose pods do not all run yet
        self._quotas = defaultdict[str, list[Json]](list)  # quotas by namespace, with their usage as status
        for quota in workload.quotas:
            self._quotas[quota["metadata"]["namespace"]].append(quota)
        if dumped is not None:
            self._continue_dump(dumped)
        self._add_cluster_objects(workload)
        for at, group in workload.groups:
            self.plan(begin + at, partial(self._create_group, group))
        for job in workload.jobs:
            self.plan(begin + job.podgroup.at, partial(self._add_job, job))
        for member in workload.members:
            self.plan(begin + member.at, partial(self._create_pod, member))

    def _add_cluster_objects(self, workload: VirtualWorkload) -> None:
        """Add all objects except groups, jobs and pods to the ledger."""
        intake = self.ledger.intake
        intake.leave_jobs(())  # Muster also runs Volcano Jobs
        intake.trust_authors(is_trusted=True)  # no user can write here
        kinds: Sequence[tuple[Sequence[Any], Callable[[Any], object]]] = (
            (workload.nodes, intake.set_node),
            (workload.flavors, intake.set_flavor),
            (workload.topologies, intake.set_topology),
            (workload.devices, DeviceInventory(intake).add),
            (workload.queues, intake.set_queue),
            (workload.priority_classes, intake.set_priority_class),
            (workload.namespaces, intake.set_namespace),
            (workload.local_queues, intake.set_local_queue),
        )
        for objects, set_object in kinds:
            for obj in objects:
                set_object(obj)
        intake.set_quota_namespaces(dict(workload.quota_namespaces))
        for kind_name, meta in workload.ancestors:
            intake.set_ancestor(kind_name, meta)
        for owner in workload.owners:
            intake.set_owner(owner)
        for kind, controller in workload.controllers:
            intake.set_controller(kind, controller)

    def _continue_dump(self, dumped: DumpedState) -> None:
        """Continue from a dump. Running pods end after the rest of their run time."""
        self.restore(dumped.snapshot)
        for pod in dumped.snapshot.other_pods:
            self._observer.pod_created(pod, 0.0)
        for group in dumped.groups:
            running = [pod for pod in group.placed_pods if pod.holds_capacity]
            waiting = [pod for pod, _ in group.assumed_pods]
            waiting += [pod for pod in group.waiting_pods if not pod.reserved_for]
            self._remaining_counts[group.key] = len(running) + len(waiting)
            for pod in (*running, *waiting):
                self._observer.pod_created(pod, 0.0)
            self._run_times[group.key] = dumped.remaining_seconds(group)
            self._start_running(running)
            self._run_times[group.key] = dumped.total_seconds(group)

    @property
    def second(self) -> float:
        """Return the seconds since the start of the simulation."""
        return self.now - self.began_at

    def run(self, report_started: Callable[[float], None] = lambda started: None) -> float:
        """Run until no event is pending. Return the time of the last event.

        Args:
            report_started: Called with the number of started pods after each event.
        """
        if self._run_times:
            self._settle()
            self._observer.decided(self.ledger.decisions, self.second)
        while self.advance():
            self._settle()
            while self._unsuspend_jobs() or self._suspend_refused_jobs():
                self._settle()
            self._observer.decided(self.ledger.decisions, self.second)
            report_started(self._started_count)
        return self.last_at - self.began_at

    def _settle(self) -> None:
        """Decide until no more pods start."""
        requeue_at = self.ledger.decisions.requeue_at
        is_requeued = requeue_at is not None and requeue_at <= self.now
        due = is_requeued or self.ledger.version != self._decided_version
        while due:
            self.decide()
            self._remove_ended_groups()
            followed = self.carry_out()
            self._start_running(followed.started)
            self._record_removed_pods(followed)
            due = any(followed)
        self._decided_version = self.ledger.version

    def _record_removed_pods(self, followed: PodChanges) -> None:
        """Record removed and evicted pods, and plan replacements of evicted pods."""
        for pod in followed.undone:  # no controller creates it again
            self._count_end(pod)
            self._record_end(pod)
        for pod in followed.evicted:
            member = self._members.pop(pod.uid, None)
            if pod.uid not in self._running_uids or not (member or self._is_recreated(pod)):
                self._count_end(pod)
                self._record_end(pod)
                continue
            self._running_uids.discard(pod.uid)
            self._observer.pod_reclaimed(pod, self.second)
            if member is not None:
                # The pod's controller creates a new pod, with the whole run time.
                metadata = replace(member.pod.metadata, uid=f"{pod.uid}+")
                new_pod = replace(member.pod, metadata=metadata)
                self.plan(self.now, partial(self._create_pod, member._replace(pod=new_pod), again=True))
        self.replace_pods([pod for pod in followed.evicted if pod.group in self._run_times])

    def _is_recreated(self, pod: PodRecord) -> bool:
        """Return whether a job or another controller replaces an evicted pod of a dump."""
        return pod.is_replaceable or self.ledger.registry.jobs.get(pod.group) is not None

    def _remove_ended_groups(self) -> None:
        """Remove the groups that ended before the last decisions."""
        for key in self._ended_groups:
            for uid in [*self.ledger.registry.group(key).pods]:
                self.ledger.pods.drop(uid)
            self.ledger.intake.drop_job(key)
            self.ledger.intake.drop_group(key)
        self._ended_groups.clear()

    # ---- jobs

    def _add_job(self, job: JobArrival) -> None:
        """Add a suspended job, and its group."""
        key = job.podgroup.key
        group = replace(job.podgroup.group, metadata=self._with_timestamp(job.podgroup.group.metadata))
        self._pending_jobs[key] = job = job._replace(podgroup=job.podgroup._replace(group=group))
        if job.runtime is not None:
            self.ledger.intake.set_runtime(*job.runtime)
        self.ledger.intake.set_group(group)
        self.ledger.intake.set_job(job.kind, job.waiting)
        self._observer.job_queued(key, len(job.pods), self.second)

    def _unsuspend_jobs(self) -> bool:
        """Unsuspend the admitted jobs, and create their pods. Return whether a job was unsuspended."""
        unsuspended = []
        for key, job in [*self._pending_jobs.items()]:
            managed = self.ledger.managed_job(key)
            if managed is None or next_step(managed, self.now) is not JobStep.UNSUSPEND:
                continue
            self._starting_jobs[key] = self._pending_jobs.pop(key)
            unsuspended.append((job, managed.reduced_to))
            self._remaining_counts[key] += len(job.pods[: managed.reduced_to])
            self._update_job(job, job.unsuspended(self.timestamp, managed.reduced_to))
            if (managed_after := self.ledger.managed_job(key)) is not None:
                spec = replace(job.podgroup.group.spec, min_member=managed_after.member_count)
                self.ledger.intake.set_group(replace(job.podgroup.group, spec=spec))
        for job, reduced_to in unsuspended:
            if reduced_to is not None:
                self._observer.job_queued(job.podgroup.key, reduced_to, self.second)
            for member in job.pods[:reduced_to]:
                self._create_pod(member)
        return bool(unsuspended)

    def _suspend_refused_jobs(self) -> bool:
        """Record refusals of pods, and suspend jobs that failed to start.

        Return whether a refusal was recorded or a job was suspended.
        """
        has_changed = False
        for key, refused in self._refused_groups().items():
            step, _ = self._job_step(key)
            if step is JobStep.LOOK_UP_REFUSALS:
                self.ledger.record_refusal(key, refused.reason)
            elif step is JobStep.GIVE_UP:
                self.refused_pods = [pod for pod in self.refused_pods if key_of_group(pod.member.pod) != key]
                self._suspend(key)
                self._retry_refused()  # at once: a planned event would count as progress
            has_changed |= step in (JobStep.LOOK_UP_REFUSALS, JobStep.GIVE_UP)
        return has_changed

    def _refused_groups(self) -> dict[GroupKey, RefusedPod]:
        """Return the first refused pod of each group."""
        return {key_of_group(entry.member.pod): entry for entry in reversed(self.refused_pods)}

    def requeue_at(self) -> float | None:
        job_times = (self._job_step(key)[1] for key in self._refused_groups())
        return min((at for at in (super().requeue_at(), *job_times) if at is not None), default=None)

    def _job_step(self, key: GroupKey) -> tuple[JobStep, float | None]:
        """Return the next step of an unsuspended job, and the time of the next check for refused pods."""
        managed = self.ledger.managed_job(key) if key in self._starting_jobs else None
        return (next_step(managed, self.now), managed.next_lookup_at) if managed else (JobStep.NOTHING, None)

    def _suspend(self, key: GroupKey) -> None:
        """Suspend a job whose pods are refused, and remove its existing pods."""
        job, managed = self._starting_jobs.pop(key), self.ledger.managed_job(key)
        self.ledger.give_up_start(key, managed.failure if managed else "")
        for pod in [pod for pod in self.ledger.registry.group(key).pods.values() if not pod.is_expected]:
            self.remove(pod.uid)
        del self._remaining_counts[key]
        self._pending_jobs[key] = job
        self.ledger.intake.set_group(job.podgroup.group)
        self._update_job(job, job.waiting)

    def _update_job(self, job: JobArrival, changed_job: AnyJob) -> None:
        """Update a job in the ledger, where it may also be an owner of pods."""
        former = self.ledger.intake.set_job(job.kind, changed_job)
        if WORKLOADS[job.kind].makes_groups:
            self.ledger.intake.set_controller(job.kind, changed_job, former)
        else:
            self.ledger.intake.set_owner(msgspec.convert(msgspec.to_builtins(changed_job), Workload))

    def _release_complete_jobs(self, keys: Iterable[GroupKey]) -> None:
        """Drop the jobs whose pods all run. Their groups then count as any other gang."""
        for key in self._starting_jobs.keys() & set(keys):
            pods = self.ledger.registry.group(key).pods.values()
            existing = [pod for pod in pods if not pod.is_expected and pod.phase not in ENDED_PHASES]
            if existing and all(pod.node for pod in existing):
                del self._starting_jobs[key]
                self.ledger.intake.drop_job(key)

    # ---- pods

    def _with_timestamp(self, meta: Meta) -> Meta:
        return replace(meta, creation_timestamp=self.timestamp)

    def _create_group(self, group: PodGroup) -> None:
        self.ledger.intake.set_group(replace(group, metadata=self._with_timestamp(group.metadata)))

    def _create_pod(self, member: PodArrival, again: bool = False) -> bool:
        """Create a pod. Return False if a quota refuses it. `again` means that it replaces an evicted pod."""
        new_pod = member.pod
        if reason := self._refusal(new_pod):
            self.refused_pods.append(RefusedPod(member, reason, again))
            return False
        self._charge(new_pod, 1)
        self.ledger.pods.set_pod(replace(new_pod, metadata=self._with_timestamp(new_pod.metadata)))
        pod = self._record_of(Uid(new_pod.metadata.uid))
        self._members[pod.uid] = member
        if not again:
            self._observer.pod_created(pod, self.second)
        if pod.node:
            self.start(pod, pod.node)
            self._start_running([pod])
        return True

    def pod_of(self, claim: Claim) -> PodRecord | None:
        """Return the pod of a claim; None if its job has not created the pod yet."""
        is_of_job = claim.pod.group in self._pending_jobs or claim.pod.group in self._starting_jobs
        return None if claim.pod.is_expected and is_of_job else super().pod_of(claim)

    def _record_of(self, uid: Uid) -> PodRecord:
        record = self.ledger.pods.get(uid)
        assert record is not None
        return record

    def _refusal(self, pod: Pod) -> str:
        """Return the API server's message if a quota refuses a new pod; empty if none refuses it."""
        quotas = self._quotas.get(pod.metadata.namespace)
        reason = refusal(quotas, pod) if quotas else ""
        return f'pods "{pod.metadata.name}" is forbidden: {reason}' if reason else ""

    def _charge(self, pod: Pod, times: int) -> None:
        """Add the usage of a pod to its quotas; with `times` -1, subtract the usage."""
        if quotas := self._quotas.get(pod.metadata.namespace):
            quotas[:] = [with_pod_usage(quota, pod, times) for quota in quotas]

    def remove(self, uid: Uid) -> PodRecord | None:
        if (member := self._members.get(uid)) is not None:
            self._charge(member.pod, -1)
        return super().remove(uid)

    def _retry_refused(self) -> None:
        """Create refused pods again.

        The controller of a group stops at the first pod that is refused again.
        """
        self._plans_retry = False
        refused, self.refused_pods = self.refused_pods, []
        stopped_groups = set[GroupKey]()
        for pod in refused:
            group = key_of_group(pod.member.pod)
            if group in stopped_groups:
                self.refused_pods.append(pod)
            elif not self._create_pod(pod.member, pod.is_replacement):
                stopped_groups.add(group)

    def _record_end(self, pod: PodRecord) -> None:
        self._members.pop(pod.uid, None)
        self._running_uids.discard(pod.uid)
        self._observer.pod_ended(pod, self.second)
        if self.refused_pods and not self._plans_retry:  # plan one retry for all pods that end at this time
            self._plans_retry = True
            self.plan(self.now, self._retry_refused)

    def _start_running(self, pods: Sequence[PodRecord]) -> None:
        """Record that pods run from now on, and plan their ends. Pods that end together share one event."""
        uids_by_ending: dict[tuple[float | None, bool], list[Uid]] = {}
        for pod in pods:
            member = self._members.get(pod.uid)
            ending = (member.run_seconds, member.fails) if member else (self._run_times.get(pod.group), False)
            uids_by_ending.setdefault(ending, []).append(pod.uid)
            self._running_uids.add(pod.uid)
            self._started_count += 1
            self._observer.pod_bound(pod, self.second)
        for (runs, fails), uids in uids_by_ending.items():
            if runs is not None or fails:  # other pods run until the end of the simulation
                self.plan(self.now + (runs or 0.0), partial(self._end, uids, FAILED if fails else SUCCEEDED))
        self._release_complete_jobs({pod.group for pod in pods})

    def _end(self, uids: Sequence[Uid], phase: str) -> None:
        for uid in uids:
            pod = self.ledger.pods.get(uid) if uid in self._running_uids else None
            if pod is None:
                continue  # the pod was deleted already
            if (member := self._members.get(uid)) is not None:
                self._charge(member.pod, -1)
                self._charge(replace(member.pod, status=PodStatus(phase)), 1)
            ended_pod = replace(pod, phase=phase, running_since="")
            self.ledger.pods.put(ended_pod)
            self._count_end(ended_pod)
            self._record_end(ended_pod)

    def _count_end(self, pod: PodRecord) -> None:
        """Count an ended pod of a group. A pod without a group is dropped."""
        if not pod.group:
            self.ledger.pods.drop(pod.uid)
            return
        self._remaining_counts[pod.group] -= 1
        if not self._remaining_counts[pod.group]:
            self._ended_groups.append(pod.group)
