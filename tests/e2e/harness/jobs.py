"""Jobs of batch/v1.

The pods of these Jobs need the real job controller: call `stage.start_controller_manager()`.
"""

from typing import Any

from tests.e2e.harness import objects
from tests.e2e.harness.client import Client
from tests.e2e.harness.kubelet import Kubelet
from tests.e2e.harness.resources import JOBS, PODS
from tests.e2e.harness.waiting import GENEROUS_SECONDS, wait_for

Json = dict[str, Any]
OF_JOB = "batch.kubernetes.io/job-name"


def job(
    name: str,
    *,
    namespace: str,
    parallelism: int = 1,
    completions: int | None = None,
    suspend: bool = False,
    queue: str | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    more: Json | None = None,
    **pod: Any,
) -> Json:
    """Return a Job. The queue's annotation is on the Job and on its pods.

    `more` has further fields of the spec, such as `{"backoffLimit": 0}`. `pod` has arguments for
    `objects.pod`.
    """
    queue_annotation = {} if queue is None else {objects.QUEUE_NAME: queue}
    template_pod = objects.pod("", namespace=namespace, queue=queue, **{"restartPolicy": "Never", **pod})
    template_metadata = {
        key: value for key, value in template_pod["metadata"].items() if key in ("labels", "annotations")
    }
    spec = {
        "parallelism": parallelism,
        "suspend": suspend,
        "template": {"metadata": template_metadata, "spec": template_pod["spec"]},
        **({} if completions is None else {"completions": completions}),
        **(more or {}),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels or {},
            "annotations": queue_annotation | (annotations or {}),
        },
        "spec": spec,
    }


class StagedJobs:
    """Jobs of one namespace. Tests use them as `stage.jobs`."""

    def __init__(self, client: Client, namespace: str, kubelet: Kubelet) -> None:
        self._client = client
        self._namespace = namespace
        self._kubelet = kubelet

    def create(self, name: str, **options: Any) -> Json:
        """Create a Job. `options` are the arguments of `job`."""
        return self._client.create(JOBS, job(name, namespace=self._namespace, **options))

    def get(self, name: str) -> Json:
        return self._client.get(JOBS, name, self._namespace)

    def change(self, name: str, **spec: Any) -> Json:
        """Change the spec of a Job: `change("work", parallelism=3)`."""
        return self._client.patch(JOBS, name, {"spec": spec}, self._namespace)

    def suspend(self, name: str) -> None:
        self.change(name, suspend=True)

    def resume(self, name: str) -> None:
        self.change(name, suspend=False)

    def delete(self, name: str) -> None:
        """Delete a Job together with its pods."""
        path = JOBS.path(self._namespace, name)
        self._client.request("DELETE", path, {"propagationPolicy": "Background"})

    def pods(self, name: str, phase: str = "") -> list[str]:
        """Return the names of a Job's pods that are not terminating.

        With `phase`, return only pods in that phase.
        """
        items = self._client.items(PODS, self._namespace, labelSelector=f"{OF_JOB}={name}")
        return sorted(
            item["metadata"]["name"]
            for item in items
            if phase in ("", item["status"]["phase"]) and "deletionTimestamp" not in item["metadata"]
        )

    def wait_pods(self, name: str, count: int, phase: str = "") -> list[str]:
        """Wait until a Job has exactly `count` pods, and return their names.

        With `phase`, count only pods in that phase.
        """
        wait_for(lambda: len(self.pods(name, phase)) == count, what=f"Job {name}: {count} pods {phase}")
        return self.pods(name, phase)

    def finish(self, name: str, phase: str = "Succeeded") -> None:
        """End the running pods of a Job with a phase."""
        self._kubelet.finish(self._namespace, self.pods(name, "Running"), phase)

    def condition(self, name: str, type_: str) -> Json:
        """Return a condition of a Job. Return {} if the Job or the condition does not exist."""
        job_ = self._client.find(JOBS, name, self._namespace) or {}
        conditions = job_.get("status", {}).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == type_), {})

    def wait_condition(
        self, name: str, type_: str, status: str = "True", timeout: float = GENEROUS_SECONDS
    ) -> Json:
        """Wait until a condition of a Job has a status, and return the condition.

        Example: `wait_condition("work", "Complete")`. Other types are Failed and Suspended.
        """
        description = f"Job {name}: {type_}={status}"
        wait_for(lambda: self.condition(name, type_).get("status") == status, timeout, description)
        return self.condition(name, type_)

    def wait_status(self, name: str, **status: Any) -> Json:
        """Wait until the status of a Job has these values, and return the status.

        Example: `wait_status("work", active=2, succeeded=1)`. A count that is absent from the status counts
        as 0.
        """

        def has_status() -> bool:
            current = self.get(name).get("status", {})
            return all(current.get(key, 0) == value for key, value in status.items())

        wait_for(has_status, what=f"Job {name} {status}")
        return dict(self.get(name)["status"])
