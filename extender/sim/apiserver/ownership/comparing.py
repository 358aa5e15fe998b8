"""Which places a change touches, and which ones an applied object lays claim to."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from extender.sim.apiserver.kinds import Json
from extender.sim.apiserver.ownership.paths import Path, Paths, parts
from extender.sim.apiserver.schemas.field_schemas import FieldSchema

NOBODYS = frozenset(
    ("f:metadata", f"f:{name}")
    for name in (
        *("name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion", "selfLink"),
        *("managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"),
    )
) | {("f:apiVersion",), ("f:kind",), ("f:metadata",)}


class Difference(NamedTuple):
    """`set`: places that are new or have another value. `gone`: places that are no more."""

    set: Paths
    gone: Paths


def claimed(obj: Json, schema: FieldSchema) -> Paths:
    """What an applied object claims: every value in it, and each item of a list that has keys."""
    return frozenset(_claimed(obj, schema, ())) - NOBODYS


def _claimed(value: Any, schema: FieldSchema, at: Path) -> Iterator[Path]:
    splits = schema.splits(value)
    inside = parts(value, schema) if splits else {}
    is_item = bool(at) and at[-1].startswith("k:")
    if is_item or (not inside and not (splits and isinstance(value, list))):
        yield at
    for step, (part, inner) in inside.items():
        yield from _claimed(part, inner, (*at, step))


def difference(before: Json, after: Json, schema: FieldSchema) -> Difference:
    put, gone = set[Path](), set[Path]()
    _compare(before, after, schema, (), put, gone)
    return Difference(frozenset(put) - NOBODYS, frozenset(gone) - NOBODYS)


def _compare(before: Any, after: Any, schema: FieldSchema, at: Path, put: set[Path], gone: set[Path]) -> None:
    if before == after:
        return
    if type(before) is not type(after) or not (schema.splits(before) and schema.splits(after)):
        put.update(_everything(after, schema, at))
        return
    old, new = parts(before, schema), parts(after, schema)
    gone.update((*at, step) for step in old.keys() - new.keys())
    for step, (part, inner) in new.items():
        if step in old:
            _compare(old[step][0], part, inner, (*at, step), put, gone)
        else:
            put.update(_everything(part, inner, (*at, step)))


def _everything(value: Any, schema: FieldSchema, at: Path) -> Iterator[Path]:
    """A place and all below it, without lists that are no more than their items."""
    inside = parts(value, schema) if schema.splits(value) else {}
    if not inside or isinstance(value, dict):
        yield at
    for step, (part, inner) in inside.items():
        yield from _everything(part, inner, (*at, step))
