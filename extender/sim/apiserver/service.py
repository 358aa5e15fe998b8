"""The verbs of the API: create, read, change, delete, bind, evict. Kubelets and the scheduler call them, too.

Each is one step on the store, whatever else is under way. All raise StatusError.
"""

import random
from collections.abc import Callable
from copy import deepcopy

from extender.sim.apiserver.admission import FIRST_OBJECTS, born, updated
from extender.sim.apiserver.binding import bound, node_of
from extender.sim.apiserver.deletion import delete
from extender.sim.apiserver.identity import identify
from extender.sim.apiserver.kinds import NAMESPACES, PODS, Json, ResourceKind
from extender.sim.apiserver.ownership.apply import applied
from extender.sim.apiserver.ownership.managers import APPLY, Manager, kept_account, noted
from extender.sim.apiserver.ownership.wanted import refuse_untyped
from extender.sim.apiserver.same_object import refuse_another
from extender.sim.apiserver.status_errors import conflict, exists, not_found
from extender.sim.apiserver.store import Store, key_of
from extender.sim.apiserver.subresources import merged_parts
from extender.sim.apiserver.validation.forms import filled, read

Amend = Callable[[Json], Json]


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
            identify(kind, namespace, obj, self._dice)
            if kind.namespaced:
                self.get(NAMESPACES, "", obj["metadata"]["namespace"])
            if manager is not None:
                obj = noted(kind, None, obj, manager)
            born(kind, obj, self.store, self._gating)
            meta = obj["metadata"]
            if self.store.get(kind, meta.get("namespace", ""), meta["name"]):
                raise exists(kind, meta["name"])
            return obj if dry else self.store.put(kind, obj)

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
            after = merged_parts(kind, before, wanted, subresource)
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
            message = (
                f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            )
            raise conflict(kind, name, message)

    # ---- delete, bind, evict

    def delete(self, kind: ResourceKind, namespace: str, name: str, options: Json) -> Json:
        with self.store:
            return delete(self.store, kind, self.get(kind, namespace, name), options)

    def bind(self, namespace: str, name: str, binding: Json) -> None:
        node = node_of(binding)
        with self.store:
            pod = self.get(PODS, namespace, name)
            self.store.put(PODS, bound(pod, node, (binding.get("metadata") or {}).get("uid")))

    def evict(self, namespace: str, name: str, eviction: Json) -> None:
        """A deletion that disruption budgets could forbid; there are none here."""
        self.delete(PODS, namespace, name, eviction.get("deleteOptions") or {})
