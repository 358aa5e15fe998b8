"""Writing for people: one change of one object, as a command asks for it, with what became of it.

What runs all the time writes through ApiClient (calls.py) instead.
"""

from typing import Any

from extender.kube.connection import Connection
from extender.kube.requests import Requests, decoded
from extender.kube.resources import Resource

Json = dict[str, Any]

_MANAGER = "kubectl-muster"


class Editor(Requests):
    """Requests over a Connection; all raise ApiError. With `dry` the server judges and stores nothing."""

    def __init__(self, connection: Connection, timeout: float = 30) -> None:
        super().__init__(connection)
        self._timeout = timeout

    def create(self, resource: Resource, namespace: str, obj: Json, dry: bool = False) -> Json:
        path = resource.path(namespace)
        return decoded(self._post(path, obj, self._timeout, _query(dry)), Json, path)

    def patch(self, resource: Resource, namespace: str, name: str, patch: Json, dry: bool = False) -> Json:
        """Merge `patch` into the object; a null takes a field away."""
        path = resource.path(namespace, name)
        return decoded(self._patch(path, patch, self._timeout, query=_query(dry)), Json, path)

    def delete(self, resource: Resource, namespace: str, name: str, uid: str, dry: bool = False) -> None:
        """Conflict when an object of this name is another one by now."""
        options: Json = {"propagationPolicy": "Background"} | ({"dryRun": ["All"]} if dry else {})
        self._delete(resource.path(namespace, name), uid, self._timeout, options)

    def review(self, path: str, obj: Json) -> Json:
        """Ask a question that is an object: nothing is stored."""
        return decoded(self._post(path, obj, self._timeout), Json, path)


def _query(dry: bool) -> dict[str, str]:
    return {"fieldManager": _MANAGER, **({"dryRun": "All"} if dry else {})}
