"""Server-side apply: what a writer wants of an object, whole. What it wanted before and no longer does goes.

The rules are those of sigs.k8s.io/structured-merge-diff. Where two want different values of one field, the
second is refused, unless it insists.
"""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from extender.sim.apiserver.conditions import now
from extender.sim.apiserver.kinds import Json, ResourceKind
from extender.sim.apiserver.ownership.comparing import NOBODYS, claimed, difference
from extender.sim.apiserver.ownership.managers import (
    APPLY,
    Entry,
    Manager,
    entries_of,
    with_entries,
    without,
)
from extender.sim.apiserver.ownership.paths import Path, Paths, joined, parts, removed, shown
from extender.sim.apiserver.schemas.field_schemas import FieldSchema, schema_of
from extender.sim.apiserver.status_errors import StatusError


def applied(kind: ResourceKind, live: Json, wanted: Json, manager: Manager, force: bool) -> Json:
    """The object as it is then; with `force` fields are taken from others who own them.

    Raises StatusError 409 for those fields without it.
    """
    schema = schema_of(kind)
    entries = entries_of(live)
    merged = _merged(live, wanted, schema)
    change = difference(live, merged, schema)
    if not force:
        _refuse_conflicts(entries, change.set, manager)
    entries = without(entries, change, manager)
    claims = claimed(wanted, schema)
    before = entries.pop(manager, None)
    others = frozenset(path for entry in entries.values() for path in entry.paths)
    pruned = merged if before is None else _pruned(merged, before.paths, claims, others, schema)
    same = before is not None and before.paths == claims and pruned == live
    entries[manager] = Entry(manager, before.time if before and same else now(), claims)
    return with_entries(pruned, entries.values())


def _merged(live: Any, wanted: Any, schema: FieldSchema) -> Any:
    """What is wanted over what is there; lists whose items have keys are merged item by item."""
    if type(live) is not type(wanted) or not (schema.splits(live) and schema.splits(wanted)):
        return deepcopy(wanted)
    found = {step: value for step, (value, _) in parts(live, schema).items()}
    for step, (value, inner) in parts(wanted, schema).items():
        found[step] = _merged(found.get(step), value, inner)
    return joined(live, found)


def _pruned(obj: Json, before: Paths, claims: Paths, others: Paths, schema: FieldSchema) -> Json:
    """Without what was claimed and no longer is, as far as nobody else owns it or something in it."""
    owned = {path[:end] for path in others for end in range(1, len(path) + 1)}
    for path in sorted(_with_fields_above(before) - _with_fields_above(claims) - NOBODYS):
        if path not in owned:
            obj = removed(obj, path, schema)
    return obj


def _with_fields_above(paths: Iterable[Path]) -> set[Path]:
    """The paths, and the fields that they go through."""
    return {path[:end] for path in paths for end in range(1, len(path) + 1)}


# ---- conflicts


def _refuse_conflicts(entries: dict[Manager, Entry], changed: Paths, manager: Manager) -> None:
    lost = {entry: sorted(entry.paths & changed) for other, entry in entries.items() if other != manager}
    conflicts = [(entry, path) for entry, paths in lost.items() for path in paths]
    if not conflicts:
        return
    if len(conflicts) == 1:
        ((entry, path),) = conflicts
        message = f"1 conflict: conflict with {_named(entry)}: {shown(path)}"
    else:
        lines = []
        for entry, paths in lost.items():
            if paths:
                lines += [f"conflicts with {_named(entry)}:", *(f"- {shown(path)}" for path in paths)]
        message = f"{len(conflicts)} conflicts: " + "\n".join(lines)
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {_named(entry)}",
            "field": shown(path),
        }
        for entry, path in conflicts
    ]
    raise StatusError(409, "Conflict", f"Apply failed with {message}", {"causes": causes})


def _named(entry: Entry) -> str:
    name, operation, api_version, subresource = entry.manager
    manager = f'"{name}"' + (f' with subresource "{subresource}"' if subresource else "")
    if operation == APPLY:
        return manager
    return f"{manager} using {api_version}"
