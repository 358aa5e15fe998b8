"""Volcano's own Job (volcano-sh/volcano), and the PodGroups that operators make for Volcano where an object
asks for it: what completes that object puts what they say into `spec.gangs`, and has its pods name them."""

from typing import Any

from extender.api.workloads.core import POD
from extender.api.workloads.shape import Count, Json, Offspring, WorkloadRow, items_of, with_spec

POD_GROUP = ("scheduling.volcano.sh/v1beta1", "PodGroup")
VOLCANO = "volcano"
_GROUP = "scheduling.k8s.io/group-name"
_REPLICAS = Count(path=("replicas",))


def group_of_operator(name: str) -> Offspring:
    """Made where there is an entry in `spec.gangs`."""
    spec = {field: (field,) for field in ("minMember", "queue", "priorityClassName")}
    return Offspring(made=POD_GROUP, name=name, each=("spec", "gangs"), spec=spec)


def member_of(template: Json | None, group: str, labels: dict[str, Any]) -> Json:
    given = template or {}
    meta = given.get("metadata") or {}
    named = {**(meta.get("annotations") or {}), _GROUP: group}
    labelled = {**(meta.get("labels") or {}), **labels}
    spec = {**(given.get("spec") or {}), "schedulerName": VOLCANO}
    return {**given, "metadata": {**meta, "annotations": named, "labels": labelled}, "spec": spec}


def volcano_tasks(job: Json) -> Json:
    """Volcano's webhook: names for tasks, and all of them are needed unless the Job says how many; its
    scheduler, queue and priority are those of its pods."""
    spec = job.get("spec") or {}
    tasks = [
        {
            **each,
            "name": each.get("name") or f"default{number}",
            "template": _of_job(each.get("template"), spec),
        }
        for number, each in enumerate(items_of(job, "tasks"))
    ]
    total = sum(1 if each.get("replicas") is None else each["replicas"] for each in tasks)
    needed = spec.get("minAvailable")
    return with_spec(
        job, tasks=tasks, minAvailable=total if needed is None else needed, minTaskMember=_least(tasks)
    )


def _of_job(template: Json | None, spec: Json) -> Json:
    inherited = {"schedulerName": spec.get("schedulerName") or "volcano"}
    if spec.get("priorityClassName"):
        inherited["priorityClassName"] = spec["priorityClassName"]
    given = template or {}
    return {**given, "spec": {**inherited, **(given.get("spec") or {})}}


def _least(tasks: list[Json]) -> Json | None:
    """By task, where any says a number."""
    least = {each["name"]: each["minAvailable"] for each in tasks if each.get("minAvailable") is not None}
    return least or None


_TASK = {
    "volcano.sh/job-name": "{owner}",
    "volcano.sh/task-index": "{index}",
    "volcano.sh/task-spec": "{role}",
}
_VOLCANO_GROUP = "{owner}-{uid}"
VOLCANO_JOB = WorkloadRow(
    api_version="batch.volcano.sh/v1alpha1",
    kind="Job",
    short=("vcjob", "vj"),
    offspring=(
        Offspring(
            made=POD_GROUP,
            name=_VOLCANO_GROUP,
            spec={
                "minMember": ("spec", "minAvailable"),
                "minTaskMember": ("spec", "minTaskMember"),
                "priorityClassName": ("spec", "priorityClassName"),
                "queue": ("spec", "queue"),
            },
        ),
        Offspring(
            made=POD,
            name="{owner}-{role}-{index}",
            each=("spec", "tasks"),
            template=("template",),
            count=_REPLICAS,
            labels=_TASK,
            annotations=_TASK
            | {"scheduling.k8s.io/group-name": _VOLCANO_GROUP, "volcano.sh/job-version": "0"},
        ),
    ),
    counts=(("spec", "minAvailable"),),
    suspend=(),
    complete=volcano_tasks,
)
