"""What a request for server-side apply wants: checked, and without what only the server writes."""

from typing import Any

from extender.sim.apiserver.field_errors import FieldError, forbidden_field, required, told, too_long
from extender.sim.apiserver.kinds import Json, ResourceKind
from extender.sim.apiserver.status_errors import StatusError, bad_request

LONGEST_MANAGER = 128
_SERVERS = (
    *("creationTimestamp", "generation", "selfLink", "managedFields"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)


def wanted_of(kind: ResourceKind, name: str, subresource: str, manager: str, body: Any) -> Json:
    """Raises StatusError for what is not an object of this name, or has no manager."""
    if errors := _wrong_manager(manager):
        raise _wrong_options(errors)
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
        raise bad_request("an applied configuration is an object")
    if (body.get("apiVersion"), body.get("kind")) != (kind.api_version, kind.name):
        _refuse_kind(kind, body)
    metadata = {**body.get("metadata", {})}
    if metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    if metadata.setdefault("name", name) != name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
        )
    metadata = {field: value for field, value in metadata.items() if field not in _SERVERS}
    return {**_through_this_door(kind, subresource, body), "metadata": metadata}


def refuse_force() -> None:
    """Raises StatusError: other forms of patches are always by force."""
    raise _wrong_options([forbidden_field("force", "may not be specified for non-apply patch")])


def _wrong_options(errors: list[FieldError]) -> StatusError:
    return StatusError(422, "Invalid", f'PatchOptions.meta.k8s.io "" is invalid: {told(errors)}')


def _wrong_manager(manager: str) -> list[FieldError]:
    if not manager:
        return [required("fieldManager", "is required for apply patch")]
    return [too_long("fieldManager", LONGEST_MANAGER)] if len(manager.encode()) > LONGEST_MANAGER else []


def _refuse_kind(kind: ResourceKind, body: Json) -> None:
    for field in ("kind", "apiVersion"):
        if not body.get(field):
            raise bad_request(
                f"Object '{field[0].upper()}{field[1:]}' is missing in the applied configuration"
            )
    if body["apiVersion"] != kind.api_version:
        versions = f"Specified patch version: {body['apiVersion']}, expected: {kind.api_version}"
        raise bad_request(f"Incorrect version specified in apply patch. {versions}")
    raise bad_request(f"the kind of the object ({body['kind']}) is not that of the URL ({kind.name})")


def _through_this_door(kind: ResourceKind, subresource: str, body: Json) -> Json:
    """Of an object that has a status of its own either that is written or all but that."""
    if subresource == "status":
        return {name: body[name] for name in ("apiVersion", "kind", "status") if name in body}
    return {name: value for name, value in body.items() if name != "status" or not kind.status}
