"""What kubectl asks before it asks for anything: version, groups, resources, schemas in OpenAPI v3."""

from functools import cache

from extender import __version__
from extender.sim.apiserver import kinds
from extender.sim.apiserver.field_schemas import name_of, with_referred
from extender.sim.apiserver.kinds import Json

_ROOT = "/openapi/v3"


@cache
def openapi_document(path: str) -> Json | None:
    """The index, or the part for one group and version; None where there is none."""
    if path == _ROOT:
        roots = {kind.root.strip("/") for kind in kinds.SERVED}
        return {"paths": {root: {"serverRelativeURL": f"{_ROOT}/{root}"} for root in sorted(roots)}}
    served = [kind for kind in kinds.SERVED if path == f"{_ROOT}{kind.root}"]
    if not served:
        return None
    paths: Json = {}  # a client looks there for the kind, and whether the server judges fields itself
    for kind in served:
        scope = "/namespaces/{namespace}" if kind.namespaced else ""
        named = {"group": kind.group, "version": kind.version, "kind": kind.name}
        parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
        patch = {"x-kubernetes-group-version-kind": named, "parameters": [parameter], "responses": {}}
        paths[f"{kind.root}{scope}/{kind.plural}/{{name}}"] = {"patch": patch}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Muster's embedded cluster", "version": "v1"},
        "paths": paths,
        "components": {"schemas": with_referred(map(name_of, served))},
    }


# ---- groups and resources

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_MINOR = "37"  # of the release whose behaviour is played
GIT_VERSION = f"v1.{_MINOR}.0+muster-{__version__}"


def document(path: str) -> Json | None:
    """The document at `path`; None where there is none."""
    match path.strip("/"):
        case "version":
            return {"major": "1", "minor": _MINOR, "gitVersion": GIT_VERSION, "platform": "embedded"}
        case "api":
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case "apis":
            groups = []
            for name, number in {kind.group: kind.version for kind in kinds.SERVED if kind.group}.items():
                version = {"groupVersion": f"{name}/{number}", "version": number}
                groups.append({"name": name, "versions": [version], "preferredVersion": version})
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case found:
            return _resources(f"/{found}") or openapi_document(f"/{found}")


def _resources(root: str) -> Json | None:
    resources: list[Json] = []
    of_all = (kinds.PODS, kinds.POD_GROUPS, *kinds.KUBERNETES_WORKLOADS)
    for kind in (kind for kind in kinds.SERVED if kind.root == root):
        resource = {
            "name": kind.plural,
            "singularName": kind.name.lower(),
            "namespaced": kind.namespaced,
            "kind": kind.name,
            "verbs": ["create"] if kind in kinds.REVIEWS else _VERBS,
            "shortNames": list(kind.short),
            "categories": ["all"] if kind in of_all else [],
        }
        resources.append(resource)
        for name in kinds.subresources_of(kind):
            made = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
            own = {"group": kinds.SCALE.group, "version": kinds.SCALE.version, "kind": kinds.SCALE.name}
            of_kind = own if name == "scale" else {"kind": kind.name}
            resources.append({**made, **of_kind, "verbs": ["get", "patch", "update"]})
    if not resources:
        return None
    version = root.removeprefix("/apis/").removeprefix("/api/")
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
