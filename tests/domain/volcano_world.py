"""World with Volcano Jobs, and a controller that creates the pods of admitted jobs."""

from typing import Any

from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.base import Meta
from extender.api.workloads.children import children
from extender.api.workloads.shape import VOLCANO_JOB
from extender.api.workloads.table import WORKLOADS
from extender.domain.snapshot.jobs import AnyJob, JobKind, as_json
from tests.domain.builders import NAMESPACE, SCHEDULER, pod
from tests.domain.job_world import TOLERATED, JobWorld


def task(name: str, replicas: int, cpu: str = "1", **fields: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
    return {"name": name, "replicas": replicas, "template": {"spec": {"containers": [container]}}, **fields}


def volcano_job(name: str, *tasks: dict[str, Any], phase: str = "", **spec: Any) -> AnyJob:
    meta = Meta(name=name, namespace=NAMESPACE, uid=f"uid-{name}")
    status = {"state": {"phase": phase}} if phase else {}
    return AnyJob(meta, {"schedulerName": SCHEDULER, "tasks": list(tasks), **spec}, status)


class VolcanoWorld(JobWorld):
    kind = JobKind(*VOLCANO_JOB)
    row = WORKLOADS[VOLCANO_JOB]

    def __init__(self, *objects: Any, **options: Any) -> None:
        super().__init__(*objects, **options)
        self.ledger.intake.leave_jobs(())

    def podgroup_name(self, name: str) -> str:
        return f"{name}-uid-{name}"

    def annotation_of(self, name: str) -> str | None:
        return (self.jobs[name].metadata.annotations or {}).get(keys.STARTED)

    def command(self, name: str, action: str) -> None:
        self.set_phase(name, {"AbortJob": "Aborted", "ResumeJob": "Pending"}[action])

    def set_phase(self, name: str, phase: str, **counts: int) -> None:
        self.submit(replace(self.jobs[name], status={"state": {"phase": phase}, **counts}))

    def _stop(self, name: str, started_at: str) -> None:
        self.command(name, "AbortJob")

    def _reconcile(self, job: AnyJob) -> bool:
        name, phase = job.metadata.name, job.status.get("state", {}).get("phase", "")
        pods, admitted = self.pods_of(name), bool(self.annotation_of(name))
        if phase not in ("", "Pending", "Running"):
            self.delete(*pods)
            return bool(pods)
        if not admitted:
            self.delete(*pods)
            if pods:
                self.set_phase(name, "Pending")
            return bool(pods)
        child_pods = [child for child in children(as_json(self.kind, job)) if child["kind"] == "Pod"]
        missing = [child for child in child_pods if child["metadata"]["name"] not in pods]
        for child in missing:
            meta, (container,) = child["metadata"], child["spec"]["containers"]
            new_pod = pod(
                meta["name"],
                group=meta["annotations"][keys.GROUP_ANNOTATION],
                role=meta["annotations"][keys.ROLE],
                cpu=container["resources"]["requests"]["cpu"],
                gated=False,
                tolerations=TOLERATED,
            )
            self.add(new_pod)
        if missing:
            self.set_phase(name, "Running", running=len(child_pods))
        return bool(missing)
