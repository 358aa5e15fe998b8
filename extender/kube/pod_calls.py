"""Requests for pods."""

from typing import Any

import msgspec

from extender.api.keys import GATE, GROUP_ANNOTATION, NUDGE, POD_SCHEDULED
from extender.api.objects.base import Condition
from extender.api.objects.pods import Pod
from extender.kube.errors import Conflict
from extender.kube.requests import STRATEGIC, Requests
from extender.kube.resources import (
    PODS,
)


class PodCalls(Requests):
    """Those that the server makes."""

    def pod(self, namespace: str, name: str, timeout: float = 10) -> Pod:
        """The pod as the API server has it now."""
        return self._get(PODS.path(namespace, name), Pod, timeout)

    def whole_pod(self, namespace: str, name: str, timeout: float = 10) -> dict[str, Any]:
        """The pod with all fields, those that Muster does not know included."""
        return self._get(PODS.path(namespace, name), dict[str, Any], timeout)

    def bind(self, namespace: str, name: str, uid: str, node: str, timeout: float = 10) -> None:
        """Place a pod. Raises Conflict if it is bound already, NotFound if it is gone."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self._post(PODS.path(namespace, name, "binding"), binding, timeout)

    def evict(self, namespace: str, name: str, uid: str, timeout: float = 10) -> None:
        """Request a pod's eviction. Raises TooManyRequests while a disruption budget forbids it.

        The UID is compared here first, because the server tries an eviction whose precondition fails twenty
        times, for ten seconds, before it refuses it.
        """
        if self.pod(namespace, name, timeout).metadata.uid != uid:
            raise Conflict(409, "Conflict", f"{namespace}/{name} is a different pod now")
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        self._post(PODS.path(namespace, name, "eviction"), eviction, timeout)

    def set_disrupted(
        self, namespace: str, name: str, uid: str, condition: Condition, timeout: float = 10
    ) -> None:
        """Put a condition on a pod that is on its way out. Raises NotFound if it is gone."""
        status = {"conditions": [msgspec.to_builtins(condition)]}
        self._patch(
            PODS.path(namespace, name, "status"),
            {"metadata": {"uid": uid}, "status": status},
            timeout,
            STRATEGIC,
        )

    def open_gate(self, namespace: str, name: str, uid: str, timeout: float = 10) -> None:
        """Remove Muster's scheduling gate and no other. A pod without it stays as it is."""
        gates = {"schedulingGates": [{"$patch": "delete", "name": GATE}]}
        patch = {"metadata": {"uid": uid}, "spec": gates}
        self._patch(PODS.path(namespace, name), patch, timeout, STRATEGIC)

    def nominate(self, namespace: str, name: str, uid: str, node: str, timeout: float = 10) -> None:
        """Publish the pod's planned node in its status, where the scheduler looks for it."""
        patch = {"metadata": {"uid": uid}, "status": {"nominatedNodeName": node}}
        self._patch(PODS.path(namespace, name, "status"), patch, timeout)

    def set_unscheduled(
        self,
        namespace: str,
        name: str,
        uid: str,
        version: str,
        condition: dict[str, str],
        forget_node: bool,
        timeout: float = 10,
    ) -> None:
        """Merge `condition` into the pod's condition PodScheduled. `forget_node`: remove the node that is
        nominated for it. Raises Conflict if the pod is not in this version any more: it may be bound."""
        status: dict[str, Any] = {"conditions": [{"type": POD_SCHEDULED, **condition}]}
        if forget_node:
            status["nominatedNodeName"] = None
        patch = {"metadata": {"uid": uid, "resourceVersion": version}, "status": status}
        self._patch(PODS.path(namespace, name, "status"), patch, timeout, STRATEGIC)

    def nudge(self, namespace: str, name: str, uid: str, token: str, timeout: float = 10) -> None:
        """Change a pod so that the scheduler tries it again; `token` must differ from the previous one."""
        patch = {"metadata": {"uid": uid, "annotations": {NUDGE: token}}}
        self._patch(PODS.path(namespace, name), patch, timeout)

    def name_group(self, namespace: str, name: str, uid: str, group: str, timeout: float = 10) -> None:
        """Write the name of a pod's group on the pod."""
        patch = {"metadata": {"uid": uid, "annotations": {GROUP_ANNOTATION: group}}}
        self._patch(PODS.path(namespace, name), patch, timeout)
