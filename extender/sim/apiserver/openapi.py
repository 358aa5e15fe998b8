"""The schemas in OpenAPI v3, for `kubectl explain` and for what kubectl asks before it applies."""

from functools import cache

from extender.sim.apiserver.kinds import SERVED, Json, ResourceKind
from extender.sim.apiserver.schemas.published import name_of, with_referred

_ROOT = "/openapi/v3"


@cache
def document(path: str) -> Json | None:
    """The index, or the part for one group and version; None where there is none."""
    if path == _ROOT:
        roots = {kind.root.strip("/") for kind in SERVED}
        return {"paths": {root: {"serverRelativeURL": f"{_ROOT}/{root}"} for root in sorted(roots)}}
    kinds = [kind for kind in SERVED if path == f"{_ROOT}{kind.root}"]
    if not kinds:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "Muster's embedded cluster", "version": "v1"},
        "paths": {_path(kind): _patch(kind) for kind in kinds},
        "components": {"schemas": with_referred(map(name_of, kinds))},
    }


def _path(kind: ResourceKind) -> str:
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    return f"{kind.root}{scope}/{kind.plural}/{{name}}"


def _patch(kind: ResourceKind) -> Json:
    """That the server judges fields itself, and which kind this is."""
    named = {"group": kind.group, "version": kind.version, "kind": kind.name}
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    return {"patch": {"x-kubernetes-group-version-kind": named, "parameters": [parameter], "responses": {}}}
