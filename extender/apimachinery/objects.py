"""Common parts of stored objects: conditions, the identity of an object, and preconditions of writes."""

import random
import string
import uuid
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec
import yaml

from extender.api.units import BadQuantity
from extender.apimachinery.errors import StatusError, bad_request, bad_value, conflict, invalid
from extender.apimachinery.kinds import Json, ResourceKind


def now(later: float = 0) -> str:
    """Return the timestamp of the current time, or of a time that is `later` seconds after it."""
    return (datetime.now(UTC) + timedelta(seconds=later)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(type_: str, status: str, reason: str, message: str = "") -> Json:
    required_fields = {"type": type_, "status": status, "reason": reason, "lastTransitionTime": now()}
    return {**required_fields, "message": message} if message else required_fields


def set_condition(status: Json, new: Json) -> bool:
    """Replace the condition of the same type; return False if the condition is unchanged."""
    conditions = status.get("conditions", [])
    old = next((stored for stored in conditions if stored["type"] == new["type"]), None)
    if old and all(old.get(name) == new.get(name) for name in ("status", "reason", "message")):
        return False
    status["conditions"] = [*(stored for stored in conditions if stored is not old), new]
    return True


def find_stored_condition(obj: Json, type_: str) -> Json:
    """Return the condition of a type from an object's status; empty if the status has none."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((stored for stored in conditions if stored.get("type") == type_), {})


T = TypeVar("T", bound=msgspec.Struct)
READ_ERRORS = (msgspec.ValidationError, BadQuantity)


def typed(obj: Json, kind: type[T]) -> T:
    """Return the object as a typed struct.

    Raises:
        ValidationError: The object does not have the fields of the struct.
    """
    return msgspec.json.decode(msgspec.json.encode(obj), type=kind)


class ObjectLoader(yaml.SafeLoader):
    """Loader of YAML that keeps timestamps as strings, as in JSON."""


ObjectLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def check_identity(kind: ResourceKind, before: Json, after: Json) -> None:
    """Refuse a write that is meant for another object or version, else complete its metadata.

    The fields that the server sets are copied from `before` to `after`.

    Raises:
        StatusError: The write is meant for another object or version.
    """
    old, new = before["metadata"], after["metadata"]
    if new.get("uid") not in (None, "", old["uid"]):
        raise invalid(kind, old["name"], [bad_value("metadata.uid", new["uid"], "field is immutable")])
    if new.get("name") not in (None, "", old["name"]):
        raise other_name(new["name"], old["name"])
    if new.get("namespace") not in (None, "", old.get("namespace")):
        raise other_namespace()
    if new.get("resourceVersion") not in (None, "", old["resourceVersion"]):
        reason = "the object has been modified; please apply your changes to the latest version and try again"
        raise conflict(kind, old["name"], reason)
    times = "creationTimestamp", "deletionTimestamp"
    for field in ("uid", "name", "namespace", "resourceVersion", *times, "generation"):
        new.pop(field, None)
        if field in old:
            new[field] = old[field]


def other_name(name: str, in_url: str) -> StatusError:
    return bad_request(f"the name of the object ({name}) does not match the name on the URL ({in_url})")


def other_namespace() -> StatusError:
    message = "the namespace of the provided object does not match the namespace sent on the request"
    return bad_request(message)


def identity_of(obj: Json) -> Json:
    """Return the fields by which a write names an object and its version."""
    meta = obj.get("metadata") or {}
    return {field: meta[field] for field in ("uid", "resourceVersion") if meta.get(field)}


def identify(kind: ResourceKind, namespace: str, obj: Json, rng: random.Random) -> None:
    """Set name, namespace, UID and creation time of a new object.

    Raises:
        StatusError: The object names another namespace than the request.
    """
    meta = obj["metadata"] = {**(obj.get("metadata") or {})}
    if not meta.get("name") and meta.get("generateName"):
        letters = rng.choices(string.ascii_lowercase + string.digits, k=5)
        meta["name"] = meta["generateName"] + "".join(letters)
    if not kind.namespaced:
        meta.pop("namespace", None)
    elif meta.setdefault("namespace", namespace or "default") != namespace and namespace:
        raise other_namespace()
    obj |= {"apiVersion": kind.api_version, "kind": kind.name}
    meta["uid"] = str(uuid.UUID(int=rng.getrandbits(128), version=4))
    meta["creationTimestamp"] = now()
    meta.pop("managedFields", None)
