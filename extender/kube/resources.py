"""Resources that Muster reads or writes, and their paths in the API."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from extender.api.objects.cluster import ElasticQuota, ElasticQuotaTree, QuotaKind, ResourceQuota
from extender.api.objects.queues import AlphaPodGroup, CompositePodGroup, NativePodGroup, PluginsPodGroup
from extender.api.workloads.shape import RuntimeKind, WorkloadRow
from extender.kube.errors import NotFound


@dataclass(frozen=True)
class Resource:
    """Resource under an API root: `PODS.path("team-a", "worker-0", "binding")`."""

    root: str
    plural: str

    @property
    def group(self) -> str:
        """Return the API group as in RBAC rules; empty for the core API."""
        return self.version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """Return the `apiVersion` of the objects."""
        return self.root.removeprefix("/apis/").removeprefix("/api/")

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of a collection, of an object, or of an object's subresource.

        A collection is in one namespace or, without a namespace, in all namespaces.

        Raises:
            NotFound: The name contains a slash. The API server decodes the path before reading it, so such a
                name would lead to a subresource.
        """
        if "/" in name or name in (".", ".."):
            kind = f"{self.plural}.{self.group}" if self.group else self.plural
            raise NotFound(404, "NotFound", f'{kind} "{name}" not found')
        scope = ("namespaces", quote(namespace, safe="")) if namespace else ()
        parts = (self.root, *scope, self.plural, quote(name, safe=""), subresource)
        return "/".join(part for part in parts if part)


def resource_of(row: WorkloadRow | RuntimeKind) -> Resource:
    return Resource(f"/apis/{row.api_version}" if row.group else f"/api/{row.api_version}", row.plural)


PODS = Resource("/api/v1", "pods")
NODES = Resource("/api/v1", "nodes")
NAMESPACES = Resource("/api/v1", "namespaces")
EVENTS = Resource("/api/v1", "events")
LEASES = Resource("/apis/coordination.k8s.io/v1", "leases")
PRIORITY_CLASSES = Resource("/apis/scheduling.k8s.io/v1", "priorityclasses")
DISRUPTION_BUDGETS = Resource("/apis/policy/v1", "poddisruptionbudgets")
QUEUES = Resource("/apis/scheduling.volcano.sh/v1beta1", "queues")
LOCAL_QUEUES = Resource("/apis/kube-muster.io/v1alpha1", "localqueues")
RESOURCE_FLAVORS = Resource("/apis/kube-muster.io/v1alpha1", "resourceflavors")
TOPOLOGIES = Resource("/apis/kube-muster.io/v1alpha1", "topologies")
HYPER_NODES = Resource("/apis/topology.volcano.sh/v1alpha1", "hypernodes")
KUEUE_TOPOLOGIES = tuple(
    Resource(f"/apis/kueue.x-k8s.io/{version}", "topologies") for version in ("v1beta2", "v1beta1")
)
KUEUE_LOCAL_QUEUES = tuple(
    Resource(f"/apis/kueue.x-k8s.io/{version}", "localqueues") for version in ("v1beta2", "v1beta1", "v1")
)
DEVICE_CLASSES, RESOURCE_SLICES, CLAIM_TEMPLATES, RESOURCE_CLAIMS = (
    Resource("/apis/resource.k8s.io/v1", plural)
    for plural in ("deviceclasses", "resourceslices", "resourceclaimtemplates", "resourceclaims")
)
COMMANDS = Resource("/apis/bus.volcano.sh/v1alpha1", "commands")
REPLICA_SETS = Resource("/apis/apps/v1", "replicasets")
STATEFUL_SETS = Resource("/apis/apps/v1", "statefulsets")
DAEMON_SETS = Resource("/apis/apps/v1", "daemonsets")
JOBS = Resource("/apis/batch/v1", "jobs")
VOLCANO_JOBS = Resource("/apis/batch.volcano.sh/v1alpha1", "jobs")
VOLCANO_CRON_JOBS = Resource("/apis/batch.volcano.sh/v1alpha1", "cronjobs")
VOLUME_CLAIMS = Resource("/api/v1", "persistentvolumeclaims")
NETWORK_POLICIES = Resource("/apis/networking.k8s.io/v1", "networkpolicies")
PLUGINS_POD_GROUPS = Resource("/apis/scheduling.x-k8s.io/v1alpha1", "podgroups")
NATIVE_POD_GROUPS = Resource("/apis/scheduling.k8s.io/v1beta1", "podgroups")  # Kubernetes 1.37 or newer
ALPHA_POD_GROUPS = Resource("/apis/scheduling.k8s.io/v1alpha2", "podgroups")  # as above, in 1.36
COMPOSITE_POD_GROUPS = Resource("/apis/scheduling.k8s.io/v1alpha3", "compositepodgroups")
POD_GROUPS = Resource("/apis/scheduling.volcano.sh/v1beta1", "podgroups")
POD_TEMPLATES = Resource("/api/v1", "podtemplates")
PROVISIONING_REQUESTS = Resource("/apis/autoscaling.x-k8s.io/v1", "provisioningrequests")
ELASTIC_QUOTA_TREES = Resource("/apis/scheduling.sigs.k8s.io/v1beta1", "elasticquotatrees")
ELASTIC_QUOTAS = Resource("/apis/scheduling.x-k8s.io/v1alpha1", "elasticquotas")
RESOURCE_QUOTAS = Resource("/api/v1", "resourcequotas")
QUOTAS: dict[QuotaKind, tuple[Resource, type[Any]]] = {
    QuotaKind.ELASTIC_QUOTA_TREE: (ELASTIC_QUOTA_TREES, ElasticQuotaTree),
    QuotaKind.ELASTIC_QUOTA: (ELASTIC_QUOTAS, ElasticQuota),
    QuotaKind.RESOURCE_QUOTA: (RESOURCE_QUOTAS, ResourceQuota),
}
# Resources of Kubernetes' own controllers of pods, by kind.
OWNERS = {"ReplicaSet": REPLICA_SETS, "StatefulSet": STATEFUL_SETS, "DaemonSet": DAEMON_SETS}
FOREIGN_GROUPS: Sequence[tuple[Resource, type[Any]]] = (
    (PLUGINS_POD_GROUPS, PluginsPodGroup),
    (NATIVE_POD_GROUPS, NativePodGroup),
    (ALPHA_POD_GROUPS, AlphaPodGroup),
    (COMPOSITE_POD_GROUPS, CompositePodGroup),
)
SERVICES = Resource("/api/v1", "services")
CONFIG_MAPS = Resource("/api/v1", "configmaps")
SECRETS = Resource("/api/v1", "secrets")
ENDPOINT_SLICES = Resource("/apis/discovery.k8s.io/v1", "endpointslices")
DEPLOYMENTS = Resource("/apis/apps/v1", "deployments")
CRDS = Resource("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions")
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MUTATING_POLICIES = Resource(_ADMISSION, "mutatingadmissionpolicies")
MUTATING_BINDINGS = Resource(_ADMISSION, "mutatingadmissionpolicybindings")
VALIDATING_POLICIES = Resource(_ADMISSION, "validatingadmissionpolicies")
VALIDATING_BINDINGS = Resource(_ADMISSION, "validatingadmissionpolicybindings")
MUTATING_WEBHOOKS = Resource(_ADMISSION, "mutatingwebhookconfigurations")
VALIDATING_WEBHOOKS = Resource(_ADMISSION, "validatingwebhookconfigurations")
_AUTHORIZATION = "/apis/authorization.k8s.io/v1"
ACCESS_REVIEWS = Resource(_AUTHORIZATION, "subjectaccessreviews")
SELF_ACCESS_REVIEWS = Resource(_AUTHORIZATION, "selfsubjectaccessreviews")
TOKEN_REVIEWS = Resource("/apis/authentication.k8s.io/v1", "tokenreviews")
SELF_REVIEWS = Resource("/apis/authentication.k8s.io/v1", "selfsubjectreviews")
API_GROUPS = Resource("/apis", "")  # list of served API groups with their versions
