"""World with jobs, Muster's controller of jobs, and a job controller that creates and deletes pods."""

from collections.abc import Callable
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Meta, Operation, OwnerReference
from extender.api.objects.pods import Toleration
from extender.api.objects.queues import PodGroup
from extender.api.workloads.shape import JOB, Json, is_suspended
from extender.api.workloads.table import WORKLOADS
from extender.apimachinery.patches import apply_json_patch
from extender.domain.model.records import GroupKey
from extender.domain.snapshot import job_start_and_suspension
from extender.domain.snapshot.job_start_and_suspension import JobStep, job_podgroup, next_step
from extender.domain.snapshot.jobs import AnyJob, JobKind, as_json
from tests.domain.builders import NAMESPACE, SCHEDULER, group, pod
from tests.domain.world import World

_TAINTS = ("not-ready", "unreachable")
TOLERATED = [Toleration(f"node.kubernetes.io/{taint}", "Exists", "", "NoExecute") for taint in _TAINTS]
BATCH = JobKind("batch/v1", "Job")
GROUPS_CREATED_AT = "2027-01-01T00:00:00Z"  # later than any job, as after a restart of Muster
REFUSAL = "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"


def job(
    name: str,
    parallelism: int = 2,
    cpu: str = "1",
    queue: str = "default",
    suspended: bool = True,
    scheduler: str = SCHEDULER,
    created: str = "",
    uid: str = "",
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> AnyJob:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {}, "spec": {"schedulerName": scheduler, "containers": [container]}}
    all_annotations = {**({keys.QUEUE: queue} if queue else {}), **(annotations or {})}
    return AnyJob(
        Meta(
            name=name,
            namespace=NAMESPACE,
            uid=uid or f"uid-{name}",
            creation_timestamp=created or None,
            annotations=all_annotations,
        ),
        {"suspend": suspended, "parallelism": parallelism, "template": template} | spec,
    )


def podgroup_name(name: str) -> str:
    return f"podgroup-uid-{name}"


class JobWorld(World):
    """World with jobs and their controller.

    `stopped`: the job controller does nothing. `locked`: jobs that Muster cannot change. `quota`: maximum
    number of pods of jobs.
    """

    kind = BATCH
    row = WORKLOADS[JOB]

    def __init__(self, *objects: Any, **options: Any) -> None:
        super().__init__(*objects, auto_groups=True, **options)
        self.jobs: dict[str, AnyJob] = {}
        self.podgroups: dict[str, PodGroup] = {}
        self.stopped = False
        self.locked: set[str] = set()
        self.quota: int | None = None
        self.steps: list[tuple[str, JobStep]] = []

    def submit(self, *jobs: AnyJob) -> Self:
        for job in jobs:
            self.jobs[job.metadata.name] = job
            self.ledger.intake.set_ancestor(self.kind.kind, job.metadata)
            self.ledger.intake.set_job(self.kind, job)
        return self

    def change(self, name: str, **spec: Any) -> None:
        before = self.jobs[name]
        self.submit(replace(before, spec={**before.spec, **spec}))

    def annotate(self, name: str, **annotations: str | None) -> None:
        """Set annotations of a job; None removes one."""
        before = self.jobs[name]
        annotations_or_none = {**(before.metadata.annotations or {}), **annotations}
        remaining = {key: text for key, text in annotations_or_none.items() if text is not None}
        self.submit(replace(before, metadata=replace(before.metadata, annotations=remaining)))

    def remove(self, name: str) -> None:
        self.ledger.intake.drop_job(GroupKey(f"{NAMESPACE}/{self.podgroup_name(name)}"))
        self.podgroups.pop(name, None)
        self.ledger.intake.drop_group(GroupKey(f"{NAMESPACE}/{self.podgroup_name(name)}"))
        self.jobs.pop(name)

    def work(self) -> Self:
        """Decide, take the next steps of jobs, and let their controller run, until nothing changes."""
        for _ in range(20):
            self.settle()
            steps = [self._take_step(name) for name in list(self.jobs)]
            creations = [self._reconcile(job) for job in self.jobs.values() if not self.stopped]
            if not any(steps) and not any(creations):
                return self
        raise AssertionError(f"does not settle: {self.steps}")

    def pods_of(self, name: str) -> list[str]:
        return [pod for pod in self.pods if pod.startswith(f"{name}-")]

    def suspended(self, name: str) -> bool:
        return is_suspended(self.row, as_json(self.kind, self.jobs[name]))

    def podgroup_name(self, name: str) -> str:
        return f"podgroup-{self.jobs[name].metadata.uid}"

    def run_whole(self, name: str) -> Self:
        """Let the scheduler bind all pods of a job, and run them."""
        self.work()
        self.scheduler_takes(*self.pods_of(name))
        self.run(*self.pods_of(name))
        return self

    # ---- internals

    def _take_step(self, name: str) -> bool:
        managed = self.ledger.managed_job(GroupKey(f"{NAMESPACE}/{self.podgroup_name(name)}"))
        step = next_step(managed, self.now) if managed else JobStep.NOTHING
        is_locked = name in self.locked and step is JobStep.UNSUSPEND
        if managed is None or step is JobStep.NOTHING or is_locked:
            return False
        self.steps.append((name, step))
        match step:
            case JobStep.MAKE_PODGROUP | JobStep.UPDATE_PODGROUP:
                self._put_group(
                    name, job_podgroup(managed.job, managed.queue, managed.member_count)["spec"], {}
                )
            case JobStep.UNSUSPEND:
                self._put_group(
                    name, job_podgroup(managed.job, managed.queue, managed.member_count)["spec"], {}
                )
                self._admit(name, managed.reduced_to)
            case JobStep.LOOK_UP_REFUSALS:
                self.ledger.record_refusal(managed.job.group, REFUSAL if self._is_full() else "")
            case JobStep.GIVE_UP:
                timeouts = managed.group.start_timeouts if managed.group else 0
                timeouts += not managed.created_pods.refusal
                self._put_group(
                    name,
                    job_podgroup(managed.job, managed.queue, managed.member_count)["spec"],
                    {keys.START_TIMEOUTS: f"{timeouts}"},
                )
                self.ledger.give_up_start(managed.job.group, managed.failure)
                self._suspend(name)
            case JobStep.SUSPEND_FOR_OTHERS | JobStep.FORGET_START:
                self._suspend(name)
            case JobStep.FORGET_TIMEOUTS:
                spec = job_podgroup(managed.job, managed.queue, managed.member_count)["spec"]
                self._put_group(name, spec, {keys.START_TIMEOUTS: "0"})
            case JobStep.STOP:
                self._stop(name, managed.job.started_at)
            case JobStep.REMOVE_PODGROUP:
                del self.podgroups[name]
                self.ledger.intake.drop_group(GroupKey(f"{NAMESPACE}/{self.podgroup_name(name)}"))
        return True

    def _put_group(self, name: str, spec: dict[str, Any], annotations: dict[str, str]) -> None:
        before = self.podgroups[name].metadata.annotations if name in self.podgroups else None
        podgroup = group(
            self.podgroup_name(name),
            spec["minMember"],
            queue=spec.get("queue", "default"),
            created=GROUPS_CREATED_AT,
            annotations={**(before or {}), **annotations},
            roles=spec.get("minTaskMember"),
            min_resources=spec.get("minResources"),
            admitted=self.ledger.groups.history(GroupKey(f"{NAMESPACE}/{self.podgroup_name(name)}"))[2],
        )
        owner = OwnerReference(*self.kind, name, self.jobs[name].metadata.uid, controller=True)
        self.podgroups[name] = replace(
            podgroup,
            metadata=replace(
                podgroup.metadata, labels=self.jobs[name].metadata.labels, owner_references=[owner]
            ),
        )
        self.add(self.podgroups[name])

    def _admit(self, name: str, reduced_to: int | None) -> None:
        self._write(
            name,
            lambda obj: job_start_and_suspension.unsuspend(
                obj, self.row, [], self.podgroup_name(name), "now", reduced_to
            ),
        )

    def _suspend(self, name: str) -> None:
        self._write(name, lambda obj: job_start_and_suspension.suspend(obj, self.row))

    def _stop(self, name: str, started_at: str) -> None:
        self._write(name, lambda obj: job_start_and_suspension.suspend(obj, self.row, admitted_at=started_at))

    def _write(self, name: str, change: Callable[[Json], list[Operation]]) -> None:
        obj = msgspec.to_builtins(self.jobs[name])
        obj["metadata"]["resourceVersion"] = "1"
        self.submit(msgspec.convert(apply_json_patch(obj, change(obj)), AnyJob))

    def _reconcile(self, job: AnyJob) -> bool:
        name, pods = job.metadata.name, self.pods_of(job.metadata.name)
        if job.spec["suspend"]:
            self.delete(*pods)
            return bool(pods)
        missing: int = job.spec["parallelism"] - len(pods)
        completions = job.spec.get("completions")
        if completions is not None:
            succeeded = [pod for pod in pods if self.pods[pod].status.phase == "Succeeded"]
            missing = min(job.spec["parallelism"], completions - len(succeeded)) - len(pods) + len(succeeded)
        cpu = job.spec["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        for number in range(max(missing, 0)):
            if self._is_full():
                return False
            self.add(pod_of(job, f"{name}-{len(pods) + number}", cpu))
        return missing > 0

    def _is_full(self) -> bool:
        pod_count = sum(len(self.pods_of(name)) for name in self.jobs)
        return self.quota is not None and pod_count >= self.quota


def pod_of(owner: AnyJob, name: str, cpu: str = "1", on: str = "") -> Any:
    new_pod = pod(name, cpu=cpu, on=on, gated=False, tolerations=TOLERATED)
    meta = owner.metadata
    controller = OwnerReference("batch/v1", "Job", meta.name, meta.uid, controller=True)
    return replace(new_pod, metadata=replace(new_pod.metadata, owner_references=[controller]))
