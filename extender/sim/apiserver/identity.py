"""What makes a new object one of its own: its name, its namespace, its UID and the time of its creation."""

import random
import string
import uuid

from extender.sim.apiserver.conditions import now
from extender.sim.apiserver.kinds import Json, ResourceKind
from extender.sim.apiserver.same_object import other_namespace

_LETTERS = string.ascii_lowercase + string.digits


def identify(kind: ResourceKind, namespace: str, obj: Json, dice: random.Random) -> None:
    """Put them in, whatever the object says of UID, time and writers. Raises StatusError."""
    meta = obj["metadata"] = {**(obj.get("metadata") or {})}
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = meta["generateName"] + "".join(dice.choices(_LETTERS, k=5))
    _place(kind, namespace, meta)
    obj |= {"apiVersion": kind.api_version, "kind": kind.name}
    meta["uid"] = str(uuid.UUID(int=dice.getrandbits(128), version=4))
    meta["creationTimestamp"] = now()
    meta.pop("managedFields", None)


def _place(kind: ResourceKind, namespace: str, meta: Json) -> None:
    """Into the namespace of the request, or the one that it names itself."""
    if not kind.namespaced:
        meta.pop("namespace", None)
    elif meta.setdefault("namespace", namespace or "default") != namespace and namespace:
        raise other_namespace()
