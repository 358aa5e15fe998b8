"""The table of all kinds whose controllers make pods, with those of Kubernetes and Argo's Workflow."""

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
_OF_JOB = {
    "batch.kubernetes.io/controller-uid": "{uid}",
    "batch.kubernetes.io/job-name": "{owner}",
    "controller-uid": "{uid}",
    "job-name": "{owner}",
}
FIRST = ("spec", "first")
_MOST_NESTED = 20
_IN_POD = ("affinity", "nodeSelector", "priorityClassName", "schedulerName", "tolerations", "volumes")


def _with_claimed_volumes(stateful_set: Json) -> Json:
    """Return a copy with an empty volume for each claim template, since no claims are made here."""
    claims = value_at(stateful_set, ("spec", "volumeClaimTemplates")) or []
    template = value_at(stateful_set, TEMPLATE)
    if not claims or not isinstance(template, dict):
        return stateful_set
    names = [claim["metadata"]["name"] for claim in claims]
    given = template.get("spec") or {}
    retained = [volume for volume in given.get("volumes") or [] if volume.get("name") not in names]
    spec = {**given, "volumes": [*retained, *({"name": name, "emptyDir": {}} for name in names)]}
    return {**stateful_set, "spec": {**stateful_set["spec"], "template": {**template, "spec": spec}}}


def _suspended_job_rest(job: Json) -> Json:
    """Return the rest of a Job that was suspended after a run: ended pods, or indexes, are not made again."""
    completions, status = value_at(job, ("spec", "completions")), job.get("status")
    if completions is None or not isinstance(status, dict):
        return job
    ended = Count(path=("succeeded",), default=0).read_from(status)
    for indexes in filter(None, (status.get("failedIndexes") or "").split(",")):  # "1,3-5,7" has five indexes
        bounds = indexes.split("-")
        ended += int(bounds[-1]) - int(bounds[0]) + 1
    return {**job, "spec": {**job["spec"], "completions": max(completions - ended, 0)}}


def _is_indexed_and_parallel(job: Json) -> bool:
    """Return whether each pod of a Job has its own index, and all run at the same time."""
    spec = job.get("spec") or {}
    completions, parallelism = spec.get("completions"), spec.get("parallelism")
    indexed = spec.get("completionMode") == "Indexed"
    return indexed and completions == (1 if parallelism is None else parallelism)


def _why_in_order(stateful_set: Json) -> str:
    """Return the remark about pods that a real cluster makes in order: a gang of them never completes."""
    ordered = value_at(stateful_set, ("spec", "podManagementPolicy")) != "Parallel"
    if not ordered or _REPLICAS.read_from(stateful_set) < 2:
        return ""
    return "its pods are made at once; a real cluster makes each when the one before is ready (OrderedReady)"


def _same_pods(api_version: str, kind: str, *short: str) -> WorkloadRow:
    """Return the row of a kind whose replicas differ in their random letters only."""
    pods = Offspring(made=POD, name="{owner}-", template=TEMPLATE, count=_REPLICAS)
    return WorkloadRow(api_version=api_version, kind=kind, short=short, offspring=(pods,))


def with_first_pods(workflow: Json) -> Json:
    """Return a Workflow with its first pods: of its entrypoint, its first steps, or its first tasks."""
    spec = workflow.get("spec") or {}
    templates = {
        str(template.get("name")): template
        for template in spec.get("templates") or ()
        if isinstance(template, dict)
    }
    found = list(_first(templates, spec.get("entrypoint"), _MOST_NESTED))
    parts = [{"name": name, "replicas": count, "template": _pod(spec, each)} for name, each, count in found]
    return {**workflow, "spec": {**spec, "first": parts}}


def remark(workflow: Json) -> str:
    spec = workflow.get("spec") or {}
    if spec.get("workflowTemplateRef"):
        return "its templates are those of another object: no pods are made"
    later = any(template.get("steps") or template.get("dag") for template in spec.get("templates") or ())
    return "only the pods that it begins with are made" if later else ""


def _first(templates: dict[str, Json], name: str | None, depth: int) -> Iterator[tuple[str, Json, int]]:
    """Yield the name, the template and the number of pods."""
    template = templates.get(name or "")
    if template is None or depth == 0:
        return
    steps = (template.get("steps") or [[]])[0] or [
        task
        for task in value_at(template, ("dag", "tasks")) or []
        if not (task.get("dependencies") or task.get("depends"))
    ]
    for step in steps:
        for inner, found, count in _first(templates, step.get("template"), depth - 1):
            yield inner, found, count * _repeats(step)
    if template.get("container") or template.get("script"):
        yield str(name), template, 1


def _repeats(step: Json) -> int:
    count = value_at(step, ("withSequence", "count"))
    if isinstance(step.get("withItems"), list):
        return len(step["withItems"])
    return int(count) if is_count(str(count)) else 1


def _pod(spec: Json, template: Json) -> Json:
    """Return a pod of a template, with the workflow's settings below those of the template."""
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


_CORE = (
    WorkloadRow(
        api_version="batch/v1",
        kind="Job",
        offspring=(
            Offspring(
                made=POD,
                name="{owner}-",
                when={("spec", "completionMode"): (None, "NonIndexed")},
                template=TEMPLATE,
                count=_PARALLEL,
                labels=_OF_JOB,
            ),
            Offspring(
                made=POD,
                name="{owner}-{index}-",
                when={("spec", "completionMode"): ("Indexed",)},
                template=TEMPLATE,
                count=_PARALLEL,
                labels=_OF_JOB | {_INDEX: "{index}"},
                annotations={_INDEX: "{index}"},
            ),
        ),
        together=_is_indexed_and_parallel,
        manageable=True,
        parallelism=("spec", "parallelism"),
        completions=("spec", "completions"),
        succeeded=(Sign(condition="Complete"),),
        failed=(Sign(condition="Failed"),),
        counted=_suspended_job_rest,
    ),
    WorkloadRow(
        api_version="batch/v1",
        kind="CronJob",
        short=("cj",),
        offspring=(Offspring(made=JOB, name="{owner}-{hash}", template=("spec", "jobTemplate")),),
        remark=lambda _: "one run of it is made, as if it were due now",
    ),
    WorkloadRow(
        api_version="apps/v1",
        kind="Deployment",
        short=("deploy",),
        offspring=(
            Offspring(
                made=shape.REPLICA_SET,
                name="{owner}-{hash}",
                spec={name: ("spec", name) for name in ("replicas", "selector", "template")},
                labels={"pod-template-hash": "{hash}"},
                inherits=True,
                on_pods=True,
            ),
        ),
        suspend=(),
    ),
    _same_pods(*shape.REPLICA_SET, "rs"),
    _same_pods("v1", "ReplicationController"),
    WorkloadRow(
        api_version="apps/v1",
        kind="StatefulSet",
        short=("sts",),
        offspring=(
            Offspring(
                made=POD,
                name="{owner}-{index}",
                prefix="{owner}-",
                template=TEMPLATE,
                count=_REPLICAS,
                first=("spec", "ordinals", "start"),
                labels={
                    "apps.kubernetes.io/pod-index": "{index}",
                    "controller-revision-hash": "{owner}-{hash}",
                    "statefulset.kubernetes.io/pod-name": "{owner}-{index}",
                },
            ),
        ),
        suspend=(),
        complete=_with_claimed_volumes,
        remark=_why_in_order,
    ),
)
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
