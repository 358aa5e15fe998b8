"""One job of a kind, with the PodGroup that stands for it."""

from extender.api.workloads.runtimes import runtime_kind, runtime_named_by, with_runtime
from extender.api.workloads.shape import WorkloadRow
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.owner_objects import OwnerObjects
from extender.cli.observed_jobs import Json, ObservedJob, observed_job
from extender.cli.owner_kinds import OwnerKind, job_row
from extender.domain.jobs.reading import JobRuntime
from extender.domain.model.pod_owners import group_name_of
from extender.kube.resources import resource_of


def job_of_kind(evidence: Evidence, objects: OwnerObjects, kind: OwnerKind, name: str) -> ObservedJob | None:
    """None where there is none, or where it may not be read."""
    resource = objects.resource_of(kind)
    row = job_row(resource.version, kind.name) if resource else None
    obj = objects.find(kind, name, Json) if row else None
    if row is None or obj is None:
        return None
    whole = _with_runtime(evidence, row, obj)
    return observed_job(row, whole, evidence.group(group_name_of(obj["metadata"]["uid"])))


def _with_runtime(evidence: Evidence, row: WorkloadRow, obj: Json) -> Json:
    """With what the object says that has its templates; as it is where that may not be read."""
    name = runtime_named_by(row, obj)
    if name is None:
        return obj
    kind = runtime_kind(row, name)
    found = kind and evidence.find(resource_of(kind), name.name, JobRuntime, of_cluster=not name.namespace)
    is_unread = kind is not None and kind.plural in evidence.unread
    return obj if is_unread else with_runtime(obj, found.spec if found else None)
