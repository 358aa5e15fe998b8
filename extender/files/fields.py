"""Fields of the kinds, the forms of their values, and the faults of a document.

A mapping contains the allowed fields. A list with one form allows any number of values of this form. A `Leaf`
is a value without parts.

The fields come from the published schemas. This module adds rules: the form of names, that a pod has a
container, that amounts are not negative. The table of workloads says where workloads have templates and
counts. Status is not checked, because controllers write it, except for the capacity of nodes.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import yaml

from extender.api.units import BadQuantity, intended_name, name_hint, rounded_up
from extender.api.workloads.shape import POD, KindName, Offspring, Path
from extender.api.workloads.table import WORKLOADS
from extender.apimachinery.field_schemas import FieldSchema, schema_of
from extender.apimachinery.kinds import KIND_BY_NAME, NODES, PODS, REPLICA_SETS, UNSHIPPED_KINDS, ResourceKind
from extender.apimachinery.validation.metadata import dns_label, subdomain
from extender.files.reading import Document, where


class Leaf(NamedTuple):
    """Form of a value without parts."""

    allowed_values: str  # description of the allowed values, for messages
    is_allowed: Callable[[Any], bool]
    quoted_hint: Callable[[Any], str] = lambda _: ""  # hint at the text that the author probably meant


class Required(NamedTuple):
    """Required field that must not be empty. `reason` says why the field is required, for messages."""

    form: Any
    reason: str


Form = Leaf | Required | list[Any] | dict[str, Any]
OTHER_FIELDS = "*"  # as a name, it stands for all fields that are not listed


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_whole(value) and value >= 0


def _is_quantity(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    try:
        return rounded_up(str(value)) >= 0
    except BadQuantity:
        return False


def _all_values(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(test, value.values()))


def _quantities_hint(value: Any) -> str:
    """Return the fault of an invalid amount, or a hint at the intended name of a resource; else empty."""
    for name, amount in value.items() if isinstance(value, dict) else ():
        try:
            rounded_up(str(amount))
        except BadQuantity as fault:
            return str(fault)
        if hint := intended_name(str(name)):
            return hint
    return ""


def _quotes_hint(value: Any) -> str:
    """Return a hint if a number is written in quotes."""
    return "write it without quotes" if isinstance(value, str) and value.isdigit() else ""


def one_of(values: Iterable[str]) -> Leaf:
    """Return the form of a choice between texts. An empty text counts as absent, and is allowed if listed."""
    allowed = tuple(values)
    *others, last = filter(None, allowed)
    listed = f"{', '.join(others)} or {last}" if others else last
    return Leaf(listed, lambda value: value in allowed)


def _duration(pattern: str) -> Leaf:
    def is_duration(value: Any) -> bool:
        return isinstance(value, str) and re.search(pattern, value) is not None

    return Leaf("a duration such as 90s, 10m or 1h30m", is_duration)


def _factor(minimum: int, maximum: int) -> Leaf:
    """Return the form of a number that may have a fraction and is a text in the API."""

    def is_in_range(value: Any) -> bool:
        return _is_quantity(value) and minimum * 1000 <= rounded_up(str(value), 1000) <= maximum * 1000

    def quoted_hint(value: Any) -> str:
        return f'write it in quotes: "{value}"' if is_in_range(value) else ""

    def is_valid(value: Any) -> bool:
        return is_in_range(value) and not isinstance(value, float)

    return Leaf(f"a number from {minimum} to {maximum}", is_valid, quoted_hint)


ANY = Leaf("anything", lambda _: True)
TEXT = Leaf("a text; put numbers, true and false in quotes", _is_text)
WHOLE = Leaf("a whole number", _is_whole, _quotes_hint)
COUNT = Leaf("a whole number, 0 or more", _is_count, _quotes_hint)
BOOLEAN = Leaf("true or false", lambda value: isinstance(value, bool))
TEXTS = Leaf("texts by name; put numbers, true and false in quotes", _all_values(_is_text))
WHOLES = Leaf("whole numbers by name", _all_values(_is_whole))
COUNTS = Leaf("whole numbers by name, 0 or more", _all_values(_is_count))
QUANTITY = Leaf("a quantity, 0 or more, such as 500m or 1Gi", _is_quantity)
QUANTITIES = Leaf(
    "quantities by resource, 0 or more, such as {cpu: 500m, memory: 1Gi}",
    lambda value: _all_values(_is_quantity)(value) and not any(intended_name(str(name)) for name in value),
    _quantities_hint,
)
NAME = Leaf(
    "a name of at most 253 small letters, digits, - and ., that begins and ends with a letter or digit",
    lambda value: isinstance(value, str) and not subdomain(value),
)
PREFIX = Leaf("the beginning of such a name", lambda value: _is_text(value) and not subdomain(f"{value}x"))
NAMESPACE = Leaf(
    "a name of at most 63 small letters, digits and -, that begins and ends with a letter or digit",
    lambda value: isinstance(value, str) and not dns_label(value),
)


# ---- faults


def find_faults(document: Document, form: Form) -> Iterator[str]:
    """Yield the faults of a document."""
    yield from _value_faults(document.file, document.node, document.object, form, "")
    meta = document.object.get("metadata")
    if not isinstance(meta, dict) or not (meta.get("name") or meta.get("generateName")):
        yield f"{document.where()}: metadata.name: missing; every object has one"


def _value_faults(file: str, node: yaml.Node, value: Any, form: Form, path: str) -> Iterator[str]:
    """Yield the faults of a value and of all its parts. A null counts as absent."""
    if value is None:
        return
    if isinstance(form, Required):
        yield from _value_faults(file, node, value, form.form, path)
    elif isinstance(form, Leaf):
        if not form.is_allowed(value):
            quoted_hint = form.quoted_hint(value)
            allowed = f"must be {form.allowed_values}{f'; {quoted_hint}' if quoted_hint else ''}"
            yield f"{where(file, node)}: {path}: invalid value {_shorten(value)}: {allowed}"
    elif isinstance(form, dict):
        yield from _object_faults(file, node, value, form, path)
    elif isinstance(node, yaml.SequenceNode):
        for number, (item, part) in enumerate(zip(node.value, value, strict=True)):
            if part is None:
                yield f"{where(file, item)}: {path}[{number}]: empty; every item of a list has a value"
            yield from _value_faults(file, item, part, form[0], f"{path}[{number}]")
    else:
        yield f"{where(file, node)}: {path}: invalid value {_shorten(value)}: must be a list"


def _object_faults(file: str, node: yaml.Node, value: Any, form: dict[str, Form], path: str) -> Iterator[str]:
    """Yield the faults of an object: unknown, invalid and missing fields."""
    if not isinstance(node, yaml.MappingNode):
        yield f"{where(file, node)}: {path}: invalid value {_shorten(value)}: must be an object"
        return
    for key, part in node.value:
        name = key.value
        field_path, field_form = _below(path, name), form.get(name, form.get(OTHER_FIELDS))
        if field_form is None:
            yield f"{where(file, key)}: {field_path}: unknown field: {name_hint(name, sorted(form))}"
        else:
            yield from _value_faults(file, part, value.get(name), field_form, field_path)
    for name, part in form.items():
        if isinstance(part, Required) and not value.get(name):
            yield f"{where(file, node)}: {_below(path, name)}: missing; {part.reason}"


def _below(path: str, name: Any) -> str:
    return f"{path}.{name}" if path else str(name)


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ---- fields of the schemas


@cache
def fields_of(kind: ResourceKind) -> dict[str, Form]:
    """Return the forms of an object's fields, by name."""
    fields = _fields(schema_of(kind))
    if kind is NODES:
        names = schema_of(kind).field("status").published["properties"]
        fields["status"] = {**dict.fromkeys(names, ANY), "allocatable": QUANTITIES, "capacity": QUANTITIES}
    elif "status" in fields:
        fields["status"] = ANY
    return fields


def spec_of(kind: ResourceKind) -> dict[str, Form]:
    return _fields(schema_of(kind).field("spec"))


def metadata() -> dict[str, Form]:
    return _fields(schema_of(PODS).field("metadata"))


def _fields(schema: FieldSchema) -> dict[str, Form]:
    """Return the forms of the fields of a schema, by name."""
    fields = {name: _form(schema.field(name)) for name in schema.published["properties"]}
    if schema.keeps_unknown:
        fields[OTHER_FIELDS] = ANY
    match schema.type_name:  # rules that the published schemas lack
        case "ObjectMeta":
            fields |= {"name": NAME, "generateName": PREFIX, "namespace": NAMESPACE}
        case "PodSpec":
            fields["containers"] = Required(fields["containers"], "a pod has at least one container")
    return fields


def _form(schema: FieldSchema) -> Form:
    """Return the form of a value with this schema."""
    published = schema.published
    if schema.type_name in ("FieldsV1", "IntOrString", "MicroTime", "Time"):
        return ANY
    if schema.type_name == "Quantity":
        return QUANTITY
    if "enum" in published:
        return one_of(published["enum"])
    if "(ms|s|m|h)" in published.get("pattern", ""):
        return _duration(published["pattern"])
    if published.get("x-kubernetes-int-or-string") and "maximum" in published:
        return _factor(published["minimum"], published["maximum"])
    if "properties" in published:
        return _fields(schema)
    if "additionalProperties" in published:
        value = schema.field("")  # form of each value, whatever its name
        form = _form(value)
        if form is QUANTITY or value.published.get("x-kubernetes-int-or-string"):
            return QUANTITIES
        maps = {TEXT: TEXTS, WHOLE: WHOLES, COUNT: COUNTS}
        return maps.get(form, ANY) if isinstance(form, Leaf) else {OTHER_FIELDS: form}
    if published.get("type") == "array":
        return [_form(schema.items)]
    whole = COUNT if published.get("minimum") == 0 else WHOLE
    leaf: Leaf = {"string": TEXT, "integer": whole, "boolean": BOOLEAN}.get(published.get("type", ""), ANY)
    return leaf


# ---- fields of workloads

_PURPOSE = "the pods are made of it"


@cache
def form_of(name: KindName) -> dict[str, Any]:
    """Return the form of the objects of a kind: their fields, and the allowed values."""
    form: dict[str, Any]
    if name in KIND_BY_NAME and KIND_BY_NAME[name] not in UNSHIPPED_KINDS:
        form = {**fields_of(KIND_BY_NAME[name])}
    elif name == ("v1", "ReplicationController"):  # not served; like a ReplicaSet with another selector
        form = {**fields_of(REPLICA_SETS), "spec": {**spec_of(REPLICA_SETS), "selector": TEXTS}}
    else:  # a kind without a schema
        common_fields = {"apiVersion": TEXT, "kind": TEXT, "metadata": metadata()}
        form = {**common_fields, "spec": {OTHER_FIELDS: ANY}, "status": ANY}
    row = WORKLOADS[name]
    for offspring in row.offspring if row.runtime is None else ():
        _set_offspring_forms(form, offspring)
    for path in row.templates:
        _set_nested(form, path, Required(_template(), _PURPOSE))
    for path in row.counts:
        _set_nested(form, path, COUNT)
    choices: dict[Path, set[Any]] = {}  # allowed values of fields that select children
    for offspring in row.offspring:
        for path, values in offspring.when.items():
            choices.setdefault(path, set()).update({*values} - {None})
    for path, chosen in choices.items():
        _set_nested(form, path, one_of(sorted(chosen)))
    return {**form, "spec": Required(form["spec"], _PURPOSE)}


@cache
def _template() -> dict[str, Form]:
    """Return the form of a pod template."""
    return {"metadata": metadata(), "spec": Required(spec_of(PODS), _PURPOSE)}


def _set_offspring_forms(form: dict[str, Form], offspring: Offspring) -> None:
    """Set the forms of the templates and counts from which children are made."""
    part = form
    if offspring.parts:
        container: Form | None = form  # form of the list or mapping with the parts, if known
        for name in offspring.parts:
            container = container.get(name) if isinstance(container, dict) else None
        fields = {OTHER_FIELDS: container[0]} if isinstance(container, list) else container
        part_form = fields.get(OTHER_FIELDS) if isinstance(fields, dict) else None
        part = part_form if isinstance(part_form, dict) else {OTHER_FIELDS: ANY}
        _set_nested(form, offspring.parts, {OTHER_FIELDS: part} if offspring.roles else [part])
    count = offspring.count
    for path in filter(None, (count.path, count.at_least, count.at_most, count.times, offspring.first_path)):
        _set_nested(part, path, COUNT)
    for path, template in _templates(offspring):
        _set_nested(part, path, template)


def _templates(offspring: Offspring) -> list[tuple[Path, Form]]:
    """Return the path and form of each template from which the offspring is made."""
    if isinstance(offspring.spec, Mapping):
        path = offspring.spec.get("template")
        return [(path, Required(_template(), _PURPOSE))] if path else []
    if offspring.is_optional:
        part = {"metadata": metadata(), "spec": {**spec_of(PODS), "containers": [ANY]}}
        return [(offspring.template, part)]
    if offspring.kind == POD:
        return [(offspring.template, Required(_template(), _PURPOSE))]
    spec = form_of(offspring.kind)["spec"]
    if offspring.spec:
        return [(offspring.spec, spec)]
    return [(offspring.template, Required({"metadata": metadata(), "spec": spec}, _PURPOSE))]


def _set_nested(form: dict[str, Form], path: Path, leaf: Form) -> None:
    """Set the form `leaf` at a path in `form`.

    If `leaf` is required, the fields on the path become required, too. Forms on the path are copied before
    they change.
    """
    first, *rest = path
    if not rest:
        form[first] = leaf
        return
    current = form.get(first)
    fields = current.form if isinstance(current, Required) else current
    fields = {**fields} if isinstance(fields, dict) else {OTHER_FIELDS: ANY}
    is_required = isinstance(leaf, Required) or isinstance(current, Required)
    form[first] = Required(fields, _PURPOSE) if is_required else fields
    _set_nested(fields, tuple(rest), leaf)
