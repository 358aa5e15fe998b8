"""The jobs that the API has, and the objects that have their templates."""

from collections import defaultdict
from collections.abc import Collection
from typing import TypeVar

from msgspec.structs import replace

from extender.api.workloads.runtimes import RuntimeName, runtime_named_by, with_runtime
from extender.api.workloads.shape import Json, KindName, WorkloadRow, is_suspended
from extender.domain.model.records import GroupKey
from extender.domain.snapshot.jobs import AnyJob, JobKind, JobRecord, as_json

# ---- Sets by key, as indexes: one that becomes empty is not kept.

K = TypeVar("K")
V = TypeVar("V")


def take_out(sets: defaultdict[K, set[V]], key: K, value: V) -> None:
    if key in sets:
        sets[key].discard(value)
        if not sets[key]:
            del sets[key]


class Jobs:
    """The jobs that the API has, by the group of their pods and by namespace."""

    def __init__(self) -> None:
        self._records: dict[GroupKey, JobRecord] = {}
        self._in_namespace: defaultdict[str, set[GroupKey]] = defaultdict(set)

    def __contains__(self, key: GroupKey) -> bool:
        return key in self._records

    def get(self, key: GroupKey) -> JobRecord | None:
        return self._records.get(key)

    def put(self, record: JobRecord) -> bool:
        """True if anything that matters changed. A job that was let go stays so, whoever takes the note of
        that away."""
        before = self._records.get(record.group)
        if before is not None and before.uid == record.uid and before.is_let_go and not record.suspended:
            record = replace(record, started_at=record.started_at or before.started_at)
        if before == record:
            return False
        self._records[record.group] = record
        self._in_namespace[record.namespace].add(record.group)
        return True

    def drop(self, key: GroupKey) -> bool:
        """True if there was such a job."""
        record = self._records.pop(key, None)
        if record is not None:
            take_out(self._in_namespace, record.namespace, key)
        return record is not None

    def groups_in(self, namespace: str) -> Collection[GroupKey]:
        return self._in_namespace.get(namespace, ())

    def naming(self, namespace: str, local_queue: str) -> list[GroupKey]:
        """Those whose label names a LocalQueue."""
        labels = ((key, self._records[key].local_queue) for key in self.groups_in(namespace))
        return [key for key, label in labels if label is not None and label.name == local_queue]

    def of_kinds(self, kinds: Collection[KindName]) -> list[GroupKey]:
        return [key for key, job in self._records.items() if job.kind in kinds]

    @property
    def with_label(self) -> list[GroupKey]:
        """Those that name any LocalQueue."""
        return [key for key, job in self._records.items() if job.local_queue is not None]


class Runtimes:
    """The objects that have the templates of jobs, and the jobs that name each: a change touches only those.
    A job that is let go keeps what its runtime said at that time, as its pods do."""

    def __init__(self) -> None:
        self._specs: dict[RuntimeName, Json] = {}
        self._jobs: dict[GroupKey, tuple[JobKind, AnyJob]] = {}
        self._names: dict[GroupKey, RuntimeName] = {}
        self._named_by: defaultdict[RuntimeName, set[GroupKey]] = defaultdict(set)
        self._used: dict[GroupKey, Json] = {}

    # ---- changes

    def put(self, name: RuntimeName, spec: Json) -> Collection[GroupKey]:
        """The jobs that it concerns."""
        if self._specs.get(name) == spec:
            return ()
        self._specs[name] = spec
        return self._jobs_of(name)

    def drop(self, name: RuntimeName) -> Collection[GroupKey]:
        """The jobs that it concerned."""
        return self._jobs_of(name) if self._specs.pop(name, None) is not None else ()

    def complete(self, key: GroupKey, row: WorkloadRow, kind: JobKind, job: AnyJob) -> AnyJob:
        """A new or changed job, with its runtime put in where its kind has one."""
        if row.runtime is None or (name := runtime_named_by(row, obj := as_json(kind, job))) is None:
            return job
        self._take_out(key)
        self._jobs[key], self._names[key] = (kind, job), name
        self._named_by[name].add(key)
        spec = self._specs.get(name)
        waits = is_suspended(row, obj)
        if waits or key not in self._used:
            self._used.pop(key, None)
            if spec is not None:
                self._used[key] = spec
        return replace(job, spec=with_runtime(obj, self._used.get(key))["spec"])

    def forget(self, key: GroupKey) -> None:
        self._take_out(key)
        self._used.pop(key, None)

    # ---- reading

    def job(self, key: GroupKey) -> tuple[JobKind, AnyJob] | None:
        """A job that names a runtime, as it was told."""
        return self._jobs.get(key)

    def used_by(self, key: GroupKey) -> Json | None:
        """What the runtime of a job says; None if it is not there."""
        return self._used.get(key)

    def _take_out(self, key: GroupKey) -> None:
        if key in self._names:
            take_out(self._named_by, self._names.pop(key), key)
            del self._jobs[key]

    def _jobs_of(self, name: RuntimeName) -> Collection[GroupKey]:
        return sorted(self._named_by.get(name, ()))
