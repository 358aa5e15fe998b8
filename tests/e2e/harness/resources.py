"""API resources that the tests use, with their paths."""

from typing import NamedTuple


class Resource(NamedTuple):
    """API path of one kind of objects."""

    prefix: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", sub: str = "") -> str:
        """Return the path of a list, of an object, or of the subresource `sub` of an object."""
        namespace_path = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/".join(filter(None, (f"{self.prefix}{namespace_path}/{self.plural}", name, sub)))


PODS = Resource("/api/v1", "pods")
NODES = Resource("/api/v1", "nodes", namespaced=False)
NAMESPACES = Resource("/api/v1", "namespaces", namespaced=False)
EVENTS = Resource("/api/v1", "events")
REPLICA_SETS = Resource("/apis/apps/v1", "replicasets")
STATEFUL_SETS = Resource("/apis/apps/v1", "statefulsets")
DAEMON_SETS = Resource("/apis/apps/v1", "daemonsets")
DEPLOYMENTS = Resource("/apis/apps/v1", "deployments")
PLUGINS_POD_GROUPS = Resource("/apis/scheduling.x-k8s.io/v1alpha1", "podgroups")
JOBS = Resource("/apis/batch/v1", "jobs")
CRON_JOBS = Resource("/apis/batch/v1", "cronjobs")
STORAGE_CLASSES = Resource("/apis/storage.k8s.io/v1", "storageclasses", namespaced=False)
VOLUMES = Resource("/api/v1", "persistentvolumes", namespaced=False)
VOLUME_CLAIMS = Resource("/api/v1", "persistentvolumeclaims")
DEVICE_CLASSES = Resource("/apis/resource.k8s.io/v1", "deviceclasses", namespaced=False)
RESOURCE_SLICES = Resource("/apis/resource.k8s.io/v1", "resourceslices", namespaced=False)
CLAIM_TEMPLATES = Resource("/apis/resource.k8s.io/v1", "resourceclaimtemplates")
RESOURCE_CLAIMS = Resource("/apis/resource.k8s.io/v1", "resourceclaims")
LEASES = Resource("/apis/coordination.k8s.io/v1", "leases")
CLUSTER_ROLES = Resource("/apis/rbac.authorization.k8s.io/v1", "clusterroles", namespaced=False)
PRIORITY_CLASSES = Resource("/apis/scheduling.k8s.io/v1", "priorityclasses", namespaced=False)
POD_GROUPS = Resource("/apis/scheduling.volcano.sh/v1beta1", "podgroups")
QUEUES = Resource("/apis/scheduling.volcano.sh/v1beta1", "queues", namespaced=False)
RESOURCE_FLAVORS = Resource("/apis/kube-muster.io/v1alpha1", "resourceflavors")
HYPER_NODES = Resource("/apis/topology.volcano.sh/v1alpha1", "hypernodes")
TOPOLOGIES = Resource("/apis/kube-muster.io/v1alpha1", "topologies")
LOCAL_QUEUES = Resource("/apis/kube-muster.io/v1alpha1", "localqueues")
VOLCANO_JOBS = Resource("/apis/batch.volcano.sh/v1alpha1", "jobs")
VOLCANO_CRON_JOBS = Resource("/apis/batch.volcano.sh/v1alpha1", "cronjobs")
COMMANDS = Resource("/apis/bus.volcano.sh/v1alpha1", "commands")
ELASTIC_QUOTA_TREES = Resource("/apis/scheduling.sigs.k8s.io/v1beta1", "elasticquotatrees")
ELASTIC_QUOTAS = Resource("/apis/scheduling.x-k8s.io/v1alpha1", "elasticquotas")
RESOURCE_QUOTAS = Resource("/api/v1", "resourcequotas")
PROVISIONING_REQUESTS = Resource("/apis/autoscaling.x-k8s.io/v1", "provisioningrequests")
POD_TEMPLATES = Resource("/api/v1", "podtemplates")
BUDGETS = Resource("/apis/policy/v1", "poddisruptionbudgets")
SERVICES = Resource("/api/v1", "services")
NETWORK_POLICIES = Resource("/apis/networking.k8s.io/v1", "networkpolicies")
ENDPOINT_SLICES = Resource("/apis/discovery.k8s.io/v1", "endpointslices")
CONFIG_MAPS = Resource("/api/v1", "configmaps")
SECRETS = Resource("/api/v1", "secrets")
MUTATING_POLICIES = Resource(
    "/apis/admissionregistration.k8s.io/v1", "mutatingadmissionpolicies", namespaced=False
)
VALIDATING_POLICIES = Resource(
    "/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies", namespaced=False
)
VALIDATING_POLICY_BINDINGS = Resource(
    "/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", namespaced=False
)
CRDS = Resource("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)
VALIDATING_WEBHOOKS = Resource(
    "/apis/admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", namespaced=False
)
MUTATING_WEBHOOKS = Resource(
    "/apis/admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", namespaced=False
)
