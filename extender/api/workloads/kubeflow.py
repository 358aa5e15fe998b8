"""Kinds of Kubeflow: the training operator (kubeflow/trainer, v1), MPIJob v2beta1, and TrainJob (Trainer v2).

A TrainJob makes a JobSet from its runtime, which `with_runtime` adds, and from its own fields for nodes.
Three fields of the TrainJob change the JobSet; a later field overrides an earlier one:

    2.0  podSpecOverrides      changes pod specs of some Jobs
    2.1  podTemplateOverrides  changes pod specs, labels and annotations of some Jobs
    2.2  runtimePatches        changes the whole JobSet, with one patch for each manager
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from extender.api.keys import GROUP_ANNOTATION, GROUP_LABEL
from extender.api.workloads import shape
from extender.api.workloads.sets import JOB_SET, dependent_jobs, succeeded_by_name
from extender.api.workloads.shape import (
    JOB,
    POD,
    Count,
    Counts,
    Json,
    Offspring,
    Sign,
    WorkloadRow,
    runtime_in,
    value_at,
)

_VERSION = "trainer.kubeflow.org/v1alpha1"
_STEP, _TRAINER = "trainer.kubeflow.org/trainjob-ancestor-step", "trainer"
_INITIALIZERS = ("dataset-initializer", "model-initializer")
_NODE = "node"  # the name of the main container, and of the Job without a runtime
_NODES, _RESOURCES = ("spec", "trainer", "numNodes"), ("spec", "trainer", "resourcesPerNode")
_POD = ("template", "spec", "template")
_GROUP_KEY_BY_PLUGIN = {"volcano": ("annotations", GROUP_ANNOTATION), "coscheduling": ("labels", GROUP_LABEL)}
_MANAGER = "kube-muster.io/muster"

_LABEL = "training.kubeflow.org"
_REPLICAS = Count(path=("replicas",))


def _labels(operator: str, **further_labels: str) -> dict[str, str]:
    return {
        f"{_LABEL}/job-name": "{owner}",
        f"{_LABEL}/operator-name": operator,
        **{f"{_LABEL}/{name.replace('_', '-')}": value for name, value in further_labels.items()},
    }


def _training_kind(kind: str, replica_specs: str, *masters: str) -> WorkloadRow:
    """Return the row of a kind of training jobs.

    The pods of the roles in `masters` have the label of the job's master.
    """
    labels = _labels(f"{kind.lower()}-controller", replica_type="{role}", replica_index="{index}")
    others = tuple(role for role in _ROLES if role not in masters)
    offspring = (
        Offspring(
            kind=POD,
            name="{owner}-{role}-{index}",
            parts=("spec", replica_specs),
            roles=roles,
            template=("template",),
            count=_REPLICAS,
            labels=labels | job_role,
        )
        for roles, job_role in ((masters, {f"{_LABEL}/job-role": "master"}), (others, {}))
        if roles
    )
    return _job_kind("v1", kind, *offspring)


def _dependent_roles(job: Json, _: Counts) -> tuple[str, ...]:
    """Return the roles that start after others: the launcher of an MPIJob that waits for its workers."""
    must_wait = value_at(job, ("spec", "launcherCreationPolicy")) == "WaitForWorkersReady"
    return ("launcher",) if must_wait else ()


def _job_kind(version: str, kind: str, *offspring: Offspring) -> WorkloadRow:
    """Return the row of a kind of the training operator. All its kinds report their end in the same way."""
    return WorkloadRow(
        api_version=f"kubeflow.org/{version}",
        kind=kind,
        offspring=offspring,
        together=lambda _: True,
        dependent_roles=_dependent_roles,
        suspend=("spec", "runPolicy", "suspend"),
        manageable=True,
        success=(Sign(condition="Succeeded"),),
        failure=(Sign(condition="Failed"),),
    )


_ROLES = ("master", "worker", "chief", "ps", "evaluator")


def _mpi_kind(version: str, launcher: Offspring) -> WorkloadRow:
    """Return the row of an MPIJob. The workers have the same names in both versions."""
    workers = Offspring(
        kind=POD,
        name="{owner}-worker-{index}",
        parts=_MPI_SPECS,
        roles=("worker",),
        template=("template",),
        count=_REPLICAS,
        labels=_labels("mpi-operator", job_role="worker", replica_index="{index}"),
    )
    return _job_kind(version, "MPIJob", workers, launcher)


_MPI_SPECS = ("spec", "mpiReplicaSpecs")
_LAUNCHER_POD = Offspring(
    kind=POD,
    name="{owner}-launcher",
    parts=_MPI_SPECS,
    roles=("launcher",),
    template=("template",),
    labels=_labels("mpi-operator", job_role="launcher"),
)
_LAUNCHER_JOB = replace(_LAUNCHER_POD, kind=JOB, template=(), spec={"template": ("template",)}, on_pods=True)

KUBEFLOW = (
    _training_kind("PyTorchJob", "pytorchReplicaSpecs", "master"),
    _training_kind("TFJob", "tfReplicaSpecs", "chief", "master"),
    _training_kind("XGBoostJob", "xgbReplicaSpecs", "master"),
    _training_kind("PaddleJob", "paddleReplicaSpecs", "master"),
    _training_kind("JAXJob", "jaxReplicaSpecs"),
    _mpi_kind("v1", _LAUNCHER_POD),
    _mpi_kind("v2beta1", _LAUNCHER_JOB),
)


def with_patches(jobs: list[Json], train_job: Json) -> list[Json]:
    """Return the replicated Jobs of a runtime after the changes of the TrainJob."""
    jobs_by_name, patches = {str(job.get("name")): job for job in jobs}, list[Json]()
    for field in ("podSpecOverrides", "podTemplateOverrides"):
        for override in shape.items_at(train_job, "spec", field):
            pod = _without_targets(override)
            form = {"spec": pod} if field == "podSpecOverrides" else pod
            patches += [_job_patch(target.get("name"), form) for target in override.get("targetJobs") or []]
    for patch in shape.items_at(train_job, "spec", "runtimePatches"):
        patches += value_at(patch, ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")) or []
    for patch in patches:
        name = str(patch.get("name"))
        if name in jobs_by_name:
            jobs_by_name[name] = merge_by_name(jobs_by_name[name], patch)
    return list(jobs_by_name.values())


def annotation_fields(train_job: Json, jobs: Iterable[str], annotation: Json) -> Json:
    """Return the fields of a TrainJob's spec that give the pods of `jobs` an annotation.

    The fields cover all releases of the Trainer.
    """
    meta = {"metadata": {"annotations": annotation}}
    overrides = shape.items_at(train_job, "spec", "podTemplateOverrides")
    other_overrides = [override for override in overrides if _without_targets(override) != meta]
    patches = shape.items_at(train_job, "spec", "runtimePatches")
    patches = [patch for patch in patches if patch.get("manager") != _MANAGER]
    job_patches = [_job_patch(name, meta) for name in jobs]
    patch_spec = {"template": {"spec": {"replicatedJobs": job_patches}}}
    return {
        "podTemplateOverrides": [*other_overrides, {"targetJobs": [{"name": name} for name in jobs], **meta}],
        "runtimePatches": [*patches, {"manager": _MANAGER, "trainingRuntimeSpec": patch_spec}],
    }


def merge_by_name(base: Any, patch: Any) -> Any:
    """Return `base` after a strategic merge patch.

    Mappings are merged, and so are lists of items with names. `patch` replaces all other values.
    """
    if isinstance(base, dict) and isinstance(patch, dict):
        return {**base, **{key: merge_by_name(base.get(key), value) for key, value in patch.items()}}
    if _is_named(base) and _is_named(patch):
        by_name = {item["name"]: item for item in base}
        by_name |= {item["name"]: merge_by_name(by_name.get(item["name"]), item) for item in patch}
        return list(by_name.values())
    return patch


def _job_patch(name: Any, pod: Json) -> Json:
    return {"name": name, "template": {"spec": {"template": pod}}}


def _without_targets(override: Json) -> Json:
    return {field: value for field, value in override.items() if field != "targetJobs"}


def _is_named(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) and "name" in item for item in value)


def with_job_set(train_job: Json) -> Json:
    """Return a TrainJob with the JobSet that the Trainer makes from it, as `spec.jobSet`.

    Raises:
        ValueError: The TrainJob has no runtime, and lacks required fields.
    """
    runtime = runtime_in(TRAIN_JOB, train_job)
    spec_of_runtime = value_at(runtime, ("template", "spec")) or {}
    job_set = _bare_job_set(train_job) if runtime is None else spec_of_runtime
    jobs = with_patches(list(job_set.get("replicatedJobs") or []), train_job)
    policy, grouping = value_at(runtime, ("mlPolicy",)) or {}, value_at(runtime, ("podGroupPolicy",)) or {}
    # With a policy for PodGroups, the Trainer creates one with the TrainJob's name.
    name = value_at(train_job, ("metadata", "name")) or ""
    places = (place for plugin, place in _GROUP_KEY_BY_PLUGIN.items() if grouping.get(plugin) is not None)
    group_meta = {"metadata": {field: {key: name} for field, key in places}}
    complete_jobs = [_complete_job(job, train_job, policy, group_meta) for job in jobs]
    return shape.with_spec(train_job, jobSet={**job_set, "replicatedJobs": complete_jobs})


def with_unfinished_jobs(train_job: Json) -> Json:
    """Return a TrainJob without the Jobs that have succeeded, which are not created again."""
    complete_job = with_job_set(train_job)
    succeeded_counts = succeeded_by_name(shape.items_at(train_job, "status", "jobsStatus"))
    job_set = complete_job["spec"]["jobSet"]
    jobs = [
        {**job, "replicas": max(_REPLICAS.read_from(job) - succeeded_counts.get(str(job.get("name")), 0), 0)}
        for job in job_set["replicatedJobs"]
    ]
    return shape.with_spec(complete_job, jobSet={**job_set, "replicatedJobs": jobs})


def missing_annotation_fields(train_job: Json, name: str, text: str) -> Json:
    """Return the fields of the spec that give all pods of a TrainJob this annotation.

    The result is empty if the pods have the annotation already.
    """
    jobs = with_job_set(train_job)["spec"]["jobSet"]["replicatedJobs"]
    path = (*_POD, "metadata", "annotations", name)
    if all(value_at(job, path) == text for job in jobs):
        return {}
    return annotation_fields(train_job, [str(job.get("name")) for job in jobs], {name: text})


def _bare_job_set(train_job: Json) -> Json:
    """Return the JobSet of a TrainJob without a runtime: a single Job with the TrainJob's image.

    Raises:
        ValueError: A field is missing for which the runtime would have a default.
    """
    missing_fields = [".".join(path) for path in (_NODES, _RESOURCES) if value_at(train_job, path) is None]
    if missing_fields:
        raise ValueError(f"{missing_fields[0]}: missing; what its runtime says is not known here")
    image = value_at(train_job, ("spec", "trainer", "image"))
    pod = {"spec": {"containers": [{"name": _NODE, **({"image": image} if image else {})}]}}
    template = {"metadata": {"labels": {_STEP: _TRAINER}}, "spec": {"template": pod}}
    return {"replicatedJobs": [{"name": _NODE, "template": template}]}


def _step_of(job: Json) -> str:
    return value_at(job, ("template", "metadata", "labels", _STEP)) or ""


def _complete_job(job: Json, train_job: Json, policy: Json, group: Json) -> Json:
    """Return a replicated Job with the TrainJob's number of pods, resources and PodGroup."""
    nodes = _count_pods(job, train_job, policy)
    numbers = {"parallelism": nodes, "completions": nodes}
    once = {"replicas": 1} if _step_of(job) in (_TRAINER, *_INITIALIZERS) else {}
    pods, resources = value_at(job, _POD) or {}, value_at(train_job, _RESOURCES)
    if resources and (_step_of(job) == _TRAINER or (_launcher_is_node(policy) and job.get("name") == _NODE)):
        patch = {"resources": resources}
        containers = [
            merge_by_name(container, patch) if container.get("name") == _NODE else container
            for container in value_at(pods, ("spec", "containers")) or []
        ]
        pods = {**pods, "spec": {**(pods.get("spec") or {}), "containers": containers}}
    spec = {**job["template"]["spec"], **numbers, "template": merge_by_name(pods, group)}
    return {**job, **once, "template": {**job["template"], "spec": spec}}


def _count_pods(job: Json, train_job: Json, policy: Json) -> int:
    """Return the number of pods of a replicated Job. In MPI, the launcher may be one of the nodes."""
    is_counted = job.get("name") == _NODE if policy.get("mpi") else _step_of(job) == _TRAINER
    if is_counted and value_at(train_job, _NODES) is not None:
        nodes = Count(path=_NODES).read_from(train_job)
        return max(nodes - 1, 1) if _launcher_is_node(policy) else nodes
    is_of_policy = _step_of(job) == _TRAINER and bool(policy)
    path = ("numNodes",) if is_of_policy else ("template", "spec", "parallelism")
    return max(Count(path=path).read_from(policy if is_of_policy else job), 1)


def _launcher_is_node(policy: Json) -> bool:
    return value_at(policy, ("mpi", "runLauncherAsNode")) is True


TRAIN_JOB = WorkloadRow(
    api_version=_VERSION,
    kind="TrainJob",
    offspring=(Offspring(kind=JOB_SET.key, name="{owner}", spec=("spec", "jobSet")),),
    runtime=shape.RuntimeReference(
        group=("spec", "runtimeRef", "apiGroup"),
        kind=("spec", "runtimeRef", "kind"),
        name=("spec", "runtimeRef", "name"),
        kinds=(
            shape.RuntimeKind(api_version=_VERSION, kind="ClusterTrainingRuntime", namespaced=False),
            shape.RuntimeKind(api_version=_VERSION, kind="TrainingRuntime", namespaced=True),
        ),
    ),
    annotate=missing_annotation_fields,
    together=lambda _: True,
    dependent_roles=lambda job, counts: dependent_jobs({"spec": with_job_set(job)["spec"]["jobSet"]}, counts),
    manageable=True,
    success=(Sign(condition="Complete"),),
    failure=(Sign(condition="Failed"),),
    complete=with_job_set,
    counting=with_unfinished_jobs,
    remark=lambda job: (
        ""
        if "runtime" in job["spec"]
        else "its runtime is in no file: its pods have what the TrainJob says itself"
    ),
)
