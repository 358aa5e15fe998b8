"""Objects that are told of and left out: those without pods, and those of kinds that nobody here knows."""

from extender.api.workloads.shape import KindName
from extender.api.workloads.table import WORKLOADS
from extender.sim.apiserver.kinds import BY_NAME
from extender.sim.files.reading import Document, value_of
from extender.terminal.near_misses import did_you_mean, near_misses

_WITHOUT_PODS = frozenset({
    "APIService", "Certificate", "ClusterIssuer", "ClusterRole", "ClusterRoleBinding", "ConfigMap",
    "CustomResourceDefinition", "DeviceClass", "EndpointSlice", "Endpoints", "Gateway", "HTTPRoute",
    "HorizontalPodAutoscaler", "Ingress", "IngressClass", "Issuer", "LimitRange", "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "NetworkPolicy", "PersistentVolume",
    "PersistentVolumeClaim", "PodDisruptionBudget", "PodMonitor", "PrometheusRule", "ResourceClaim",
    "ResourceClaimTemplate", "Role", "RoleBinding", "RuntimeClass", "Secret", "Service",
    "ServiceAccount", "ServiceMonitor", "StorageClass", "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration", "VerticalPodAutoscaler"
})  # fmt: skip
_OTHERWISE = {
    "DaemonSet": "its pods belong to nodes and wait in no queue",
    "ResourceQuota": "it makes queues only with --quota-sources=resourcequota, and is not enforced here",
    "PodTemplate": "a template alone makes no pods",
    "TrainingRuntime": "no pods follow from it alone",
    "ClusterTrainingRuntime": "no pods follow from it alone",
    "WorkflowTemplate": "a template alone makes no pods",
    "ClusterWorkflowTemplate": "a template alone makes no pods",
    "CronWorkflow": "nothing runs at set times here; write the Workflow",
    "ScheduledSparkApplication": "nothing runs at set times here; write the SparkApplication",
}


def note(document: Document) -> str:
    """Why it is left out."""
    name, kind = (str(document.object.get(field)) for field in ("apiVersion", "kind"))
    line = document.where(value_of(document.node, "kind"))
    called = (document.object.get("metadata") or {}).get("name") or ""
    object_ = f'{kind} "{called}"' if called else kind
    if kind in _WITHOUT_PODS:
        return f"{line}: {object_}: skipped, no pods follow from it"
    if kind in _OTHERWISE:
        return f"{line}: {object_}: skipped, {_OTHERWISE[kind]}"
    return f"{line}: {object_}: skipped, nothing is known of kind {kind} ({name}){_hint((name, kind))}"


def _hint(name: KindName) -> str:
    """A kind of that name in another group or version, or one with nearly that name."""
    known = [*BY_NAME, *WORKLOADS]
    versions = [api_version for api_version, kind in known if kind == name[1]]
    if versions:
        return f"; known is {name[1]} of {', '.join(versions)}"
    near = near_misses(name[1], (kind for _, kind in known), 1)
    return f"; {did_you_mean(near)}" if near else ""
