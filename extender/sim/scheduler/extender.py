"""Client of the extender.

The scheduler's configuration has two entries for the extender: one for bind, and one for the other calls.
"""

import http.client
import threading
from collections.abc import Mapping
from contextlib import closing
from typing import Any, NamedTuple

import msgspec

from extender.apimachinery.kinds import Json
from extender.sim.scheduler.nodes import Rejection

_HEADERS = {"Content-Type": "application/json", "User-Agent": "Go-http-client/1.1"}

encode = msgspec.json.Encoder().encode


class ExtenderError(Exception):
    """Error: a call of the extender failed."""


class FilterAnswer(NamedTuple):
    """Result of filter: accepted nodes, and rejections by node. Some nodes may be in neither of them."""

    nodes: list[str]
    rejections: dict[str, Rejection]


class Extender:
    """Extender at `address` (HOST:PORT). `bind_resource` is the managedResource of the entry for bind.

    Timeouts are the httpTimeout of the two entries in scheduler-config/sidecar.yaml.
    """

    def __init__(self, address: str, bind_resource: str = "") -> None:
        self._bind_resource = bind_resource
        self._address = address
        self._connection = http.client.HTTPConnection(address, timeout=3.0)
        self._lock = threading.Lock()

    def filter(self, pod: Json, nodes: list[str]) -> FilterAnswer:
        answer = self._locked_call("filter", {"Pod": pod, "Nodes": None, "NodeNames": nodes})
        if answer.get("Error"):
            raise ExtenderError(answer["Error"])
        accepted_nodes = answer.get("NodeNames") or []
        if unknown_nodes := set(accepted_nodes) - set(nodes):
            raise ExtenderError(f"extender filter returned unknown nodes: {', '.join(sorted(unknown_nodes))}")
        rejections = {}
        for field, unresolvable in (("FailedNodes", False), ("FailedAndUnresolvableNodes", True)):
            for node, message in (answer.get(field) or {}).items():
                rejections[node] = Rejection((message,), unresolvable)
        return FilterAnswer(accepted_nodes, rejections)

    def preempt(self, pod: Json, victims: Mapping[str, list[str]]) -> dict[str, list[str]]:
        """Return the UIDs of the victims that the extender allows, by node.

        The scheduler proposes `victims`.
        """
        proposals = {
            node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0}
            for node, uids in victims.items()
        }
        args = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": proposals}
        allowed = self._locked_call("preempt", args).get("NodeNameToMetaVictims") or {}
        return {node: [victim["UID"] for victim in meta.get("Pods") or ()] for node, meta in allowed.items()}

    def is_binder_of(self, pod: Json) -> bool:
        """Return whether the entry for bind handles a pod, because the pod requests the managed resource."""
        containers = pod["spec"]["containers"]
        requests = (container.get("resources", {}).get("requests", {}) for container in containers)
        return not self._bind_resource or any(self._bind_resource in amounts for amounts in requests)

    def bind(self, pod: Json, node: str) -> None:
        """Bind a pod. The call has its own connection: the extender holds it until the gang is complete."""
        meta = pod["metadata"]
        names = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"]}
        with closing(http.client.HTTPConnection(self._address, timeout=600.0)) as connection:
            if error := self._call(connection, "bind", {**names, "Node": node}).get("Error"):
                raise ExtenderError(error)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _locked_call(self, verb: str, args: Json) -> Any:
        with self._lock:
            return self._call(self._connection, verb, args)

    def _call(self, connection: http.client.HTTPConnection, verb: str, args: Json) -> Any:
        url = f"http://{self._address}/v1/{verb}"
        try:
            connection.request("POST", f"/v1/{verb}", encode(args), _HEADERS)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as fault:
            connection.close()
            raise ExtenderError(f'Post "{url}": {type(fault).__name__}') from fault
        if response.status != 200:
            raise ExtenderError(f"failed {verb} with extender at URL {url}, code {response.status}")
        return msgspec.json.decode(body)
