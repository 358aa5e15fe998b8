"""Verbs of the API: create, read, change, delete, bind, evict, and record Events.

The simulated kubelets and the scheduler call the verbs, too. Each verb is one atomic step on the store. All
verbs except `record` raise StatusError.
"""

import random
import zlib
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, NamedTuple

from extender.api.objects.pods import Pod
from extender.apimachinery.admission import FIRST_OBJECTS, grace_of, prepare_for_create, prepare_for_update
from extender.apimachinery.errors import StatusError, already_exists, conflict, forbidden, not_found
from extender.apimachinery.kinds import (
    EVENTS,
    EXPANDED_KINDS,
    KINDS,
    NAMESPACES,
    PODS,
    RESOURCE_QUOTAS,
    Json,
    ResourceKind,
)
from extender.apimachinery.managed_fields import APPLY, Manager, with_changes_of, with_managers
from extender.apimachinery.objects import (
    check_identity,
    condition,
    identify,
    identity_of,
    now,
    set_condition,
    typed,
)
from extender.apimachinery.patches import Patch, apply, refuse_untyped
from extender.apimachinery.quotas import admit, with_usage
from extender.apimachinery.store import Store, key_of
from extender.apimachinery.validation.schemas import read, without_empty


class WriteOptions(NamedTuple):
    """Options of a write.

    `manager` becomes the owner of the changed fields. None means that fields are neither tracked nor checked,
    as for writes of the simulated kubelets and the scheduler.
    """

    manager: Manager | None = None
    is_dry_run: bool = False
    is_strict: bool = False  # whether unknown fields are refused; else they are dropped


_INTERNAL_WRITE = WriteOptions()


class Service:
    """Verbs on one store. `gating` says whether pods of Muster's scheduler get a scheduling gate."""

    def __init__(self, store: Store, rng: random.Random | None = None, adds_gates: bool = True) -> None:
        self.store = store
        self._rng = rng or random.Random()
        self._adds_gates = adds_gates
        for kind, obj in FIRST_OBJECTS:
            self.create(kind, "", obj)

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Json:
        obj = self.store.get(kind, namespace, name)
        if obj is None:
            raise not_found(kind, name)
        return obj

    def create(
        self, kind: ResourceKind, namespace: str, body: Json, options: WriteOptions = _INTERNAL_WRITE
    ) -> Json:
        if kind in EXPANDED_KINDS and options.manager is not None:
            message = "no controller makes its pods here; give muster run the file (-f)"
            raise forbidden(kind, body["metadata"].get("name", ""), message)
        obj = deepcopy(read(kind, body, options.is_strict))
        with self.store:
            identify(kind, namespace, obj, self._rng)
            if kind.namespaced:
                self.get(NAMESPACES, "", obj["metadata"]["namespace"])
            if options.manager is not None:
                obj = with_changes_of(kind, None, obj, options.manager)
            prepare_for_create(kind, obj, self.store, self._adds_gates)
            meta = obj["metadata"]
            if self.store.get(kind, meta.get("namespace", ""), meta["name"]):
                raise already_exists(kind, meta["name"])
            if kind is PODS:
                admit(self.store, obj, options.is_dry_run)
            elif kind is RESOURCE_QUOTAS:
                obj = with_usage(obj, (typed(pod, Pod) for pod in self.store.all(PODS, meta["namespace"])))
            return obj if options.is_dry_run else self.store.put(kind, obj)

    def amend(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        change: Patch,
        subresource: str = "",
        options: WriteOptions = _INTERNAL_WRITE,
    ) -> Json:
        """Replace an object by the result of `change`. If the result is equal, nothing is stored."""
        manager = options.manager
        with self.store:
            before = self.get(kind, namespace, name)
            desired_object = change(before)
            if manager is not None:
                desired_object = read(kind, desired_object, options.is_strict)
            after = _merged_parts(kind, before, desired_object, subresource)
            check_identity(kind, before, after)
            if manager is not None and manager.operation != APPLY:  # `apply` has tracked its fields already
                after = with_changes_of(kind, before, with_managers(before, after, subresource), manager)
            if after == before:
                return before
            after = prepare_for_update(kind, before, after, is_checked=manager is not None)
            if options.is_dry_run:
                return after
            meta = after["metadata"]
            if "deletionTimestamp" in meta and not meta.get("finalizers") and kind is not PODS:
                return self.store.remove(kind, key_of(before))
            return self.store.put(kind, after)

    def set_status(self, kind: ResourceKind, meta: Json, new_status: Patch) -> None:
        """Write the status that `new_status` returns for an object, if the object still exists."""

        def change(obj: Json) -> Json:
            return {**obj, "metadata": {"uid": meta["uid"]}, "status": new_status(obj)}

        self.amend(kind, meta["namespace"], meta["name"], change, "status")

    def apply(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        configuration: Json,
        options: WriteOptions,
        force: bool = False,
    ) -> tuple[Json, bool]:
        """Apply a manager's configuration. Return the object, and whether the apply created it."""
        manager = options.manager
        assert manager is not None, "only managers apply"
        refuse_untyped(kind, configuration)
        configuration = {**configuration, "metadata": without_empty(configuration["metadata"])}
        with self.store:
            if self.store.get(kind, namespace, name) is None:
                if manager.subresource:
                    raise not_found(kind, name)
                if uid := configuration["metadata"].get("uid"):
                    message = f"uid mismatch: the provided object specified uid {uid}"
                    raise conflict(kind, name, f"{message}, and no existing object was found")
                return self.create(kind, namespace, configuration, options), True

            def change(before: Json) -> Json:
                return apply(kind, before, configuration, manager, force)

            return self.amend(kind, namespace, name, change, manager.subresource, options), False

    def delete(self, kind: ResourceKind, namespace: str, name: str, options: Json) -> Json:
        """Remove an object, or only set its deletion timestamp; return the object's last state.

        An object with finalizers, or an active pod on a node, first gets a deletion timestamp, and is removed
        later. `options` are the API's DeleteOptions.
        """
        with self.store as store:
            obj = self.get(kind, namespace, name)
            meta, preconditions = obj["metadata"], options.get("preconditions") or {}
            for field, title in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
                if preconditions.get(field) not in (None, meta[field]):
                    message = (
                        f"the {title} in the precondition ({preconditions[field]}) does not match the {title}"
                        f" in record ({meta[field]}). The object might have been deleted and then recreated"
                    )
                    raise conflict(kind, meta["name"], message)
            if options.get("dryRun"):
                return obj
            if options.get("propagationPolicy") == "Orphan":
                _orphan_dependents(store, meta)
            if kind is NAMESPACES:  # all objects of the namespace are removed at once
                for inner_kind in (kind for kind in KINDS if kind.namespaced):
                    for inner_object in store.all(inner_kind, meta["name"]):
                        store.remove(inner_kind, key_of(inner_object))
            seconds = grace_of(kind, obj, options.get("gracePeriodSeconds"))
            ends_at_once = seconds == 0 and not meta.get("finalizers")
            # A later deletion never prolongs the grace period. Every deleted pod gets a timestamp.
            shortens = meta.get("deletionGracePeriodSeconds", seconds + 1) > seconds
            if shortens and (not ends_at_once or kind is PODS):
                deletion = {"deletionTimestamp": now(seconds), "deletionGracePeriodSeconds": seconds}
                obj = store.put(kind, {**obj, "metadata": {**meta, **deletion}})
            return store.remove(kind, key_of(obj)) if ends_at_once else obj

    def delete_this(self, kind: ResourceKind, meta: Json, **options: Any) -> None:
        """Delete this object, but not a later object with the same name."""
        options["preconditions"] = {"uid": meta["uid"]}
        self.delete(kind, meta["namespace"], meta["name"], options)

    def bind(self, namespace: str, name: str, binding: Json) -> None:
        node = (binding.get("target") or {}).get("name")
        if not node:
            raise StatusError(500, "", "target.name: Required value")
        with self.store:
            pod = self.get(PODS, namespace, name)
            self.store.put(PODS, _bound_pod(pod, node, binding.get("metadata") or {}))

    def evict(self, namespace: str, name: str, eviction: Json) -> None:
        """Delete a pod. The embedded cluster has no disruption budgets that could refuse the eviction."""
        self.delete(PODS, namespace, name, eviction.get("deleteOptions") or {})

    def record(
        self, regarding: Json, type_: str, reason: str, action: str, message: str, component: str
    ) -> None:
        """Record an Event about an object. A repeated Event raises the count of the first."""
        meta, message = regarding["metadata"], message[:1024]
        digest = zlib.crc32(f"{meta['uid']} {reason} {message}".encode())
        name, namespace = f"{meta['name']}.{digest:08x}", meta["namespace"]
        timestamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

        def raise_count(event: Json) -> Json:
            count = (event.get("series") or {"count": 1})["count"] + 1  # the first Event has no series
            return {**event, "series": {"count": count, "lastObservedTime": timestamp}}

        with suppress(StatusError):
            if self.store.get(EVENTS, namespace, name):
                self.amend(EVENTS, namespace, name, raise_count)
                return
            names = {"name": meta["name"], "namespace": namespace, "uid": meta["uid"]}
            event = {
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": {"kind": regarding["kind"], "apiVersion": regarding["apiVersion"], **names},
                "type": type_,
                "reason": reason,
                "action": action,
                "message": message,
                "eventTime": timestamp,
                "reportingComponent": component,
                "reportingInstance": f"{component}-embedded",
                "source": {},
                "firstTimestamp": None,
                "lastTimestamp": None,
            }
            self.create(EVENTS, namespace, event)


def _merged_parts(kind: ResourceKind, before: Json, desired: Json, subresource: str) -> Json:
    """Return the object to store.

    If the kind has a status subresource, only this subresource writes the status.
    """
    if subresource == "status":
        managed_fields = desired["metadata"].get("managedFields")
        retained_meta = {"managedFields": managed_fields} if managed_fields else {}
        meta = {**before["metadata"], **identity_of(desired), **retained_meta}
        return {**before, "metadata": meta, "status": desired.get("status") or {}}
    after = {**desired, "apiVersion": kind.api_version, "kind": kind.name}
    after["metadata"] = {**desired.get("metadata", {})}
    if kind.status:
        after.pop("status", None)
        if "status" in before:
            after["status"] = before["status"]
    return after


def _bound_pod(pod: Json, node: str, binding: Json) -> Json:
    """Return the pod on a node, with the annotations of the `binding`.

    Raises:
        StatusError: The binding has another pod's UID, or the pod is bound, gated or being deleted.
    """
    meta, spec, uid = pod["metadata"], pod["spec"], binding.get("uid")
    annotations = {**(meta.get("annotations") or {}), **(binding.get("annotations") or {})}
    if uid not in (None, "", meta["uid"]):
        raise conflict(PODS, meta["name"], "the UID in the binding is not that of the pod")
    if "deletionTimestamp" in meta:
        raise conflict(PODS, meta["name"], f"pod {meta['name']} is being deleted, cannot be assigned")
    if spec.get("nodeName"):
        message = f'pod {meta["name"]} is already assigned to node "{spec["nodeName"]}"'
        raise conflict(PODS, meta["name"], message)
    if spec.get("schedulingGates"):
        raise conflict(PODS, meta["name"], f"pod {meta['name']} has non-empty .spec.schedulingGates")
    status = {key: value for key, value in pod["status"].items() if key != "nominatedNodeName"}
    set_condition(status, condition("PodScheduled", "True", ""))
    meta = {**meta, "annotations": annotations} if annotations else {**meta}
    return {**pod, "metadata": meta, "spec": {**spec, "nodeName": node}, "status": status}


def _orphan_dependents(store: Store, owner: Json) -> None:
    """Remove the owner references to a deleted object from its dependents, which stay."""
    for kind in (kind for kind in KINDS if kind.namespaced):
        for obj in store.all(kind, owner.get("namespace", "")):
            owners = obj["metadata"].get("ownerReferences") or []
            other_owners = [reference for reference in owners if reference.get("uid") != owner["uid"]]
            if other_owners != owners:
                store.put(kind, {**obj, "metadata": {**obj["metadata"], "ownerReferences": other_owners}})
