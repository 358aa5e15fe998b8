"""Base of requests for objects, with the reads and writes of the command line."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from extender.api.keys import ROOT_QUEUE
from extender.api.objects.base import refuse_deep
from extender.kube.connection import Connection, QueryParams
from extender.kube.decoding import UNREADABLE, Decoders, ObjectIdentity, Undecodable, decoder_of
from extender.kube.errors import Ambiguous, ChangeDropped, Conflict, Invalid, NotFound
from extender.kube.resources import COMMANDS, QUEUES, Resource

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"  # the body may be JSON

_encode = msgspec.json.Encoder().encode
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}

_FIELD_MANAGER = "kubectl-muster"
_TIMEOUT = 30.0  # seconds
_PAGE_SIZE = 500
_ACTIONS = {"Open": "OpenQueue", "Closed": "CloseQueue"}
_NO_FIELD = "the cluster's Queue has no spec.state"
_APPLY_HINT = "Apply Muster's kinds: kubectl apply -f manifests/crds"

Json = dict[str, Any]
T = TypeVar("T")


class Requests:
    """Requests over a Connection. All methods raise ApiError; each `timeout` is in seconds."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _get(self, path: str, kind: type[T], timeout: float = 10, query: QueryParams | None = None) -> T:
        return decode(self._connection.request("GET", path, query=query, timeout=timeout), kind, path)

    def _post(self, path: str, body: Json, timeout: float = 10, query: QueryParams | None = None) -> bytes:
        return self._connection.request("POST", path, body=_encode(body), query=query, timeout=timeout)

    def _patch(
        self,
        path: str,
        patch: Mapping[str, Any] | list[Json],
        timeout: float = 10,
        patch_type: str = MERGE,
        query: QueryParams | None = None,
    ) -> bytes:
        """Patch an object.

        Raises:
            Conflict: The object has another UID. The API server reports this as `Invalid`.
        """
        try:
            return self._connection.request(
                "PATCH", path, body=_encode(patch), content_type=patch_type, query=query, timeout=timeout
            )
        except Invalid as fault:
            if "metadata.uid" not in fault.fields:
                raise
            raise Conflict(409, "Conflict", fault.message) from fault

    def _delete(self, path: str, uid: str, timeout: float = 10, **options: object) -> None:
        """Delete an object.

        Raises:
            Conflict: The name belongs to another object now.
        """
        preconditions = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        body = _encode({**preconditions, **options})
        self._connection.request("DELETE", path, body=body, timeout=timeout)


def decode(body: bytes, kind: type[T], title: str) -> T:
    """Return the object in an answer. `title` names the answer in errors. Decoders are cached.

    Raises:
        Ambiguous: The answer is not a readable object of this kind.
    """
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = decoder_of(kind)
    try:
        obj: T = decoder.decode(body)
        refuse_deep(obj)
    except (*UNREADABLE, ValueError) as fault:
        raise Ambiguous(f"{title}: not the expected object: {fault}") from fault
    return obj


class Editor(Requests):
    """Writer of single objects, which returns the results.

    With `dry_run`, the API server only checks the change.
    """

    def create(self, resource: Resource, namespace: str, obj: Json, dry_run: bool = False) -> Json:
        path = resource.path(namespace)
        return decode(self._post(path, obj, _TIMEOUT, self._query(dry_run)), Json, path)

    def patch(
        self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any], dry_run: bool = False
    ) -> Json:
        """Merge `patch` into an object. A null removes a field."""
        path = resource.path(namespace, name)
        return decode(self._patch(path, patch, _TIMEOUT, query=self._query(dry_run)), Json, path)

    def change_queue(self, name: str, spec: Mapping[str, Any], dry_run: bool = False) -> Json:
        """Merge `spec` into the spec of a queue.

        Raises:
            ChangeDropped: Neither the queue nor a Command can change the state.
        """
        answer = self.patch(QUEUES, "", name, {"spec": spec}, dry_run)
        self.ensure_state(answer, spec.get("state"), dry_run)
        return answer

    def ensure_state(self, answer: Json, state: str | None, dry_run: bool = False) -> None:
        """Create a Command for the state if the API server has dropped the state from `answer`.

        Volcano's own CRD lacks `spec.state`, and the API server drops unknown fields. vcctl creates the same
        Command of bus.volcano.sh, and Muster executes it.

        Raises:
            ChangeDropped: No Command can change the state.
        """
        if state is None or answer["spec"].get("state") == state:
            return
        name, action = answer["metadata"]["name"], _ACTIONS[state]
        if name == ROOT_QUEUE and state == "Closed":
            reason = f"{_NO_FIELD}, and no Command closes {ROOT_QUEUE}"
            raise ChangeDropped(f"queue {ROOT_QUEUE} was not closed: {reason}\n{_APPLY_HINT}")
        target = {"apiVersion": answer["apiVersion"], "kind": "Queue", "name": name}
        target |= {"uid": answer["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}
        command = {
            "apiVersion": COMMANDS.version,
            "kind": "Command",
            "metadata": {"generateName": f"{name}-{action.lower()}-", "ownerReferences": [target]},
            "action": action,
            "target": target,
        }
        try:
            self.create(COMMANDS, "default", command, dry_run)  # vcctl uses this namespace, too
        except NotFound as fault:
            reason = f"{_NO_FIELD}, and it has no Commands of bus.volcano.sh"
            raise ChangeDropped(f"queue {name} was not made {state}: {reason}\n{_APPLY_HINT}") from fault

    def delete(self, resource: Resource, namespace: str, name: str, uid: str, dry_run: bool = False) -> None:
        """Delete an object.

        Raises:
            Conflict: The name belongs to another object now.
        """
        options: Json = {"propagationPolicy": "Background"} | ({"dryRun": ["All"]} if dry_run else {})
        self._delete(resource.path(namespace, name), uid, _TIMEOUT, **options)

    def review(self, path: str, obj: Json) -> Json:
        """Create a review, for example a SelfSubjectAccessReview, and return it with the answer.

        The API server does not store reviews.
        """
        return decode(self._post(path, obj, _TIMEOUT), Json, path)

    @staticmethod
    def _query(dry_run: bool) -> dict[str, str]:
        return {"fieldManager": _FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})}


class Reader(Requests):
    """Reader of single objects and whole lists. `kind` is any type that msgspec can decode."""

    def __init__(self, connection: Connection, timeout: float = _TIMEOUT) -> None:
        super().__init__(connection)
        self._timeout = timeout
        self.skipped_objects: list[str] = []  # unreadable objects in lists, each once, with its fault

    def get(self, resource: Resource, namespace: str, name: str, kind: type[T]) -> T:
        return self._get(resource.path(namespace, name), kind, self._timeout)

    def list(
        self, resource: Resource, namespace: str, kind: type[T], fields: str = "", labels: str = ""
    ) -> list[T]:
        """Return all readable objects in a namespace; an empty namespace means all namespaces.

        `fields` and `labels` are selectors.
        """
        selectors = {"fieldSelector": fields, "labelSelector": labels}
        decoders: Decoders[Any] = Decoders(kind)
        path = resource.path(namespace)
        items: list[T] = []
        token = ""
        while True:
            parameters = {"limit": str(_PAGE_SIZE), "continue": token, **selectors}
            query = {name: value for name, value in parameters.items() if value}
            body = self._connection.request("GET", path, query=query, timeout=self._timeout)
            list_meta, page = decoders.page(body)
            for item in page:
                if bad_object := _unreadable(item):
                    self._skip(resource, bad_object)
                elif not isinstance(item, Undecodable):
                    items.append(item)
            token = list_meta.continue_
            if not token:
                return items

    def _skip(self, resource: Resource, bad_object: Undecodable) -> None:
        name = "/".join(filter(None, (bad_object.metadata.namespace, bad_object.metadata.name)))
        text = f"{resource.plural} {name}: {bad_object.fault}"
        if text not in self.skipped_objects:
            self.skipped_objects.append(text)


def _unreadable(item: Any) -> Undecodable | None:
    """Return an object as undecodable if it could not be decoded or is nested too deeply; else None."""
    try:
        refuse_deep(item)
    except ValueError as fault:
        return Undecodable(msgspec.convert(item["metadata"], ObjectIdentity), str(fault))
    return item if isinstance(item, Undecodable) else None
