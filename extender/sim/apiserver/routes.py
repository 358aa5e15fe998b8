"""What is done to an object or a collection by which method."""

from extender.sim.apiserver.field_errors import wrong
from extender.sim.apiserver.kinds import REVIEWS, Json, ResourceKind
from extender.sim.apiserver.listing import list_page
from extender.sim.apiserver.options import APPLY_PATCH, check
from extender.sim.apiserver.ownership.managers import APPLY
from extender.sim.apiserver.ownership.wanted import wanted_of
from extender.sim.apiserver.patches import Patch, patching
from extender.sim.apiserver.requests import Request
from extender.sim.apiserver.reviews import reviewed
from extender.sim.apiserver.scaling import scale_of, scaling
from extender.sim.apiserver.service import Service
from extender.sim.apiserver.status_errors import StatusError, invalid_object
from extender.sim.apiserver.store import key_of
from extender.sim.apiserver.validation.forms import read


def answer(service: Service, request: Request) -> tuple[int, Json]:
    """Do what is asked: the status of the answer and its body. Raises StatusError."""
    target = request.target
    check(request.method, request.media_type, request.query)
    match request.method:
        case "GET":
            return 200, _read(service, request)
        case "POST" if target.kind in REVIEWS:
            return 201, reviewed(target.kind, read(target.kind, request.body, request.strict))
        case "POST":
            return 201, _post(service, request)
        case "PATCH" if target.name and request.media_type == APPLY_PATCH:
            return _apply(service, request)
        case "PUT" | "PATCH" if target.name:
            return 200, _change(service, request)
        case "DELETE":
            return 200, _delete(service, request)
    raise StatusError(405, "MethodNotAllowed", f"{request.method} is not allowed here")


# ---- reading


def _read(service: Service, request: Request) -> Json:
    kind, namespace, name, subresource = request.target
    if not name:
        return list_page(service.store, request)
    found = service.get(kind, namespace, name)
    return scale_of(found) if subresource == "scale" else found


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
        change = patching(request.media_type, request.body, strategic_known=not kind.custom)
    else:
        change = _replacing(kind, name, request.body)
    if subresource == "scale":
        change = scaling(name, change, request.strict)
    asked = request.dry, request.manager(), request.strict
    made = service.amend(kind, namespace, name, change, subresource, *asked)
    return scale_of(made) if subresource == "scale" else made


def _replacing(kind: ResourceKind, name: str, body: Json) -> Patch:
    """A client that replaces an object of a CRD has to give its version."""

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


def _delete(service: Service, request: Request) -> Json:
    kind, namespace, name, _ = request.target
    options: Json = request.body or {}
    if "gracePeriodSeconds" in request.query:
        options = {**options, "gracePeriodSeconds": int(request.query["gracePeriodSeconds"])}
    if name:
        return service.delete(kind, namespace, name, options)
    gone = list_page(service.store, request)
    for item in gone["items"]:
        service.delete(kind, *key_of(item), options)
    return gone
