"""Requests for Queues and LocalQueues."""

from typing import Any

import msgspec

from extender.api.keys import LAST_COMMAND
from extender.api.objects.queues import Queue
from extender.kube.events import Identified
from extender.kube.requests import APPLY, Requests, decoded
from extender.kube.resources import (
    LOCAL_QUEUES,
    QUEUES,
)

_AS_QUEUE_CONTROLLER = {"fieldManager": "queue-controller", "force": "true"}
_DRY_RUN = {"dryRun": "All"}
_IN_STATUS = {"Closed": "Closing"}  # until Muster has checked whether groups are left


class _AllIdentified(msgspec.Struct, frozen=True):
    items: list[Identified] | None = None


class QueueCalls(Requests):
    """Those that the server makes."""

    def patch_queue(self, name: str, uid: str, patch: dict[str, Any], timeout: float = 10) -> None:
        """Merge `patch` into a Queue, except for its status."""
        guarded = {**patch, "metadata": {**patch.get("metadata", {}), "uid": uid}}
        self._patch(QUEUES.path(name=name), guarded, timeout)

    def patch_queue_status(self, name: str, patch: dict[str, Any], timeout: float = 10) -> None:
        """Merge `patch` ({"status": …}) through a Queue's status subresource."""
        self._patch(QUEUES.path(name=name, subresource="status"), patch, timeout)

    def set_queue_status_state(
        self, name: str, uid: str, state: str, version: str | None = None, timeout: float = 10
    ) -> str:
        """Write status.state; returns the queue's new resourceVersion.

        The state is applied under the name of Volcano's queue controller as the field manager. Otherwise
        Muster would own the field, and that controller could never change it again.
        """
        metadata = {"name": name, "uid": uid, **({"resourceVersion": version} if version else {})}
        patch = {
            "apiVersion": QUEUES.version,
            "kind": "Queue",
            "metadata": metadata,
            "status": {"state": state},
        }
        path = QUEUES.path(name=name, subresource="status")
        answer = self._patch(path, patch, timeout, APPLY, _AS_QUEUE_CONTROLLER)
        return decoded(answer, Queue, name).metadata.resource_version

    def patch_local_queue_status(
        self, namespace: str, name: str, patch: dict[str, Any], timeout: float = 10
    ) -> None:
        """Merge `patch` ({"status": …}) through a LocalQueue's status subresource."""
        self._patch(LOCAL_QUEUES.path(namespace, name, "status"), patch, timeout)

    def set_queue_state(self, name: str, uid: str, state: str, command: str, timeout: float = 10) -> None:
        """Write spec.state, and with it the UID of the Command that asked for it.

        If the CRD drops spec.state, status.state is written instead, and first: once the UID is noted, the
        Command counts as executed.
        """
        if not self.keeps_queue_state(name, uid, state, timeout):
            self.set_queue_status_state(name, uid, _IN_STATUS.get(state, state), timeout=timeout)
        noted = {"annotations": {LAST_COMMAND: command}}
        self.patch_queue(name, uid, {"metadata": noted, "spec": {"state": state}}, timeout)

    def keeps_queue_state(self, name: str, uid: str, state: str, timeout: float = 10) -> bool:
        """Whether the CRD keeps spec.state. Volcano's own CRD does not have the field."""
        patch = {"metadata": {"uid": uid}, "spec": {"state": state}}
        answer = self._patch(QUEUES.path(name=name), patch, timeout, query=_DRY_RUN)
        return decoded(answer, Queue, name).spec.state == state

    def create_queue(
        self,
        name: str,
        spec: dict[str, Any],
        annotations: dict[str, str] | None = None,
        timeout: float = 10,
    ) -> None:
        """Raises Conflict if a queue of that name exists already."""
        metadata = {"name": name} | ({"annotations": annotations} if annotations else {})
        queue = {"apiVersion": QUEUES.version, "kind": "Queue", "metadata": metadata, "spec": spec}
        self._post(QUEUES.path(), queue, timeout)

    def delete_queue(self, name: str, uid: str, timeout: float = 10) -> None:
        self._delete(QUEUES.path(name=name), uid, timeout)

    def queue_uid(self, name: str, timeout: float = 10) -> str:
        """The UID of the queue that the API server has now."""
        return self._get(QUEUES.path(name=name), Queue, timeout).metadata.uid

    def queue_uids(self, timeout: float = 30) -> set[str]:
        """The UIDs of all queues that the API server has now."""
        return {each.metadata.uid for each in self._get(QUEUES.path(), _AllIdentified, timeout).items or ()}
