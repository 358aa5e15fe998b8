"""Writes for commands: one change of one object, which returns the result.

The server itself writes through ApiClient (calls.py) instead.
"""

from typing import Any

from extender.kube.connection import Connection
from extender.kube.requests import Requests, decoded
from extender.kube.resources import Resource

Json = dict[str, Any]

_MANAGER = "kubectl-muster"


class Editor(Requests):
    """Requests over a Connection; all raise ApiError. With `dry` the API server checks and stores nothing."""

    def __init__(self, connection: Connection, timeout: float = 30) -> None:
        super().__init__(connection)
        self._timeout = timeout

    def create(self, resource: Resource, namespace: str, obj: Json, dry: bool = False) -> Json:
        path = resource.path(namespace)
        return decoded(self._post(path, obj, self._timeout, _query(dry)), Json, path)

    def patch(self, resource: Resource, namespace: str, name: str, patch: Json, dry: bool = False) -> Json:
        """Merge `patch` into the object; a null removes a field."""
        path = resource.path(namespace, name)
        return decoded(self._patch(path, patch, self._timeout, query=_query(dry)), Json, path)

    def delete(self, resource: Resource, namespace: str, name: str, uid: str, dry: bool = False) -> None:
        """Raises Conflict if the object of this name is a different one now."""
        options: Json = {"propagationPolicy": "Background"} | ({"dryRun": ["All"]} if dry else {})
        self._delete(resource.path(namespace, name), uid, self._timeout, options)

    def review(self, path: str, obj: Json) -> Json:
        """Create a review, such as a SelfSubjectAccessReview: it is answered and not stored."""
        return decoded(self._post(path, obj, self._timeout), Json, path)


def _query(dry: bool) -> dict[str, str]:
    return {"fieldManager": _MANAGER, **({"dryRun": "All"} if dry else {})}
