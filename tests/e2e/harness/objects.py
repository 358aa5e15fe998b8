"""Functions that build the objects of the tests, with defaults that suit most tests."""

from typing import Any

Json = dict[str, Any]
GROUP_NAME = "scheduling.k8s.io/group-name"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
GATE = "kube-muster.io/admission"
PAUSE_IMAGE = "registry.k8s.io/pause:3.10"


def node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    pods: int = 110,
    labels: dict[str, str] | None = None,
    taints: list[Json] | None = None,
    **extended: str,
) -> Json:
    """Return a ready node. Extended resources are keywords, such as `**{"example.com/gpu": "2"}`."""
    capacity = {"cpu": cpu, "memory": memory, "pods": str(pods), "ephemeral-storage": "100Gi", **extended}
    ready_condition = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "simulated by the tests",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": taints or []},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready_condition]},
    }


def pod(
    name: str,
    *,
    namespace: str,
    group: str | None = None,
    queue: str | None = None,
    cpu: str = "1",
    memory: str = "64Mi",
    scheduler: str = "muster",
    gated: bool = False,
    task: str | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    limits: dict[str, str] | None = None,
    ports: list[int] | None = None,
    **spec: Any,
) -> Json:
    """Return a pod with one pause container. `spec` has further fields of the pod's spec."""
    names = {GROUP_NAME: group, QUEUE_NAME: queue, "volcano.sh/task-spec": task}
    annotations_of_names = {key: value for key, value in names.items() if value is not None}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels or {},
            "annotations": {**annotations_of_names, **(annotations or {})},
        },
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "schedulingGates": [{"name": GATE}] if gated else [],
            "containers": [
                _container({"cpu": cpu, "memory": memory, **(limits or {})}, limits or {}, ports or [])
            ],
            **spec,
        },
    }


def _container(requests: dict[str, str], limits: dict[str, str], ports: list[int]) -> Json:
    return {
        "name": "main",
        "image": PAUSE_IMAGE,
        "resources": {"requests": requests, "limits": limits},
        "ports": [{"containerPort": port, "hostPort": port} for port in ports],
    }


def pod_group(
    name: str,
    *,
    namespace: str,
    min_member: int,
    queue: str = "default",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    """Return a PodGroup. `spec` has further fields of its spec, such as `minTaskMember`."""
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": annotations or {},
            "labels": labels or {},
        },
        "spec": {"minMember": min_member, "queue": queue, **spec},
    }


AT_ONCE = {"withinQueue": "LowerPriority", "after": "0s", "atMost": "0s"}


def queue(name: str, *, weight: int = 1, **spec: Any) -> Json:
    """Return a queue. By default, the queue reclaims capacity at once, also from groups in the same queue."""
    spec["preemption"] = {**AT_ONCE, **spec.get("preemption", {})}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": weight, **spec},
    }


def local_queue(name: str, *, namespace: str, queue: str, **spec: Any) -> Json:
    return {
        "apiVersion": "kube-muster.io/v1alpha1",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"queue": queue, **spec},
    }


def namespace(name: str, annotations: dict[str, str] | None = None) -> Json:
    metadata = {"name": name, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def binding(role: str, user: str, *, namespace: str = "", role_kind: str = "ClusterRole") -> Json:
    """Return a ClusterRoleBinding or, with a namespace, a RoleBinding.

    The binding has the name of the user.
    """
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": user} | ({"namespace": namespace} if namespace else {}),
        "roleRef": {"apiGroup": group, "kind": role_kind, "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
