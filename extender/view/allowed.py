"""What may be asked through the view: what a kube-scheduler does, and nothing that goes behind the barrier.

The view adds Muster's credentials, so the API server cannot tell who asks. Its rules for the scheduler are
those of the roles system:kube-scheduler and system:volume-scheduler, less what binds, deletes or enters pods.

Reads have no list of kinds: a newer scheduler reads newer ones and does not start without them, and the API
server refuses what its role does not have. Secrets are refused here, since Muster's own role may have one.
"""

from typing import NamedTuple

_READ = frozenset({"GET", "HEAD"})
_NOT_READ = frozenset({"secrets", "watch", "proxy"})  # the last two are old prefixes of paths
_PAGES = frozenset({"version", "healthz", "livez", "readyz", "openapi"})  # besides /api and /apis
_REVIEWED = frozenset({"POST"})

# By group, then resource and subresource.
WRITES: dict[str, dict[str, frozenset[str]]] = {
    "": {
        "events": frozenset({"POST", "PUT", "PATCH"}),
        "pods/status": frozenset({"PATCH"}),
        "persistentvolumeclaims": frozenset({"PUT", "PATCH"}),  # volumes that bind late
        "persistentvolumes": frozenset({"PUT", "PATCH"}),
    },
    "events.k8s.io": {"events": frozenset({"POST", "PUT", "PATCH"})},
    "coordination.k8s.io": {
        "leases": frozenset({"POST", "PUT", "PATCH"}),
        "leasecandidates": frozenset({"POST", "PUT", "PATCH"}),
    },
    "resource.k8s.io": {
        # Created for extended resources that devices provide, and deleted if the pod is not bound after all.
        "resourceclaims": frozenset({"POST", "PUT", "PATCH", "DELETE"}),
        "resourceclaims/status": frozenset({"PUT", "PATCH"}),
    },
    "scheduling.k8s.io": {"podgroups/status": frozenset({"PUT", "PATCH"})},  # Kubernetes' own groups
    # The scheduler's own port asks who calls it, and whether that is allowed; kubectl asks what it may do.
    "authentication.k8s.io": {"tokenreviews": _REVIEWED, "selfsubjectreviews": _REVIEWED},
    "authorization.k8s.io": {
        "subjectaccessreviews": _REVIEWED,
        "selfsubjectaccessreviews": _REVIEWED,
        "selfsubjectrulesreviews": _REVIEWED,
    },
}


class AskedResource(NamedTuple):
    """What a path means."""

    group: str  # empty: core
    name: str  # such as pods, or pods/status
    object: str  # empty: all, of a namespace or everywhere


def read_resource(path: str) -> AskedResource | None:
    """None for a path that is no resource: discovery, health, version."""
    root, *rest = path.strip("/").split("/")
    skipped = {"api": 1, "apis": 2}.get(root, len(rest))  # version, or group and version
    if len(rest) <= skipped:
        return None
    group = rest[0] if root == "apis" else ""
    below = rest[skipped:]
    if below[0] == "namespaces" and len(below) > 2 and below[2] not in ("status", "finalize"):
        below = below[2:]
    name, *more = below
    return AskedResource(group, "/".join([name, *more[1:]]), more[0] if more else "")


def is_allowed(method: str, path: str) -> bool:
    """Whether the view passes on a request."""
    resource = read_resource(path)
    if resource is None:
        return method in _READ and path.split("/")[1] in {"api", "apis", *_PAGES}
    if method in _READ:
        return resource.name.removesuffix("/status") == resource.name.split("/")[0] not in _NOT_READ
    named = method == "POST" or bool(resource.object)  # no collection is changed at once
    return named and method in WRITES.get(resource.group, {}).get(resource.name, ())
