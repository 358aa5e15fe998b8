"""Builders of jobs, pods and views for tests of Volcano Jobs. Times are seconds since 1970."""

from typing import Any

from msgspec.structs import replace

from extender.api.objects.base import Meta
from extender.api.objects.volcano import (
    DependsOn,
    JobStatus,
    LifecyclePolicy,
    TaskSpec,
    VolcanoJob,
    VolcanoJobSpec,
    VolcanoJobState,
)
from extender.api.units import timestamp_at
from extender.volcano.admission import with_defaults
from extender.volcano.plan import JobView, Plan, plan
from extender.volcano.pods import JobPod, pod_name

NOW = 1_800_000_000.0
TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


def task(
    name: str, replicas: int, after: list[str] | None = None, iteration: str = "", **more: Any
) -> TaskSpec:
    depends_on = DependsOn(after, iteration) if after else None
    return TaskSpec(name, replicas, template=TEMPLATE, depends_on=depends_on, **more)


def job(*tasks: TaskSpec, status: JobStatus | None = None, **spec: Any) -> VolcanoJob:
    """Return a job j, by default with one task w of two pods."""
    meta = Meta(name="j", namespace="n", uid="u", creation_timestamp=timestamp_at(NOW - 1000.0))
    tasks = tasks or (task("w", 2),)
    return VolcanoJob(meta, VolcanoJobSpec(tasks=list(tasks), **spec), status or JobStatus())


def in_phase(phase: str, reason: str = "", message: str = "", **counts: Any) -> JobStatus:
    state = VolcanoJobState(phase, reason, message, timestamp_at(NOW - 100.0))
    return JobStatus(state=state, **counts)


def pod(index: int, phase: str = "Running", of: str = "w", **more: Any) -> JobPod:
    """Return a ready pod of version 0, created 100 seconds ago; an ended one ended 10 seconds ago."""
    defaults: dict[str, Any] = {"version": 0, "created_at": NOW - 100.0, "is_ready": phase == "Running"}
    if phase in ("Succeeded", "Failed"):
        defaults["ended_at"] = NOW - 10.0
    name = pod_name("j", of, index)
    return JobPod(name=name, uid=f"uid-{name}", task=of, index=index, phase=phase, **{**defaults, **more})


def policy(action: str, *events: str, exit_code: int | None = None, timeout: str = "") -> LifecyclePolicy:
    return LifecyclePolicy(action, events=list(events) or None, exit_code=exit_code, timeout=timeout)


def look(job: VolcanoJob, *pods: JobPod, admitted: bool = True, now: float = NOW, **fields: Any) -> Plan:
    return plan(JobView(job, pods, admitted, now, **fields))


def after(job: VolcanoJob, planned: Plan) -> VolcanoJob:
    """Return the job with the planned status."""
    return replace(with_defaults(job), status=planned.status)
