"""The TrainJob of Kubeflow Trainer (kubeflow/trainer, v2): a JobSet, made of its runtime and of what it says
itself of its nodes.

The runtime is another object. `with_runtime` puts it in; without it there is what the TrainJob says itself.
"""

from extender.api.workloads.sets import JOB_SET
from extender.api.workloads.shape import Json, Offspring, Sign, WorkloadRow, at, with_spec

_STEP, _TRAINER = "trainer.kubeflow.org/trainjob-ancestor-step", "trainer"
_NODE = "node"  # the name of the container, and of the Job where no runtime names it
_NODES, _RESOURCES = ("spec", "trainer", "numNodes"), ("spec", "trainer", "resourcesPerNode")
_POD = ("template", "spec", "template")


def with_runtime(train_job: Json, runtime: Json) -> Json:
    """A copy that has the spec of its TrainingRuntime or ClusterTrainingRuntime as `spec.runtime`."""
    return with_spec(train_job, runtime=runtime.get("spec") or {})


def with_job_set(train_job: Json) -> Json:
    """Puts in `spec.jobSet`. Raises ValueError for a TrainJob without a runtime that does not say enough."""
    runtime = at(train_job, ("spec", "runtime"))
    given = _bare_job_set(train_job) if runtime is None else at(runtime, ("template", "spec")) or {}
    nodes = at(train_job, _NODES)
    if nodes is None:
        nodes = at(runtime, ("mlPolicy", "numNodes"))
    jobs = [
        _node_job(each, nodes, at(train_job, _RESOURCES)) if _is_trainer(each) else each
        for each in given.get("replicatedJobs") or []
    ]
    return with_spec(train_job, jobSet={**given, "replicatedJobs": jobs})


def _bare_job_set(train_job: Json) -> Json:
    missing = [".".join(path) for path in (_NODES, _RESOURCES) if at(train_job, path) is None]
    if missing:
        raise ValueError(f"{missing[0]}: missing; what its runtime says is not known here")
    image = at(train_job, ("spec", "trainer", "image"))
    pod = {"spec": {"containers": [{"name": _NODE, **({"image": image} if image else {})}]}}
    template = {"metadata": {"labels": {_STEP: _TRAINER}}, "spec": {"template": pod}}
    return {"replicatedJobs": [{"name": _NODE, "template": template}]}


def _is_trainer(job: Json) -> bool:
    return bool(at(job, ("template", "metadata", "labels", _STEP)) == _TRAINER)


def _node_job(job: Json, nodes: int | None, resources: Json | None) -> Json:
    """With as many pods as there are to be nodes, each with these resources."""
    template, pod = job["template"], at(job, _POD) or {}
    numbers = {} if nodes is None else {"parallelism": nodes, "completions": nodes}
    containers = [
        {**each, "resources": resources} if resources and each.get("name") == _NODE else each
        for each in at(pod, ("spec", "containers")) or []
    ]
    pods = {**pod, "spec": {**(pod.get("spec") or {}), "containers": containers}}
    return {**job, "template": {**template, "spec": {**template["spec"], **numbers, "template": pods}}}


TRAIN_JOB = WorkloadRow(
    api_version="trainer.kubeflow.org/v1alpha1",
    kind="TrainJob",
    offspring=(Offspring(made=JOB_SET.key, name="{owner}", spec=("spec", "jobSet")),),
    manageable=True,
    succeeded=(Sign(condition="Complete"),),
    failed=(Sign(condition="Failed"),),
    complete=with_job_set,
    remark=lambda _: "its runtime is not read: its pods have what the TrainJob says itself",
)
