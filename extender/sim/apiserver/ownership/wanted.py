"""What a request for server-side apply wants: checked, and without what only the server writes."""

from collections.abc import Iterator
from typing import Any

from extender.sim.apiserver.kinds import Json, ResourceKind
from extender.sim.apiserver.ownership.paths import shown
from extender.sim.apiserver.schemas.field_schemas import FieldSchema, schema_of
from extender.sim.apiserver.status_errors import StatusError, bad_request

_SERVERS = (
    *("creationTimestamp", "generation", "selfLink", "managedFields"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)


def wanted_of(kind: ResourceKind, name: str, subresource: str, body: Any) -> Json:
    """Raises StatusError for what is not an object of this kind and name."""
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
        raise bad_request("an applied configuration is an object")
    version, name_of_kind = body.get("apiVersion", ""), body.get("kind", "")
    if (version, name_of_kind) != (kind.api_version, kind.name):
        shown = version if "/" in version else f"/{version}"
        raise bad_request(f"invalid object type: {shown}, Kind={name_of_kind}")
    metadata = {**body.get("metadata", {})}
    if metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    if metadata.setdefault("name", name) != name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
        )
    metadata = {field: value for field, value in metadata.items() if field not in _SERVERS}
    return {**_through_this_door(kind, subresource, body), "metadata": metadata}


def refuse_untyped(kind: ResourceKind, wanted: Json) -> None:
    """Raises StatusError for what cannot be merged, as the real server does: with 500."""
    meta = wanted["metadata"]
    for fault in _untyped(wanted, schema_of(kind), ""):
        group, _, version = kind.api_version.rpartition("/")
        where = f"{meta.get('namespace', '')}/{meta['name']}; {group}/{version}, Kind={kind.name}"
        raise StatusError(500, "", f"failed to create typed patch object ({where}): {fault}")


def _untyped(value: Any, schema: FieldSchema, at: str) -> Iterator[str]:
    wanted = {"array": list, "object": dict}.get(schema.published.get("type", ""))
    if wanted is not None and value is not None and not isinstance(value, wanted):
        yield f"{at}: expected {'list' if wanted is list else 'map'}, got &{{{value}}}"
    elif isinstance(value, dict):
        for name, each in value.items():
            if not schema.knows(name):
                yield f"{at}.{name}: field not declared in schema"
            yield from _untyped(each, schema.field(name), f"{at}.{name}")
    elif isinstance(value, list):
        yield from _untyped_items(value, schema, at)


def _untyped_items(items: list[Any], schema: FieldSchema, at: str) -> Iterator[str]:
    keys = set[str]()
    for item in items:
        yield from _untyped(item, schema.items, at)
        if schema.splits(items):
            if (key := schema.key_of(item)) in keys:
                yield f"{at}: duplicate entries for key {shown((key,))}"
            keys.add(key)


def _through_this_door(kind: ResourceKind, subresource: str, body: Json) -> Json:
    """Of an object that has a status of its own either that is written or all but that."""
    if subresource == "status":
        return {name: body[name] for name in ("apiVersion", "kind", "status") if name in body}
    return {name: value for name, value in body.items() if name != "status" or not kind.status}
