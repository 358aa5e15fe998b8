"""Managed fields: sets of paths in metadata.managedFields, one per writer, operation and subresource.

A path is a tuple of steps in the notation of FieldsV1: f:NAME for a field, k:{"type":"Ready"} for the item of
a list that has this key, v:VALUE for an item of a set.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from extender.apimachinery.field_schemas import FieldSchema, schema_of
from extender.apimachinery.kinds import Json, ResourceKind
from extender.apimachinery.objects import now

Path = tuple[str, ...]
Paths = frozenset[Path]

_ITSELF = "."


def read(fields: Json, at: Path = ()) -> Paths:
    """Return the paths of a FieldsV1 object. A step with further steps is a member if it has a dot."""
    paths = set[Path]()
    for step, below in fields.items():
        here = at if step == _ITSELF else (*at, step)
        paths |= read(below, here) if below else {here}
    return frozenset(paths)


def written(paths: Iterable[Path]) -> Json:
    fields: Json = {}
    known = {*paths}
    for path in sorted(known):
        below = fields
        for end, step in enumerate(path):
            if path[:end] in known:  # this step has further steps below it
                below.setdefault(_ITSELF, {})
            below = below.setdefault(step, {})
    return fields


def shown(path: Path) -> str:
    """Return a path as messages name it, such as `.status.conditions[type="Ready"].reason`."""
    text = ""
    for step in path:
        sort, _, content = step.partition(":")
        if sort == "f":
            text += f".{content}"
        elif sort == "v":
            text += f"[={content}]"
        else:
            keys = (f"{key}={json.dumps(value)}" for key, value in json.loads(content).items())
            text += f"[{','.join(keys)}]"
    return text


def parts(value: Any, schema: FieldSchema) -> dict[str, tuple[Any, FieldSchema]]:
    """Return the parts of a value that may belong to different writers, by the step that leads to each."""
    if isinstance(value, dict):
        return {f"f:{name}": (part, schema.field(name)) for name, part in value.items()}
    return {schema.key_of(item): (item, schema.items) for item in value}


def removed(value: Any, path: Path, schema: FieldSchema) -> Any:
    """Return `value` without the field at `path`."""
    step, below = path[0], path[1:]
    retained = parts(value, schema)
    if step not in retained:
        return value
    inside, inner = retained[step]
    if not below:
        del retained[step]
    elif isinstance(inside, dict | list):
        retained[step] = removed(inside, below, inner), inner
    return joined(value, {name: found for name, (found, _) in retained.items()})


def joined(like: Any, found: dict[str, Any]) -> Any:
    """Return an object or a list, put together from its parts."""
    if isinstance(like, dict):
        return {step.removeprefix("f:"): value for step, value in found.items()}
    return list(found.values())


NOBODYS = frozenset(
    ("f:metadata", f"f:{name}")
    for name in (
        *("name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion", "selfLink"),
        *("managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"),
    )
) | {("f:apiVersion",), ("f:kind",), ("f:metadata",)}


class Difference(NamedTuple):
    set: Paths  # places that are new or have another value
    gone: Paths


def claimed(obj: Json, schema: FieldSchema) -> Paths:
    """Return the paths that an applied object claims: all values, and each item of a list with keys."""
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
    """Yield a place and everything below it, except lists, which are only the sum of their items."""
    inside = parts(value, schema) if schema.splits(value) else {}
    if not inside or isinstance(value, dict):
        yield at
    for step, (part, inner) in inside.items():
        yield from _everything(part, inner, (*at, step))


APPLY, UPDATE = "Apply", "Update"


class Manager(NamedTuple):
    """Manager of fields: the writer, and its operation."""

    name: str  # the `fieldManager`, or the client's name
    operation: str  # APPLY or UPDATE
    api_version: str
    subresource: str = ""


class Entry(NamedTuple):
    manager: Manager
    time: str
    paths: Paths


def entries_of(obj: Json) -> dict[Manager, Entry]:
    found = {}
    for item in obj["metadata"].get("managedFields") or ():
        name, operation = item.get("manager", ""), item.get("operation", UPDATE)
        manager = Manager(name, operation, item.get("apiVersion", ""), item.get("subresource", ""))
        found[manager] = Entry(manager, item.get("time", ""), read(item.get("fieldsV1") or {}))
    return found


def with_entries(obj: Json, entries: Iterable[Entry]) -> Json:
    """Return `obj` with these entries, except those that own no field any more."""
    items = []
    for (name, operation, api_version, subresource), time, paths in entries:
        if paths:
            item: Json = {"manager": name, "operation": operation, "apiVersion": api_version, "time": time}
            item |= {"fieldsType": "FieldsV1", "fieldsV1": written(paths)}
            items.append(item | ({"subresource": subresource} if subresource else {}))
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata | ({"managedFields": items} if items else {})}


def with_managers(before: Json, after: Json, subresource: str) -> Json:
    """Return `after` with the existing managers, unless the writer has set others or removed them.

    Managers cannot be removed through a subresource.
    """
    managed = None if subresource else after["metadata"].get("managedFields")
    if managed in ([], [{}]):
        return with_entries(after, ())
    return after if managed else with_entries(after, entries_of(before).values())


def with_changes_of(kind: ResourceKind, before: Json | None, after: Json, manager: Manager) -> Json:
    """Return `after`, with its changes owned by the writer alone.

    An object that was made without managed fields never gets any.
    """
    schema = schema_of(kind)
    if before is None:
        own = claimed(after, schema) if manager.operation == APPLY else difference({}, after, schema).set
        return with_entries(after, [Entry(manager, now(), own)])
    if not (entries := entries_of(after)):
        return after
    change = difference(before, after, schema)
    if not change.set and not change.gone:
        return after
    retained = without_changed(entries, change, manager)
    if change.set:
        own = retained[manager].paths if manager in retained else frozenset()
        retained[manager] = Entry(manager, now(), own | change.set)
    return with_entries(after, retained.values())


def without_changed(
    entries: dict[Manager, Entry], change: Difference, writer: Manager
) -> dict[Manager, Entry]:
    """Return the entries after a change: removed fields have no owner, set ones only the writer."""

    def gone(path: Path) -> bool:
        return any(path[:end] in change.gone for end in range(1, len(path) + 1))

    retained = {}
    for manager, entry in entries.items():
        lost = {path for path in entry.paths if gone(path)} if change.gone else set()
        if manager != writer:
            lost |= entry.paths & change.set
        retained[manager] = entry._replace(paths=entry.paths - lost) if lost else entry
    return retained
