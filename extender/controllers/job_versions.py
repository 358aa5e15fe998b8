"""The versions of jobs that wait, as the watch has shown them: a job can be let go without being read first.

Only for objects in which no list is on the way to a template, since those take a merge patch. A version is
used once: if it is outdated, the API server says so, and the job is read.
"""

from typing import Any, NamedTuple

from extender.api.workloads.children import MALFORMED
from extender.api.workloads.core import JOB
from extender.api.workloads.lifecycle import is_suspended
from extender.api.workloads.partial import changes_its_count
from extender.api.workloads.shape import Json, Kinds, Path, WorkloadRow, at
from extender.api.workloads.template_paths import annotation_paths
from extender.domain.jobs import changes
from extender.domain.jobs.job_record import JobKind, JobRecord
from extender.domain.jobs.reading import AnyJob, as_json
from extender.domain.model.records import GroupKey


class KnownVersion(NamedTuple):
    version: str  # metadata.resourceVersion
    suspend: Path
    annotations: tuple[Path, ...]  # of its pods


class JobVersions:
    """Safe to use from any thread."""

    def __init__(self, table: Kinds) -> None:
        self._table = table
        self._known: dict[GroupKey, KnownVersion] = {}
        self._paths: dict[tuple[Path, ...], tuple[Path, ...]] = {}  # each kept once

    def __len__(self) -> int:
        return len(self._known)

    def note(self, key: GroupKey, kind: JobKind, job: AnyJob) -> None:
        """The newest version of a job; it is forgotten if it does not wait."""
        obj = as_json(kind, job)
        row = self._table[kind]
        is_known = is_suspended(row, obj) and may_change_templates(obj) and not changes_its_count(row, obj)
        paths = _paths(row, obj, self._table) if is_known else ()
        if not paths or any(_leads_through_list(obj, path) for path in paths):
            return self.drop(key)
        version = job.metadata.resource_version
        self._known[key] = KnownVersion(version, row.suspend, self._paths.setdefault(paths, paths))

    def take(self, key: GroupKey) -> KnownVersion | None:
        return self._known.pop(key, None)

    def drop(self, key: GroupKey) -> None:
        self._known.pop(key, None)


def let_go_unread(job: JobRecord, known: KnownVersion, now: str) -> dict[str, Any]:
    """The patch that lets it go, as long as it is in this version."""
    return changes.let_go_unread(job.uid, known.version, known.suspend, known.annotations, job.unit, now)


def may_change_templates(obj: Json) -> bool:
    """Before 1.36 a Job that has run keeps its startTime while it is suspended, and its template may not be
    changed any more. Its pods have the group of their controller without that."""
    is_job = (obj.get("apiVersion"), obj.get("kind")) == JOB
    return not (is_job and at(obj, ("status", "startTime")))


def _leads_through_list(obj: Any, path: Path) -> bool:
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
        if isinstance(obj, list):
            return True
    return False


def _paths(row: WorkloadRow, obj: Json, table: Kinds) -> tuple[Path, ...]:
    """None for one that cannot be read, which never starts."""
    try:
        return tuple(annotation_paths(row, obj, table))
    except MALFORMED:
        return ()
