"""The real JobSet controller (kubernetes-sigs/jobset) with its CRD and its webhooks, on loopback."""

from typing import Any

from tests.e2e.harness.jobs import job
from tests.e2e.harness.resources import Resource
from tests.e2e.harness.sigs import SigsOperator

Json = dict[str, Any]
JOB_SETS = Resource("/apis/jobset.x-k8s.io/v1alpha2", "jobsets")


def job_set(
    name: str,
    *,
    namespace: str,
    replicas: int = 1,
    parallelism: int = 1,
    suspend: bool = False,
    annotations: dict[str, str] | None = None,
    **pod: Any,
) -> Json:
    """Return a JobSet with `replicas` Jobs named `<name>-workers-<n>`.

    Each Job has `parallelism` pods. `pod` has arguments for `objects.pod`.
    """
    template = job("", namespace=namespace, parallelism=parallelism, completions=parallelism, **pod)
    replicated_job = {"name": "workers", "replicas": replicas, "template": {"spec": template["spec"]}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations or {}},
        "spec": {"suspend": suspend, "replicatedJobs": [replicated_job]},
    }


def _is_defaulted(obj: Json) -> bool:
    """Return whether the webhook has set the default completion mode of the Jobs."""
    return bool(obj["spec"]["replicatedJobs"][0]["template"]["spec"].get("completionMode") == "Indexed")


JOB_SET = SigsOperator(
    name="jobset",
    release="sigs.k8s.io/jobset",
    package="sigs.k8s.io/jobset",
    kind=JOB_SETS,
    crd="config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
    webhooks="config/components/webhook/manifests.yaml",
    patches="config/components/webhook/patches",
    sample=lambda: job_set("sample", namespace="default", suspend=True),
    is_defaulted=_is_defaulted,
)
