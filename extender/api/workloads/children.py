"""Children of a workload, as its controller creates them by the table, and their number."""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from extender.api.workloads.shape import (
    POD,
    Json,
    Kinds,
    Offspring,
    Path,
    WorkloadRow,
    is_suspended,
    value_at,
)
from extender.api.workloads.table import WORKLOADS

_SAFE_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # alphabet of Kubernetes' hashes
_NO_UID = "00000000-0000-0000-0000-000000000000"
_KUBECTL_PREFIX = "kubectl.kubernetes.io/"  # prefix of kubectl's own annotations

# Exceptions that may occur while an object with unexpected fields is read.
SHAPE_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class WorkloadPart(NamedTuple):
    """Part of an object for which children are made. The role of the object itself is empty."""

    role: str
    body: Json
    where: Path = ()


def parts_of(obj: Json, offspring: Offspring) -> Iterator[WorkloadPart]:
    """Yield the parts of an object: the object itself, the items of a list, or the values of a mapping.

    The role of an item is its `name` or `groupName`. The role of a value is its key.
    """
    if not offspring.parts:
        yield WorkloadPart("", obj)
        return
    items = value_at(obj, offspring.parts) or {}
    if isinstance(items, dict):
        parts = [(name, name, body) for name, body in items.items()]
    else:
        parts = [
            (str(body.get("name") or body.get("groupName") or number), str(number), body)
            for number, body in enumerate(items)
        ]
    for name, key, body in parts:
        if isinstance(body, dict) and (not offspring.roles or name.lower() in offspring.roles):
            yield WorkloadPart(name.lower(), body, (*offspring.parts, key))


def parts_with_children(obj: Json, offspring: Offspring) -> Iterator[tuple[WorkloadPart, dict[str, Any]]]:
    """Yield the parts that have children, each with the values of placeholders for its first child."""
    if not all(value_at(obj, path) in values for path, values in offspring.when.items()):
        return
    parts = [(part, offspring.count.read_from(part.body)) for part in parts_of(obj, offspring)]
    meta, place, total = obj.get("metadata") or {}, 0, sum(count for _, count in parts)
    fields_of_owner = {"owner": meta.get("name") or "", "uid": meta.get("uid") or _NO_UID, "total": total}
    index = value_at(obj, offspring.first_path) if offspring.first_path else 0
    for part, count in parts:
        if count:
            numbers = {"index": index or 0, "number": 1, "place": place, "count": count}
            yield part, {**fields_of_owner, "role": part.role, **numbers}
            place += count


def child_of(obj: Json, offspring: Offspring, part: WorkloadPart, values: dict[str, Any]) -> Json:
    """Return a child as the controller of `obj` creates it.

    If the owner is not `obj`, the owner reference has no UID.

    Args:
        obj: The parent.
        offspring: The kind of the child.
        part: The part of the parent for which the child is made.
        values: The values of placeholders in the patterns of `offspring`.
    """
    body, parent_meta = body_of(part.body, offspring), obj.get("metadata") or {}
    values = values | {"hash": _hash(value_at(body, ("spec", "template")) or body)}
    labels = {name: text.format_map(values) for name, text in offspring.labels.items()}
    annotations = {name: text.format_map(values) for name, text in offspring.annotations.items()}
    inherited = (parent_meta.get("annotations") or {}) if offspring.inherits else {}
    retained = {name: text for name, text in inherited.items() if not name.startswith(_KUBECTL_PREFIX)}
    child = deepcopy(body)
    _add_labels_and_annotations(child, labels, retained | annotations)
    template = value_at(child, ("spec", "template")) if offspring.on_pods else None
    if isinstance(template, dict):
        _add_labels_and_annotations(template, labels, annotations)
    meta = child["metadata"]
    meta.pop("name", None)
    name = offspring.name.format_map(values)
    meta["generateName" if name.endswith("-") else "name"] = name
    if offspring.prefix:
        meta["generateName"] = offspring.prefix.format_map(values)
    if namespace := parent_meta.get("namespace"):
        meta["namespace"] = namespace
    if offspring.owner is None:
        owner, owner_name, uid = (obj["apiVersion"], obj["kind"]), values["owner"], values["uid"]
    else:
        owner, name_pattern = offspring.owner
        owner_name, uid = name_pattern.format_map(values), ""
    reference = {"apiVersion": owner[0], "kind": owner[1], "name": owner_name, "uid": uid}
    meta["ownerReferences"] = [{**reference, "controller": True, "blockOwnerDeletion": True}]
    api_version, kind = offspring.kind
    return {"apiVersion": api_version, "kind": kind, **child}


def body_of(part: Json, offspring: Offspring) -> Json:
    """Return the metadata and spec of a child. A ReplicaSet has the labels of its pods."""
    if offspring.template:
        template = value_at(part, offspring.template) or {}
        return {"metadata": template.get("metadata") or {}, "spec": template.get("spec") or {}}
    if isinstance(offspring.spec, Mapping):
        fields = ((name, value_at(part, path)) for name, path in offspring.spec.items())
        spec = {name: value for name, value in fields if value is not None}
        labels = value_at(spec, ("template", "metadata", "labels")) or {}
        return {"metadata": {"labels": labels}, "spec": spec}
    return {"metadata": {}, "spec": value_at(part, offspring.spec) or {}}


def _add_labels_and_annotations(obj: Json, labels: dict[str, str], annotations: dict[str, str]) -> None:
    meta = obj["metadata"] = {**(obj.get("metadata") or {})}
    for field, added in (("labels", labels), ("annotations", annotations)):
        if added:
            meta[field] = {**(meta.get(field) or {}), **added}


def _hash(template: Json) -> str:
    """Return ten characters that depend on a template, but not on replicas. Kubernetes' own hash differs."""
    number = zlib.crc32(json.dumps(template, sort_keys=True, default=str).encode())
    letters = []
    for _ in range(10):
        number, letter_index = divmod(number * 31 + 7, len(_SAFE_LETTERS))
        letters.append(_SAFE_LETTERS[letter_index])
    return "".join(letters)


def kind_of(obj: Json, kinds: Kinds = WORKLOADS) -> WorkloadRow | None:
    """Return the row of an object's kind; None if the table does not have the kind."""
    return kinds.get((str(obj.get("apiVersion")), str(obj.get("kind"))))


def is_job_suspended(obj: Json) -> bool:
    kind = kind_of(obj)
    return kind is not None and is_suspended(kind, obj)


def count_pods(obj: Json) -> int:
    """Return the number of pods that will be made for an object.

    Equal pods are counted without making each.

    Raises:
        SHAPE_ERRORS: The object cannot be read.
    """
    kind = kind_of(obj)
    if kind is None:
        return 1 if (obj.get("apiVersion"), obj.get("kind")) == POD else 0
    if is_job_suspended(obj):
        return 0
    complete, pod_count = kind.complete(obj), 0
    for offspring in kind.offspring:
        pods_of_child: dict[int, int] = {}  # number of pods of a child, by the id of its part
        for part, values in parts_with_children(complete, offspring):
            if id(part.body) not in pods_of_child:
                pods_of_child[id(part.body)] = count_pods(child_of(complete, offspring, part, values))
            pod_count += int(values["count"]) * pods_of_child[id(part.body)]
    return pod_count


def children(obj: Json, with_pods: bool = True) -> Iterator[Json]:
    """Yield the children of an object in the order of their creation. The object has a name and a UID.

    Raises:
        SHAPE_ERRORS: The object cannot be read.
    """
    kind = kind_of(obj)
    if kind is None or is_job_suspended(obj):
        return
    complete_object = kind.complete(obj)
    for offspring in kind.offspring:
        if offspring.kind == POD and not with_pods:
            continue
        for part, values in parts_with_children(complete_object, offspring):
            for nth in range(values["count"]):
                numbers = {name: values[name] + nth for name in ("index", "number", "place")}
                yield child_of(complete_object, offspring, part, values | numbers)


def controllers(obj: Json) -> Iterator[Json]:
    """Yield the children at any depth that create pods themselves.

    Raises:
        SHAPE_ERRORS: The object cannot be read.
    """
    for child in children(obj, with_pods=False):
        yield child
        yield from controllers(child)


def children_at(obj: Json, indexes: Iterable[int]) -> Iterator[Json]:
    """Yield the children with the given indexes, for an object whose children are all equal, such as a Job.

    Raises:
        SHAPE_ERRORS: The object cannot be read.
    """
    kind = kind_of(obj)
    if kind is None:
        return
    complete_object = kind.complete(obj)
    for offspring in kind.offspring:
        for part, values in parts_with_children(complete_object, offspring):
            for index in indexes:
                numbers = {"index": index, "number": index + 1, "place": index}
                yield child_of(complete_object, offspring, part, values | numbers)
