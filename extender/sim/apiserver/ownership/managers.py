"""The entries of metadata.managedFields: one for each writer, way of writing and subresource."""

from collections.abc import Iterable
from typing import NamedTuple

from extender.sim.apiserver.conditions import now
from extender.sim.apiserver.kinds import Json, ResourceKind
from extender.sim.apiserver.ownership.comparing import Difference, claimed, difference
from extender.sim.apiserver.ownership.paths import Path, Paths, read, written
from extender.sim.apiserver.schemas.field_schemas import schema_of

APPLY, UPDATE = "Apply", "Update"


class Manager(NamedTuple):
    """Who writes, and how. The name is what `fieldManager` says, or the client's own.

    `operation`: APPLY or UPDATE. `subresource`: empty for the object itself.
    """

    name: str
    operation: str
    api_version: str
    subresource: str = ""


class Entry(NamedTuple):
    manager: Manager
    time: str
    paths: Paths


def entries_of(obj: Json) -> dict[Manager, Entry]:
    return {entry.manager: entry for entry in map(_entry, obj["metadata"].get("managedFields") or ())}


def _entry(item: Json) -> Entry:
    manager = Manager(
        item.get("manager", ""),
        item.get("operation", UPDATE),
        item.get("apiVersion", ""),
        item.get("subresource", ""),
    )
    return Entry(manager, item.get("time", ""), read(item.get("fieldsV1") or {}))


def with_entries(obj: Json, entries: Iterable[Entry]) -> Json:
    """`obj` with these entries; whoever owns nothing any more is left out."""
    items = [_as_item(entry) for entry in entries if entry.paths]
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata | ({"managedFields": items} if items else {})}


def _as_item(entry: Entry) -> Json:
    name, operation, api_version, subresource = entry.manager
    return {
        "manager": name,
        "operation": operation,
        "apiVersion": api_version,
        "time": entry.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": written(entry.paths),
        **({"subresource": subresource} if subresource else {}),
    }


def kept_account(before: Json, after: Json, subresource: str) -> Json:
    """`after` with the account that was there, unless the writer has set another or wiped it out.

    Through a subresource nobody can.
    """
    managed = after["metadata"].get("managedFields")
    if managed in ([], [{}]) and not subresource:
        return with_entries(after, ())
    if managed and not subresource:
        return after
    return with_entries(after, entries_of(before).values())


def noted(kind: ResourceKind, before: Json | None, after: Json, manager: Manager) -> Json:
    """`after`, with what is new or changed in it as the writer's own and nobody else's.

    An object that nobody kept account of when it was made is not accounted for later either.
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
    kept = without(entries, change, manager)
    if change.set:
        own = kept[manager].paths if manager in kept else frozenset()
        kept[manager] = Entry(manager, now(), own | change.set)
    return with_entries(after, kept.values())


def without(entries: dict[Manager, Entry], change: Difference, writer: Manager) -> dict[Manager, Entry]:
    """The entries after a change: what is gone is nobody's, what was set is not the others'."""

    def gone(path: Path) -> bool:
        return any(path[:end] in change.gone for end in range(1, len(path) + 1))

    kept = {}
    for manager, entry in entries.items():
        lost = {path for path in entry.paths if gone(path)} if change.gone else set()
        if manager != writer:
            lost |= entry.paths & change.set
        kept[manager] = entry._replace(paths=entry.paths - lost) if lost else entry
    return kept
