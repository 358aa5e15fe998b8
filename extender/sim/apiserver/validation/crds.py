"""Objects of kinds that come from CRDs: defaults, and what their schemas do not allow.

Of the rules in CEL only those are played that say what a quantity is; the others are in queues.py.
"""

import re
from typing import Any

from extender.api.quantities import BadQuantity, at_least
from extender.sim.apiserver.field_errors import (
    FieldErrors,
    duplicate,
    not_supported,
    required,
    too_long,
    wrong,
    wrong_type,
)
from extender.sim.apiserver.kinds import Json
from extender.sim.apiserver.schemas.field_schemas import FieldSchema

_NAMES: dict[type, str] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def defaulted(value: Any, schema: FieldSchema) -> Any:
    """`value` with the defaults of fields that are not there."""
    if isinstance(value, list):
        return [defaulted(each, schema.items) for each in value]
    if not isinstance(value, dict):
        return value
    described: Json = schema.published.get("properties", {})
    absent = {
        name: each["default"]
        for name, each in described.items()
        if "default" in each and value.get(name) is None
    }
    return {name: defaulted(each, schema.field(name)) for name, each in {**value, **absent}.items()}


def schema_errors(value: Any, schema: FieldSchema, at: str) -> FieldErrors:
    """What the schema does not allow in a value, which is at this path."""
    published = schema.published
    if published.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield _of_type(at, value, "integer,string")
            return
    elif not _is(value, published):
        shown = published.get("format") if isinstance(value, float) else published["type"]
        yield _of_type(at, value, str(shown))
        return
    yield from _scalar_errors(value, published, at)
    if isinstance(value, dict):
        for name in published.get("required", ()):
            if name not in value:
                yield required(f"{at}.{name}")
        for name in sorted(value):
            yield from schema_errors(value[name], schema.field(name), f"{at}.{name}")
    if isinstance(value, list):
        yield from _item_errors(value, schema, at)


def _of_type(at: str, value: Any, wanted: str) -> Any:
    found = "float64" if isinstance(value, float) else _NAMES[type(value)]
    return wrong_type(at, found, f'{at} in body must be of type {wanted}: "{found}"')


def _is(value: Any, published: Json) -> bool:
    wanted = published.get("type")
    if wanted == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        return True
    return wanted is None or _NAMES.get(type(value)) == wanted


def _scalar_errors(value: Any, published: Json, at: str) -> FieldErrors:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < published.get("minimum", value):
            yield wrong(at, value, f"{at} in body should be greater than or equal to {published['minimum']}")
        if value > published.get("maximum", value):
            yield wrong(at, value, f"{at} in body should be less than or equal to {published['maximum']}")
    if isinstance(value, str):
        if len(value) > published.get("maxLength", len(value)):
            yield too_long(at, published["maxLength"])
        if len(value) < published.get("minLength", 0):
            least = published["minLength"]
            yield wrong(at, value, f"{at} in body should be at least {least} chars long")
        if "pattern" in published and not re.search(published["pattern"], value):
            yield wrong(at, value, f"{at} in body should match '{published['pattern']}'")
        if value not in published.get("enum", [value]):
            yield not_supported(at, value, published["enum"])
    yield from _quantity_errors(value, published, at)


def _quantity_errors(value: Any, published: Json, at: str) -> FieldErrors:
    for rule in published.get("x-kubernetes-validations", ()):
        if "isQuantity(string(self))" in rule["rule"] and not _is_quantity(value):
            above, _, name = at.rpartition(".")
            yield wrong(f"{above}[{name}]", value, rule["message"])


def _is_quantity(value: Any) -> bool:
    try:
        return at_least(value) >= 0
    except BadQuantity:
        return False


def _item_errors(items: list[Any], schema: FieldSchema, at: str) -> FieldErrors:
    keys = set()
    for place, item in enumerate(items):
        yield from schema_errors(item, schema.items, f"{at}[{place}]")
        if schema.is_set or (schema.list_keys and isinstance(item, dict)):
            key = schema.key_of(item)
            if key in keys:
                own = {name: item.get(name) for name in schema.list_keys} if schema.list_keys else item
                yield duplicate(f"{at}[{place}]", own)
            keys.add(key)
