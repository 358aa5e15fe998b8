"""Which fields the kinds have: those of the schemas by which the embedded API server goes.

Here is what these do not say: the form of names, that a pod has a container, that amounts are not negative.
Status, which controllers write, is left as it is, but for the room of nodes.
"""

from functools import cache

from extender.sim.apiserver.kinds import NODES, PODS, ResourceKind
from extender.sim.apiserver.schemas.field_schemas import FieldSchema, schema_of
from extender.sim.files.forms import (
    ANY,
    COUNT,
    COUNTS,
    NAME,
    NAMESPACE,
    OTHERS,
    PREFIX,
    QUANTITIES,
    QUANTITY,
    TEXT,
    TEXTS,
    TRUTH,
    WHOLE,
    WHOLES,
    Form,
    Leaf,
    Needed,
    one_of,
)

_UNCHECKED = ("FieldsV1", "IntOrString", "MicroTime", "Time")
_LEAVES = {"string": TEXT, "integer": WHOLE, "boolean": TRUTH}
_MAPS: dict[Leaf, Leaf] = {TEXT: TEXTS, WHOLE: WHOLES, COUNT: COUNTS}


@cache
def fields_of(kind: ResourceKind) -> dict[str, Form]:
    """Those of an object, by name."""
    known = _fields(schema_of(kind))
    return {**known, "status": _status(kind)} if "status" in known else known


def spec_of(kind: ResourceKind) -> dict[str, Form]:
    return _fields(schema_of(kind).field("spec"))


def metadata() -> dict[str, Form]:
    return _fields(schema_of(PODS).field("metadata"))


def _status(kind: ResourceKind) -> Form:
    if kind is not NODES:
        return ANY
    names = schema_of(kind).field("status").published["properties"]
    return {**dict.fromkeys(names, ANY), "allocatable": QUANTITIES, "capacity": QUANTITIES}


# ---- from a schema


def _fields(schema: FieldSchema) -> dict[str, Form]:
    known = {name: _form(schema.field(name)) for name in schema.published["properties"]}
    if schema.keeps_unknown:
        known[OTHERS] = ANY
    return {**known, **_unsaid(schema.type_name, known)}


def _unsaid(type_name: str, known: dict[str, Form]) -> dict[str, Form]:
    """What the schema of this name does not say of its fields."""
    match type_name:
        case "ObjectMeta":
            return {"name": NAME, "generateName": PREFIX, "namespace": NAMESPACE}
        case "PodSpec":
            return {"containers": Needed(known["containers"], "a pod has at least one container")}
    return {}


def _form(schema: FieldSchema) -> Form:
    published = schema.published
    if schema.type_name in _UNCHECKED:
        return ANY
    if schema.type_name == "Quantity":
        return QUANTITY
    if "enum" in published:
        return one_of(published["enum"])
    if "properties" in published:
        return _fields(schema)
    if "additionalProperties" in published:
        return _map_of(schema.field(""))
    if published.get("type") == "array":
        return [_form(schema.items)]
    type_name: str = published.get("type", "")
    return COUNT if type_name == "integer" and published.get("minimum") == 0 else _LEAVES.get(type_name, ANY)


def _map_of(schema: FieldSchema) -> Form:
    """Of objects by any name, or of values that are told of together."""
    form = _form(schema)
    if form is QUANTITY or schema.published.get("x-kubernetes-int-or-string"):
        return QUANTITIES
    return _MAPS.get(form, ANY) if isinstance(form, Leaf) else {OTHERS: form}
