"""Thin client of the API server, with JSON, kept-alive connections and watches.

The client shares no code with Muster's own client, so that both clients cannot have the same faults.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3

from tests.e2e.harness.resources import PODS, Resource
from tests.e2e.harness.watch import ApiError, Json, Watch, error_message

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
CONNECTIONS = 16  # maximum number of kept-alive connections


@dataclass(frozen=True)
class Access:
    """Address of the API server, token of a user, and certificate authority of the server."""

    server: str
    token: str
    authority: Path


class Client:
    """Client of one user, with a method for each verb of the API."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._headers = {"Authorization": f"Bearer {access.token}", "Accept": "application/json"}
        self._pool = self._connections(CONNECTIONS)

    def acting_as(self, user: str) -> "Client":
        """Return a client that impersonates another user."""
        impersonating_client = Client(self._access)
        impersonating_client._headers |= {"Impersonate-User": user}
        return impersonating_client

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.close()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content: str = "application/json",
        accept: str = "application/json",
    ) -> Any:
        """Send a request with a JSON body, and return the decoded answer.

        An answer that is not a JSON object is returned as text. Raises ApiError for a status of 300 or above.
        """
        status, data = self.exchange(method, path, _encoded(body), content, accept)
        if status >= 300:
            raise ApiError(status, error_message(data))
        return json.loads(data) if data.startswith(b"{") else data.decode()

    def exchange(
        self, method: str, path: str, body: bytes | None, content: str, accept: str = "application/json"
    ) -> tuple[int, bytes]:
        """Send a request, and return the status and the unchanged body of the answer, even of an error."""
        headers = {**self._headers_with(content), "Accept": accept}
        answer = self._pool.request(method, path, body=body, headers=headers)
        return answer.status, answer.data

    def create(self, resource: Resource, body: Json) -> Json:
        return self._request_json("POST", resource.path(_namespace(body)), body)

    def dry_run(self, resource: Resource, body: Json) -> Json:
        """Return the object that the API server would create, without creating it."""
        return self._request_json("POST", f"{resource.path(_namespace(body))}?dryRun=All", body)

    def create_many(self, resource: Resource, bodies: Iterable[Json]) -> list[Json]:
        """Create objects in parallel, over kept-alive connections.

        Return the answers in the order of the bodies.
        """
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda body: self.create(resource, body), bodies))

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        return self._request_json("GET", resource.path(namespace, name))

    def find(self, resource: Resource, name: str, namespace: str = "") -> Json | None:
        """Return the object, or None if the object does not exist."""
        try:
            return self.get(resource, name, namespace)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def listing(self, resource: Resource, namespace: str = "", **query: str) -> Json:
        """Return the list object with its resourceVersion. `items` returns only the items of the list."""
        return self._request_json("GET", _with_query(resource.path(namespace), query))

    def items(self, resource: Resource, namespace: str = "", **query: str) -> Sequence[Json]:
        items_: Sequence[Json] = self.listing(resource, namespace, **query)["items"]
        return items_

    def replace(self, resource: Resource, body: Json, sub: str = "") -> Json:
        return self._request_json("PUT", resource.path(_namespace(body), body["metadata"]["name"], sub), body)

    def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        namespace: str = "",
        sub: str = "",
        content: str = MERGE,
    ) -> Json:
        return self._request_json("PATCH", resource.path(namespace, name, sub), body, content)

    def delete(self, resource: Resource, name: str, namespace: str = "", grace: int | None = None) -> None:
        """Delete an object.

        `grace` is the grace period in seconds. None means the default of the API server.
        """
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        self.request("DELETE", resource.path(namespace, name), options)

    def delete_all(self, resource: Resource, namespace: str = "") -> None:
        self.request("DELETE", resource.path(namespace), {"gracePeriodSeconds": 0})

    def bind(self, namespace: str, name: str, node: str) -> None:
        """Bind a pod to a node, without a scheduler."""
        body = {"metadata": {"name": name, "namespace": namespace}, "target": {"kind": "Node", "name": node}}
        self.request("POST", PODS.path(namespace, name, "binding"), body)

    def watch(self, resource: Resource, version: str, namespace: str = "", seconds: int = 300) -> Watch:
        """Return a watch with bookmarks from a resourceVersion on.

        The API server ends the watch after `seconds`.
        """
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "1",
            "timeoutSeconds": str(seconds),
        }
        return Watch(
            self._connections(1),
            _with_query(resource.path(namespace), query),
            self._headers_with("application/json"),
        )

    def stream(self, path: str, accept: str) -> Watch:
        """Return a watch of a path. `accept` names the media type of the answer."""
        return Watch(self._connections(1), path, {**self._headers, "Accept": accept})

    def _request_json(
        self, method: str, path: str, body: Any = None, content: str = "application/json"
    ) -> Json:
        answer: Json = self.request(method, path, body, content)
        return answer

    def _headers_with(self, content: str) -> dict[str, str]:
        return {**self._headers, "Content-Type": content}

    def _connections(self, count: int) -> urllib3.HTTPConnectionPool:
        """Return a pool of connections that never retries a request, so that tests see failures."""
        options: Json = (
            {"ca_certs": str(self._access.authority)} if self._access.server.startswith("https") else {}
        )
        return urllib3.connection_from_url(
            self._access.server,
            maxsize=count,
            block=True,
            retries=False,
            timeout=urllib3.Timeout(connect=10, read=300),
            **options,
        )


def refusal(action: Callable[[], object]) -> str:
    """Call `action`, and return the message of the API server's refusal. Return "" if the action succeeds."""
    try:
        action()
    except ApiError as error:
        return str(error)
    return ""


def _encoded(body: Any) -> bytes | None:
    return None if body is None else json.dumps(body).encode()


def _namespace(body: Json) -> str:
    return str(body["metadata"].get("namespace", ""))


def _with_query(path: str, query: dict[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
