"""A SparkApplication has no templates in the form of others: its pods follow from cores and memory.

The sums are Spark's own (org.apache.spark.deploy.k8s): memory, and above that a tenth of it for the JVM or
two fifths for Python and R, at least 384 MiB.
"""

import re
from typing import Any

from extender.api.workloads.core import POD
from extender.api.workloads.shape import Count, Json, Offspring, Sign, WorkloadRow, at
from extender.api.workloads.volcano import VOLCANO, group_of_operator, member_of

DRIVER, EXECUTOR = ("spec", "driver", "template"), ("spec", "executor", "template")
_UNITS = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024**2}
_LEAST_OVERHEAD = 384
_IN_POD = ("schedulerName", "nodeSelector", "tolerations", "affinity", "priorityClassName", "hostNetwork")


def with_templates(app: Json) -> Json:
    spec = app.get("spec") or {}
    made = {role: {**_role(spec, role), "template": _template(spec, role)} for role in ("driver", "executor")}
    return {**app, "spec": {**spec, **made}}


def _role(spec: Json, role: str) -> Json:
    return spec.get(role) or {}


def _template(spec: Json, role: str) -> Json:
    """What the role says, on top of the template that it may have."""
    given, base = _role(spec, role), _role(spec, role).get("template") or {}
    meta = base.get("metadata") or {}
    labels = {**(meta.get("labels") or {}), **(given.get("labels") or {})}
    annotations = {**(meta.get("annotations") or {}), **(given.get("annotations") or {})}
    return {
        "metadata": {**meta, "labels": labels, "annotations": annotations},
        "spec": _pod_spec(spec, given, base.get("spec") or {}, role),
    }


def _pod_spec(spec: Json, given: Json, base: Json, role: str) -> Json:
    first, *others = base.get("containers") or [{}]
    container = {"name": f"spark-kubernetes-{role}", "image": spec.get("image") or "spark", **first}
    container["resources"] = _resources(spec, given)
    in_pod = {name: given[name] for name in _IN_POD if given.get(name)}
    return {"restartPolicy": "Never", **base, **in_pod, "containers": [container, *others]}


def _resources(spec: Json, given: Json) -> Json:
    cores = str(given.get("coreRequest") or given.get("cores") or 1)
    memory = f"{_memory(spec, given)}Mi"
    limits = {"memory": memory} | ({"cpu": str(given["coreLimit"])} if given.get("coreLimit") else {})
    if gpu := given.get("gpu"):
        limits[str(gpu.get("name"))] = str(gpu.get("quantity"))
    return {"requests": {"cpu": cores, "memory": memory}, "limits": limits}


def _memory(spec: Json, given: Json) -> int:
    """In MiB."""
    memory = _mebibytes(given.get("memory") or "1g")
    if given.get("memoryOverhead"):
        return memory + _mebibytes(given["memoryOverhead"])
    usual = 0.4 if spec.get("type") in ("Python", "R") else 0.1
    factor = float(spec.get("memoryOverheadFactor") or usual)
    return memory + max(int(memory * factor), _LEAST_OVERHEAD)


def _mebibytes(text: Any) -> int:
    """Java's notation: 512m and 2g are MiB and GiB; a bare number is MiB. Raises ValueError."""
    found = re.fullmatch(r"(\d+)([kmgt]?)(?:i?b)?", str(text).lower())
    if not found:
        raise ValueError(f"got {text!r}; allowed is an amount of memory such as 512m or 2g")
    return int(int(found[1]) * _UNITS[found[2] or "m"])


def with_spark_group(app: Json) -> Json:
    """The driver starts alone, and asks for the executors."""
    spec = app["spec"]
    if spec.get("batchScheduler") != VOLCANO:
        return app
    options = spec.get("batchSchedulerOptions") or {}
    gang = {
        "minMember": 1,
        "queue": options.get("queue"),
        "priorityClassName": options.get("priorityClassName"),
    }
    name = f"spark-{at(app, ('metadata', 'name'))}-pg"
    made = {
        role: {**spec[role], "template": member_of(spec[role]["template"], name, {})}
        for role in ("driver", "executor")
    }
    return {**app, "spec": {**spec, **made, "gangs": [gang]}}


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
    short=("sparkapp",),
    offspring=(
        group_of_operator("spark-{owner}-pg"),
        Offspring(
            made=POD,
            name="{owner}-driver",
            template=DRIVER,
            optional=True,
            annotated=("spec", "driver", "annotations"),
            role="driver",
            labels=_spark_labels("driver"),
        ),
        Offspring(
            made=POD,
            name="{owner}-{hash}-exec-{number}",
            template=EXECUTOR,
            optional=True,
            annotated=("spec", "executor", "annotations"),
            role="executor",
            count=Count(path=("spec", "executor", "instances")),
            owner=(POD, "{owner}-driver"),
            labels=_spark_labels("executor")
            | {"spark-exec-id": "{number}", "spark-exec-resourceprofile-id": "0"},
        ),
    ),
    manageable=True,
    succeeded=(Sign(fields={_STATE: ("COMPLETED",)}),),
    failed=(Sign(fields={_STATE: ("FAILED",)}),),
    complete=lambda app: with_spark_group(with_templates(app)),
    remark=lambda _: (
        "its executors come with its driver; in a real cluster the driver asks for them once it runs"
    ),
)
