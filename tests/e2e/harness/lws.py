"""The real controller of LeaderWorkerSets (kubernetes-sigs/lws)."""

from typing import Any

from tests.e2e.harness import objects
from tests.e2e.harness.resources import Resource
from tests.e2e.harness.sigs import SigsOperator

Json = dict[str, Any]
LEADER_WORKER_SETS = Resource("/apis/leaderworkerset.x-k8s.io/v1", "leaderworkersets")


def leader_worker_set(name: str, *, namespace: str, replicas: int, size: int, **pod: Any) -> Json:
    """Return a LeaderWorkerSet with `replicas` groups of `size` pods.

    `pod` has arguments for `objects.pod`.
    """
    template_pod = objects.pod("", namespace=namespace, **pod)
    template_metadata = {key: template_pod["metadata"][key] for key in ("labels", "annotations")}
    template = {"metadata": template_metadata, "spec": template_pod["spec"]}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "leaderWorkerTemplate": {"size": size, "workerTemplate": template}},
    }


def _is_defaulted(obj: Json) -> bool:
    """Return whether the webhook has set the default network configuration."""
    return bool(obj["spec"].get("networkConfig"))


LWS = SigsOperator(
    name="lws",
    release="sigs.k8s.io/lws",
    package="sigs.k8s.io/lws/cmd",
    kind=LEADER_WORKER_SETS,
    crd="config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
    webhooks="config/webhook/manifests.yaml",
    patches="config/webhook",
    sample=lambda: leader_worker_set("sample", namespace="default", replicas=1, size=1),
    is_defaulted=_is_defaulted,
)
