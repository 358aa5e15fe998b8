"""What a TrainJob changes of the JobSet of its runtime. The field for it has changed from release to release
of Kubeflow Trainer:

    2.0  podSpecOverrides      of the pods of some Jobs, without their metadata
    2.1  podTemplateOverrides  the same with labels and annotations
    2.2  runtimePatches        of the whole JobSet, one for each manager

Later ones come on top of earlier ones.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from extender.api.workloads.shape import Json, at, items_of

_MANAGER = "kube-muster.io/muster"


def patched(jobs: list[Json], train_job: Json) -> list[Json]:
    """The replicated Jobs of a runtime, as the TrainJob wants them."""
    by_name = {str(each.get("name")): each for each in jobs}
    for name, patch in _patches(train_job):
        if name in by_name:
            by_name[name] = merged_by_name(by_name[name], patch)
    return list(by_name.values())


def annotating(train_job: Json, jobs: Iterable[str], annotation: Json) -> Json:
    """The fields of its spec that put an annotation on the pods of all these Jobs. An API server keeps those
    that its release of the Trainer knows."""
    meta = {"metadata": {"annotations": annotation}}
    others = [each for each in items_of(train_job, "podTemplateOverrides") if _without_targets(each) != meta]
    patches = [each for each in items_of(train_job, "runtimePatches") if each.get("manager") != _MANAGER]
    on_jobs = [_of_job(name, meta) for name in jobs]
    patch = {"template": {"spec": {"replicatedJobs": on_jobs}}}
    return {
        "podTemplateOverrides": [*others, {"targetJobs": [{"name": name} for name in jobs], **meta}],
        "runtimePatches": [*patches, {"manager": _MANAGER, "trainingRuntimeSpec": patch}],
    }


def merged_by_name(base: Any, patch: Any) -> Any:
    """A strategic merge patch of Kubernetes, as far as these fields go: mappings are merged, and lists of
    items that have names by these; other lists are replaced."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {**base, **{key: merged_by_name(base.get(key), value) for key, value in patch.items()}}
    if _is_named(base) and _is_named(patch):
        by_name = {each["name"]: each for each in base}
        by_name |= {each["name"]: merged_by_name(by_name.get(each["name"]), each) for each in patch}
        return list(by_name.values())
    return patch


def _patches(train_job: Json) -> Iterator[tuple[str, Json]]:
    """The name of a replicated Job, and what is to be merged into it."""
    for each in items_of(train_job, "podSpecOverrides"):
        yield from _on_targets(each, {"spec": _without_targets(each)})
    for each in items_of(train_job, "podTemplateOverrides"):
        yield from _on_targets(each, _without_targets(each))
    for each in items_of(train_job, "runtimePatches"):
        for job in at(each, ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")) or []:
            yield str(job.get("name")), job


def _on_targets(override: Json, pod: Json) -> Iterator[tuple[str, Json]]:
    for target in override.get("targetJobs") or []:
        yield str(target.get("name")), _of_job(target.get("name"), pod)


def _of_job(name: Any, pod: Json) -> Json:
    return {"name": name, "template": {"spec": {"template": pod}}}


def _without_targets(override: Json) -> Json:
    return {field: value for field, value in override.items() if field != "targetJobs"}


def _is_named(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(each, dict) and "name" in each for each in found)
