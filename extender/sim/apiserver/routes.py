"""Which object or collection a path names, and what is done to it by which method."""

import base64
import json
from typing import Any, NamedTuple

from extender.sim.apiserver.field_errors import wrong
from extender.sim.apiserver.kinds import BY_PATH, REVIEWS, SUBRESOURCES, Json, ResourceKind
from extender.sim.apiserver.options import APPLY_PATCH, LONGEST_MANAGER, Query, check
from extender.sim.apiserver.ownership.managers import APPLY, UPDATE, Manager
from extender.sim.apiserver.ownership.wanted import wanted_of
from extender.sim.apiserver.patches import Patch, patching
from extender.sim.apiserver.reviews import reviewed
from extender.sim.apiserver.selectors import selecting
from extender.sim.apiserver.service import Service
from extender.sim.apiserver.status_errors import StatusError, bad_request, invalid_object, no_such_path
from extender.sim.apiserver.store import key_of
from extender.sim.apiserver.validation.forms import read


class RequestTarget(NamedTuple):
    kind: ResourceKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class Request(NamedTuple):
    method: str
    target: RequestTarget
    query: Query
    content_type: str
    body: Any
    user_agent: str = ""

    @property
    def dry(self) -> bool:
        return self.query.get("dryRun") == "All"

    @property
    def strict(self) -> bool:
        """Whether fields that the kind does not have are refused."""
        return self.query.get("fieldValidation") == "Strict"

    def manager(self, operation: str = UPDATE) -> Manager:
        """Who asks: what it calls itself as a field manager, or the first word of its User-Agent."""
        name = self.query.get("fieldManager") or self.user_agent.partition("/")[0][:LONGEST_MANAGER]
        return Manager(name, operation, self.target.kind.api_version, self.target.subresource)


def target_of(path: str) -> RequestTarget:
    """/api/v1/namespaces/team-a/pods/worker-0/binding, taken apart. Raises StatusError 404."""
    parts = path.strip("/").split("/")
    length = 2 if parts[0] == "api" else 3
    root, rest = "/" + "/".join(parts[:length]), parts[length:]
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    kind = BY_PATH.get((root, rest[0])) if rest else None
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
        raise no_such_path()
    target = RequestTarget(kind, namespace, *rest[1:])
    if target.subresource and target.subresource not in _subresources(kind):
        raise no_such_path()
    return target


def _subresources(kind: ResourceKind) -> tuple[str, ...]:
    return (*SUBRESOURCES.get(kind, ()), *(("status",) if kind.status else ()))


def answer(service: Service, request: Request) -> tuple[int, Json]:
    """Do what is asked: the status of the answer and its body. Raises StatusError."""
    target = request.target
    check(request.method, _form(request), request.query)
    match request.method:
        case "GET":
            return 200, _read(service, request)
        case "POST" if target.kind in REVIEWS:
            return 201, reviewed(target.kind, read(target.kind, request.body, request.strict))
        case "POST":
            return 201, _post(service, request)
        case "PATCH" if target.name and _form(request) == APPLY_PATCH:
            return _apply(service, request)
        case "PUT" | "PATCH" if target.name:
            return 200, _change(service, request)
        case "DELETE":
            return 200, _delete(service, request)
    raise StatusError(405, "MethodNotAllowed", f"{request.method} is not allowed here")


# ---- reading


def _read(service: Service, request: Request) -> Json:
    kind, namespace, name, _ = request.target
    return service.get(kind, namespace, name) if name else _page(service, request)


def _page(service: Service, request: Request) -> Json:
    """A list, whole or in pages; all pages of one list show the same moment."""
    kind, namespace, *_ = request.target
    query = request.query
    version, after = _continued(query.get("continue", ""))
    test = selecting(query.get("labelSelector", ""), query.get("fieldSelector", ""))
    items, version = service.store.listing(kind, namespace, version)
    meant = [item for item in items if test(item) and list(key_of(item)) > after]
    shown = meant[: int(query.get("limit") or 0) or None]
    metadata: Json = {"resourceVersion": str(version)}
    if left := len(meant) - len(shown):
        metadata |= {"continue": _token(version, list(key_of(shown[-1]))), "remainingItemCount": left}
    head = {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata}
    return {**head, "items": shown}


def _token(version: int, last: list[str]) -> str:
    return base64.urlsafe_b64encode(json.dumps([version, last]).encode()).decode()


def _continued(token: str) -> tuple[int, list[str]]:
    """The version and the last object of the page before."""
    if not token:
        return 0, []
    try:
        version, last = json.loads(base64.urlsafe_b64decode(token))
        return int(version), list(last)
    except ValueError as fault:
        raise bad_request("continue key is not valid") from fault


# ---- writing


def _post(service: Service, request: Request) -> Json:
    kind, namespace, name, subresource = request.target
    match subresource:
        case "binding":
            service.bind(namespace, name, request.body)
        case "eviction":
            service.evict(namespace, name, request.body)
        case _:
            return service.create(
                kind, namespace, request.body, request.dry, request.manager(), request.strict
            )
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _change(service: Service, request: Request) -> Json:
    kind, namespace, name, subresource = request.target
    if request.method == "PATCH":
        change = patching(_form(request), request.body, strategic_known=not kind.custom)
    else:
        change = _replacing(kind, name, request.body)
    asked = request.dry, request.manager(), request.strict
    return service.amend(kind, namespace, name, change, subresource, *asked)


def _replacing(kind: ResourceKind, name: str, body: Json) -> Patch:
    """Who replaces an object of a CRD says which version of it."""

    def change(_before: Json) -> Json:
        meta = body.get("metadata") or {}
        if kind.custom and meta.get("name") == name and not meta.get("resourceVersion"):
            error = wrong("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid_object(kind.plural, kind.group, name, [error])
        return body

    return change


def _apply(service: Service, request: Request) -> tuple[int, Json]:
    kind, namespace, name, subresource = request.target
    wanted = wanted_of(kind, name, subresource, request.body)
    force = request.query.get("force") in ("true", "1")
    asked = request.manager(APPLY), force, request.dry, request.strict
    found, new = service.apply(kind, namespace, name, wanted, *asked)
    return (201 if new else 200), found


def _form(request: Request) -> str:
    return request.content_type.partition(";")[0].strip()


def _delete(service: Service, request: Request) -> Json:
    kind, namespace, name, _ = request.target
    options: Json = request.body or {}
    if "gracePeriodSeconds" in request.query:
        options = {**options, "gracePeriodSeconds": int(request.query["gracePeriodSeconds"])}
    if name:
        return service.delete(kind, namespace, name, options)
    gone = _page(service, request)
    for item in gone["items"]:
        service.delete(kind, *key_of(item), options)
    return gone
