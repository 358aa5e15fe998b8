"""ProvisioningRequests of groups as the watch shows them, and the objects that are written for a new one."""

import threading
from collections.abc import Callable
from typing import Any

from extender.api.objects.cluster import ProvisioningRequest
from extender.controllers.references import POD_GROUP_KIND, owner_group
from extender.domain.decisions.provisioning import NodesWanted, failure
from extender.domain.model.pod_owners import controller_of
from extender.domain.model.records import GroupKey, GroupRecord
from extender.kube.inventory import Removed
from extender.kube.resources import PROVISIONING_REQUESTS

MANAGED_BY = ("app.kubernetes.io/managed-by", "muster")
_LABELS = dict([MANAGED_BY])
_NOT_OF_A_TEMPLATE = ("nodeName", "schedulingGates", "ephemeralContainers")


class ProvisioningRequests:
    """Those that Muster wrote, by the group that owns them. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[GroupKey, dict[str, ProvisioningRequest]] = {}
        self._listeners: list[Callable[[GroupKey, bool], None]] = []

    def listen(self, listener: Callable[[GroupKey, bool], None]) -> None:
        """It gets the group of each request that is new, has changed or (True) is gone."""
        self._listeners.append(listener)

    def of(self, key: GroupKey) -> list[ProvisioningRequest]:
        with self._lock:
            return list(self._of.get(key, {}).values())

    def failure(self, key: GroupKey) -> str:
        """What the autoscaler says of a group for which it brings no nodes, for people; of one request, since
        whoever may write them could have many fail."""
        failures = ((each.metadata.name, failure(each.status.conditions)) for each in self.of(key))
        return next((f"ProvisioningRequest {name} failed: {why}" for name, why in failures if why), "")

    def upsert(self, request: ProvisioningRequest) -> None:
        meta = request.metadata
        owner = controller_of(meta.owner_references)
        if owner is not None and owner.kind == POD_GROUP_KIND:
            key = GroupKey(f"{meta.namespace}/{owner.name}")
            with self._lock:
                self._of.setdefault(key, {})[meta.name] = request
            self._notify(key, gone=False)

    def remove(self, gone: Removed) -> None:
        with self._lock:
            keys = [key for key, each in self._of.items() if _is_there(each, gone)]
            for key in keys:
                del self._of[key][gone.name]
                if not self._of[key]:
                    del self._of[key]
        for key in keys:
            self._notify(key, gone=True)

    def _notify(self, key: GroupKey, gone: bool) -> None:
        for listener in self._listeners:
            listener(key, gone)


def _is_there(requests: dict[str, ProvisioningRequest], gone: Removed) -> bool:
    found = requests.get(gone.name)
    return found is not None and found.metadata.uid == gone.uid


# ---- what is written


def request_body(wanted: NodesWanted, group: GroupRecord) -> dict[str, Any]:
    """It goes away with the PodGroup."""
    sets = [
        {"podTemplateRef": {"name": template_name(wanted, number)}, "count": each.count}
        for number, each in enumerate(wanted.pod_sets)
    ]
    spec: dict[str, Any] = {"provisioningClassName": wanted.class_name, "podSets": sets}
    return {
        "apiVersion": PROVISIONING_REQUESTS.version,
        "kind": "ProvisioningRequest",
        "metadata": {
            "name": wanted.name,
            "namespace": group.namespace,
            "labels": _LABELS,
            "ownerReferences": [owner_group(group)],
        },
        "spec": spec | ({"parameters": dict(wanted.parameters)} if wanted.parameters else {}),
    }


def template_body(name: str, request: NodesWanted, uid: str, pod: dict[str, Any]) -> dict[str, Any]:
    """A template that is like `pod`, an object as the API server has it. It goes away with the request, whose
    UID is `uid`. Nothing is left of where this pod is, and of what holds it back."""
    owner = {
        "apiVersion": PROVISIONING_REQUESTS.version,
        "kind": "ProvisioningRequest",
        "name": request.name,
        "uid": uid,
        "controller": True,
    }
    described = {key: pod["metadata"][key] for key in ("labels", "annotations") if key in pod["metadata"]}
    spec = {key: value for key, value in pod["spec"].items() if key not in _NOT_OF_A_TEMPLATE}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "labels": _LABELS, "ownerReferences": [owner]},
        "template": {"metadata": described, "spec": spec},
    }


def template_name(wanted: NodesWanted, number: int) -> str:
    """Of the template of the pod set with this number."""
    return f"{wanted.name}-{number}"
