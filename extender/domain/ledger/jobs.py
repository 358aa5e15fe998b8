"""Jobs that the API has, the objects with their templates, and the authors of jobs and other owners of pods.

An author is the user whom admission recorded on an object. An owner without a record has the author of its
own controller, such as a ReplicaSet that of its Deployment.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from extender.api.objects.base import Meta
from extender.api.workloads.shape import (
    Json,
    KindName,
    RuntimeName,
    WorkloadRow,
    is_suspended,
    runtime_named_by,
    with_runtime,
)
from extender.domain.model.ownership import controller_of
from extender.domain.model.queue_of_group import recorded_author
from extender.domain.model.records import GroupKey, group_of_owner
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
        """Record a job; return whether anything that matters changed.

        An admitted job stays admitted, even if a user removes the annotation.
        """
        before = self._records.get(record.group)
        if before is not None and before.uid == record.uid and before.is_let_go and not record.suspended:
            record = replace(record, started_at=record.started_at or before.started_at)
        if before == record:
            return False
        self._records[record.group] = record
        self._in_namespace[record.namespace].add(record.group)
        return True

    def drop(self, key: GroupKey) -> bool:
        """Remove a job; return whether it existed."""
        record = self._records.pop(key, None)
        if record is not None:
            take_out(self._in_namespace, record.namespace, key)
        return record is not None

    def groups_in(self, namespace: str) -> Collection[GroupKey]:
        return self._in_namespace.get(namespace, ())

    def naming(self, namespace: str, local_queue: str) -> list[GroupKey]:
        """Return the jobs whose label names a LocalQueue."""
        labels = ((key, self._records[key].local_queue) for key in self.groups_in(namespace))
        return [key for key, label in labels if label is not None and label.name == local_queue]

    def of_kinds(self, kinds: Collection[KindName]) -> list[GroupKey]:
        return [key for key, job in self._records.items() if job.kind in kinds]

    @property
    def with_label(self) -> list[GroupKey]:
        """Return the jobs that name any LocalQueue."""
        return [key for key, job in self._records.items() if job.local_queue is not None]


class Runtimes:
    """Runtimes: objects with the templates of jobs, and the jobs that name each.

    A change concerns only those jobs. An admitted job keeps what its runtime said at that time, as its
    pods do.
    """

    def __init__(self) -> None:
        self._specs: dict[RuntimeName, Json] = {}
        self._jobs: dict[GroupKey, tuple[JobKind, AnyJob]] = {}
        self._names: dict[GroupKey, RuntimeName] = {}
        self._named_by: defaultdict[RuntimeName, set[GroupKey]] = defaultdict(set)
        self._used: dict[GroupKey, Json] = {}

    # ---- changes

    def put(self, name: RuntimeName, spec: Json) -> Collection[GroupKey]:
        """Record a runtime; return the jobs that it concerns."""
        if self._specs.get(name) == spec:
            return ()
        self._specs[name] = spec
        return self._jobs_of(name)

    def drop(self, name: RuntimeName) -> Collection[GroupKey]:
        """Remove a runtime; return the jobs that it concerned."""
        return self._jobs_of(name) if self._specs.pop(name, None) is not None else ()

    def complete(self, key: GroupKey, row: WorkloadRow, kind: JobKind, job: AnyJob) -> AnyJob:
        """Return a new or changed job, with its runtime added where its kind has one."""
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
        """Return a job that names a runtime, as it was recorded."""
        return self._jobs.get(key)

    def used_by(self, key: GroupKey) -> Json | None:
        """Return the spec of a job's runtime; None if it does not exist."""
        return self._used.get(key)

    def _take_out(self, key: GroupKey) -> None:
        if key in self._names:
            take_out(self._named_by, self._names.pop(key), key)
            del self._jobs[key]

    def _jobs_of(self, name: RuntimeName) -> Collection[GroupKey]:
        return sorted(self._named_by.get(name, ()))


_MOST_OWNERS = 8  # controllers above each other; references may form a loop


class Owner(NamedTuple):
    key: GroupKey  # of the group that its pods form
    kind: str = ""  # "apps/v1/Deployment"; empty: not known


class _Origin(NamedTuple):
    author: str  # empty: no note names one
    controller: Owner | None  # of an owner without an author


class Authors:
    """Authors by owner.

    Owners and pods come by different watches: groups whose author is unknown are reported once an owner
    comes.
    """

    def __init__(self) -> None:
        self.are_read: Callable[[str], bool] = lambda _: False  # whether all owners of a kind are known
        self._origins: dict[GroupKey, _Origin] = {}
        self._awaiting: defaultdict[GroupKey, set[GroupKey]] = defaultdict(set)  # groups by owner
        self._awaited: dict[GroupKey, Collection[GroupKey]] = {}  # owners by group

    def put(self, kind: str, meta: Meta) -> Collection[GroupKey]:
        """Note an owner. Return the groups whose author may be known now."""
        key, author = group_of_owner(meta.namespace, meta.uid), recorded_author(meta, kind)
        controller, above = controller_of(meta.owner_references) if not author else None, None
        if controller is not None:
            of = f"{controller.api_version}/{controller.kind}"
            above = Owner(group_of_owner(meta.namespace, controller.uid), of)
        origin = _Origin(author, above)
        if self._origins.get(key) == origin:
            return ()
        self._origins[key] = origin
        return tuple(self._awaiting.get(key, ()))

    def drop(self, namespace: str, uid: str) -> None:
        self._origins.pop(group_of_owner(namespace, uid), None)

    def of(self, owners: Iterable[Owner], group: GroupKey) -> str:
        """Return the author of the first owner that has one; empty if none has."""
        ends: set[GroupKey] = set()
        for owner in owners:
            author, end = self.nearest(owner)
            if author:
                self.forget(group)
                return author
            ends.add(end.key)
        if ends != self._awaited.get(group, set()):
            self.forget(group)
            self._awaited[group] = ends
            for key in ends:
                self._awaiting[key].add(group)
        return ""

    def are_coming(self, owners: Iterable[Owner]) -> bool:
        """Return whether no author is known, and an owner of a watched kind has not come yet."""
        found = [self.nearest(owner) for owner in owners]
        missing = (end.key not in self._origins and self.are_read(end.kind) for _, end in found)
        return not any(author for author, _ in found) and any(missing)

    def forget(self, group: GroupKey) -> None:
        """Record that the group awaits no author."""
        for owner in self._awaited.pop(group, ()):
            take_out(self._awaiting, owner, group)

    def nearest(self, owner: Owner) -> tuple[str, Owner]:
        """Return the author of an owner, or of the nearest one above it, and the last owner looked up."""
        for _ in range(_MOST_OWNERS):
            origin = self._origins.get(owner.key)
            if origin is None or origin.controller is None:
                return origin.author if origin is not None else "", owner
            owner = origin.controller
        return "", owner
