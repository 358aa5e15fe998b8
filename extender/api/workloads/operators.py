"""Kinds whose operators make PodGroups for Volcano: Volcano's Job, the kinds of Ray, and SparkApplication.

An object that asks for such a group has the group in `spec.gangs`, and its pods name the group. Names and
labels of Ray's pods follow controllers/ray/common/pod.go in ray-project/kuberay. Ray's groups follow
controllers/ray/batchscheduler/volcano/volcano_scheduler.go.

The pods of a SparkApplication follow from its cores and memory, as Spark computes them
(org.apache.spark.deploy.k8s). A pod requests the memory plus an overhead: a tenth of the memory for the JVM,
two fifths for Python and R, and at least 384 MiB.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from extender.api.keys import DEFAULT_QUEUE, STARTED
from extender.api.workloads import shape
from extender.api.workloads.shape import (
    POD,
    Commanded,
    Count,
    Counts,
    Json,
    Offspring,
    Path,
    Sign,
    WorkloadRow,
    value_at,
)

POD_GROUP = ("scheduling.volcano.sh/v1beta1", "PodGroup")
VOLCANO = "volcano"
_GROUP = "scheduling.k8s.io/group-name"
_REPLICAS = Count(path=("replicas",), default=0)  # the replicas of a task; absent means 0, as in Go
_MIN_AVAILABLE = Count(path=("minAvailable",))
_PARTITION_SIZE = Count(path=("partitionPolicy", "partitionSize"), default=0)
_MIN_PARTITIONS = Count(path=("partitionPolicy", "minPartitions"), default=0)


def group_of_operator(name: str) -> Offspring:
    """Return the PodGroup that an operator makes for each entry of `spec.gangs`."""
    spec = {field: (field,) for field in ("minMember", "queue", "priorityClassName")}
    return Offspring(kind=POD_GROUP, name=name, parts=("spec", "gangs"), spec=spec)


def as_group_member(template: Json | None, group: str, labels: dict[str, Any]) -> Json:
    """Return a pod template for members of a PodGroup that Volcano schedules."""
    template = template or {}
    meta = template.get("metadata") or {}
    annotations = {**(meta.get("annotations") or {}), _GROUP: group}
    labels = {**(meta.get("labels") or {}), **labels}
    spec = {**(template.get("spec") or {}), "schedulerName": VOLCANO}
    return {**template, "metadata": {**meta, "annotations": annotations, "labels": labels}, "spec": spec}


_MAX_TASKS, _MAX_VOLUMES, _MAX_POLICIES, _MAX_CONTAINERS = 256, 256, 1024, 64


def excess_fields(
    templates: Sequence[Any], volumes: Sequence[Any], policy_count: int
) -> Iterator[tuple[str, str]]:
    """Yield the fields of a Volcano Job with too many items, and the fault of each.

    Each reconciliation of a job reads all its tasks and policies. Each container of its pods gets all volumes
    and, from plugins, variables for each task.

    Args:
        templates: The pod templates of the tasks.
        volumes: The volumes of the job.
        policy_count: The number of policies of the job and its tasks.
    """
    counts = [
        ("spec.tasks", len(templates), _MAX_TASKS),
        ("spec.volumes", len(volumes), _MAX_VOLUMES),
        ("spec.policies, with those of tasks", policy_count, _MAX_POLICIES),
    ]
    for index, template in enumerate(templates[:_MAX_TASKS]):
        kinds = ("containers", "initContainers")
        container_count = sum(len(shape.items_at(template, "spec", kind)) for kind in kinds)
        counts.append((f"spec.tasks[{index}].template.spec.containers", container_count, _MAX_CONTAINERS))
    return ((field, f"invalid value {n}: must be at most {most}") for field, n, most in counts if n > most)


def volcano_tasks(job: Json) -> Json:
    """Return a Volcano Job with the fields that Volcano's webhook adds.

    The webhook adds the names of tasks, minAvailable, and the scheduler and priority of pods.

    Raises:
        ValueError: There are too many tasks, or a number is invalid.
    """
    spec, tasks = job.get("spec") or {}, []
    as_written = shape.items_at(job, "spec", "tasks")
    policy_count = sum(len(shape.items_at(owner, "policies")) for owner in (spec, *as_written))
    templates = [task.get("template") for task in as_written]
    for field, excess in excess_fields(templates, shape.items_at(job, "spec", "volumes"), policy_count):
        raise ValueError(f"{field}: {excess}")
    inherited_fields = {"schedulerName": spec.get("schedulerName") or VOLCANO}
    if spec.get("priorityClassName"):
        inherited_fields["priorityClassName"] = spec["priorityClassName"]
    for number, task in enumerate(as_written):
        template = task.get("template") or {}
        template = {**template, "spec": {**inherited_fields, **(template.get("spec") or {})}}
        tasks.append({**task, "name": task.get("name") or f"default{number}", "template": template})
    # Without minPartitions, only tasks with minAvailable have a minimum. Tasks that start later have none.
    partitioned = [task for task in tasks if task.get("partitionPolicy")]
    has_min_partitions = any(map(_MIN_PARTITIONS.read_from, partitioned))
    with_minimum = (task for task in tasks if has_min_partitions or task.get("minAvailable") is not None)
    min_by_task = {task["name"]: _min_available(task) for task in with_minimum if not _starts_later(task)}
    min_available = spec.get("minAvailable") or sum(map(_min_available, tasks))
    gang = {"minAvailable": min_available, "minTaskMember": min_by_task or None}
    return shape.with_spec(job, tasks=tasks, **gang, subGroupPolicy=[*map(_sub_group, partitioned)] or None)


def _min_available(task: Json) -> int:
    if task.get("minAvailable") is not None:
        return _MIN_AVAILABLE.read_from(task)
    return _MIN_PARTITIONS.read_from(task) * _PARTITION_SIZE.read_from(task) or _REPLICAS.read_from(task)


def _sub_group(task: Json) -> Json:
    """Return the subGroupPolicy of a partitioned task, as Volcano's controller writes it."""
    topology = value_at(task, ("partitionPolicy", "networkTopology"))
    return {
        "name": task["name"],
        "subGroupSize": _PARTITION_SIZE.read_from(task),
        "minSubGroups": _MIN_PARTITIONS.read_from(task),
        "labelSelector": {"matchLabels": {"volcano.sh/task-spec": task["name"]}},
        "matchLabelKeys": ["volcano.sh/partition-id"],
        **({"networkTopology": topology} if topology else {}),
    }


def _starts_later(task: Json) -> bool:
    """Return whether the pods of a task are created only once pods of other tasks run."""
    return bool(value_at(task, ("dependsOn", "name")))


_PHASE = ("status", "state", "phase")
_SUCCEEDED, _FAILED, _STOPPED = ("Completed",), ("Failed", "Terminated"), ("Aborting", "Aborted")
_COUNTED = ("pending", "running", "succeeded", "failed", "terminating", "unknown")


def _is_waiting(job: Json) -> bool:
    """Return whether a Volcano Job waits for its admission.

    The annotation `STARTED` has the time of the admission. If the annotation is empty, the admission was
    withdrawn, and the job waits even if it has pods. Without the annotation, a job waits until it has pods.
    """
    start_record, phase = value_at(job, ("metadata", "annotations", STARTED)), value_at(job, _PHASE)
    if start_record is not None:
        return not start_record and phase not in (*_SUCCEEDED, *_FAILED)
    return phase in (None, "", "Pending") and not any(value_at(job, ("status", name)) for name in _COUNTED)


def _podgroup(job: Json) -> Json:
    """Return the spec of the job's PodGroup, as Volcano's controller makes it."""
    spec = volcano_tasks(job)["spec"]
    minimum, pod_count = _MIN_AVAILABLE.read_from(spec), sum(map(_REPLICAS.read_from, spec["tasks"]))
    if minimum > pod_count:
        raise ValueError(f"spec.minAvailable: invalid value {minimum}: its tasks make {pod_count} pods")
    queue = spec.get("queue") or DEFAULT_QUEUE
    min_by_task = {name: count for name, count in (spec["minTaskMember"] or {}).items() if count}
    parts = {"subGroupPolicy": spec["subGroupPolicy"]} if spec["subGroupPolicy"] else {}
    return {"minMember": minimum, "minTaskMember": min_by_task, "queue": queue, **parts}


_TASK_LABELS = {
    "volcano.sh/job-name": "{owner}",
    "volcano.sh/task-index": "{index}",
    "volcano.sh/task-spec": "{role}",
}
_VOLCANO_GROUP = "{owner}-{uid}"
VOLCANO_COMMANDED = Commanded(
    is_waiting=_is_waiting, is_stopped=lambda job: value_at(job, _PHASE) in _STOPPED, podgroup=_podgroup
)
VOLCANO_JOB = WorkloadRow(
    api_version=shape.VOLCANO_JOB[0],
    kind=shape.VOLCANO_JOB[1],
    short_names=("vcjob", "vj"),
    offspring=(
        Offspring(
            kind=POD_GROUP,
            name=_VOLCANO_GROUP,
            spec={
                "minMember": ("spec", "minAvailable"),
                "minTaskMember": ("spec", "minTaskMember"),
                "priorityClassName": ("spec", "priorityClassName"),
                "queue": ("spec", "queue"),
                "subGroupPolicy": ("spec", "subGroupPolicy"),
            },
        ),
        Offspring(
            kind=POD,
            name="{owner}-{role}-{index}",
            parts=("spec", "tasks"),
            template=("template",),
            count=_REPLICAS,
            labels=_TASK_LABELS,
            annotations=_TASK_LABELS
            | {"scheduling.k8s.io/group-name": _VOLCANO_GROUP, "volcano.sh/job-version": "0"},
        ),
    ),
    counts=(("spec", "minAvailable"),),
    dependent_roles=lambda job, _: {
        str(task["name"]).lower() for task in volcano_tasks(job)["spec"]["tasks"] if _starts_later(task)
    },
    suspend=(),
    commanded=VOLCANO_COMMANDED,
    manageable=True,
    success=(Sign(fields={_PHASE: _SUCCEEDED}),),
    failure=(Sign(fields={_PHASE: _FAILED}),),
    complete=volcano_tasks,
)


_QUEUE = "volcano.sh/queue-name"
_MANAGED = "v1"  # the managed version; v1alpha1 serves the same objects
WORKERS = Count(
    path=("replicas",), default=0, at_least=("minReplicas",), at_most=("maxReplicas",), times=("numOfHosts",)
)
_NEEDED_WORKERS = Count(path=("minReplicas",), default=0, times=("numOfHosts",))


def with_ray_group(cluster: Json) -> Json:
    """Return a RayCluster with a PodGroup for its head and workers, if its labels ask for Volcano."""
    meta, spec = cluster.get("metadata") or {}, cluster.get("spec") or {}
    labels = meta.get("labels") or {}
    if labels.get("ray.io/scheduler-name") != VOLCANO:
        return cluster
    groups = spec.get("workerGroupSpecs") or []
    gang = {
        "minMember": _needed_pods(cluster),
        "queue": labels.get(_QUEUE),
        "priorityClassName": labels.get("ray.io/priority-class-name"),
    }
    queue_label = {_QUEUE: labels[_QUEUE]} if _QUEUE in labels else {}
    name = f"ray-{meta.get('name')}-pg"
    head, *workers = (
        {**part, "template": as_group_member(part.get("template"), name, queue_label)}
        for part in (spec.get("headGroupSpec") or {}, *groups)
    )
    return shape.with_spec(cluster, headGroupSpec=head, workerGroupSpecs=workers, gangs=[gang])


_RAY_GROUPS = ("spec", "workerGroupSpecs")


def _needed_pods(cluster: Json, _: Counts | None = None) -> int:
    """Return the number of a RayCluster's pods. With the autoscaler, only the minimum of workers counts."""
    spec = cluster.get("spec") or {}
    worker_count = _NEEDED_WORKERS if spec.get("enableInTreeAutoscaling") else WORKERS
    return 1 + sum(worker_count.read_from(group) for group in spec.get("workerGroupSpecs") or [])


def _ray_labels(node_type: str, group: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/created-by": "kuberay-operator",
        "app.kubernetes.io/name": "kuberay",
        "ray.io/cluster": "{owner}",
        "ray.io/group": group,
        "ray.io/identifier": f"{{owner}}-{node_type}",
        "ray.io/is-ray-node": "yes",
        "ray.io/node-type": node_type,
    }


def _ray_cluster(version: str) -> WorkloadRow:
    return WorkloadRow(
        api_version=f"ray.io/{version}",
        kind="RayCluster",
        offspring=(
            group_of_operator("ray-{owner}-pg"),
            Offspring(
                kind=POD,
                name="{owner}-head-",
                template=("spec", "headGroupSpec", "template"),
                role="head",
                labels=_ray_labels("head", "headgroup"),
            ),
            Offspring(
                kind=POD,
                name="{owner}-{role}-worker-",
                parts=_RAY_GROUPS,
                template=("template",),
                count=WORKERS,
                labels=_ray_labels("worker", "{role}"),
            ),
        ),
        together=lambda _: True,
        at_once=_needed_pods,
        manageable=version == _MANAGED,
        complete=with_ray_group,
    )


def _cluster_of(version: str, kind: str, spec: Path) -> Offspring:
    origin = {"ray.io/originated-from-cr-name": "{owner}", "ray.io/originated-from-crd": kind}
    cluster_kind = (f"ray.io/{version}", "RayCluster")
    return Offspring(kind=cluster_kind, name="{owner}-", spec=spec, labels=origin)


def _ray_job(version: str) -> WorkloadRow:
    """Return the row of RayJobs.

    A RayJob is Complete even if its job failed or was stopped in the cluster.
    """
    deployment, result = ("status", "jobDeploymentStatus"), ("status", "jobStatus")
    return WorkloadRow(
        api_version=f"ray.io/{version}",
        kind="RayJob",
        offspring=(_cluster_of(version, "RayJob", ("spec", "rayClusterSpec")),),
        together=lambda _: True,
        at_once=lambda job, _: _needed_pods({"spec": value_at(job, ("spec", "rayClusterSpec"))}),
        manageable=version == _MANAGED,
        success=(Sign(fields={deployment: ("Complete",)}),),
        failure=(
            Sign(fields={deployment: ("Failed",)}),
            Sign(fields={deployment: ("Complete",), result: ("FAILED", "STOPPED")}),
        ),
        remark=lambda _: (
            "the pods of its cluster are made; the submitter, which comes when they are ready, is not"
        ),
    )


def _ray_service(version: str) -> WorkloadRow:
    return WorkloadRow(
        api_version=f"ray.io/{version}",
        kind="RayService",
        offspring=(_cluster_of(version, "RayService", ("spec", "rayClusterConfig")),),
        remark=lambda _: "the pods of its cluster are made; its applications are not looked at",
    )


_ROWS = (_ray_cluster, _ray_job, _ray_service)
RAY = tuple(row(version) for version in ("v1", "v1alpha1") for row in _ROWS)


DRIVER, EXECUTOR = ("spec", "driver", "template"), ("spec", "executor", "template")
_UNITS = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024**2}
_MIN_OVERHEAD = 384  # MiB, as in Spark
_POD_FIELDS = ("schedulerName", "nodeSelector", "tolerations", "affinity", "priorityClassName", "hostNetwork")


def with_templates(app: Json) -> Json:
    """Return a SparkApplication with the pod templates of its roles, and with its PodGroup for Volcano.

    The group needs only the driver, which starts first and creates the executors.
    """
    spec = app.get("spec") or {}
    roles = {role: spec.get(role) or {} for role in ("driver", "executor")}
    full_roles = {name: {**role, "template": _template(spec, role, name)} for name, role in roles.items()}
    if spec.get("batchScheduler") != VOLCANO:
        return shape.with_spec(app, **full_roles)
    options, name = spec.get("batchSchedulerOptions") or {}, f"spark-{value_at(app, ('metadata', 'name'))}-pg"
    gang = {"minMember": 1, **{field: options.get(field) for field in ("queue", "priorityClassName")}}
    for part in full_roles.values():
        part["template"] = as_group_member(part["template"], name, {})
    return shape.with_spec(app, **full_roles, gangs=[gang])


def _template(spec: Json, role: Json, name: str) -> Json:
    """Return the pod template of a role: the optional template, overridden by the role's settings."""
    template = role.get("template") or {}
    meta, base = template.get("metadata") or {}, template.get("spec") or {}
    labels = {**(meta.get("labels") or {}), **(role.get("labels") or {})}
    annotations = {**(meta.get("annotations") or {}), **(role.get("annotations") or {})}
    first_container, *others = base.get("containers") or [{}]
    container = {"name": f"spark-kubernetes-{name}", "image": spec.get("image") or "spark", **first_container}
    cores = str(role.get("coreRequest") or role.get("cores") or 1)
    memory = f"{_memory(spec, role)}Mi"
    limits = {"memory": memory} | ({"cpu": str(role["coreLimit"])} if role.get("coreLimit") else {})
    if gpu := role.get("gpu"):
        limits[str(gpu.get("name"))] = str(gpu.get("quantity"))
    container["resources"] = {"requests": {"cpu": cores, "memory": memory}, "limits": limits}
    pod_fields = {field: role[field] for field in _POD_FIELDS if role.get(field)}
    return {
        "metadata": {**meta, "labels": labels, "annotations": annotations},
        "spec": {"restartPolicy": "Never", **base, **pod_fields, "containers": [container, *others]},
    }


def _memory(spec: Json, role: Json) -> int:
    """Return the memory that a Spark role requests, in MiB."""
    memory = _mebibytes(role.get("memory") or "1g")
    if role.get("memoryOverhead"):
        return memory + _mebibytes(role["memoryOverhead"])
    default_factor = 0.4 if spec.get("type") in ("Python", "R") else 0.1
    factor = float(spec.get("memoryOverheadFactor") or default_factor)
    return memory + max(int(memory * factor), _MIN_OVERHEAD)


def _mebibytes(text: Any) -> int:
    """Return an amount of memory in MiB. The text has Java's notation: 512m, 2g, or a plain number.

    Raises:
        ValueError: The text is not such an amount.
    """
    match = re.fullmatch(r"(?P<number>[0-9]{1,15})(?P<unit>[kmgt]?)(?:i?b)?", str(text).lower())
    if not match:
        raise ValueError(f"invalid value {text!r:.50}: must be an amount of memory such as 512m or 2g")
    return int(int(match["number"]) * _UNITS[match["unit"] or "m"])


def _spark_labels(role: str) -> dict[str, str]:
    return {
        "spark-app-name": "{owner}",
        "spark-role": role,
        "sparkoperator.k8s.io/app-name": "{owner}",
        "sparkoperator.k8s.io/launched-by-spark-operator": "true",
    }


_STATE = ("status", "applicationState", "state")

SPARK_APPLICATION = WorkloadRow(
    api_version="sparkoperator.k8s.io/v1beta2",
    kind="SparkApplication",
    short_names=("sparkapp",),
    offspring=(
        group_of_operator("spark-{owner}-pg"),
        Offspring(
            kind=POD,
            name="{owner}-driver",
            template=DRIVER,
            is_optional=True,
            annotations_path=("spec", "driver", "annotations"),
            role="driver",
            labels=_spark_labels("driver"),
        ),
        Offspring(
            kind=POD,
            name="{owner}-{hash}-exec-{number}",
            template=EXECUTOR,
            is_optional=True,
            annotations_path=("spec", "executor", "annotations"),
            role="executor",
            count=Count(path=("spec", "executor", "instances")),
            owner=(POD, "{owner}-driver"),
            labels=_spark_labels("executor")
            | {"spark-exec-id": "{number}", "spark-exec-resourceprofile-id": "0"},
        ),
    ),
    together=lambda _: True,
    dependent_roles=lambda *_: ("executor",),
    manageable=True,
    success=(Sign(fields={_STATE: ("COMPLETED",)}),),
    failure=(Sign(fields={_STATE: ("FAILED",)}),),
    complete=with_templates,
    remark=lambda _: (
        "its executors come with its driver; in a real cluster the driver asks for them once it runs"
    ),
)
