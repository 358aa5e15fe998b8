"""Reads for commands: one object or a whole list, once, in the form that the caller wants.

The server itself reads through the Reflector instead.
"""

from typing import Any, TypeVar

from extender.kube.connection import Connection
from extender.kube.events import Page
from extender.kube.requests import Requests
from extender.kube.resources import Resource

_PAGE = 500

T = TypeVar("T")


class Reader(Requests):
    """Requests over a Connection; all raise ApiError. `kind` is anything that msgspec can decode into."""

    def __init__(self, connection: Connection, timeout: float = 30) -> None:
        super().__init__(connection)
        self._timeout = timeout

    def get(self, resource: Resource, namespace: str, name: str, kind: type[T]) -> T:
        return self._get(resource.path(namespace, name), kind, self._timeout)

    def list(
        self, resource: Resource, namespace: str, kind: type[T], fields: str = "", labels: str = ""
    ) -> list[T]:
        """All objects of a namespace, or of all namespaces if it is empty; `fields` and `labels` are
        selectors."""
        chosen = {"fieldSelector": fields, "labelSelector": labels}
        form: Any = Page
        items: list[T] = []
        after = ""
        while True:
            asked = {"limit": str(_PAGE), "continue": after, **chosen}
            query = {name: value for name, value in asked.items() if value}
            page: Page[T] = self._get(resource.path(namespace), form[kind], self._timeout, query)
            items += page.items or ()
            after = page.metadata.continue_
            if not after:
                return items
