"""Served kinds, their paths, and the discovery documents that kubectl reads first."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from extender import __version__
from extender.api.workloads.shape import VOLCANO_JOB, WorkloadRow, runtime_kinds
from extender.api.workloads.table import WORKLOADS

Json = dict[str, Any]


@dataclass(frozen=True)
class ResourceKind:
    """Served kind. On a real cluster, `custom` kinds come from CRDs and have no strategic merge patches."""

    api_version: str
    name: str
    plural: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    status: bool = False  # whether it has the subresource `status`
    custom: bool = False
    scale: bool = False  # whether it has the subresource `scale`

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    @property
    def root(self) -> str:
        """Return the path of the API version: /api/v1 or /apis/GROUP/VERSION."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    @property
    def qualified(self) -> str:
        """Return the name for messages, such as pods or queues.scheduling.volcano.sh."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_VOLCANO = "scheduling.volcano.sh/v1beta1"
NODES = ResourceKind("v1", "Node", "nodes", namespaced=False, short=("no",), status=True)
PODS = ResourceKind("v1", "Pod", "pods", short=("po",), status=True)
NAMESPACES = ResourceKind("v1", "Namespace", "namespaces", namespaced=False, short=("ns",), status=True)
EVENTS = ResourceKind("v1", "Event", "events", short=("ev",))
RESOURCE_QUOTAS = ResourceKind("v1", "ResourceQuota", "resourcequotas", short=("quota",), status=True)
LEASES = ResourceKind("coordination.k8s.io/v1", "Lease", "leases")
PRIORITY_CLASSES = ResourceKind(
    "scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", namespaced=False, short=("pc",)
)
QUEUES = ResourceKind(_VOLCANO, "Queue", "queues", namespaced=False, short=("q",), status=True, custom=True)
POD_GROUPS = ResourceKind(_VOLCANO, "PodGroup", "podgroups", short=("pg",), custom=True)
COMMANDS = ResourceKind("bus.volcano.sh/v1alpha1", "Command", "commands", custom=True)
JOBS = ResourceKind("batch/v1", "Job", "jobs", status=True)
CRON_JOBS = ResourceKind("batch/v1", "CronJob", "cronjobs", short=("cj",), status=True)


def _custom_kind(api_version: str, name: str, short: str) -> ResourceKind:
    return ResourceKind(api_version, name, f"{name.lower()}s", short=(short,), status=True, custom=True)


_MUSTER = "kube-muster.io/v1alpha1"
LOCAL_QUEUES = _custom_kind(_MUSTER, "LocalQueue", "lq")
RESOURCE_FLAVORS = ResourceKind(
    _MUSTER, "ResourceFlavor", "resourceflavors", namespaced=False, short=("rf",), custom=True
)
TOPOLOGIES = ResourceKind(_MUSTER, "Topology", "topologies", namespaced=False, short=("topo",), custom=True)
ELASTIC_QUOTA_TREES = _custom_kind("scheduling.sigs.k8s.io/v1beta1", "ElasticQuotaTree", "eqtree")
ELASTIC_QUOTAS = _custom_kind("scheduling.x-k8s.io/v1alpha1", "ElasticQuota", "eq")


def _scalable_kind(name: str, short: str) -> ResourceKind:
    return ResourceKind("apps/v1", name, f"{name.lower()}s", short=(short,), status=True, scale=True)


DEPLOYMENTS = _scalable_kind("Deployment", "deploy")
REPLICA_SETS = _scalable_kind("ReplicaSet", "rs")
STATEFUL_SETS = _scalable_kind("StatefulSet", "sts")

SCALE = ResourceKind("autoscaling/v1", "Scale", "scales")  # the kind of every subresource `scale`

KUBERNETES_WORKLOADS = (CRON_JOBS, JOBS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS)


def _kind_of(row: WorkloadRow) -> ResourceKind:
    return ResourceKind(
        row.api_version, row.kind, row.plural, short=row.short_names, status=True, custom=True
    )


def _operator_kinds() -> Iterator[ResourceKind]:
    """Yield the operators' kinds that can be suspended, except kinds whose pods own pods."""
    for row in WORKLOADS.values():
        is_owned = any(offspring.owner for offspring in row.offspring)
        if row.manageable and not row.commanded and not is_owned and row.key != (JOBS.api_version, JOBS.name):
            yield _kind_of(row)


def _expanded_kinds() -> Iterator[ResourceKind]:
    """Yield the operators' kinds that cannot be suspended.

    The embedded cluster has no controller for these kinds. Their pods are created once, for the objects in
    files.
    """
    for row in WORKLOADS.values():
        if not row.manageable and row.api_version not in ("v1", "apps/v1", "batch/v1"):
            yield _kind_of(row)


OPERATOR_KINDS = tuple(_operator_kinds())
EXPANDED_KINDS = tuple(_expanded_kinds())  # their pods are created once, from files
VOLCANO_JOBS = ResourceKind(*VOLCANO_JOB, "jobs", short=("vcjob", "vj"), status=True, custom=True)
WORKLOAD_KINDS = (*OPERATOR_KINDS, *KUBERNETES_WORKLOADS)
RUNTIME_KINDS = tuple(
    ResourceKind(kind.api_version, kind.kind, kind.plural, namespaced=kind.namespaced, custom=True)
    for kind in runtime_kinds(WORKLOADS.values())
)
# kinds whose CRDs belong to other projects
UNSHIPPED_KINDS = (*OPERATOR_KINDS, *EXPANDED_KINDS, *RUNTIME_KINDS, ELASTIC_QUOTAS)
_DEVICES = "resource.k8s.io/v1"
DEVICE_CLASSES = ResourceKind(_DEVICES, "DeviceClass", "deviceclasses", namespaced=False)
RESOURCE_SLICES = ResourceKind(_DEVICES, "ResourceSlice", "resourceslices", namespaced=False)
CLAIM_TEMPLATES = ResourceKind(_DEVICES, "ResourceClaimTemplate", "resourceclaimtemplates")
RESOURCE_CLAIMS = ResourceKind(_DEVICES, "ResourceClaim", "resourceclaims", status=True)
DEVICE_KINDS = (DEVICE_CLASSES, RESOURCE_SLICES, CLAIM_TEMPLATES, RESOURCE_CLAIMS)
KINDS = (
    *(NAMESPACES, NODES, PRIORITY_CLASSES, RESOURCE_FLAVORS, TOPOLOGIES),
    *(QUEUES, ELASTIC_QUOTA_TREES, ELASTIC_QUOTAS, LOCAL_QUEUES),
    *DEVICE_KINDS,
    *(COMMANDS, LEASES, RESOURCE_QUOTAS, EVENTS, POD_GROUPS, *RUNTIME_KINDS),
    *(VOLCANO_JOBS, *WORKLOAD_KINDS, *EXPANDED_KINDS, PODS),
)
_AUTHORIZATION, _AUTHENTICATION = "authorization.k8s.io/v1", "authentication.k8s.io/v1"
ACCESS = ResourceKind(_AUTHORIZATION, "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False)
IDENTITY = ResourceKind(_AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews", namespaced=False)
_RULES = ResourceKind(_AUTHORIZATION, "SelfSubjectRulesReview", "selfsubjectrulesreviews", namespaced=False)
REVIEW_KINDS = (ACCESS, _RULES, IDENTITY)  # kinds that are created, but never stored

SERVED_KINDS = (*KINDS, *REVIEW_KINDS)
KIND_BY_PATH = {(kind.root, kind.plural): kind for kind in SERVED_KINDS}
KIND_BY_NAME = {(kind.api_version, kind.name): kind for kind in KINDS}


def subresources_of(kind: ResourceKind) -> tuple[str, ...]:
    served = {"binding": kind is PODS, "eviction": kind is PODS, "status": kind.status, "scale": kind.scale}
    return tuple(name for name, is_served in served.items() if is_served)


_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_MINOR_VERSION = "37"  # minor version of Kubernetes whose behaviour is simulated
GIT_VERSION = f"v1.{_MINOR_VERSION}.0+muster-{__version__}"


def discovery_document(path: str) -> Json | None:
    """Return the discovery document at `path`; None if the path has none."""
    match path.strip("/"):
        case "version":
            return {"major": "1", "minor": _MINOR_VERSION, "gitVersion": GIT_VERSION, "platform": "embedded"}
        case "api":
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case "apis":
            groups = []
            served = sorted(SERVED_KINDS, key=lambda kind: kind.custom)  # Kubernetes' own groups come first
            for name, number in {kind.group: kind.version for kind in served if kind.group}.items():
                version = {"groupVersion": f"{name}/{number}", "version": number}
                groups.append({"name": name, "versions": [version], "preferredVersion": version})
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case root:
            return _resource_list(f"/{root}")


def _resource_list(root: str) -> Json | None:
    """Return the APIResourceList of the API version at `root`; None if no kind is served there."""
    resources: list[Json] = []
    listed_kinds = (PODS, POD_GROUPS, *KUBERNETES_WORKLOADS)  # the kinds that `kubectl get all` lists
    for kind in (kind for kind in SERVED_KINDS if kind.root == root):
        resource = {
            "name": kind.plural,
            "singularName": kind.name.lower(),
            "namespaced": kind.namespaced,
            "kind": kind.name,
            "verbs": ["create"] if kind in REVIEW_KINDS else _VERBS,
            "shortNames": list(kind.short),
            "categories": ["all"] if kind in listed_kinds else [],
        }
        resources.append(resource)
        for name in subresources_of(kind):
            entry = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
            scale_kind = {"group": SCALE.group, "version": SCALE.version, "kind": SCALE.name}
            of_kind = scale_kind if name == "scale" else {"kind": kind.name}
            resources.append({**entry, **of_kind, "verbs": ["get", "patch", "update"]})
    if not resources:
        return None
    version = root.removeprefix("/apis/").removeprefix("/api/")
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
