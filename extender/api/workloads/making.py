"""One object as the controller of another creates it: its name, labels and owner around a template."""

import json
import zlib
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from extender.api.workloads.shape import Json, KindName, Offspring, Path, at

_SAFE = "bcdfghjklmnpqrstvwxz2456789"  # what Kubernetes writes hashes with
_NO_UID = "00000000-0000-0000-0000-000000000000"


class WorkloadPart(NamedTuple):
    """What of an object some pods are made of, and where in it that is. `role` is empty where it is the
    object itself."""

    role: str
    body: Json
    where: Path = ()


def values_of(obj: Json, part: WorkloadPart) -> dict[str, Any]:
    meta = obj.get("metadata") or {}
    return {
        "owner": meta.get("name") or "",
        "uid": meta.get("uid") or _NO_UID,
        "role": part.role,
        **dict.fromkeys(("index", "place"), 0),
        **dict.fromkeys(("number", "count", "total"), 1),
    }


def made_of(obj: Json, offspring: Offspring, part: WorkloadPart, values: dict[str, Any]) -> Json:
    given = body_of(part.body, offspring)
    values = values | {"hash": _hash(at(given, ("spec", "template")) or given)}
    labels, annotations = (_filled(each, values) for each in (offspring.labels, offspring.annotations))
    made = deepcopy(given)
    _put_on(made, labels, (_annotations_of(obj) if offspring.inherits else {}) | annotations)
    if offspring.on_pods and isinstance(template := at(made, ("spec", "template")), dict):
        _put_on(template, labels, annotations)
    meta = made["metadata"]
    meta.pop("name", None)
    name = offspring.name.format_map(values)
    meta["generateName" if name.endswith("-") else "name"] = name
    if offspring.prefix:
        meta["generateName"] = offspring.prefix.format_map(values)
    if namespace := (obj.get("metadata") or {}).get("namespace"):
        meta["namespace"] = namespace
    meta["ownerReferences"] = [_owner(obj, offspring, values)]
    api_version, kind = offspring.made
    return {"apiVersion": api_version, "kind": kind, **made}


def body_of(part: Json, offspring: Offspring) -> Json:
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
        return _owner_reference((obj["apiVersion"], obj["kind"]), values["owner"], values["uid"])
    kind, pattern = offspring.owner
    return _owner_reference(kind, pattern.format_map(values), "")


def _owner_reference(kind: KindName, name: str, uid: str) -> Json:
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


def _hash(template: Json) -> str:
    """Ten letters that follow from a template, not from the number of pods. Kubernetes uses another sum, so
    nobody should rely on either."""
    number = zlib.crc32(json.dumps(template, sort_keys=True, default=str).encode())
    letters = []
    for _ in range(10):
        number, rest = divmod(number * 31 + 7, len(_SAFE))
        letters.append(_SAFE[rest])
    return "".join(letters)
