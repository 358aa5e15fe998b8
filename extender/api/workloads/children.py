"""What the controller of a workload makes of it, read from the table: objects as they are created, and their
number."""

import json
import zlib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from extender.api.workloads.core import POD
from extender.api.workloads.shape import Json, KindName, Offspring, WorkloadRow, at
from extender.api.workloads.table import WORKLOADS

MALFORMED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)  # what reading odd objects raises
_SAFE = "bcdfghjklmnpqrstvwxz2456789"  # what Kubernetes writes hashes with
_NO_UID = "00000000-0000-0000-0000-000000000000"


class WorkloadPart(NamedTuple):
    """What of an object some pods are made of. `role` is empty where that is the object itself."""

    role: str
    body: Json


def kind_of(obj: Json) -> WorkloadRow | None:
    """None where no controller makes pods of it."""
    return WORKLOADS.get((str(obj.get("apiVersion")), str(obj.get("kind"))))


def suspended(obj: Json) -> bool:
    kind = kind_of(obj)
    return kind is not None and bool(kind.suspend) and at(obj, kind.suspend) is True


def count_pods(obj: Json) -> int:
    """How many pods there will be, without making them. Raises MALFORMED."""
    kind = kind_of(obj)
    if kind is None:
        return 1 if (obj.get("apiVersion"), obj.get("kind")) == POD else 0
    if suspended(obj):
        return 0
    complete = kind.complete(obj)
    return sum(_pods_of(complete, each) for each in kind.offspring if _applies(complete, each))


def _pods_of(obj: Json, offspring: Offspring) -> int:
    """Those of one part are alike."""
    counted = 0
    for part in _parts(obj, offspring):
        count = offspring.count.of(part.body)
        counted += count and count * count_pods(_made(obj, offspring, part, _values(obj, part)))
    return counted


def children(obj: Json) -> Iterator[Json]:
    """In the order in which the controller makes them. `obj` has a name and a UID. Raises
    MALFORMED."""
    kind = kind_of(obj)
    if kind is None or suspended(obj):
        return
    complete = kind.complete(obj)
    for offspring in kind.offspring:
        if _applies(complete, offspring):
            yield from _all_of(complete, offspring)


def _applies(obj: Json, offspring: Offspring) -> bool:
    return all(at(obj, path) in values for path, values in offspring.when.items())


def _all_of(obj: Json, offspring: Offspring) -> Iterator[Json]:
    parts = [(part, offspring.count.of(part.body)) for part in _parts(obj, offspring)]
    total, place = sum(count for _, count in parts), 0
    first = at(obj, offspring.first) if offspring.first else 0
    for part, count in parts:
        values = _values(obj, part) | {"count": count, "total": total}
        for number in range(1, count + 1):
            numbers = {"index": number - 1 + (first or 0), "number": number, "place": place}
            yield _made(obj, offspring, part, values | numbers)
            place += 1


def _parts(obj: Json, offspring: Offspring) -> Iterator[WorkloadPart]:
    """Of lists the items, named by `name` or `groupName`; of mappings the values, named by their keys."""
    if not offspring.each:
        yield WorkloadPart("", obj)
        return
    for name, body in _named(at(obj, offspring.each) or {}):
        if isinstance(body, dict) and (not offspring.roles or name.lower() in offspring.roles):
            yield WorkloadPart(name.lower(), body)


def _named(found: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(found, dict):
        yield from found.items()
        return
    for number, each in enumerate(found):
        yield str(each.get("name") or each.get("groupName") or number), each


def _values(obj: Json, part: WorkloadPart) -> dict[str, Any]:
    meta = obj.get("metadata") or {}
    return {
        "owner": meta.get("name") or "",
        "uid": meta.get("uid") or _NO_UID,
        "role": part.role,
        **dict.fromkeys(("index", "place"), 0),
        **dict.fromkeys(("number", "count", "total"), 1),
    }


# ---- one object


def _made(obj: Json, offspring: Offspring, part: WorkloadPart, values: dict[str, Any]) -> Json:
    given = _body(part.body, offspring)
    values = values | {"hash": _hash(given)}
    labels, annotations = (_filled(each, values) for each in (offspring.labels, offspring.annotations))
    made = deepcopy(given)
    _put_on(made, labels, (_annotations_of(obj) if offspring.inherits else {}) | annotations)
    if offspring.on_pods and isinstance(template := at(made, ("spec", "template")), dict):
        _put_on(template, labels, annotations)
    meta = made["metadata"]
    meta.pop("name", None)
    name = offspring.name.format_map(values)
    meta["generateName" if name.endswith("-") else "name"] = name
    if namespace := (obj.get("metadata") or {}).get("namespace"):
        meta["namespace"] = namespace
    meta["ownerReferences"] = [_owner(obj, offspring, values)]
    api_version, kind = offspring.made
    return {"apiVersion": api_version, "kind": kind, **made}


def _body(part: Json, offspring: Offspring) -> Json:
    """Its metadata and spec."""
    if offspring.template:
        template = at(part, offspring.template) or {}
        return {"metadata": template.get("metadata") or {}, "spec": template.get("spec") or {}}
    if isinstance(offspring.spec, Mapping):
        found = ((name, at(part, path)) for name, path in offspring.spec.items())
        spec = {name: value for name, value in found if value is not None}
        return {"metadata": {"labels": _labels_of(spec)}, "spec": spec}
    return {"metadata": {}, "spec": at(part, offspring.spec) or {}}


def _labels_of(spec: Json) -> Json:
    """A ReplicaSet has those of its pods."""
    return at(spec, ("template", "metadata", "labels")) or {}


def _annotations_of(obj: Json) -> dict[str, str]:
    given = (obj.get("metadata") or {}).get("annotations") or {}
    return {name: text for name, text in given.items() if not name.startswith("kubectl.kubernetes.io/")}


def _put_on(obj: Json, labels: dict[str, str], annotations: dict[str, str]) -> None:
    meta = obj["metadata"] = {**(obj.get("metadata") or {})}
    for field, more in (("labels", labels), ("annotations", annotations)):
        if more:
            meta[field] = {**(meta.get(field) or {}), **more}


def _owner(obj: Json, offspring: Offspring, values: dict[str, Any]) -> Json:
    if offspring.owner is None:
        return owner_reference((obj["apiVersion"], obj["kind"]), values["owner"], values["uid"])
    kind, pattern = offspring.owner
    return owner_reference(kind, pattern.format_map(values), "")


def owner_reference(kind: KindName, name: str, uid: str) -> Json:
    """Of the controller. Without a UID it is to be put in when that is known."""
    return {
        "apiVersion": kind[0],
        "kind": kind[1],
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _filled(patterns: Mapping[str, str], values: dict[str, Any]) -> dict[str, str]:
    return {name: text.format_map(values) for name, text in patterns.items()}


def _hash(given: Json) -> str:
    """Ten letters that follow from a template. Kubernetes uses another sum, which nobody should rely on."""
    number = zlib.crc32(json.dumps(given, sort_keys=True, default=str).encode())
    letters = []
    for _ in range(10):
        number, rest = divmod(number * 31 + 7, len(_SAFE))
        letters.append(_SAFE[rest])
    return "".join(letters)
