"""As little of OpenAPI v3 as kubectl needs to leave the judging of fields to the server when it applies."""

from extender.sim.apiserver.kinds import KINDS, Json, ResourceKind

_ROOT = "/openapi/v3"


def document(path: str) -> Json | None:
    """The index, or the part for one group and version; None where there is none."""
    if path == _ROOT:
        roots = {kind.root.strip("/") for kind in KINDS}
        return {"paths": {root: {"serverRelativeURL": f"{_ROOT}/{root}"} for root in sorted(roots)}}
    kinds = [kind for kind in KINDS if path == f"{_ROOT}{kind.root}"]
    if not kinds:
        return None
    info = {"title": "Muster's embedded cluster", "version": "v1"}
    return {"openapi": "3.0.0", "info": info, "paths": {_path(kind): _patch(kind) for kind in kinds}}


def _path(kind: ResourceKind) -> str:
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    return f"{kind.root}{scope}/{kind.plural}/{{name}}"


def _patch(kind: ResourceKind) -> Json:
    named = {"group": kind.group, "version": kind.version, "kind": kind.name}
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    return {"patch": {"x-kubernetes-group-version-kind": named, "parameters": [parameter], "responses": {}}}
