"""Whether a body can be read as an object of its kind at all, as Go's decoder reads it; and what it drops.

Of kinds that come from CRDs only the metadata is read so: what else is wrong their schema says (crds.py).
"""

import re
from collections.abc import Iterator
from typing import Any

from extender.sim.apiserver.kinds import Json, ResourceKind
from extender.sim.apiserver.schemas.field_schemas import FieldSchema, schema_of
from extender.sim.apiserver.status_errors import StatusError, bad_request

_QUANTITY = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_QUANTITY_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_GO_NAMES = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}
_OWN_FORM = ("IntOrString", "Quantity", "FieldsV1", "Time", "MicroTime")
_SCALARS = {"string": str, "boolean": bool, "integer": int, "number": float | int}


def read(kind: ResourceKind, body: Any, strict: bool = False) -> Json:
    """The object that `body` is, without fields that its kind does not have; `strict` refuses those.

    Raises StatusError 400.
    """
    if not isinstance(body, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind.name}): no object")
    _check_kind(kind, body)
    schema = schema_of(kind)
    if kind.custom:
        metadata = body.get("metadata")
        _raise_unreadable(kind, _unreadable(metadata, schema.field("metadata"), kind.name, "metadata"))
    else:
        _raise_unreadable(kind, _unreadable(body, schema, kind.name, ""))
    unknown: list[str] = []
    found: Json = _known(body, schema, "", unknown)
    if strict and unknown:
        listed = ", ".join(f'unknown field "{field}"' for field in unknown)
        raise _cannot_handle(kind, f"strict decoding error: {listed}")
    return {**found, "metadata": filled(found.get("metadata") or {})}


def filled(metadata: Json) -> Json:
    """Without what is empty, as every server of Go writes it; empty managedFields mean something."""
    return {name: value for name, value in metadata.items() if value or name == "managedFields"}


def _check_kind(kind: ResourceKind, body: Json) -> None:
    version, name = body.get("apiVersion") or kind.api_version, body.get("kind") or kind.name
    if version != kind.api_version:
        message = f"the API version in the data ({version}) does not match the expected API version"
        raise bad_request(f"{message} ({kind.api_version})")
    if name != kind.name:
        message = f'{name} in version "{kind.version}" cannot be handled as a {kind.name}'
        raise bad_request(f"{message}: converting (v1.{name}) to (core.{kind.name}): unknown conversion")


def _raise_unreadable(kind: ResourceKind, faults: Iterator[str]) -> None:
    if fault := next(faults, ""):
        raise _cannot_handle(kind, fault)


def _cannot_handle(kind: ResourceKind, why: str) -> StatusError:
    return bad_request(f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: {why}')


# ---- what Go cannot read


def _unreadable(value: Any, schema: FieldSchema, owner: str, at: str) -> Iterator[str]:
    """`owner`: the Go type that has the field. `at`: the field's path in it, without indexes."""
    if value is None or schema.type_name in _OWN_FORM:
        if schema.type_name == "Quantity" and value is not None and not _QUANTITY.fullmatch(str(value)):
            yield _QUANTITY_RULE
        return
    wanted = schema.published.get("type")
    if not _fits(value, wanted):
        shown = f"number {value}" if isinstance(value, float) else _GO_NAMES.get(type(value), "value")
        yield f"json: cannot unmarshal {shown} into Go struct field {owner}.{at} of type {go_type(schema)}"
    elif isinstance(value, dict):
        owner = schema.type_name or owner
        for name, each in value.items():
            mapped = "additionalProperties" in schema.published
            inside = at if mapped else f"{at}.{name}".lstrip(".")
            yield from _unreadable(each, schema.field(name), owner, inside)
    elif isinstance(value, list):
        for each in value:
            yield from _unreadable(each, schema.items, owner, at)


def _fits(value: Any, wanted: str | None) -> bool:
    if wanted in ("object", "array"):
        return isinstance(value, dict if wanted == "object" else list)
    if wanted is None or isinstance(value, bool):
        return wanted in (None, "boolean")
    return isinstance(value, _SCALARS[wanted])


def go_type(schema: FieldSchema) -> str:
    """As Go names the type of a field: int32, []v1.Container, map[string]string."""
    published = schema.published
    if schema.type_name:
        return f"v1.{schema.type_name}"
    if published.get("type") == "array":
        return f"[]{go_type(schema.items)}"
    if published.get("type") == "object":
        return f"map[string]{go_type(schema.field(''))}"
    plain = {"boolean": "bool", "number": "float64", "integer": "int64"}
    return str(published.get("format") or plain.get(published.get("type", ""), published.get("type", "")))


# ---- what no schema knows


def _known(value: Any, schema: FieldSchema, at: str, unknown: list[str]) -> Any:
    """Without fields that the schema does not have; their paths go to `unknown`."""
    if isinstance(value, list):
        return [_known(each, schema.items, f"{at}[{place}]", unknown) for place, each in enumerate(value)]
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, each in value.items():
        inside = f"{at}.{name}".lstrip(".")
        if schema.knows(name):
            kept[name] = _known(each, schema.field(name), inside, unknown)
        else:
            unknown.append(inside)
    return kept
