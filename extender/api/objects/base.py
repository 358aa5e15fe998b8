"""Common parts of all objects: metadata, owners, conditions, and patches."""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import msgspec

from extender.api.units import Quantity
from extender.api.workloads.shape import kind_prefix

Quantities = dict[str, Quantity]
Labels = dict[str, str]


class Wire(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Base of all objects: fields are camelCase in JSON, and fields with their default are left out."""


class OwnerReference(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None

    @property
    def display_name(self) -> str:
        """Return kind and name in lower case, such as `job/train`."""
        return f"{kind_prefix(self.api_version, self.kind)}/{self.name}"


class Meta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    owner_references: list[OwnerReference] | None = None


class Condition(Wire, frozen=True, omit_defaults=False):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Reference(Wire, frozen=True):
    """Object that an Event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


def condition(conditions: Iterable[Condition] | None, type_: str) -> Condition | None:
    """Return the condition of a type; None if there is none."""
    for found in conditions or ():  # a generator takes four times as long
        if found.type == type_:
            return found
    return None


def pointer(path: Iterable[str | int]) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join("/" + str(name).replace("~", "~0").replace("/", "~1") for name in path)


MAX_DEPTH = 100  # levels of nesting; the functions for unstructured fields are recursive


def refuse_deep(*values: object) -> None:
    """Raise ValueError if a decoded JSON value is nested deeper than `MAX_DEPTH` levels."""
    level: list[Any] = [value for value in values if type(value) is dict or type(value) is list]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for container in level:
            inner_values = container.values() if type(container) is dict else container
            below += [value for value in inner_values if type(value) is dict or type(value) is list]
        if not below:
            return
        level = below
    raise ValueError(f"nested deeper than {MAX_DEPTH} levels")


Operation = dict[str, Any]  # operation of a JSON patch (RFC 6902)


def addition(path: Iterable[str | int], value: object) -> Operation:
    """Return the JSON patch operation that adds a value, or replaces the value at the path."""
    return {"op": "add", "path": pointer(path), "value": value}


def merged(target: Any, patch: Any) -> Any:
    """Return a copy of `target` after a JSON merge patch (RFC 7386).

    Null removes a field, objects are merged, and any other value replaces the old value.
    """
    if not isinstance(patch, dict):
        return deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
