"""The objects that have the templates of jobs, and the jobs that name each: a change of one touches only
those."""

from collections import defaultdict
from collections.abc import Collection

from msgspec.structs import replace

from extender.api.workloads.lifecycle import is_suspended
from extender.api.workloads.runtimes import RuntimeName, runtime_named_by, with_runtime
from extender.api.workloads.shape import Json, WorkloadRow
from extender.domain.cache.keyed_sets import take_out
from extender.domain.jobs.job_record import JobKind
from extender.domain.jobs.reading import AnyJob, as_json
from extender.domain.model.records import GroupKey


class Runtimes:
    """A job that is let go keeps what its runtime said at that time, as its pods do."""

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
        self._use(key, self._specs.get(name), is_suspended(row, obj))
        return replace(job, spec=with_runtime(obj, self._used.get(key))["spec"])

    def forget(self, key: GroupKey) -> None:
        """A job is gone."""
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

    def _use(self, key: GroupKey, spec: Json | None, waits: bool) -> None:
        if waits or key not in self._used:
            self._used.pop(key, None)
            if spec is not None:
                self._used[key] = spec

    def _jobs_of(self, name: RuntimeName) -> Collection[GroupKey]:
        return sorted(self._named_by.get(name, ()))
