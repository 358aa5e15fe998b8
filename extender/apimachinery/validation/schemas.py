"""Schema validation: whether Go's decoder could read a body as its kind, and the rules of CRDs.

For kinds of CRDs, Go's decoder matters for the metadata only; the schema finds other errors. Two sorts of CEL
rules are implemented: rules about the form of quantities, and rules that compare the amounts of a queue. The
library jsonschema would save no lines, because each error needs Kubernetes' text.
"""

import re
from collections.abc import Iterator
from math import inf
from typing import Any

from extender.api.units import BadQuantity, rounded_up
from extender.api.workloads.shape import MAX_INT
from extender.apimachinery import errors
from extender.apimachinery.field_schemas import FieldSchema, schema_of
from extender.apimachinery.kinds import Json, ResourceKind

_QUANTITY_RE = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_SPECIAL_TYPES = ("IntOrString", "Quantity", "FieldsV1", "Time", "MicroTime")
_SCALARS = {"string": str, "boolean": bool, "integer": int, "number": float | int}


def read(kind: ResourceKind, body: Any, strict: bool = False) -> Json:
    """Return the object in `body` without its unknown fields; with `strict`, unknown fields are an error.

    Raises:
        StatusError: 400 if the body cannot be read.
    """
    if not isinstance(body, dict):
        reason = f"the object provided is unrecognized (must be of type {kind.name}): no object"
        raise errors.bad_request(reason)
    version, name = body.get("apiVersion") or kind.api_version, body.get("kind") or kind.name
    if version != kind.api_version:
        message = f"the API version in the data ({version}) does not match the expected API version"
        raise errors.bad_request(f"{message} ({kind.api_version})")
    if name != kind.name:
        reason = f"converting (v1.{name}) to (core.{kind.name}): unknown conversion"
        raise _cannot_handle(kind, reason, name)
    schema = schema_of(kind)
    if kind.custom:
        faults = _type_faults(body.get("metadata"), schema.field("metadata"), kind.name, "metadata")
    else:
        faults = _type_faults(body, schema, kind.name, "")
    if fault := next(faults, ""):
        raise _cannot_handle(kind, fault)
    unknown_paths: list[str] = []
    obj: Json = _prune(body, schema, "", unknown_paths)
    if strict and unknown_paths:
        fields_text = ", ".join(f'unknown field "{field}"' for field in unknown_paths)
        raise _cannot_handle(kind, f"strict decoding error: {fields_text}")
    return {**obj, "metadata": without_empty(obj.get("metadata") or {})}


def without_empty(metadata: Json) -> Json:
    """Return metadata without empty fields, as Go servers write it. Empty managedFields stay."""
    return {name: value for name, value in metadata.items() if value or name == "managedFields"}


def _cannot_handle(kind: ResourceKind, reason: str, name: str = "") -> errors.StatusError:
    message = f'{name or kind.name} in version "{kind.version}" cannot be handled as a {kind.name}'
    return errors.bad_request(f"{message}: {reason}")


def _type_faults(value: Any, schema: FieldSchema, owner: str, at: str) -> Iterator[str]:
    """Yield the errors of values with a wrong type.

    `owner` is the Go type that has the field, `at` the path of the field in that type, without indexes.
    """
    if value is None or schema.type_name in _SPECIAL_TYPES:
        if schema.type_name == "Quantity" and value is not None and not _QUANTITY_RE.fullmatch(str(value)):
            expression = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
            yield f"quantities must match the regular expression '{expression}'"
        return
    published = schema.published
    is_too_large = _exceeds_int32(value, published)
    if is_too_large or not _has_type(value, published.get("type")):
        go_names = {dict: "object", list: "array", str: "string", bool: "bool", int: "number"}
        has_number = is_too_large or isinstance(value, float)
        text = f"number {value}" if has_number else go_names.get(type(value), "value")
        yield f"json: cannot unmarshal {text} into Go struct field {owner}.{at} of type {go_type(schema)}"
    elif isinstance(value, dict):
        owner = schema.type_name or owner
        for name, part in value.items():
            is_map = "additionalProperties" in published
            inside = at if is_map else f"{at}.{name}".lstrip(".")
            yield from _type_faults(part, schema.field(name), owner, inside)
    elif isinstance(value, list):
        for item in value:
            yield from _type_faults(item, schema.items, owner, at)


def _exceeds_int32(value: Any, schema: Json) -> bool:
    return schema.get("format") == "int32" and isinstance(value, int) and not -MAX_INT - 1 <= value <= MAX_INT


def _has_type(value: Any, type_: str | None) -> bool:
    if type_ in ("object", "array"):
        return isinstance(value, dict if type_ == "object" else list)
    if type_ is None or isinstance(value, bool):
        return type_ in (None, "boolean")
    return isinstance(value, _SCALARS[type_])


def go_type(schema: FieldSchema) -> str:
    """Return the Go type of a field, such as int32, []v1.Container or map[string]string."""
    published = schema.published
    if schema.type_name:
        return f"v1.{schema.type_name}"
    if published.get("type") == "array":
        return f"[]{go_type(schema.items)}"
    if published.get("type") == "object":
        return f"map[string]{go_type(schema.field(''))}"
    plain = {"boolean": "bool", "number": "float64", "integer": "int64"}
    return str(published.get("format") or plain.get(published.get("type", ""), published.get("type", "")))


def _prune(value: Any, schema: FieldSchema, at: str, unknown: list[str]) -> Any:
    """Return a value without its unknown fields. Their paths are added to `unknown`."""
    if isinstance(value, list):
        return [_prune(item, schema.items, f"{at}[{index}]", unknown) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    known_fields = {}
    for name, part in value.items():
        inside = f"{at}.{name}".lstrip(".")
        if schema.has_field(name):
            known_fields[name] = _prune(part, schema.field(name), inside, unknown)
        else:
            unknown.append(inside)
    return known_fields


_NAME_BY_TYPE: dict[type, str] = {dict: "object", list: "array", type(None): "null"}
_NAME_BY_TYPE |= {str: "string", bool: "boolean", int: "integer", float: "number"}


def with_defaults(value: Any, schema: FieldSchema) -> Any:
    """Return `value` with the defaults of absent fields."""
    if isinstance(value, list):
        return [with_defaults(item, schema.items) for item in value]
    if not isinstance(value, dict):
        return value
    fields = schema.published.get("properties", {}).items()
    absent = {name: sub["default"] for name, sub in fields if "default" in sub and value.get(name) is None}
    return {name: with_defaults(part, schema.field(name)) for name, part in {**value, **absent}.items()}


def schema_errors(value: Any, schema: FieldSchema, at: str, in_rules: str = "") -> errors.FieldErrors:
    """Yield the errors of a value at a path.

    `in_rules` is the path of the value in errors of CEL rules, if that path differs.
    """
    published = schema.published
    if published.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield _type_error(at, value, "integer,string")
            return
    else:
        expected, actual = published.get("type"), _NAME_BY_TYPE.get(type(value))
        if expected not in (None, actual) and (expected, actual) != ("number", "integer"):
            yield _type_error(at, value, str(published.get("format") if actual == "number" else expected))
            return
    yield from _scalar_errors(value, published, at)
    yield from _quantity_errors(value, published, in_rules or at)
    if isinstance(value, dict):
        yield from _field_errors(value, schema, at)
    if isinstance(value, list):
        yield from _item_errors(value, schema, at)


def _field_errors(fields: Json, schema: FieldSchema, at: str) -> errors.FieldErrors:
    published = schema.published
    maximum = published.get("maxProperties", len(fields))
    if len(fields) > maximum:
        yield errors.too_many(at, len(fields), maximum)
    for name in published.get("required", ()):
        if name not in fields:
            yield errors.required(f"{at}.{name}")
    for name in sorted(fields):
        path_in_rules = f"{at}[{name}]" if "additionalProperties" in published else ""
        yield from schema_errors(fields[name], schema.field(name), f"{at}.{name}", path_in_rules)


def _item_errors(items: list[Any], schema: FieldSchema, at: str) -> errors.FieldErrors:
    maximum = schema.published.get("maxItems", len(items))
    if len(items) > maximum:
        yield errors.too_many(at, len(items), maximum)
    keys = set()
    for index, item in enumerate(items):
        yield from schema_errors(item, schema.items, f"{at}[{index}]")
        if schema.is_set or (schema.list_keys and isinstance(item, dict)):
            key = schema.key_of(item)
            if key in keys:
                duplicate = {name: item.get(name) for name in schema.list_keys} if schema.list_keys else item
                yield errors.duplicate(f"{at}[{index}]", duplicate)
            keys.add(key)


def _type_error(at: str, value: Any, expected_type: str) -> Any:
    actual = "float64" if isinstance(value, float) else _NAME_BY_TYPE[type(value)]
    detail = f'{at} in body must be of type {expected_type}: "{actual}"'
    return errors.bad_value(at, actual, detail, "FieldValueTypeInvalid")


def _scalar_errors(value: Any, published: Json, at: str) -> errors.FieldErrors:
    if isinstance(value, int | float) and not isinstance(value, bool):
        minimum, maximum = published.get("minimum", value), published.get("maximum", value)
        if _exceeds_int32(value, published):
            message = f"Checked value must be of type integer with format int32 in {at}"
            yield errors.bad_value("<nil>", "", message)
        if value < minimum:
            yield errors.bad_value(at, value, f"{at} in body should be greater than or equal to {minimum}")
        if value > maximum:
            yield errors.bad_value(at, value, f"{at} in body should be less than or equal to {maximum}")
    if isinstance(value, str):
        if len(value) > published.get("maxLength", len(value)):
            yield errors.too_long(at, published["maxLength"])
        minimum = published.get("minLength", 0)
        if len(value) < minimum:
            yield errors.bad_value(at, value, f"{at} in body should be at least {minimum} chars long")
        if "pattern" in published and not re.search(published["pattern"], value):
            yield errors.bad_value(at, value, f"{at} in body should match '{published['pattern']}'")
        if value not in published.get("enum", [value]):
            yield errors.not_supported(at, value, published["enum"])


def _quantity_errors(value: Any, schema: Json, at: str) -> errors.FieldErrors:
    for rule in schema.get("x-kubernetes-validations", ()):
        if "isQuantity(string(self))" not in rule["rule"]:
            continue
        minimum, maximum = schema["minimum"], schema.get("maximum", inf)
        try:
            is_valid = minimum * _NANO <= rounded_up(value, _NANO) <= maximum * _NANO
        except BadQuantity:
            is_valid = False
        if not is_valid:
            yield errors.bad_value(at, value, rule["message"])


_NANO = 10**9


def queue_errors(queue: Json, schema: FieldSchema) -> errors.FieldErrors:
    """Yield the errors of a queue's amounts with the messages of the CRD.

    The comparisons here have the order of the CRD's rules.
    """
    spec = queue.get("spec") or {}
    deserved, capability = spec.get("deserved") or {}, spec.get("capability") or {}
    guarantee = (spec.get("guarantee") or {}).get("resource") or {}
    compared_amounts = ((deserved, capability), (guarantee, capability), (guarantee, deserved))
    rules = schema.field("spec").published["x-kubernetes-validations"]
    for (lower, upper), rule in zip(compared_amounts, rules, strict=True):
        if any(name in upper and _exceeds(lower[name], upper[name]) for name in lower):
            yield errors.invalid_whole_value(f"spec{rule['fieldPath']}", rule["message"])


def _exceeds(one: Any, other: Any) -> bool:
    """Return whether `one` is more than `other`.

    Invalid quantities have another error, so they return False.
    """
    try:
        return rounded_up(one, _NANO) > rounded_up(other, _NANO)
    except BadQuantity:
        return False
