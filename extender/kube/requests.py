"""The common form of requests for objects: bodies, kinds of patch, preconditions, decoded answers.

Four classes build on it, each with the requests of its callers: ApiClient for the server, Reader and Editor
for commands, AdmissionApi for the webhooks.
"""

from typing import Any, TypeVar

import msgspec

from extender.kube.connection import Connection, QueryParams
from extender.kube.decoders import decoder_of
from extender.kube.errors import Ambiguous, Conflict, Invalid
from extender.kube.events import UNREADABLE

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"  # the body may be JSON

_encode = msgspec.json.Encoder().encode
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}

T = TypeVar("T")


class Requests:
    """Over a Connection. All raise ApiError; `timeout` is in seconds."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _get(self, path: str, kind: type[T], timeout: float, query: QueryParams | None = None) -> T:
        return decoded(self._connection.request("GET", path, query=query, timeout=timeout), kind, path)

    def _post(
        self, path: str, body: dict[str, Any], timeout: float, query: QueryParams | None = None
    ) -> bytes:
        return self._connection.request("POST", path, body=_encode(body), query=query, timeout=timeout)

    def _patch(
        self,
        path: str,
        patch: dict[str, Any] | list[dict[str, Any]],
        timeout: float,
        kind: str = MERGE,
        query: QueryParams | None = None,
    ) -> bytes:
        """The server answers a wrong UID with `Invalid`, as an attempt to change the UID; this raises
        Conflict instead."""
        try:
            return self._connection.request(
                "PATCH", path, body=_encode(patch), content_type=kind, query=query, timeout=timeout
            )
        except Invalid as fault:
            if "metadata.uid" not in fault.fields:
                raise
            raise Conflict(409, "Conflict", fault.message) from fault

    def _delete(self, path: str, uid: str, timeout: float, options: dict[str, Any] | None = None) -> None:
        """Raises Conflict if the object of this name is a different one now."""
        preconditions = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        body = _encode({**preconditions, **(options or {})})
        self._connection.request("DELETE", path, body=body, timeout=timeout)


def decoded(body: bytes, kind: type[T], what: str) -> T:
    """An answer as an object. Raises Ambiguous if it is not of this kind. Decoders are made once."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = decoder_of(kind)
    try:
        found: T = decoder.decode(body)
    except UNREADABLE as fault:
        raise Ambiguous(f"{what}: not the expected object: {fault}") from fault
    return found
