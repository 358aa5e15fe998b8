"""Volcano Jobs that Muster runs itself (`--volcano-jobs=on`), and functions that build their objects."""

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.e2e.harness import manifests, objects
from tests.e2e.harness.client import Client
from tests.e2e.harness.kubelet import Kubelet
from tests.e2e.harness.resources import COMMANDS, LEASES, POD_GROUPS, PODS, VOLCANO_CRON_JOBS, VOLCANO_JOBS
from tests.e2e.harness.waiting import GENEROUS_SECONDS, wait_for

Json = dict[str, Any]
FILES = ("volcano-jobs/crd-*.yaml", "volcano-jobs/rbac.yaml", "volcano-jobs-ssh/rbac.yaml")
SYSTEM = "volcano-system"
VERSION = "batch.volcano.sh/v1alpha1"
NUMBERS = itertools.count()


def installed(client: Client) -> AbstractContextManager[None]:
    """Install the CRDs of Volcano Jobs and Muster's rights to them. This must happen before Muster starts."""
    return manifests.applied(client, *FILES)


@contextmanager
def volcano_at_work(client: Client) -> Iterator[None]:
    """Simulate a running Volcano by a valid Lease of its controllers, while the context is active."""
    manifests.ensure_namespace(client, SYSTEM)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "vc-1", "leaseDurationSeconds": 60, "acquireTime": now, "renewTime": now}
    metadata = {"name": "vc-controller-manager", "namespace": SYSTEM}
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    client.create(LEASES, {**kind, "metadata": metadata, "spec": spec})
    try:
        yield
    finally:
        client.delete(LEASES, metadata["name"], SYSTEM)


def task(name: str = "work", replicas: int = 2, **pod_fields: Any) -> Json:
    """Return a task of a job, such as `task("ps", 1, policies=[...], dependsOn={...})`.

    `pod_fields` has fields of a task, and arguments for `objects.pod`, such as `cpu` or `restartPolicy`.
    """
    fields = ("minAvailable", "policies", "dependsOn", "maxRetry", "partitionPolicy")
    task_fields = {field: pod_fields.pop(field) for field in fields if field in pod_fields}
    pod = objects.pod("", namespace="", scheduler="volcano", **{"restartPolicy": "Never", **pod_fields})
    template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
    return {"name": name, "replicas": replicas, "template": template, **task_fields}


def policy(event: str | int, action: str, **fields: Any) -> Json:
    """Return a lifecycle policy for an event or an exit code.

    Examples: `policy("PodFailed", "RestartJob")`; `policy(3, "CompleteJob")` for the exit code 3.
    """
    return {"exitCode" if isinstance(event, int) else "event": event, "action": action, **fields}


class VolcanoJobs:
    """Volcano Jobs of one namespace."""

    def __init__(self, client: Client, namespace: str, kubelet: Kubelet) -> None:
        self.client, self.namespace, self._kubelet = client, namespace, kubelet

    def create(self, name: str, *tasks: Json, **spec: Any) -> Json:
        """Create a job. By default, the job has one task with two pods."""
        job = {
            "apiVersion": VERSION,
            "kind": "Job",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"schedulerName": "volcano", "tasks": [*tasks] or [task()], **spec},
        }
        return self.client.create(VOLCANO_JOBS, job)

    def create_cron(self, name: str, *tasks: Json, **spec: Any) -> str:
        """Create a CronJob whose next job is due now. `spec` has fields of the job's spec.

        Return the last schedule time, which is five minutes ago and also in the status of the CronJob.
        """
        job = {"schedulerName": "volcano", "tasks": [*tasks] or [task()], **spec}
        cron_job = {
            "apiVersion": VERSION,
            "kind": "CronJob",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "schedule": "* * * * *",
                "successfulJobsHistoryLimit": 0,
                "jobTemplate": {"spec": job},
                "suspend": True,
            },
        }
        self.client.create(VOLCANO_CRON_JOBS, cron_job)
        last_schedule_time = (datetime.now(UTC) - timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {"status": {"lastScheduleTime": last_schedule_time}}
        self.client.patch(VOLCANO_CRON_JOBS, name, status, self.namespace, sub="status")
        self._suspend_cron(name, suspend=False)
        return last_schedule_time

    def made_by_cron(self, name: str) -> str:
        """Wait until the CronJob has created a job, suspend the CronJob, and return the name of the job."""

        def active_jobs() -> list[str]:
            status = self.client.get(VOLCANO_CRON_JOBS, name, self.namespace).get("status") or {}
            return [job["name"] for job in status.get("active") or ()]

        wait_for(active_jobs, what=f"a Job of CronJob {name}")
        self._suspend_cron(name, suspend=True)
        return active_jobs()[0]

    def _suspend_cron(self, name: str, suspend: bool) -> None:
        self.client.patch(VOLCANO_CRON_JOBS, name, {"spec": {"suspend": suspend}}, self.namespace)

    def get(self, name: str) -> Json:
        return self.client.get(VOLCANO_JOBS, name, self.namespace)

    def status(self, name: str) -> Json:
        return dict(self.get(name).get("status") or {})

    def phase(self, name: str) -> str:
        return str((self.status(name).get("state") or {}).get("phase", ""))

    def group(self, name: str) -> str:
        """Return the name of a job's PodGroup."""
        return f"{name}-{self.get(name)['metadata']['uid']}"

    def scale(self, name: str, *replicas: int, **spec: Any) -> None:
        """Change the replicas of the job's tasks. `replicas` has one number for each task."""
        tasks = self.get(name)["spec"]["tasks"]
        scaled_tasks = [{**task, "replicas": count} for task, count in zip(tasks, replicas, strict=True)]
        self.client.patch(VOLCANO_JOBS, name, {"spec": {"tasks": scaled_tasks, **spec}}, self.namespace)

    def command(self, name: str, action: str) -> str:
        """Create a Command as vcctl does, and return the name of the Command."""
        target, command = _reference(self.get(name)), f"{name}-{action.lower()}-{next(NUMBERS)}"
        fields = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "action": action}
        metadata = {"name": command, "namespace": self.namespace}
        self.client.create(COMMANDS, {**fields, "metadata": metadata, "target": target})
        return command

    def leave_running(self, name: str, node: str, version: int) -> None:
        """Create the objects of a job that Volcano's controller has started.

        All pods of the job are on one node. `version` is the job's version in its status and in the labels of
        its pods.
        """
        job, count = self.get(name), 0
        owners = [{**_reference(job), "controller": True, "blockOwnerDeletion": True}]
        for task in job["spec"]["tasks"]:
            for index in range(task["replicas"]):
                task_labels = {"volcano.sh/task-spec": task["name"], "volcano.sh/task-index": str(index)}
                pod_labels = {
                    "volcano.sh/job-name": name,
                    "volcano.sh/job-version": str(version),
                    **task_labels,
                }
                metadata = {
                    "name": f"{name}-{task['name']}-{index}",
                    "namespace": self.namespace,
                    "ownerReferences": owners,
                    "labels": {**pod_labels, "volcano.sh/job-namespace": self.namespace},
                    "annotations": {**pod_labels, objects.GROUP_NAME: self.group(name)},
                }
                spec = {**task["template"]["spec"], "nodeName": node}
                kind = {"apiVersion": "v1", "kind": "Pod"}
                self.client.create(PODS, {**kind, "metadata": metadata, "spec": spec})
                count += 1
        status = {"state": {"phase": "Running"}, "running": count, "minAvailable": count, "version": version}
        self.client.patch(VOLCANO_JOBS, name, {"status": status}, self.namespace, "status")
        group = objects.pod_group(self.group(name), namespace=self.namespace, min_member=count)
        self.client.create(POD_GROUPS, group)

    def pods(self, name: str, phase: str = "") -> dict[str, str]:
        """Return the UIDs of a job's pods, keyed by name.

        Terminating pods are left out. With `phase`, only pods in that phase are returned.
        """
        items = self.client.items(PODS, self.namespace, labelSelector=f"volcano.sh/job-name={name}")
        return {
            item["metadata"]["name"]: item["metadata"]["uid"]
            for item in items
            if phase in ("", item["status"]["phase"]) and "deletionTimestamp" not in item["metadata"]
        }

    def wait_pods(self, name: str, count: int, phase: str = "") -> dict[str, str]:
        """Wait until a job has exactly `count` pods, and return their UIDs.

        With `phase`, count only pods in that phase.
        """
        wait_for(lambda: len(self.pods(name, phase)) == count, what=f"Job {name}: {count} pods {phase}")
        return self.pods(name, phase)

    def wait_others(self, name: str, before: dict[str, str], phase: str = "Running") -> dict[str, str]:
        """Wait until all pods of a job are replaced by as many new pods, and return the new pods.

        `before` has the UIDs of the old pods, keyed by name.
        """

        def are_replaced() -> bool:
            current_pods = self.pods(name, phase)
            return len(current_pods) == len(before) and not {*current_pods.values()} & {*before.values()}

        wait_for(are_replaced, what=f"Job {name}: new pods")
        return self.pods(name, phase)

    def wait_phase(self, name: str, *phases: str, timeout: float = GENEROUS_SECONDS) -> Json:
        """Wait until the job has one of these phases, and return the job's status."""
        try:
            wait_for(lambda: self.phase(name) in phases, timeout)
        except TimeoutError:
            raise TimeoutError(f"Job {name} never {phases}: {self.status(name)}") from None
        return self.status(name)

    def wait_status(self, name: str, **status: Any) -> Json:
        """Wait until the status of a job has these values, and return the status.

        A count that is absent from the status counts as 0.
        """

        def has_status() -> bool:
            current = self.status(name)
            return all(current.get(key, 0) == value for key, value in status.items())

        try:
            wait_for(has_status)
        except TimeoutError:
            raise TimeoutError(f"Job {name} never {status}: {self.status(name)}") from None
        return self.status(name)

    def finish(self, name: str, *pods: str, phase: str = "Succeeded", code: int | None = None) -> None:
        """End running pods of a job with a phase. Without names, end all running pods of the job."""
        self._kubelet.finish(self.namespace, pods or self.pods(name, "Running"), phase, code)


def _reference(job: Json) -> Json:
    """Return the fields by which a Command or an owner reference refers to a job."""
    metadata = job["metadata"]
    return {"apiVersion": VERSION, "kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}
