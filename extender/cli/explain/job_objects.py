"""One job of a kind, with the PodGroup that stands for it."""

from extender.cli.explain.evidence import Evidence
from extender.cli.explain.owner_objects import OwnerObjects
from extender.cli.observed_jobs import Json, ObservedJob, observed_job
from extender.cli.owner_kinds import OwnerKind, job_row
from extender.domain.model.pod_owners import group_name_of


def job_of_kind(evidence: Evidence, objects: OwnerObjects, kind: OwnerKind, name: str) -> ObservedJob | None:
    """None where there is none, or where it may not be read."""
    resource = objects.resource_of(kind)
    row = job_row(resource.version, kind.name) if resource else None
    obj = objects.find(kind, name, Json) if row else None
    if row is None or obj is None:
        return None
    return observed_job(row, obj, evidence.group(group_name_of(obj["metadata"]["uid"])))
