"""The verbs of the API: create, read, change, delete, bind, evict. Kubelets and the scheduler call them, too.

Each is one step on the store, whatever else is under way. All raise StatusError.
"""

import random
import string
import uuid
from collections.abc import Callable
from copy import deepcopy

from extender.sim.apiserver.admission import FIRST_OBJECTS, born, grace, updated
from extender.sim.apiserver.conditions import condition, now, set_condition
from extender.sim.apiserver.kinds import KINDS, NAMESPACES, PODS, Json, ResourceKind
from extender.sim.apiserver.ownership.apply import applied
from extender.sim.apiserver.ownership.managers import APPLY, Manager, kept_account, noted
from extender.sim.apiserver.ownership.wanted import refuse_untyped
from extender.sim.apiserver.same_object import named_by, other_namespace, refuse_another
from extender.sim.apiserver.status_errors import (
    StatusError,
    conflict,
    exists,
    not_found,
)
from extender.sim.apiserver.store import Store, key_of
from extender.sim.apiserver.validation.forms import filled, read

Amend = Callable[[Json], Json]
_LETTERS = string.ascii_lowercase + string.digits


class Service:
    """`gating`: whether the policy is in force that our pods are born with a gate."""

    def __init__(self, store: Store, dice: random.Random | None = None, gating: bool = True) -> None:
        self.store = store
        self._dice = dice or random.Random()
        self._gating = gating
        for kind, obj in FIRST_OBJECTS:
            self.create(kind, "", obj)

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Json:
        found = self.store.get(kind, namespace, name)
        if found is None:
            raise not_found(kind, name)
        return found

    # ---- create

    def create(
        self,
        kind: ResourceKind,
        namespace: str,
        given: Json,
        dry: bool = False,
        manager: Manager | None = None,
        strict: bool = False,
    ) -> Json:
        """`manager`: whose fields these are; without one nobody keeps account of this object's fields.

        `strict`: fields that the kind does not have are refused, not dropped.
        """
        obj = deepcopy(read(kind, given, strict))
        with self.store:
            self._name(kind, namespace, obj)
            obj["metadata"].pop("managedFields", None)
            if manager is not None:
                obj = noted(kind, None, obj, manager)
            born(kind, obj, self.store, self._gating)
            meta = obj["metadata"]
            if self.store.get(kind, meta.get("namespace", ""), meta["name"]):
                raise exists(kind, meta["name"])
            return obj if dry else self.store.put(kind, obj)

    def _name(self, kind: ResourceKind, namespace: str, obj: Json) -> None:
        """Give a new object its identity."""
        meta = obj["metadata"] = {**(obj.get("metadata") or {})}
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + "".join(self._dice.choices(_LETTERS, k=5))
        self._place(kind, namespace, meta)
        obj |= {"apiVersion": kind.api_version, "kind": kind.name}
        meta["uid"] = str(uuid.UUID(int=self._dice.getrandbits(128), version=4))
        meta["creationTimestamp"] = now()

    def _place(self, kind: ResourceKind, namespace: str, meta: Json) -> None:
        if not kind.namespaced:
            meta.pop("namespace", None)
            return
        if meta.setdefault("namespace", namespace or "default") != namespace and namespace:
            raise other_namespace()
        self.get(NAMESPACES, "", meta["namespace"])

    # ---- change

    def amend(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        change: Amend,
        subresource: str = "",
        dry: bool = False,
        manager: Manager | None = None,
        strict: bool = False,
    ) -> Json:
        """Replace an object by what `change` makes of it; one that changes nothing leaves no trace.

        What comes without a manager, from the kubelets and the scheduler played here, is not checked.
        """
        with self.store:
            before = self.get(kind, namespace, name)
            wanted = change(before)
            if manager is not None:
                wanted = read(kind, wanted, strict)
            after = self._merge_parts(kind, before, wanted, subresource)
            refuse_another(kind, before, after)
            if manager is not None and manager.operation != APPLY:  # who applies has kept account
                after = noted(kind, before, kept_account(before, after, subresource), manager)
            if after == before:
                return before
            after = updated(kind, before, after, checked=manager is not None)
            if dry:
                return after
            meta = after["metadata"]
            if "deletionTimestamp" in meta and not meta.get("finalizers") and kind is not PODS:
                return self.store.remove(kind, key_of(before))
            return self.store.put(kind, after)

    def apply(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        wanted: Json,
        manager: Manager,
        force: bool = False,
        dry: bool = False,
        strict: bool = False,
    ) -> tuple[Json, bool]:
        """Make an object what `manager` wants of it: the object, and whether it is new."""
        refuse_untyped(kind, wanted)
        wanted = {**wanted, "metadata": filled(wanted["metadata"])}
        with self.store:
            if self.store.get(kind, namespace, name) is None:
                self._may_be_new(kind, name, wanted, manager)
                return self.create(kind, namespace, wanted, dry, manager, strict), True

            def change(before: Json) -> Json:
                return applied(kind, before, wanted, manager, force)

            made = self.amend(kind, namespace, name, change, manager.subresource, dry, manager, strict)
            return made, False

    def _may_be_new(self, kind: ResourceKind, name: str, wanted: Json, manager: Manager) -> None:
        if manager.subresource:
            raise not_found(kind, name)
        if uid := wanted["metadata"].get("uid"):
            told = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise conflict(kind, name, told)

    def _merge_parts(self, kind: ResourceKind, before: Json, wanted: Json, subresource: str) -> Json:
        """Status is written through its subresource and nowhere else, where a kind has one."""
        if subresource == "status":
            kept = {"managedFields": wanted["metadata"].get("managedFields")}
            meta = {**before["metadata"], **named_by(wanted), **{k: v for k, v in kept.items() if v}}
            return {**before, "metadata": meta, "status": wanted.get("status") or {}}
        after = {**wanted, "apiVersion": kind.api_version, "kind": kind.name}
        after["metadata"] = {**wanted.get("metadata", {})}
        if kind.status:
            after.pop("status", None)
            after |= {"status": before["status"]} if "status" in before else {}
        return after

    # ---- delete

    def delete(self, kind: ResourceKind, namespace: str, name: str, options: Json) -> Json:
        with self.store:
            obj = self.get(kind, namespace, name)
            self._preconditions(kind, obj, options.get("preconditions") or {})
            if options.get("dryRun"):
                return obj
            if kind is NAMESPACES:
                self._empty(name)
            return self._end(kind, obj, grace(kind, obj, options.get("gracePeriodSeconds")))

    def _end(self, kind: ResourceKind, obj: Json, seconds: int) -> Json:
        """Remove an object, or mark it for those who have to agree: its finalizers, its kubelet."""
        at_once = seconds == 0 and not obj["metadata"].get("finalizers")
        if not at_once or kind is PODS:  # a pod is marked even if it goes the next moment
            obj = self._marked(kind, obj, seconds)
        return self.store.remove(kind, key_of(obj)) if at_once else obj

    def _marked(self, kind: ResourceKind, obj: Json, seconds: int) -> Json:
        """A deletion may shorten the grace of an earlier one, never lengthen it."""
        meta = obj["metadata"]
        if meta.get("deletionGracePeriodSeconds", seconds + 1) <= seconds:
            return obj
        marks = {"deletionTimestamp": now(seconds), "deletionGracePeriodSeconds": seconds}
        return self.store.put(kind, {**obj, "metadata": {**meta, **marks}})

    def _preconditions(self, kind: ResourceKind, obj: Json, wanted: Json) -> None:
        for field in ("uid", "resourceVersion"):
            found = obj["metadata"][field]
            if wanted.get(field) not in (None, found):
                what = {"uid": "UID", "resourceVersion": "ResourceVersion"}[field]
                told = f"the {what} in the precondition ({wanted[field]}) does not match the {what} in record"
                why = f"{told} ({found}). The object might have been deleted and then recreated"
                raise conflict(kind, obj["metadata"]["name"], why)

    def _empty(self, namespace: str) -> None:
        """A namespace ends with all that is in it; no kubelet is asked."""
        for kind in KINDS:
            for obj in self.store.all(kind, namespace) if kind.namespaced else ():
                self.store.remove(kind, key_of(obj))

    # ---- what only pods know

    def bind(self, namespace: str, name: str, binding: Json) -> None:
        """Place a pod: once, on the pod that was meant, and not behind its gates."""
        node = (binding.get("target") or {}).get("name", "")
        if not node:
            raise StatusError(500, "", "target.name: Required value")
        with self.store:
            pod = self.get(PODS, namespace, name)
            self._may_bind(pod, (binding.get("metadata") or {}).get("uid"))
            status = {key: value for key, value in pod["status"].items() if key != "nominatedNodeName"}
            set_condition(status, condition("PodScheduled", "True", ""))
            self.store.put(
                PODS,
                {
                    **pod,
                    "metadata": {**pod["metadata"]},
                    "spec": {**pod["spec"], "nodeName": node},
                    "status": status,
                },
            )

    def _may_bind(self, pod: Json, uid: str | None) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        if uid not in (None, "", meta["uid"]):
            raise conflict(PODS, meta["name"], "the UID in the binding is not that of the pod")
        if "deletionTimestamp" in meta:
            raise conflict(PODS, meta["name"], f"pod {meta['name']} is being deleted, cannot be assigned")
        if spec.get("nodeName"):
            told = f'pod {meta["name"]} is already assigned to node "{spec["nodeName"]}"'
            raise conflict(PODS, meta["name"], told)
        if spec.get("schedulingGates"):
            raise conflict(PODS, meta["name"], f"pod {meta['name']} has non-empty .spec.schedulingGates")

    def evict(self, namespace: str, name: str, eviction: Json) -> None:
        """A deletion that disruption budgets could forbid; there are none here."""
        self.delete(PODS, namespace, name, eviction.get("deleteOptions") or {})
