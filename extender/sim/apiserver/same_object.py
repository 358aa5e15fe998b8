"""Whether a write means the object that is there: this one and no other, and not an older version of it."""

from extender.sim.apiserver.field_errors import wrong
from extender.sim.apiserver.kinds import Json, ResourceKind
from extender.sim.apiserver.status_errors import StatusError, bad_request, conflict, invalid

_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
_SERVERS = ("resourceVersion", "creationTimestamp", "deletionTimestamp", "generation")


def refuse_another(kind: ResourceKind, before: Json, after: Json) -> None:
    """Raises StatusError for another object or version; keeps in `after` what only the server writes."""
    old, new = before["metadata"], after["metadata"]
    for field in ("uid", "name", "namespace"):
        if new.get(field) != old.get(field):
            if new.get(field):
                raise _another(kind, field, old, new)
            new |= {field: old[field]} if field in old else {}
    if new.get("resourceVersion") not in (None, "", old["resourceVersion"]):
        raise conflict(kind, old["name"], _MODIFIED)
    for field in _SERVERS:
        new.pop(field, None)
        new |= {field: old[field]} if field in old else {}


def _another(kind: ResourceKind, field: str, old: Json, new: Json) -> StatusError:
    if field == "name":
        message = f"the name of the object ({new['name']}) does not match the name on the URL ({old['name']})"
        return bad_request(message)
    if field == "namespace":
        return other_namespace()
    return invalid(kind, old["name"], [wrong(f"metadata.{field}", new[field], "field is immutable")])


def other_namespace() -> StatusError:
    message = "the namespace of the provided object does not match the namespace sent on the request"
    return bad_request(message)


def named_by(obj: Json) -> Json:
    """What a writer of status may say about whom it means."""
    meta = obj.get("metadata") or {}
    return {field: meta[field] for field in ("uid", "resourceVersion") if meta.get(field)}
