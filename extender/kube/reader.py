"""Reading for people: one object or a whole list, once, in whatever form the asker wants it.

What runs all the time is read by the Reflector instead.
"""

from typing import Any, TypeVar

import msgspec

from extender.kube.connection import Connection
from extender.kube.errors import Ambiguous
from extender.kube.events import UNREADABLE, Page
from extender.kube.resources import Resource

_PAGE = 500

T = TypeVar("T")


class Reader:
    """Requests over a Connection; all raise ApiError. `kind` is anything that msgspec can decode into."""

    def __init__(self, connection: Connection, timeout: float = 30) -> None:
        self._connection = connection
        self._timeout = timeout

    def get(self, resource: Resource, namespace: str, name: str, kind: type[T]) -> T:
        return self._read(resource.path(namespace, name), kind, {})

    def list(
        self, resource: Resource, namespace: str, kind: type[T], fields: str = "", labels: str = ""
    ) -> list[T]:
        """All of a namespace, or of all of them where that is empty; `fields` and `labels` are selectors."""
        chosen = {"fieldSelector": fields, "labelSelector": labels}
        form: Any = Page
        items: list[T] = []
        after = ""
        while True:
            query = {"limit": str(_PAGE), "continue": after, **chosen}
            page: Page[T] = self._read(
                resource.path(namespace), form[kind], {name: value for name, value in query.items() if value}
            )
            items += page.items or ()
            after = page.metadata.continue_
            if not after:
                return items

    def _read(self, path: str, kind: type[T], query: dict[str, str]) -> T:
        body = self._connection.request("GET", path, query=query, timeout=self._timeout)
        try:
            return msgspec.json.decode(body, type=kind)
        except UNREADABLE as fault:
            raise Ambiguous(f"{path}: not the expected object: {fault}") from fault
