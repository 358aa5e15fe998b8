"""Children of a workload by the table of workloads, compared with its existing objects."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from extender.api.keys import ENDED_PHASES
from extender.api.workloads import children as making
from extender.api.workloads.shape import (
    JobOutcome,
    RuntimeName,
    items_at,
    outcome_of,
    runtime_named_by,
    value_at,
    with_runtime,
    with_spec,
)
from extender.apimachinery.kinds import RUNTIME_KINDS, Json
from extender.apimachinery.store import Store

TIMES_PREFIX = "sim.kube-muster.io/"  # prefix of annotations with the times of arrival and end
DEADLINE_KEY = "sim.kube-muster.io/deadline-seconds"  # annotation of a pod: the run time limit of its owner
_DEADLINE_PATHS = (("spec", "activeDeadlineSeconds"), ("spec", "runPolicy", "activeDeadlineSeconds"))


class ComparedOffspring(NamedTuple):
    """Difference between wanted and existing objects.

    `retained` has pairs: an existing object that stays, and the object as it should be.
    """

    missing: list[Json]
    surplus: list[Json]
    retained: list[tuple[Json, Json]]


Find = Callable[[RuntimeName], Json | None]  # look-up of an object with the templates of jobs


def find_in_store(store: Store) -> Find:
    """Return a look-up of objects in the API server."""
    kind_by_name = {kind.name: kind for kind in RUNTIME_KINDS}

    def find(name: RuntimeName) -> Json | None:
        kind = kind_by_name.get(name.kind)
        return store.get(kind, name.namespace, name.name) if kind else None

    return find


def find_among(objects: Iterable[Json]) -> Find:
    """Return a look-up of objects that have not been created yet."""
    is_namespaced = {kind.name: kind.namespaced for kind in RUNTIME_KINDS}
    object_by_name: dict[RuntimeName, Json] = {}
    for obj in objects:
        kind, meta = obj["kind"], obj["metadata"]
        if kind in is_namespaced and meta.get("name"):
            namespace = (meta.get("namespace") or "default") if is_namespaced[kind] else ""
            object_by_name[RuntimeName(kind, namespace, meta["name"])] = obj
    return object_by_name.get


def with_runtime_of(owner: Json, find: Find) -> Json:
    """Return the owner with the templates of its runtime, if the runtime exists."""
    row = making.kind_of(owner)
    name = runtime_named_by(row, owner) if row else None
    runtime = find(name) if name else None
    return with_runtime(owner, runtime.get("spec") or {}) if runtime else owner


def children_of(owner: Json, find: Find) -> Iterator[Json]:
    """Yield the children of a workload.

    Raises:
        SHAPE_ERRORS: The object cannot be read.
    """
    return _with_times_of(owner, making.children(with_runtime_of(owner, find)))


def pods_at(job: Json, indexes: Iterable[int]) -> Iterator[Json]:
    """Yield the pods of a Job with these indexes.

    Raises:
        SHAPE_ERRORS: The object cannot be read.
    """
    return _with_times_of(job, making.children_at(job, indexes))


def with_times_on_pods(job: Json) -> Json:
    """Return a Volcano Job whose pod templates have its times of arrival and end.

    The templates need them because Muster creates the pods.
    """
    tasks, times = list[Json](), _times_of(job)
    for task in items_at(job, "spec", "tasks"):
        template = task.get("template") or {}
        meta = template.get("metadata") or {}
        annotations = times | (meta.get("annotations") or {})
        tasks.append({**task, "template": {**template, "metadata": {**meta, "annotations": annotations}}})
    return with_spec(job, tasks=tasks) if times else job


def _times_of(owner: Json) -> dict[str, str]:
    """Return the annotations of an owner with times."""
    annotations = owner["metadata"].get("annotations") or {}
    return {name: text for name, text in annotations.items() if name.startswith(TIMES_PREFIX)}


def _with_times_of(owner: Json, children: Iterable[Json]) -> Iterator[Json]:
    """Yield the children with the owner's annotations about times, and with its run time limit."""
    times = _times_of(owner)
    limits = (value_at(owner, path) for path in _DEADLINE_PATHS)
    deadline = next((limit for limit in limits if limit is not None), None)
    times |= {} if deadline is None else {DEADLINE_KEY: str(deadline)}
    for child in children:
        if child["kind"] == "Job":  # an operator would set the restart policy
            pod_spec = value_at(child, ("spec", "template", "spec"))
            (pod_spec or {}).setdefault("restartPolicy", "OnFailure")
        own_annotations = child["metadata"].get("annotations") or {}
        yield {**child, "metadata": {**child["metadata"], "annotations": times | own_annotations}}


def compare_offspring(owner: Json, owned: list[Json], find: Find) -> ComparedOffspring:
    """Return the difference between owned and wanted objects, by their names or prefixes of random names.

    Ended objects stay, and count as existing. Of surplus pods, the pods on nodes and the older pods stay.

    Raises:
        SHAPE_ERRORS: The object cannot be read.
    """
    desired, existing = defaultdict[str, list[Json]](list), defaultdict[str, list[Json]](list)
    for child in children_of(owner, find):
        desired[child["metadata"].get("name") or child["metadata"]["generateName"]].append(child)
    for obj in sorted(owned, key=retention_key):
        name, prefix = obj["metadata"]["name"], obj["metadata"].get("generateName", "")
        existing[prefix if prefix in desired and name not in desired else name].append(obj)
    difference = ComparedOffspring([], [], [])
    for key in dict.fromkeys([*desired, *existing]):
        number = len(desired[key])
        difference.missing.extend(desired[key][len(existing[key]) :])
        difference.retained.extend(zip(existing[key], desired[key], strict=False))
        difference.surplus.extend(obj for obj in existing[key][number:] if not has_ended(obj))
    return difference


def retention_key(obj: Json) -> tuple[bool, bool, int]:
    """Return the sort key of pods to keep: first ended pods, then pods on nodes, then older pods."""
    on_node = bool((obj.get("spec") or {}).get("nodeName"))
    return not has_ended(obj), not on_node, int(obj["metadata"]["resourceVersion"])


def has_ended(obj: Json) -> bool:
    return ending_outcome(obj) is not None


def ending_outcome(obj: Json) -> JobOutcome | None:
    """Return the outcome of a pod or workload by its status; None if it has not ended."""
    row = making.kind_of(obj)
    if row is not None:
        return outcome_of(row, obj)
    phase = (obj.get("status") or {}).get("phase")
    return JobOutcome(phase) if phase in ENDED_PHASES else None


def owner_uid(obj: Json) -> str:
    """Return the UID of an object's controller; empty without a controller."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((reference["uid"] for reference in owners if reference.get("controller")), "")
