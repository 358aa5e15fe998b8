"""The kinds that are served, and where each of them lives."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from extender.api.workloads.runtimes import runtime_kinds
from extender.api.workloads.table import WORKLOADS

Json = dict[str, Any]


@dataclass(frozen=True)
class ResourceKind:
    """One resource. `status`: whether status is a subresource, apart from the rest of the object.

    `scale`: whether its number of pods is a subresource, too. `custom` kinds come from CRDs on a real
    cluster; those know no strategic patch.
    """

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    status: bool = False
    custom: bool = False
    scale: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The path below which it lives: /api/v1, /apis/GROUP/VERSION."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    @property
    def qualified(self) -> str:
        """As messages name it: pods, queues.scheduling.volcano.sh."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_VOLCANO = "scheduling.volcano.sh"
NODES = ResourceKind("", "v1", "Node", "nodes", namespaced=False, short=("no",), status=True)
PODS = ResourceKind("", "v1", "Pod", "pods", short=("po",), status=True)
NAMESPACES = ResourceKind("", "v1", "Namespace", "namespaces", namespaced=False, short=("ns",), status=True)
EVENTS = ResourceKind("", "v1", "Event", "events", short=("ev",))
LEASES = ResourceKind("coordination.k8s.io", "v1", "Lease", "leases")
PRIORITY_CLASSES = ResourceKind(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False, short=("pc",)
)
QUEUES = ResourceKind(_VOLCANO, "v1beta1", "Queue", "queues", False, short=("q",), status=True, custom=True)
POD_GROUPS = ResourceKind(_VOLCANO, "v1beta1", "PodGroup", "podgroups", short=("pg",), custom=True)
LOCAL_QUEUES = ResourceKind(
    "kube-muster.io", "v1alpha1", "LocalQueue", "localqueues", short=("lq",), status=True, custom=True
)
ELASTIC_QUOTA_TREES = ResourceKind(
    *("scheduling.sigs.k8s.io", "v1beta1", "ElasticQuotaTree", "elasticquotatrees"),
    short=("eqtree",),
    status=True,
    custom=True,
)
ELASTIC_QUOTAS = ResourceKind(
    *("scheduling.x-k8s.io", "v1alpha1", "ElasticQuota", "elasticquotas"),
    short=("eq",),
    status=True,
    custom=True,
)
COMMANDS = ResourceKind("bus.volcano.sh", "v1alpha1", "Command", "commands", custom=True)
JOBS = ResourceKind("batch", "v1", "Job", "jobs", status=True)
CRON_JOBS = ResourceKind("batch", "v1", "CronJob", "cronjobs", short=("cj",), status=True)


def _scaled(name: str, plural: str, short: str) -> ResourceKind:
    return ResourceKind("apps", "v1", name, plural, short=(short,), status=True, scale=True)


DEPLOYMENTS = _scaled("Deployment", "deployments", "deploy")
REPLICA_SETS = _scaled("ReplicaSet", "replicasets", "rs")
STATEFUL_SETS = _scaled("StatefulSet", "statefulsets", "sts")

SCALE = ResourceKind("autoscaling", "v1", "Scale", "scales")  # what the subresource is, of any kind

KUBERNETES_WORKLOADS = (CRON_JOBS, JOBS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS)


def _of_operators() -> Iterator[ResourceKind]:
    """Jobs of operators that can wait suspended, in their first versions, if their pods own no others."""
    seen = {(JOBS.group, JOBS.plural)}
    for row in WORKLOADS.values():
        group, _, version = row.api_version.rpartition("/")
        if (
            row.manageable
            and (group, row.plural) not in seen
            and not any(made.owner for made in row.offspring)
        ):
            seen.add((group, row.plural))
            yield ResourceKind(
                group, version, row.kind, row.plural, short=row.short, status=True, custom=True
            )


OPERATOR_KINDS = tuple(_of_operators())
WORKLOAD_KINDS = (*OPERATOR_KINDS, *KUBERNETES_WORKLOADS)
RUNTIME_KINDS = tuple(
    ResourceKind(group, version, kind.kind, kind.plural, kind.namespaced, custom=True)
    for kind in runtime_kinds(WORKLOADS.values())
    for group, version in [kind.api_version.split("/")]
)
UNSHIPPED_KINDS = (*OPERATOR_KINDS, *RUNTIME_KINDS, ELASTIC_QUOTAS)  # whose CRDs are those of others
KINDS = (
    *(NAMESPACES, NODES, PRIORITY_CLASSES, QUEUES, ELASTIC_QUOTA_TREES, ELASTIC_QUOTAS, LOCAL_QUEUES),
    *(COMMANDS, LEASES, EVENTS, POD_GROUPS, *RUNTIME_KINDS, *WORKLOAD_KINDS, PODS),
)
_AUTHORIZATION, _AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
ACCESS = ResourceKind(_AUTHORIZATION, "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False)
IDENTITY = ResourceKind(_AUTHENTICATION, "v1", "SelfSubjectReview", "selfsubjectreviews", False)
_RULES = ResourceKind(_AUTHORIZATION, "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", False)
REVIEWS = (ACCESS, _RULES, IDENTITY)  # questions, which are created and not stored

SERVED = (*KINDS, *REVIEWS)
BY_PATH = {(kind.root, kind.plural): kind for kind in SERVED}
BY_NAME = {(kind.api_version, kind.name): kind for kind in KINDS}


def subresources_of(kind: ResourceKind) -> tuple[str, ...]:
    named = (("status", kind.status), ("scale", kind.scale))
    return (*(("binding", "eviction") if kind is PODS else ()), *(name for name, has in named if has))
