"""The metadata of any object: ValidateObjectMeta of k8s.io/apimachinery, pkg/api/validation."""

from typing import Any

from extender.sim.apiserver.field_errors import FieldError, FieldErrors, required, too_long, wrong
from extender.sim.apiserver.kinds import EVENTS, NAMESPACES, Json, ResourceKind
from extender.sim.apiserver.validation.names import (
    NameRule,
    dns_label,
    label_key,
    label_value,
    path_segment,
    subdomain,
)

_LARGEST_ANNOTATIONS = 256 * 1024
_OWNER_FIELDS = {"apiVersion": "version must not be empty"} | dict.fromkeys(
    ("kind", "name", "uid"), "must not be empty"
)


def metadata_errors(kind: ResourceKind, metadata: Json) -> FieldErrors:
    rule: NameRule = {NAMESPACES: dns_label, EVENTS: path_segment}.get(kind, subdomain)
    prefix, name = metadata.get("generateName") or "", metadata.get("name") or ""
    if prefix:
        yield from _wrongs("metadata.generateName", prefix, rule(_completed(prefix)))
    if name:
        yield from _wrongs("metadata.name", name, rule(name))
    else:
        yield required("metadata.name", "name or generateName is required")
    yield from labels_errors("metadata.labels", metadata.get("labels"))
    yield from _annotations(metadata.get("annotations") or {})
    for owner in metadata.get("ownerReferences") or ():
        yield from _owner(owner)
    for finalizer in metadata.get("finalizers") or ():
        yield from _wrongs("metadata.finalizers", finalizer, label_key(finalizer))


def _completed(prefix: str) -> str:
    """A dash at the end of a prefix is not the end of a name."""
    return f"{prefix[:-2]}a" if prefix.endswith("-") and len(prefix) > 1 else prefix


def labels_errors(field: str, labels: Json | None) -> FieldErrors:
    """Of labels, and of a selector that is written like them."""
    for key, value in (labels or {}).items():
        yield from _wrongs(field, key, label_key(key))
        yield from _wrongs(field, value, label_value(value))


def _annotations(annotations: Json) -> FieldErrors:
    for key in annotations:
        yield from _wrongs("metadata.annotations", key, label_key(key.lower()))
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _LARGEST_ANNOTATIONS:
        yield too_long("metadata.annotations", _LARGEST_ANNOTATIONS)


def _owner(owner: Json) -> FieldErrors:
    for field, message in _OWNER_FIELDS.items():
        if not owner.get(field):
            yield wrong(f"metadata.ownerReferences.{field}", "", message)


def _wrongs(field: str, value: Any, message: list[str]) -> list[FieldError]:
    return [wrong(field, value, each) for each in message]
