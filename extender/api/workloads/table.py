"""The table of all kinds whose controllers make pods, by apiVersion and kind."""

from collections.abc import Iterator

from extender.api.workloads.kubeflow import KUBEFLOW, TRAIN_JOB
from extender.api.workloads.operators import RAY, SPARK_APPLICATION, VOLCANO_JOB
from extender.api.workloads.sets import JOB_SET, LEADER_WORKER_SET
from extender.api.workloads.shape import CORE, POD, Count, Json, Offspring, WorkloadRow, at

# ---- A Workflow makes its pods one step after another. Those that it begins with can be told: the pod
# of its entrypoint, the first parallel steps of it, or the tasks that depend on no other.

FIRST = ("spec", "first")
_MOST_NESTED = 20
_IN_POD = ("affinity", "nodeSelector", "priorityClassName", "schedulerName", "tolerations", "volumes")


def with_first_pods(workflow: Json) -> Json:
    spec = workflow.get("spec") or {}
    templates = {
        str(each.get("name")): each for each in spec.get("templates") or () if isinstance(each, dict)
    }
    found = list(_first(templates, spec.get("entrypoint"), _MOST_NESTED))
    parts = [{"name": name, "replicas": count, "template": _pod(spec, each)} for name, each, count in found]
    return {**workflow, "spec": {**spec, "first": parts}}


def remark(workflow: Json) -> str:
    spec = workflow.get("spec") or {}
    if spec.get("workflowTemplateRef"):
        return "its templates are those of another object: no pods are made"
    later = any(each.get("steps") or each.get("dag") for each in spec.get("templates") or ())
    return "only the pods that it begins with are made" if later else ""


def _first(templates: dict[str, Json], name: str | None, depth: int) -> Iterator[tuple[str, Json, int]]:
    """The name, the template and the number of pods."""
    template = templates.get(name or "")
    if template is None or depth == 0:
        return
    steps = (template.get("steps") or [[]])[0] or _roots(at(template, ("dag", "tasks")) or [])
    for step in steps:
        for inner, found, count in _first(templates, step.get("template"), depth - 1):
            yield inner, found, count * _repeats(step)
    if template.get("container") or template.get("script"):
        yield str(name), template, 1


def _roots(tasks: list[Json]) -> list[Json]:
    return [each for each in tasks if not each.get("dependencies") and not each.get("depends")]


def _repeats(step: Json) -> int:
    count = at(step, ("withSequence", "count"))
    if isinstance(step.get("withItems"), list):
        return len(step["withItems"])
    return int(count) if str(count).isdigit() else 1


def _pod(spec: Json, template: Json) -> Json:
    """What the workflow says of its pods, and on top of that what the template says of its own."""
    parts = [spec.get("podMetadata") or {}, template.get("metadata") or {}]
    meta = {
        field: {key: text for part in parts for key, text in (part.get(field) or {}).items()}
        for field in ("labels", "annotations")
    }
    in_pod = {name: part[name] for part in (spec, template) for name in _IN_POD if part.get(name)}
    container = {"name": "main", **(template.get("container") or template.get("script") or {})}
    container.pop("source", None)
    sides = [*(template.get("sidecars") or [])]
    return {"metadata": meta, "spec": {"restartPolicy": "Never", **in_pod, "containers": [container, *sides]}}


WORKFLOW = WorkloadRow(
    api_version="argoproj.io/v1alpha1",
    kind="Workflow",
    short=("wf",),
    offspring=(
        Offspring(
            made=POD,
            name="{owner}-{role}-",
            each=FIRST,
            template=("template",),
            count=Count(path=("replicas",)),
            labels={"workflows.argoproj.io/completed": "false", "workflows.argoproj.io/workflow": "{owner}"},
        ),
    ),
    complete=with_first_pods,
    remark=remark,
)


# ---- All kinds whose controllers make pods, by apiVersion and kind.

_ROWS = (
    *CORE,
    JOB_SET,
    LEADER_WORKER_SET,
    *RAY,
    *KUBEFLOW,
    TRAIN_JOB,
    SPARK_APPLICATION,
    VOLCANO_JOB,
    WORKFLOW,
)
WORKLOADS = {each.key: each for each in _ROWS}
