"""The table of all kinds whose controllers make pods. Rows of Kubernetes' own kinds and of Argo are here."""

from collections.abc import Iterator

from extender.api.units import is_count
from extender.api.workloads import shape
from extender.api.workloads.kubeflow import KUBEFLOW, TRAIN_JOB
from extender.api.workloads.operators import RAY, SPARK_APPLICATION, VOLCANO_JOB
from extender.api.workloads.sets import JOB_SET, LEADER_WORKER_SET
from extender.api.workloads.shape import (
    JOB,
    POD,
    TEMPLATE,
    Count,
    Json,
    Offspring,
    Sign,
    WorkloadRow,
    value_at,
)

_INDEX = "batch.kubernetes.io/job-completion-index"
_REPLICAS = Count(path=("spec", "replicas"))
_PARALLEL = Count(path=("spec", "parallelism"), at_most=("spec", "completions"))
_JOB_LABELS = {
    "batch.kubernetes.io/controller-uid": "{uid}",
    "batch.kubernetes.io/job-name": "{owner}",
    "controller-uid": "{uid}",
    "job-name": "{owner}",
}
FIRST = ("spec", "first")
_MAX_NESTED = 20
_POD_FIELDS = ("affinity", "nodeSelector", "priorityClassName", "schedulerName", "tolerations", "volumes")


def _with_claimed_volumes(stateful_set: Json) -> Json:
    """Return a StatefulSet with an empty volume for each claim template, because Muster makes no claims."""
    claims = value_at(stateful_set, ("spec", "volumeClaimTemplates")) or []
    template = value_at(stateful_set, TEMPLATE)
    if not claims or not isinstance(template, dict):
        return stateful_set
    names = [claim["metadata"]["name"] for claim in claims]
    pod_spec = template.get("spec") or {}
    own_volumes = [volume for volume in pod_spec.get("volumes") or [] if volume.get("name") not in names]
    spec = {**pod_spec, "volumes": [*own_volumes, *({"name": name, "emptyDir": {}} for name in names)]}
    return {**stateful_set, "spec": {**stateful_set["spec"], "template": {**template, "spec": spec}}}


def _without_finished_pods(job: Json) -> Json:
    """Return a Job whose `completions` exclude the pods that ended before the Job was suspended."""
    completions, status = value_at(job, ("spec", "completions")), job.get("status")
    if completions is None or not isinstance(status, dict):
        return job
    ended_count = Count(path=("succeeded",), default=0).read_from(status)
    for indexes in filter(None, (status.get("failedIndexes") or "").split(",")):  # "1,3-5,7" has five indexes
        bounds = indexes.split("-")
        ended_count += int(bounds[-1]) - int(bounds[0]) + 1
    return {**job, "spec": {**job["spec"], "completions": max(completions - ended_count, 0)}}


def _is_indexed_and_parallel(job: Json) -> bool:
    """Return whether each pod of a Job has its own index, and all pods run at the same time."""
    spec = job.get("spec") or {}
    completions, parallelism = spec.get("completions"), spec.get("parallelism")
    is_indexed = spec.get("completionMode") == "Indexed"
    return is_indexed and completions == (1 if parallelism is None else parallelism)


def _order_remark(stateful_set: Json) -> str:
    """Return the remark about a StatefulSet that creates its pods in order; empty for others.

    In a real cluster, the gang of such a StatefulSet never completes.
    """
    is_ordered = value_at(stateful_set, ("spec", "podManagementPolicy")) != "Parallel"
    if not is_ordered or _REPLICAS.read_from(stateful_set) < 2:
        return ""
    return "its pods are made at once; a real cluster makes each when the one before is ready (OrderedReady)"


def _replica_kind(api_version: str, kind: str, *short: str) -> WorkloadRow:
    """Return the row of a kind whose pods differ only in the random letters of their names."""
    pods = Offspring(kind=POD, name="{owner}-", template=TEMPLATE, count=_REPLICAS)
    return WorkloadRow(api_version=api_version, kind=kind, short_names=short, offspring=(pods,))


def with_first_pods(workflow: Json) -> Json:
    """Return a Workflow whose `spec.first` lists the pods that it starts with.

    The first pods are the pods of the entrypoint, of its first steps, or of its tasks without dependencies.
    """
    spec = workflow.get("spec") or {}
    valid_templates = (template for template in spec.get("templates") or () if isinstance(template, dict))
    templates = {str(template.get("name")): template for template in valid_templates}
    parts = [
        {"name": name, "replicas": count, "template": _pod(spec, template)}
        for name, template, count in _first_pods(templates, spec.get("entrypoint"), _MAX_NESTED)
    ]
    return {**workflow, "spec": {**spec, "first": parts}}


def remark(workflow: Json) -> str:
    """Return the remark about a Workflow of which only some pods are made; empty if all are made."""
    spec = workflow.get("spec") or {}
    if spec.get("workflowTemplateRef"):
        return "its templates are those of another object: no pods are made"
    has_later = any(template.get("steps") or template.get("dag") for template in spec.get("templates") or ())
    return "only the pods that it begins with are made" if has_later else ""


def _first_pods(templates: dict[str, Json], name: str | None, depth: int) -> Iterator[tuple[str, Json, int]]:
    """Yield name, template and number of the first pods of a template.

    Args:
        templates: All templates of the workflow, by name.
        name: The name of the template.
        depth: The maximum depth of nested templates.
    """
    template = templates.get(name or "")
    if template is None or depth == 0:
        return
    first_steps = (template.get("steps") or [[]])[0]
    tasks = value_at(template, ("dag", "tasks")) or []
    first_tasks = [task for task in tasks if not (task.get("dependencies") or task.get("depends"))]
    for step in first_steps or first_tasks:
        for inner_name, inner, count in _first_pods(templates, step.get("template"), depth - 1):
            yield inner_name, inner, count * _repetitions(step)
    if template.get("container") or template.get("script"):
        yield str(name), template, 1


def _repetitions(step: Json) -> int:
    """Return how often a step is repeated: once for each of its items, or as its sequence says."""
    count = value_at(step, ("withSequence", "count"))
    if isinstance(step.get("withItems"), list):
        return len(step["withItems"])
    return int(count) if is_count(str(count)) else 1


def _pod(spec: Json, template: Json) -> Json:
    """Return a pod from a template. Settings of the template override settings of the workflow."""
    meta: Json = {"labels": {}, "annotations": {}}
    for source in (spec.get("podMetadata") or {}, template.get("metadata") or {}):
        for field, texts in meta.items():
            texts |= source.get(field) or {}
    settings = {name: source[name] for source in (spec, template) for name in _POD_FIELDS if source.get(name)}
    container = {"name": "main", **(template.get("container") or template.get("script") or {})}
    container.pop("source", None)
    containers = [container, *(template.get("sidecars") or [])]
    return {"metadata": meta, "spec": {"restartPolicy": "Never", **settings, "containers": containers}}


_CORE = (
    WorkloadRow(
        api_version="batch/v1",
        kind="Job",
        offspring=(
            Offspring(
                kind=POD,
                name="{owner}-",
                when={("spec", "completionMode"): (None, "NonIndexed")},
                template=TEMPLATE,
                count=_PARALLEL,
                labels=_JOB_LABELS,
            ),
            Offspring(
                kind=POD,
                name="{owner}-{index}-",
                when={("spec", "completionMode"): ("Indexed",)},
                template=TEMPLATE,
                count=_PARALLEL,
                labels=_JOB_LABELS | {_INDEX: "{index}"},
                annotations={_INDEX: "{index}"},
            ),
        ),
        together=_is_indexed_and_parallel,
        manageable=True,
        parallelism=("spec", "parallelism"),
        completions=("spec", "completions"),
        success=(Sign(condition="Complete"),),
        failure=(Sign(condition="Failed"),),
        counting=_without_finished_pods,
    ),
    WorkloadRow(
        api_version="batch/v1",
        kind="CronJob",
        short_names=("cj",),
        offspring=(Offspring(kind=JOB, name="{owner}-{hash}", template=("spec", "jobTemplate")),),
        remark=lambda _: "one run of it is made, as if it were due now",
    ),
    WorkloadRow(
        api_version="apps/v1",
        kind="Deployment",
        short_names=("deploy",),
        offspring=(
            Offspring(
                kind=shape.REPLICA_SET,
                name="{owner}-{hash}",
                spec={name: ("spec", name) for name in ("replicas", "selector", "template")},
                labels={"pod-template-hash": "{hash}"},
                inherits=True,
                on_pods=True,
            ),
        ),
        suspend=(),
    ),
    _replica_kind(*shape.REPLICA_SET, "rs"),
    _replica_kind("v1", "ReplicationController"),
    WorkloadRow(
        api_version="apps/v1",
        kind="StatefulSet",
        short_names=("sts",),
        offspring=(
            Offspring(
                kind=POD,
                name="{owner}-{index}",
                prefix="{owner}-",
                template=TEMPLATE,
                count=_REPLICAS,
                first_path=("spec", "ordinals", "start"),
                labels={
                    "apps.kubernetes.io/pod-index": "{index}",
                    "controller-revision-hash": "{owner}-{hash}",
                    "statefulset.kubernetes.io/pod-name": "{owner}-{index}",
                },
            ),
        ),
        suspend=(),
        complete=_with_claimed_volumes,
        remark=_order_remark,
    ),
)
WORKFLOW = WorkloadRow(
    api_version="argoproj.io/v1alpha1",
    kind="Workflow",
    short_names=("wf",),
    offspring=(
        Offspring(
            kind=POD,
            name="{owner}-{role}-",
            parts=FIRST,
            template=("template",),
            count=Count(path=("replicas",)),
            labels={"workflows.argoproj.io/completed": "false", "workflows.argoproj.io/workflow": "{owner}"},
        ),
    ),
    complete=with_first_pods,
    remark=remark,
)
_ROWS = (
    *_CORE,
    JOB_SET,
    LEADER_WORKER_SET,
    *RAY,
    *KUBEFLOW,
    TRAIN_JOB,
    SPARK_APPLICATION,
    VOLCANO_JOB,
    WORKFLOW,
)
WORKLOADS = {row.key: row for row in _ROWS}
