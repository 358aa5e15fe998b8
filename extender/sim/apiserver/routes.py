"""Routes: the methods on an object or a collection, for reading, listing, watching and writing.

All pages of a list show the same version. A watch with selectors sends ADDED for an object that begins to
match, and DELETED for an object that no longer matches. When there are no events, and at the end of a watch,
bookmarks report the version from which the next watch can continue.
"""

import base64
import json
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import msgspec

from extender.apimachinery.errors import StatusError, bad_request, bad_value, invalid, invalid_object
from extender.apimachinery.kinds import ACCESS, IDENTITY, REVIEW_KINDS, SCALE, Json, ResourceKind
from extender.apimachinery.managed_fields import APPLY, UPDATE
from extender.apimachinery.objects import identity_of, other_name
from extender.apimachinery.patches import Patch, applied_object, patch_of
from extender.apimachinery.service import Service, WriteOptions
from extender.apimachinery.store import Change, Store, key_of
from extender.apimachinery.validation.schemas import read
from extender.sim.apiserver.requests import (
    APPLY_PATCH,
    Query,
    Request,
    RequestTarget,
    check,
    selector_test,
    selector_text,
)


def answer_review(kind: ResourceKind, review: Json) -> Json:
    """Return the answer to a review of an identity or of access rights: all users may do everything."""
    head = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {}}
    if kind is IDENTITY:
        return {**head, "status": {"userInfo": {"username": "you", "groups": ["system:masters"]}}}
    spec = review.get("spec") or {}
    if kind is ACCESS:
        reason = "the embedded cluster has no authentication: all users may do everything"
        return {**head, "spec": spec, "status": {"allowed": True, "reason": reason}}
    resources = [{name: ["*"] for name in ("verbs", "apiGroups", "resources")}]
    urls = [{name: ["*"] for name in ("verbs", "nonResourceURLs")}]
    status = {"resourceRules": resources, "nonResourceRules": urls, "incomplete": False}
    return {**head, "spec": spec, "status": status}


def list_page(store: Store, request: Request) -> Json:
    """Return a page of a list.

    Raises:
        StatusError: 400 if the continue token is invalid.
    """
    kind, namespace, *_ = request.target
    query = request.query
    version, after = 0, ("", "")  # `after` is the key of the last object on the previous page
    if token := query.get("continue"):
        try:
            stated_version, last_key = json.loads(base64.urlsafe_b64decode(token))
            version, after = int(stated_version), (last_key[0], last_key[1])
        except (ValueError, LookupError, TypeError) as fault:
            raise bad_request("continue key is not valid") from fault
    test = selector_test(query.get("labelSelector", ""), query.get("fieldSelector", ""))
    items, version = store.listing(kind, namespace, version)
    selected = [*filter(test, items[bisect_right(items, after, key=key_of) :])]
    page = selected[: int(query.get("limit") or 0) or None]
    metadata: Json = {"resourceVersion": str(version)}
    if remaining := len(selected) - len(page):
        token = base64.urlsafe_b64encode(json.dumps([version, key_of(page[-1])]).encode()).decode()
        metadata |= {"continue": token, "remainingItemCount": remaining}
    head = {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata}
    return {**head, "items": page}


# ---- watches

_CONNECTION_CHECK = 1.0  # seconds between two checks of the client's connection
_DEFAULT_SECONDS = 1800  # seconds; default duration of a watch

encode = msgspec.json.Encoder().encode


@dataclass
class Watch:
    """Watch of a kind. The caller iterates over `lines`.

    Raises:
        StatusError: 400 if a selector is invalid.
    """

    store: Store
    target: RequestTarget
    query: Query
    is_listening: Callable[[], bool]  # whether the client is still connected
    shape: Callable[[Json], Json] = lambda obj: obj  # returns an object in the form that the client accepts
    bookmark_period: float = 30.0

    def __post_init__(self) -> None:
        query = self.query
        self._test = selector_test(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        self._seconds = int(query.get("timeoutSeconds") or _DEFAULT_SECONDS)
        self._sends_all_first = query.get("sendInitialEvents") == "true"
        self._version = 0 if self._sends_all_first else int(query.get("resourceVersion") or 0)

    def lines(self) -> Iterator[bytes]:
        """Yield the events as bytes. Events that are available at the same time become one item."""
        try:
            if not self._version:
                objects, self._version = self.store.listing(self.target.kind, self.target.namespace)
                end = self._bookmark({"k8s.io/initial-events-end": "true"}) if self._sends_all_first else b""
                yield b"".join(_line("ADDED", self.shape(obj)) for obj in objects if self._test(obj)) + end
            deadline = time.monotonic() + self._seconds
            bookmark_at = time.monotonic() + self.bookmark_period
            while time.monotonic() < deadline and not self.store.is_closed and self.is_listening():
                wait = min(deadline, bookmark_at, time.monotonic() + _CONNECTION_CHECK) - time.monotonic()
                if events := b"".join(self._events(self.store.wait(self._version, max(wait, 0.0)))):
                    yield events
                if time.monotonic() >= bookmark_at:
                    bookmark_at = time.monotonic() + self.bookmark_period
                    yield self._bookmark()
            yield self._bookmark()
        except StatusError as refusal:  # 410; the response header has already been sent
            yield _line("ERROR", refusal.status())

    def _events(self, changes: list[Change]) -> Iterator[bytes]:
        kind, namespace = self.target.kind, self.target.namespace
        for change in changes:
            self._version = change.version
            if change.kind is not kind or namespace not in ("", change.object["metadata"].get("namespace")):
                continue
            matched_before = change.old_object is not None and self._test(change.old_object)
            matches_now = change.type != "DELETED" and self._test(change.object)
            types = {(False, True): "ADDED", (True, True): "MODIFIED", (True, False): "DELETED"}
            if matched_before or matches_now:
                yield _line(types[matched_before, matches_now], self.shape(change.object))

    def _bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        if self.query.get("allowWatchBookmarks") not in ("true", "1"):
            return b""
        kind, meta = self.target.kind, {"resourceVersion": str(self._version), "annotations": annotations}
        return _line("BOOKMARK", {"kind": kind.name, "apiVersion": kind.api_version, "metadata": meta})


def _line(type_: str, obj: Json) -> bytes:
    return encode({"type": type_, "object": obj}) + b"\n"


def answer(service: Service, request: Request) -> tuple[int, Json]:
    """Execute a request, and return the status and the body of the answer.

    Raises:
        StatusError: The request is refused.
    """
    target = request.target
    check(request.method, request.media_type, request.query)
    match request.method:
        case "GET":
            if not target.name:
                return 200, list_page(service.store, request)
            obj = service.get(*target[:3])
            return 200, _scale_of(obj) if target.subresource == "scale" else obj
        case "POST" if target.kind in REVIEW_KINDS:
            return 201, answer_review(target.kind, read(target.kind, request.body, request.is_strict))
        case "POST":
            return 201, _post(service, request)
        case "PATCH" if target.name and request.media_type == APPLY_PATCH:
            configuration = applied_object(target.kind, target.name, target.subresource, request.body)
            force = request.query.get("force") in ("true", "1")
            obj, is_new = service.apply(*target[:3], configuration, _options(request, APPLY), force)
            return (201 if is_new else 200), obj
        case "PUT" | "PATCH" if target.name:
            return 200, _change(service, request)
        case "DELETE":
            return 200, _delete(service, request)
    raise StatusError(405, "MethodNotAllowed", f"{request.method} is not allowed here")


# ---- writing


def _post(service: Service, request: Request) -> Json:
    kind, namespace, name, subresource = request.target
    match subresource:
        case "binding":
            service.bind(namespace, name, request.body)
        case "eviction":
            service.evict(namespace, name, request.body)
        case _:
            return service.create(kind, namespace, request.body, _options(request))
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _change(service: Service, request: Request) -> Json:
    kind, namespace, name, subresource = request.target
    if request.method == "PATCH":
        change = patch_of(request.media_type, request.body, allows_strategic=not kind.custom)
    else:
        change = partial(_replacement, kind, name, request.body)
    if subresource == "scale":
        change = _scaling(name, change, request.is_strict)
    changed_object = service.amend(kind, namespace, name, change, subresource, _options(request))
    return _scale_of(changed_object) if subresource == "scale" else changed_object


def _replacement(kind: ResourceKind, name: str, body: Json, _before: Json) -> Json:
    """Return the replacement of an object.

    Raises:
        StatusError: 422 if the body is a custom object without its version.
    """
    meta = body.get("metadata") or {}
    if kind.custom and meta.get("name") == name and not meta.get("resourceVersion"):
        error = bad_value("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid_object(kind.plural, kind.group, name, [error])
    return body


def _options(request: Request, operation: str = UPDATE) -> WriteOptions:
    return WriteOptions(request.manager(operation), request.query.get("dryRun") == "All", request.is_strict)


def _delete(service: Service, request: Request) -> Json:
    kind, namespace, name, _ = request.target
    options: Json = request.body or {}
    if "gracePeriodSeconds" in request.query:
        options = {**options, "gracePeriodSeconds": int(request.query["gracePeriodSeconds"])}
    if name:
        return service.delete(kind, namespace, name, options)
    page = list_page(service.store, request)
    for item in page["items"]:
        service.delete(kind, *key_of(item), options)
    return page


# ---- the scale of an object, which has a path of its own


def _scale_of(obj: Json) -> Json:
    meta, status = obj["metadata"], obj.get("status") or {}
    identity = "name", "namespace", "uid", "resourceVersion", "creationTimestamp"
    replicas = obj["spec"].get("replicas", 1)
    return {
        "kind": SCALE.name,
        "apiVersion": SCALE.api_version,
        "metadata": {name: meta[name] for name in identity},
        "spec": {"replicas": replicas} if replicas else {},
        "status": {"replicas": status.get("replicas", 0), "selector": selector_text(obj)},
    }


def _scaling(name: str, change: Patch, is_strict: bool) -> Patch:
    """Return the patch of an object from a patch of its scale subresource."""

    def scale_object(before: Json) -> Json:
        scale = read(SCALE, change(_scale_of(before)), is_strict)
        meta = scale["metadata"]
        if meta.get("name") != name:
            raise other_name(meta.get("name", ""), name)
        replicas = (scale.get("spec") or {}).get("replicas", 0)
        if replicas < 0:
            message = "must be greater than or equal to 0"
            raise invalid(SCALE, name, [bad_value("spec.replicas", replicas, message)])
        spec = {**before["spec"], "replicas": replicas}
        return {**before, "metadata": {**before["metadata"], **identity_of(scale)}, "spec": spec}

    return scale_object
