"""Small cluster with one Volcano Job in virtual time, in which plans are executed as by the controller.

The controller may see old states and may crash after any write. A status that is based on an old version of
the job is refused; if it changes more than counts, the rest of the plan is then left out. Every step is
checked: see `_check_phase` and `_delete`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from msgspec.structs import replace

from extender.api.objects.volcano import JobStatus, VolcanoJob
from extender.volcano.admission import with_defaults
from extender.volcano.plan import JobView, Plan, plan
from extender.volcano.pods import JobPod, pod_of
from extender.volcano.policies import JobRequest, request_for_lost_pod
from extender.volcano.states import (
    ACTIVE_PHASES,
    FINAL_PHASES,
    TARGETED_ACTIONS,
    TRANSITIONS,
    Action,
    JobPhase,
    phase_of,
)

PHASE_CHANGES = {
    (JobPhase.PENDING, JobPhase.RUNNING),
    (JobPhase.RUNNING, JobPhase.PENDING),  # too few pods run, or its capacity was reclaimed
    (JobPhase.RUNNING, JobPhase.COMPLETED),
    (JobPhase.RUNNING, JobPhase.FAILED),
    (JobPhase.RESTARTING, JobPhase.PENDING),
    (JobPhase.RESTARTING, JobPhase.FAILED),
    (JobPhase.COMPLETING, JobPhase.COMPLETED),
    (JobPhase.TERMINATING, JobPhase.TERMINATED),
    (JobPhase.ABORTING, JobPhase.ABORTED),
}
ALLOWED = PHASE_CHANGES | {
    (phase, row.next_phase) for (phase, _), row in TRANSITIONS.items() if row.next_phase
}


def _fields_written_first(status: JobStatus) -> tuple[object, ...]:
    """Return the fields that have to be written before the rest of a plan: all but counts."""
    return status.state, status.version, status.retry_count


@dataclass
class Cluster:
    job: VolcanoJob
    now: float
    foreign: frozenset[str] = frozenset()
    admitted: bool = True
    group_phase: str = ""
    command: JobRequest | None = None
    pods: dict[str, JobPod] = field(default_factory=dict)  # by name; pods of other owners are in `foreign`
    lost: list[JobRequest] = field(default_factory=list)  # Muster's records of deleted pods
    deleted: set[str] = field(default_factory=set)  # UIDs of pods that Muster has deleted since its start
    uids: "count[int]" = field(default_factory=count)
    phases: list[JobPhase] = field(default_factory=list)  # former phases
    created: list[tuple[str, int, int]] = field(default_factory=list)  # name, version and retry count

    def __post_init__(self) -> None:
        self._shown: list[tuple[JobPod, ...]] = [()]
        self._jobs = [self.job]
        self._seen = self._job_seen = 0

    # ---- Muster

    def look(self, lag: int = 0, job_lag: int = 0, writes: int = 1000) -> Plan:
        """Execute a plan for old states: pods `lag` changes ago, and the job `job_lag` changes ago.

        States never go back behind those of an earlier look. After `writes` writes, Muster crashes.
        """
        self._seen = max(len(self._shown) - 1 - lag, self._seen)
        self._job_seen = max(len(self._jobs) - 1 - job_lag, self._job_seen)
        pods, job = self._shown[self._seen], self._jobs[self._job_seen]
        request = self.command or next((request for request in self.lost if request.at <= self.now), None)
        view = JobView(job, pods, self.admitted, self.now, request, self.foreign, {}, self.group_phase)
        planned = plan(view)
        if planned.status != job.status and job is self.job and writes > 0:
            writes -= 1
            self._check_phase(planned)
            if planned.status.state.phase != self.job.status.state.phase:
                self.phases.append(phase_of(planned.status.state.phase))
            self._put(replace(self.job, status=planned.status))
        elif _fields_written_first(planned.status) != _fields_written_first(job.status):
            if writes < 0:
                self._forget()
            return planned
        if request is not None and request is self.command:
            self.command = None
        elif request is not None:
            self.lost.remove(request)
        for pod in planned.pods_to_delete[: max(writes, 0)]:
            self._delete(pod, request)
        for creation in planned.new_pods[: max(writes - len(planned.pods_to_delete), 0)]:
            self._create(creation.build())
        if writes < len(planned.pods_to_delete) + len(planned.new_pods):
            self._forget()
        return planned

    def _forget(self) -> None:
        """Drop the state that Muster has only in memory, as after a crash."""
        self.lost.clear()
        self.deleted.clear()

    def _check_phase(self, planned: Plan) -> None:
        before, after = self.job.status, planned.status
        former, current = phase_of(before.state.phase), phase_of(after.state.phase)
        assert former is current or (former, current) in ALLOWED, (former, current)
        assert former is current or former not in FINAL_PHASES
        assert before.version <= after.version <= before.version + 1
        assert before.retry_count <= after.retry_count <= before.retry_count + 1

    def _delete(self, pod: JobPod, request: JobRequest | None) -> None:
        existing = self.pods.get(pod.name)
        if existing is None or existing.uid != pod.uid:
            return
        status, replicas = self.job.status, {task.name: task.replicas for task in self.job.spec.tasks}
        phase, causes = phase_of(status.state.phase), {status.state.reason, request and request.action}
        assert (
            (phase not in ACTIVE_PHASES and not pod.is_finished)
            or not self.admitted
            or pod.index >= replicas[pod.task]
            or pod.version < status.version
            or (
                causes & {*TARGETED_ACTIONS}
                and (phase is JobPhase.RESTARTING or pod.retry < status.retry_count)
            )
            or (phase is JobPhase.RESTARTING and status.retry_count >= self.job.spec.max_retry)
        ), (pod, status)
        self.deleted.add(pod.uid)
        self._change(replace(existing, is_deleting=True))

    def _create(self, obj: dict[str, object]) -> None:
        pod = pod_of(obj)
        assert pod is not None
        assert pod.name not in self.foreign
        if pod.name in self.pods:  # the API server would refuse it
            return
        self.created.append((pod.name, pod.version, pod.retry))
        self._change(replace(pod, uid=f"{next(self.uids)}", created_at=self.now, is_ready=False))

    # ---- the world

    def _put(self, job: VolcanoJob) -> None:
        self.job = job
        self._jobs.append(job)

    def _change(self, pod: JobPod) -> None:
        self.pods[pod.name] = pod
        self._shown.append(tuple(self.pods.values()))

    def choose(self, number: int, phases: Sequence[str]) -> JobPod | None:
        pods = [pod for pod in self.pods.values() if pod.phase in phases and not pod.is_deleting]
        return pods[number % len(pods)] if pods else None

    def run(self, number: int) -> None:
        if pod := self.choose(number, ["Pending"]):
            self._change(replace(pod, phase="Running", is_ready=True))

    def end(self, number: int, exit_code: int) -> None:
        if pod := self.choose(number, ["Running"]):
            phase = "Failed" if exit_code else "Succeeded"
            self._change(replace(pod, phase=phase, exit_code=exit_code, is_ready=False, ended_at=self.now))

    def evict(self, number: int) -> None:
        if pod := self.choose(number, ["Pending", "Running", "Succeeded", "Failed"]):
            self._change(replace(pod, is_deleting=True))

    def remove(self, number: int) -> None:
        """Remove one of the pods that are being deleted."""
        terminating = [pod for pod in self.pods.values() if pod.is_deleting]
        if not terminating:
            return
        pod = self.pods.pop(terminating[number % len(terminating)].name)
        self._shown.append(tuple(self.pods.values()))
        if pod.uid not in self.deleted:
            request = request_for_lost_pod(with_defaults(self.job), pod, self.now)
            if request is not None:
                self.lost.append(request)

    def crowd_out(self, number: int, seconds: float = 60.0) -> None:
        """Evict a pod for other groups; its replacement gets no node for some seconds."""
        self.evict(number)
        self.remove(number)
        self.look()
        self.group_phase = "Unknown"
        self.now += seconds

    def scale(self, number: int, replicas: int) -> None:
        tasks = list(self.job.spec.tasks)
        index = number % len(tasks)
        tasks[index] = replace(tasks[index], replicas=replicas)
        self._put(replace(self.job, spec=replace(self.job.spec, tasks=tasks)))

    def ask(self, action: Action) -> None:
        if self.command is None:
            self.command = JobRequest(action, message="a Command")

    def start(self) -> None:
        """Create and run all pods that the job may have."""
        for _ in range(len(self.job.spec.tasks) + 1):
            while self.look().new_pods:
                pass
            for _ in self.pods:
                self.run(0)
        self.look()

    def rest(self) -> int:
        """Let pods run and succeed, and deletions end, until nothing changes; return the number of plans."""
        for plans in range(400):
            before = self.job, dict(self.pods)
            planned = self.look()
            for number in range(len(self.pods)):
                self.run(0)
                self.end(number, 0)
                self.remove(0)
            self.now = max(self.now + 1.0, planned.due_at or 0.0)
            idle = not (planned.new_pods or planned.pods_to_delete or self.lost or self.command)
            if idle and before == (self.job, self.pods):
                return plans
        raise AssertionError(f"the cluster does not settle: {self.job.status}")
