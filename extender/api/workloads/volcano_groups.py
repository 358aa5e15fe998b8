"""PodGroups that operators make for Volcano where an object asks for it. What completes the object puts what
they say into `spec.gangs`, and has its pods name them.

KubeRay: ray/batchscheduler/volcano/volcano_scheduler.go; Spark operator: internal/scheduler/volcano.
"""

from typing import Any

from extender.api.workloads.shape import Count, Json, Offspring, at

POD_GROUP = ("scheduling.volcano.sh/v1beta1", "PodGroup")
_GROUP, _QUEUE, _VOLCANO = "scheduling.k8s.io/group-name", "volcano.sh/queue-name", "volcano"
WORKERS = Count(
    path=("replicas",), default=0, at_least=("minReplicas",), at_most=("maxReplicas",), times=("numOfHosts",)
)
_NEEDED_WORKERS = Count(path=("minReplicas",), default=0, times=("numOfHosts",))


def group_of_operator(name: str) -> Offspring:
    """Made where there is an entry in `spec.gangs`."""
    spec = {field: (field,) for field in ("minMember", "queue", "priorityClassName")}
    return Offspring(made=POD_GROUP, name=name, each=("spec", "gangs"), spec=spec)


def with_ray_group(cluster: Json) -> Json:
    """The head, and the workers that there are to be; with the autoscaler those that there are at least."""
    meta, spec = cluster.get("metadata") or {}, cluster.get("spec") or {}
    labels = meta.get("labels") or {}
    if labels.get("ray.io/scheduler-name") != _VOLCANO:
        return cluster
    counted = _NEEDED_WORKERS if spec.get("enableInTreeAutoscaling") else WORKERS
    groups = spec.get("workerGroupSpecs") or []
    gang = {
        "minMember": 1 + sum(counted.of(each) for each in groups),
        "queue": labels.get(_QUEUE),
        "priorityClassName": labels.get("ray.io/priority-class-name"),
    }
    queue = {_QUEUE: labels[_QUEUE]} if _QUEUE in labels else {}
    name = f"ray-{meta.get('name')}-pg"
    head = spec.get("headGroupSpec") or {}
    made = {
        "headGroupSpec": {**head, "template": _member(head.get("template"), name, queue)},
        "workerGroupSpecs": [
            {**each, "template": _member(each.get("template"), name, queue)} for each in groups
        ],
    }
    return {**cluster, "spec": {**spec, **made, "gangs": [gang]}}


def with_spark_group(app: Json) -> Json:
    """The driver starts alone, and asks for the executors."""
    spec = app["spec"]
    if spec.get("batchScheduler") != _VOLCANO:
        return app
    options = spec.get("batchSchedulerOptions") or {}
    gang = {
        "minMember": 1,
        "queue": options.get("queue"),
        "priorityClassName": options.get("priorityClassName"),
    }
    name = f"spark-{at(app, ('metadata', 'name'))}-pg"
    made = {
        role: {**spec[role], "template": _member(spec[role]["template"], name, {})}
        for role in ("driver", "executor")
    }
    return {**app, "spec": {**spec, **made, "gangs": [gang]}}


def _member(template: Json | None, group: str, labels: dict[str, Any]) -> Json:
    given = template or {}
    meta = given.get("metadata") or {}
    named = {**(meta.get("annotations") or {}), _GROUP: group}
    labelled = {**(meta.get("labels") or {}), **labels}
    spec = {**(given.get("spec") or {}), "schedulerName": _VOLCANO}
    return {**given, "metadata": {**meta, "annotations": named, "labels": labelled}, "spec": spec}
