"""Pod sets of a job, partial starts, and the paths of the annotations of its pods.

The cost depends on the size of the object, not on its counts.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.pods import Pod
from extender.api.units import is_count, rounded_up
from extender.api.workloads.children import body_of, child_of, kind_of, parts_of, parts_with_children
from extender.api.workloads.shape import MAX_INT, POD, Json, Kinds, Path, WorkloadRow, value_at
from extender.api.workloads.table import WORKLOADS

_MINIMUM_KEYS = (keys.MIN_PARALLELISM, keys.KUEUE_MIN_PARALLELISM)
_ANNOTATIONS = ("metadata", "annotations")


class JobPodSet(msgspec.Struct, frozen=True):
    """Pods of a job that differ only in name and index."""

    role: str  # name of the set in lower case; empty if the kind has only one set
    count: int  # 1 or more
    template: Json  # labels, annotations and spec of the first pod
    starts_later: bool = False  # whether its pods are created only after the pods of other sets have ended


def pod_sets(obj: Json, kinds: Kinds = WORKLOADS) -> list[JobPodSet]:
    """Return the pod sets of a job that has not ended, in the order in which the controller creates the pods.

    The result does not depend on whether the job is suspended.

    Raises:
        SHAPE_ERRORS: Counts, templates or amounts cannot be read, or two sets have the same role.
    """
    try:
        sets = list(_sets(obj, JobPodSet("", 1, {}), kinds))
    except RecursionError as fault:
        raise ValueError("its templates are nested too deeply") from fault
    roles = Counter(pod_set.role for pod_set in sets)
    if duplicates := [role for role, number in roles.items() if number > 1]:
        raise ValueError(f"several sets of pods are called {duplicates[0]!r:.80}")
    return sets


def _sets(obj: Json, outer: JobPodSet, kinds: Kinds) -> Iterator[JobPodSet]:
    """Yield the pod sets of an object.

    `outer` is the pod set to complete: its count is the number of such objects, its role the role of their
    pods.
    """
    kind = kind_of(obj, kinds)
    if kind is None:
        if (obj.get("apiVersion"), obj.get("kind")) == POD:
            yield replace(outer, template=_checked_template(obj, outer.role))
        return
    complete = (kind.counting or kind.complete)(obj)
    for offspring in kind.offspring:
        for part, values in parts_with_children(complete, offspring):
            count, role = outer.count * values["count"], offspring.role or part.role or outer.role
            is_later = bool(offspring.later_path) and value_at(part.body, offspring.later_path) is True
            child = child_of(complete, offspring, part, values)
            yield from _sets(child, JobPodSet(role, count, {}, is_later or outer.starts_later), kinds)


def _checked_template(pod: Json, role: str) -> Json:
    """Return the template of a pod.

    Raises:
        ValueError: The API server would refuse the pod, or its amounts cannot be read.
    """
    meta = pod["metadata"]
    retained_meta = {field: meta[field] for field in ("labels", "annotations") if meta.get(field)}
    template = {"metadata": retained_meta, "spec": pod["spec"]}
    title = f"the pod template of {role!r:.80}" if role else "the pod template"
    try:
        spec = msgspec.json.decode(msgspec.json.encode(template), type=Pod).spec
        pod_level = spec.resources.requests if spec.resources else None
        containers = (*spec.containers, *(spec.init_containers or ()))
        requests = (container.resources.requests for container in containers)
        for amounts in (*requests, pod_level, spec.overhead):
            for amount in (amounts or {}).values():
                rounded_up(amount)  # raises ValueError
    except ValueError as fault:
        raise ValueError(f"{title}: {fault}") from fault
    if not spec.containers:
        raise ValueError(f"{title} has no containers")
    return template


# Partial starts, by a job's annotations:
# requested ──a start with fewer──► started, recorded ──suspended──► requested


class PartialStart(NamedTuple):
    """Partial start of a job: the number of started pods, and the number that its author requested."""

    started_count: int
    requested_count: int

    def __str__(self) -> str:
        return f"{self.started_count}/{self.requested_count}"


def min_parallelism_of(row: WorkloadRow, obj: Json) -> int:
    """Return the minimum number of pods for a partial start; 0 if the annotation is absent.

    Raises:
        ValueError: The annotation is invalid.
    """
    annotations = _annotations(obj)
    key = next((key for key in _MINIMUM_KEYS if key in annotations), "")
    if not (row.parallelism and key):
        return 0
    text = annotations[key]
    if not _is_count(text):
        raise ValueError(f"annotation {key}: invalid value {text!r:.50}: must be a whole number from 1")
    return int(text)


def partial_start(row: WorkloadRow, obj: Json) -> PartialStart | None:
    """Return the partial start of a job; None after a full start, or if the count has changed since."""
    started_text, _, requested_text = str(_annotations(obj).get(keys.PARTIAL_START, "")).partition("/")
    if not (row.parallelism and _is_count(started_text) and _is_count(requested_text)):
        return None
    start = PartialStart(int(started_text), int(requested_text))
    return start if value_at(obj, row.parallelism) == start.started_count else None


def with_requested_count(row: WorkloadRow, obj: Json) -> Json:
    """Return a job with the number of pods that its author requested."""
    recorded_start = partial_start(row, obj)
    return obj if recorded_start is None else _put(obj, row.parallelism, recorded_start.requested_count)


def may_change_count(row: WorkloadRow, obj: Json) -> bool:
    """Return whether the next start of a job may change its number of pods."""
    markers = {*_MINIMUM_KEYS, keys.PARTIAL_START}
    return bool(row.parallelism) and not markers.isdisjoint(_annotations(obj))


def _annotations(obj: Json) -> Json:
    return value_at(obj, ("metadata", "annotations")) or {}


def _is_count(text: object) -> bool:
    return isinstance(text, str) and is_count(text) and 0 < int(text) <= MAX_INT


def _put(obj: Json, path: tuple[str, ...], value: int) -> Json:
    name, *rest_of_path = path
    return {**obj, name: _put(obj.get(name) or {}, tuple(rest_of_path), value) if rest_of_path else value}


def annotation_paths(row: WorkloadRow, obj: Json, kinds: Kinds = WORKLOADS) -> list[Path]:
    """Return the paths of the annotations of a job's pods.

    A path has the keys of mappings and the indexes of items, as in a JSON pointer. The last two mappings of a
    path may be absent.

    Raises:
        SHAPE_ERRORS: The object cannot be read.
    """
    own_paths = [(*path, *_ANNOTATIONS) for path in row.templates if isinstance(value_at(obj, path), dict)]
    return list(dict.fromkeys([*_annotation_paths(row, obj, kinds), *own_paths]))


def _annotation_paths(row: WorkloadRow, obj: Json, kinds: Kinds) -> Iterator[Path]:
    """Yield the paths at which an object and its children have the annotations of their pods."""
    for offspring in row.offspring:
        for part in parts_of(obj, offspring):
            if offspring.kind == POD:
                if offspring.annotations_path:
                    yield (*part.where, *offspring.annotations_path)
                elif offspring.template and isinstance(value_at(part.body, offspring.template), dict):
                    yield (*part.where, *offspring.template, *_ANNOTATIONS)
            elif inner := kinds.get(offspring.kind):
                for path in _annotation_paths(inner, body_of(part.body, offspring), kinds):
                    if offspring.template:
                        yield (*part.where, *offspring.template, *path)
                    elif isinstance(offspring.spec, Mapping):
                        yield (*part.where, *offspring.spec[path[1]], *path[2:])
                    else:
                        yield (*part.where, *offspring.spec, *path[1:])
