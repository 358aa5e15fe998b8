"""Managed fields: sets of paths in metadata.managedFields, one for each writer, operation and subresource.

A path is a tuple of steps in the notation of FieldsV1:

- f:NAME is a field.
- k:{"type":"Ready"} is the item with this key in a list.
- v:VALUE is an item of a set.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from extender.apimachinery.field_schemas import FieldSchema, schema_of
from extender.apimachinery.kinds import Json, ResourceKind
from extender.apimachinery.objects import now

Path = tuple[str, ...]
Paths = frozenset[Path]

_SELF_STEP = "."


def read_paths(fields: Json, at: Path = ()) -> Paths:
    """Return the paths below `at` in a FieldsV1 object. A field with subfields is a path if it has `.`."""
    paths = set[Path]()
    for step, subfields in fields.items():
        path = at if step == _SELF_STEP else (*at, step)
        paths |= read_paths(subfields, path) if subfields else {path}
    return frozenset(paths)


def as_fields(paths: Iterable[Path]) -> Json:
    """Return the FieldsV1 object of some paths."""
    fields: Json = {}
    known_paths = {*paths}
    for path in sorted(known_paths):
        below = fields
        for end, step in enumerate(path):
            if path[:end] in known_paths:  # the prefix is also a path of its own
                below.setdefault(_SELF_STEP, {})
            below = below.setdefault(step, {})
    return fields


def path_text(path: Path) -> str:
    """Return the text of a path for messages, such as `.status.conditions[type="Ready"].reason`."""
    text = ""
    for step in path:
        prefix, _, content = step.partition(":")
        if prefix == "f":
            text += f".{content}"
        elif prefix == "v":
            text += f"[={content}]"
        else:
            keys = (f"{key}={json.dumps(value)}" for key, value in json.loads(content).items())
            text += f"[{','.join(keys)}]"
    return text


def parts_of(value: Any, schema: FieldSchema) -> dict[str, tuple[Any, FieldSchema]]:
    """Return the parts of a value that may have different owners, by the step of the path to each part."""
    if isinstance(value, dict):
        return {f"f:{name}": (part, schema.field(name)) for name, part in value.items()}
    return {schema.key_of(item): (item, schema.items) for item in value}


def without_field(value: Any, path: Path, schema: FieldSchema) -> Any:
    """Return `value` without the field at `path`."""
    step, below = path[0], path[1:]
    remaining_parts = parts_of(value, schema)
    if step not in remaining_parts:
        return value
    inside, inner = remaining_parts[step]
    if not below:
        del remaining_parts[step]
    elif isinstance(inside, dict | list):
        remaining_parts[step] = without_field(inside, below, inner), inner
    return join_parts(value, {name: part for name, (part, _) in remaining_parts.items()})


def join_parts(like: Any, values: dict[str, Any]) -> Any:
    """Return an object or list made of `values`, its parts by step. The result has the type of `like`."""
    if isinstance(like, dict):
        return {step.removeprefix("f:"): value for step, value in values.items()}
    return list(values.values())


UNOWNED = frozenset(
    ("f:metadata", f"f:{name}")
    for name in (
        *("name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion", "selfLink"),
        *("managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"),
    )
) | {("f:apiVersion",), ("f:kind",), ("f:metadata",)}


class Difference(NamedTuple):
    set_paths: Paths  # fields that are new or have a new value
    removed_paths: Paths


def applied_paths(obj: Json, schema: FieldSchema) -> Paths:
    """Return the paths that the manager of an apply owns: all values, and the items of lists with keys."""
    return frozenset(_applied_paths(obj, schema, ())) - UNOWNED


def _applied_paths(value: Any, schema: FieldSchema, at: Path) -> Iterator[Path]:
    splits = schema.splits(value)
    inside = parts_of(value, schema) if splits else {}
    is_item = bool(at) and at[-1].startswith("k:")
    is_empty_list = splits and value == []  # a list has no path, only its items have
    if is_item or (not inside and not is_empty_list):
        yield at
    for step, (part, inner) in inside.items():
        yield from _applied_paths(part, inner, (*at, step))


def difference(before: Json, after: Json, schema: FieldSchema) -> Difference:
    """Return the paths at which two versions of an object differ."""
    set_paths, removed_paths = set[Path](), set[Path]()
    _compare(before, after, schema, (), set_paths, removed_paths)
    return Difference(frozenset(set_paths) - UNOWNED, frozenset(removed_paths) - UNOWNED)


def _compare(
    before: Any, after: Any, schema: FieldSchema, at: Path, set_: set[Path], removed: set[Path]
) -> None:
    """Add the paths of new or changed fields to `set_`, and the paths of removed fields to `removed`."""
    if before == after:
        return
    if type(before) is not type(after) or not (schema.splits(before) and schema.splits(after)):
        set_.update(_all_paths(after, schema, at))
        return
    old_parts, new_parts = parts_of(before, schema), parts_of(after, schema)
    removed.update((*at, step) for step in old_parts.keys() - new_parts.keys())
    for step, (part, inner) in new_parts.items():
        if step in old_parts:
            _compare(old_parts[step][0], part, inner, (*at, step), set_, removed)
        else:
            set_.update(_all_paths(part, inner, (*at, step)))


def _all_paths(value: Any, schema: FieldSchema, at: Path) -> Iterator[Path]:
    """Yield the path of a value and all paths below it. A list with parts has no path of its own."""
    inside = parts_of(value, schema) if schema.splits(value) else {}
    if not inside or isinstance(value, dict):
        yield at
    for step, (part, inner) in inside.items():
        yield from _all_paths(part, inner, (*at, step))


APPLY, UPDATE = "Apply", "Update"


class Manager(NamedTuple):
    """Manager of fields: a writer together with its operation."""

    name: str  # the `fieldManager`, or the client's name
    operation: str  # APPLY or UPDATE
    api_version: str
    subresource: str = ""


class Entry(NamedTuple):
    """Entry of metadata.managedFields: the fields that a manager owns."""

    manager: Manager
    time: str
    paths: Paths


def entries_of(obj: Json) -> dict[Manager, Entry]:
    """Return the entries of an object's metadata.managedFields, by manager."""
    entries = {}
    for item in obj["metadata"].get("managedFields") or ():
        name, operation = item.get("manager", ""), item.get("operation", UPDATE)
        manager = Manager(name, operation, item.get("apiVersion", ""), item.get("subresource", ""))
        entries[manager] = Entry(manager, item.get("time", ""), read_paths(item.get("fieldsV1") or {}))
    return entries


def with_entries(obj: Json, entries: Iterable[Entry]) -> Json:
    """Return `obj` with these entries. Entries without paths are left out."""
    items = []
    for (name, operation, api_version, subresource), time, paths in entries:
        if paths:
            item: Json = {"manager": name, "operation": operation, "apiVersion": api_version, "time": time}
            item |= {"fieldsType": "FieldsV1", "fieldsV1": as_fields(paths)}
            items.append(item | ({"subresource": subresource} if subresource else {}))
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata | ({"managedFields": items} if items else {})}


def with_managers(before: Json, after: Json, subresource: str) -> Json:
    """Return `after` with the existing entries, unless the writer has set or removed entries.

    A write through a subresource cannot remove entries.
    """
    managed_fields = None if subresource else after["metadata"].get("managedFields")
    if managed_fields in ([], [{}]):
        return with_entries(after, ())
    return after if managed_fields else with_entries(after, entries_of(before).values())


def with_changes_of(kind: ResourceKind, before: Json | None, after: Json, manager: Manager) -> Json:
    """Return `after` with managed fields in which the writer is the only owner of the fields that it set.

    An object that was created without managed fields never gets any.
    """
    schema = schema_of(kind)
    if before is None:
        is_applied = manager.operation == APPLY
        own_paths = applied_paths(after, schema) if is_applied else difference({}, after, schema).set_paths
        return with_entries(after, [Entry(manager, now(), own_paths)])
    entries = entries_of(after)
    if not entries:
        return after
    change = difference(before, after, schema)
    if not change.set_paths and not change.removed_paths:
        return after
    new_entries = without_changed_fields(entries, change, manager)
    if change.set_paths:
        own_paths = new_entries[manager].paths if manager in new_entries else frozenset()
        new_entries[manager] = Entry(manager, now(), own_paths | change.set_paths)
    return with_entries(after, new_entries.values())


def without_changed_fields(
    entries: dict[Manager, Entry], change: Difference, writer: Manager
) -> dict[Manager, Entry]:
    """Return the entries of all managers after a change of the object by `writer`.

    A removed field loses all its owners. A field that the writer has set loses all other owners.
    """

    def is_removed(path: Path) -> bool:
        return any(path[:end] in change.removed_paths for end in range(1, len(path) + 1))

    new_entries = {}
    for manager, entry in entries.items():
        lost_paths = {path for path in entry.paths if is_removed(path)} if change.removed_paths else set()
        if manager != writer:
            lost_paths |= entry.paths & change.set_paths
        new_entries[manager] = entry._replace(paths=entry.paths - lost_paths) if lost_paths else entry
    return new_entries
