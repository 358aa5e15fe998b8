"""Writing for people: one change of one object, as a command asks for it, with what became of it.

What runs all the time writes through Cluster (calls.py) instead.
"""

from typing import Any

import msgspec

from extender.kube.connection import Connection
from extender.kube.errors import Ambiguous
from extender.kube.resources import Resource

Json = dict[str, Any]

_MANAGER = "kubectl-muster"
_MERGE = "application/merge-patch+json"


class Editor:
    """Requests over a Connection; all raise ApiError. With `dry` the server judges and stores nothing."""

    def __init__(self, connection: Connection, timeout: float = 30) -> None:
        self._connection = connection
        self._timeout = timeout

    def create(self, resource: Resource, namespace: str, obj: Json, dry: bool = False) -> Json:
        return self._send("POST", resource.path(namespace), obj, _query(dry))

    def patch(self, resource: Resource, namespace: str, name: str, patch: Json, dry: bool = False) -> Json:
        """Merge `patch` into the object; a null takes a field away."""
        return self._send("PATCH", resource.path(namespace, name), patch, _query(dry), _MERGE)

    def delete(self, resource: Resource, namespace: str, name: str, uid: str, dry: bool = False) -> None:
        """Conflict when an object of this name is another one by now."""
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        options |= {"propagationPolicy": "Background"} | ({"dryRun": ["All"]} if dry else {})
        self._send("DELETE", resource.path(namespace, name), options, {})

    def review(self, path: str, obj: Json) -> Json:
        """Ask a question that is an object: nothing is stored."""
        return self._send("POST", path, obj, {})

    def _send(
        self, method: str, path: str, body: Json, query: dict[str, str], kind: str = "application/json"
    ) -> Json:
        raw = self._connection.request(
            method,
            path,
            body=msgspec.json.encode(body),
            content_type=kind,
            query=query,
            timeout=self._timeout,
        )
        try:
            return msgspec.json.decode(raw, type=Json)
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            raise Ambiguous(f"{path}: not the expected object: {fault}") from fault


def _query(dry: bool) -> dict[str, str]:
    return {"fieldManager": _MANAGER, **({"dryRun": "All"} if dry else {})}
