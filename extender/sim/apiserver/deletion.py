"""Deletion: at once, or marked for those who have to agree."""

from extender.sim.apiserver.admission import grace
from extender.sim.apiserver.conditions import now
from extender.sim.apiserver.kinds import KINDS, NAMESPACES, PODS, Json, ResourceKind
from extender.sim.apiserver.status_errors import conflict
from extender.sim.apiserver.store import Store, key_of


def delete(store: Store, kind: ResourceKind, obj: Json, options: Json) -> Json:
    """The object as it is then, or was last. `options`: the API's DeleteOptions. Raises StatusError."""
    _check(kind, obj, options.get("preconditions") or {})
    if options.get("dryRun"):
        return obj
    if options.get("propagationPolicy") == "Orphan":
        _release(store, obj["metadata"])
    if kind is NAMESPACES:
        _empty(store, obj["metadata"]["name"])
    return _end(store, kind, obj, grace(kind, obj, options.get("gracePeriodSeconds")))


def _end(store: Store, kind: ResourceKind, obj: Json, seconds: int) -> Json:
    """Remove an object, or mark it for those who have to agree: its finalizers, its kubelet."""
    at_once = seconds == 0 and not obj["metadata"].get("finalizers")
    if not at_once or kind is PODS:  # a pod is marked even if it goes the next moment
        obj = _marked(store, kind, obj, seconds)
    return store.remove(kind, key_of(obj)) if at_once else obj


def _marked(store: Store, kind: ResourceKind, obj: Json, seconds: int) -> Json:
    """A deletion may shorten the grace of an earlier one, never lengthen it."""
    meta = obj["metadata"]
    if meta.get("deletionGracePeriodSeconds", seconds + 1) <= seconds:
        return obj
    marks = {"deletionTimestamp": now(seconds), "deletionGracePeriodSeconds": seconds}
    return store.put(kind, {**obj, "metadata": {**meta, **marks}})


def _check(kind: ResourceKind, obj: Json, wanted: Json) -> None:
    for field in ("uid", "resourceVersion"):
        found = obj["metadata"][field]
        if wanted.get(field) not in (None, found):
            what = {"uid": "UID", "resourceVersion": "ResourceVersion"}[field]
            message = f"the {what} in the precondition ({wanted[field]}) does not match the {what} in record"
            why = f"{message} ({found}). The object might have been deleted and then recreated"
            raise conflict(kind, obj["metadata"]["name"], why)


def _release(store: Store, owner: Json) -> None:
    """What it owns is its own no more, and stays."""
    for kind in KINDS:
        for obj in store.all(kind, owner.get("namespace", "")) if kind.namespaced else ():
            owners = obj["metadata"].get("ownerReferences") or []
            kept = [each for each in owners if each.get("uid") != owner["uid"]]
            if kept != owners:
                store.put(kind, {**obj, "metadata": {**obj["metadata"], "ownerReferences": kept}})


def _empty(store: Store, namespace: str) -> None:
    """A namespace ends with all that is in it; no kubelet is asked."""
    for kind in KINDS:
        for obj in store.all(kind, namespace) if kind.namespaced else ():
            store.remove(kind, key_of(obj))
