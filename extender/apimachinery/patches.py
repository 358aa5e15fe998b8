"""The forms of a patch: JSON patch, merge patch, strategic merge patch, and server-side apply.

Each patch returns a new object and does not change the old one. A strategic merge patch merges lists whose
items have a key. `_KEY_OF` has the lists that Muster, kubelets, schedulers and kubectl patch. An applied
configuration has all fields that its manager wants to own. If a field was in the manager's earlier
configuration and is not in the new one, the field is removed by the rules of
sigs.k8s.io/structured-merge-diff.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any

import jsonpatch
import jsonpointer

from extender.api.objects.base import merged
from extender.apimachinery import managed_fields as fields
from extender.apimachinery.errors import StatusError, bad_request, unsupported
from extender.apimachinery.field_schemas import FieldSchema, schema_of
from extender.apimachinery.kinds import Json, ResourceKind
from extender.apimachinery.managed_fields import APPLY, UNOWNED, Entry, Manager, Path, Paths, path_text
from extender.apimachinery.objects import now, other_name

Patch = Callable[[Json], Json]

_NAMED = ("containers", "initContainers", "ephemeralContainers", "schedulingGates", "volumes", "env")
_KEY_OF = {"conditions": "type", "addresses": "type", "volumeMounts": "mountPath", "ownerReferences": "uid"}
_KEY_OF |= dict.fromkeys(_NAMED, "name")
_DIRECTIVE = "$patch"


def patch_of(media_type: str, body: Any, allows_strategic: bool) -> Patch:
    """Return the function that patches an object.

    `allows_strategic` says whether the kind allows strategic merge patches.

    Raises:
        StatusError: The form of the patch is unknown or not allowed.
    """
    if media_type == "application/json-patch+json":
        if not isinstance(body, list):
            raise bad_request("error decoding patch: a JSON patch is a list of operations")
        return lambda target: apply_json_patch(target, body)
    if not isinstance(body, dict):
        raise bad_request("error decoding patch: a patch of this form is an object")
    if media_type == "application/merge-patch+json":
        return lambda target: merged(target, body)
    strategic = ("application/strategic-merge-patch+json",) if allows_strategic else ()
    if media_type in strategic:
        return lambda target: merge_strategically(target, body)
    media_types = "application/json-patch+json", "application/merge-patch+json", *strategic
    raise unsupported((*media_types, "application/apply-patch+yaml"))


def merge_strategically(target: Any, patch: Json) -> Json:
    """Return an object after a strategic merge patch.

    Of the directives, only replace and delete are supported.
    """
    if patch.get(_DIRECTIVE) == "replace":
        return {name: deepcopy(value) for name, value in patch.items() if name != _DIRECTIVE}
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif name.startswith("$"):  # other directives, such as $setElementOrder, are ignored
            continue
        elif isinstance(value, dict):
            result[name] = merge_strategically(result.get(name), value)
        elif isinstance(value, list) and name in _KEY_OF:
            result[name] = _merge_by_key(_KEY_OF[name], result.get(name) or [], value)
        else:
            result[name] = deepcopy(value)
    return result


def _merge_by_key(key: str, before: list[Json], patch: list[Json]) -> list[Json]:
    """Return a list after a strategic merge patch, which merges the items with equal keys."""
    if {_DIRECTIVE: "replace"} in patch:
        return [deepcopy(item) for item in patch if _DIRECTIVE not in item]
    items = {item.get(key): item for item in before}
    for item in patch:
        if item.get(_DIRECTIVE) == "delete":
            items.pop(item.get(key), None)
        else:
            items[item.get(key)] = merge_strategically(items.get(item.get(key)), item)
    return list(items.values())


def apply_json_patch(target: Json, operations: list[Json]) -> Json:
    """Return the object after a JSON patch.

    Raises:
        StatusError: 422 if the patch is invalid, or cannot be applied to the object.
    """
    try:
        patched_object: Json = jsonpatch.apply_patch(target, operations)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError) as fault:
        raise StatusError(422, "Invalid", f"the patch does not apply: {operations}: {fault}") from fault
    return patched_object


_TIME_FIELDS = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_SERVER_FIELDS = ("generation", "selfLink", "managedFields", *_TIME_FIELDS)
_STATUS_FIELDS = ("apiVersion", "kind", "metadata", "status")


def applied_object(kind: ResourceKind, name: str, subresource: str, body: Any) -> Json:
    """Return the fields of an applied configuration that a manager can own.

    Raises:
        StatusError: The body is no object of this kind and name.
    """
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
        raise bad_request("an applied configuration is an object")
    version, name_of_kind = body.get("apiVersion", ""), body.get("kind", "")
    if (version, name_of_kind) != (kind.api_version, kind.name):
        qualified_version = version if "/" in version else f"/{version}"
        raise bad_request(f"invalid object type: {qualified_version}, Kind={name_of_kind}")
    metadata = {**body.get("metadata", {})}
    if metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    if metadata.setdefault("name", name) != name:
        raise other_name(metadata["name"], name)
    metadata = {field: value for field, value in metadata.items() if field not in _SERVER_FIELDS}
    obj = {**body, "metadata": metadata}
    if subresource == "status":
        return {name: part for name, part in obj.items() if name in _STATUS_FIELDS}
    return {name: part for name, part in obj.items() if name != "status" or not kind.status}


def refuse_untyped(kind: ResourceKind, configuration: Json) -> None:
    """Refuse an applied configuration with fields of wrong types, which cannot be merged.

    Raises:
        StatusError: 500, as a real API server answers.
    """
    meta = configuration["metadata"]
    if fault := next(_type_errors(configuration, schema_of(kind), ""), ""):
        group, _, version = kind.api_version.rpartition("/")
        place = f"{meta.get('namespace', '')}/{meta['name']}; {group}/{version}, Kind={kind.name}"
        raise StatusError(500, "", f"failed to create typed patch object ({place}): {fault}")


def _type_errors(value: Any, schema: FieldSchema, at: str) -> Iterator[str]:
    """Yield errors of values with wrong types, of undeclared fields, and of duplicate items."""
    expected_type = {"array": list, "object": dict}.get(schema.published.get("type", ""))
    if expected_type is not None and value is not None and not isinstance(value, expected_type):
        yield f"{at}: expected {'list' if expected_type is list else 'map'}, got &{{{value}}}"
    elif isinstance(value, dict):
        for name, part in value.items():
            if not schema.has_field(name):
                yield f"{at}.{name}: field not declared in schema"
            yield from _type_errors(part, schema.field(name), f"{at}.{name}")
    elif isinstance(value, list):
        keys = set[str]()
        for item in value:
            yield from _type_errors(item, schema.items, at)
            if schema.splits(value):
                key = schema.key_of(item)
                if key in keys:
                    yield f"{at}: duplicate entries for key {path_text((key,))}"
                keys.add(key)


def apply(kind: ResourceKind, live: Json, configuration: Json, manager: Manager, force: bool) -> Json:
    """Return the object after an apply. With `force`, the manager becomes the owner of conflicting fields.

    Raises:
        StatusError: 409 if the apply changes fields of other managers, without `force`.
    """
    schema = schema_of(kind)
    entries = fields.entries_of(live)
    merged_object = _merge(live, configuration, schema)
    change = fields.difference(live, merged_object, schema)
    if not force:
        _refuse_conflicts(entries, change.set_paths, manager)
    entries = fields.without_changed_fields(entries, change, manager)
    claimed_paths = fields.applied_paths(configuration, schema)
    old_entry = entries.pop(manager, None)
    other_paths = frozenset(path for entry in entries.values() for path in entry.paths)
    pruned_object = merged_object
    if old_entry is not None:  # remove fields that no manager owns any more
        needed_paths = _with_fields_above(claimed_paths) | _with_fields_above(other_paths) | UNOWNED
        for path in sorted(_with_fields_above(old_entry.paths) - needed_paths):
            pruned_object = fields.without_field(pruned_object, path, schema)
    is_unchanged = old_entry is not None and old_entry.paths == claimed_paths and pruned_object == live
    entries[manager] = Entry(manager, old_entry.time if old_entry and is_unchanged else now(), claimed_paths)
    return fields.with_entries(pruned_object, entries.values())


def _merge(live: Any, desired: Any, schema: FieldSchema) -> Any:
    """Return the live value with the desired changes. Lists with keys are merged item by item."""
    if type(live) is not type(desired) or not (schema.splits(live) and schema.splits(desired)):
        return deepcopy(desired)
    values = {step: value for step, (value, _) in fields.parts_of(live, schema).items()}
    for step, (value, inner) in fields.parts_of(desired, schema).items():
        values[step] = _merge(values.get(step), value, inner)
    return fields.join_parts(live, values)


def _with_fields_above(paths: Iterable[Path]) -> set[Path]:
    """Return these paths and the paths of all fields that contain them."""
    return {path[:end] for path in paths for end in range(1, len(path) + 1)}


def _refuse_conflicts(entries: dict[Manager, Entry], changed_paths: Paths, manager: Manager) -> None:
    """Refuse an apply that changes fields of other managers.

    Raises:
        StatusError: 409 with a cause for each such field.
    """
    causes: list[Json] = []
    lines: list[str] = []
    for other, entry in entries.items():
        paths = sorted(entry.paths & changed_paths) if other != manager else []
        if paths:
            owner = _manager_text(entry)
            texts = [path_text(path) for path in paths]
            lines.append("\n- ".join([f"conflicts with {owner}:", *texts]))
            cause = {"reason": "FieldManagerConflict", "message": f"conflict with {owner}"}
            causes += [{**cause, "field": text} for text in texts]
    if not causes:
        return
    message = f"{len(causes)} conflicts: " + "\n".join(lines)
    if len(causes) == 1:
        message = f"1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    raise StatusError(409, "Conflict", f"Apply failed with {message}", {"causes": causes})


def _manager_text(entry: Entry) -> str:
    name, operation, api_version, subresource = entry.manager
    manager = f'"{name}"' + (f' with subresource "{subresource}"' if subresource else "")
    return manager if operation == APPLY else f"{manager} using {api_version}"
