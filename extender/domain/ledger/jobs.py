"""Jobs of the API server, runtimes with templates of jobs, and ancestors of groups: the owners of pods.

A group has the author and the queue of its nearest owner that has them. For example, a ReplicaSet without a
queue has the queue of its Deployment.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple, Self, TypeVar

from msgspec.structs import replace

from extender.api.objects.base import Meta, OwnerReference
from extender.api.workloads.shape import (
    Json,
    KindName,
    RuntimeName,
    WorkloadRow,
    is_suspended,
    runtime_named_by,
    with_runtime,
)
from extender.domain.model.ownership import controller_of, queue_named_by
from extender.domain.model.queue_of_group import (
    LocalQueueLabel,
    local_queue_label,
    recorded_author,
    recorded_usable_queue,
)
from extender.domain.model.records import GroupKey, group_of_owner
from extender.domain.snapshot.jobs import AnyJob, JobKind, JobRecord, as_json

K = TypeVar("K")
V = TypeVar("V")


def discard_value(sets: defaultdict[K, set[V]], key: K, value: V) -> None:
    """Remove a value from the set of a key in an index. An empty set is removed, too."""
    if key in sets:
        sets[key].discard(value)
        if not sets[key]:
            del sets[key]


class Jobs:
    """Jobs of the API server, by the group of their pods and by namespace."""

    def __init__(self) -> None:
        self._records: dict[GroupKey, JobRecord] = {}
        self._keys_by_namespace: defaultdict[str, set[GroupKey]] = defaultdict(set)

    def __contains__(self, key: GroupKey) -> bool:
        return key in self._records

    def get(self, key: GroupKey) -> JobRecord | None:
        return self._records.get(key)

    def put(self, record: JobRecord) -> bool:
        """Record a job. Return whether a relevant fact has changed.

        An admitted job stays admitted, even if a user removes the annotation.
        """
        old = self._records.get(record.group)
        if old is not None and old.uid == record.uid and old.is_unsuspended and not record.is_suspended:
            record = replace(record, started_at=record.started_at or old.started_at)
        if old == record:
            return False
        self._records[record.group] = record
        self._keys_by_namespace[record.namespace].add(record.group)
        return True

    def drop(self, key: GroupKey) -> bool:
        """Remove a job. Return whether it existed."""
        record = self._records.pop(key, None)
        if record is not None:
            discard_value(self._keys_by_namespace, record.namespace, key)
        return record is not None

    def groups_in(self, namespace: str) -> Collection[GroupKey]:
        return self._keys_by_namespace.get(namespace, ())

    def find_jobs(self, namespace: str, local_queue: str) -> list[GroupKey]:
        """Return the jobs whose label names a LocalQueue."""
        labels = ((key, self._records[key].local_queue) for key in self.groups_in(namespace))
        return [key for key, label in labels if label is not None and label.name == local_queue]

    def groups_of_kinds(self, kinds: Collection[KindName]) -> list[GroupKey]:
        return [key for key, job in self._records.items() if job.kind in kinds]

    @property
    def jobs_with_label(self) -> list[GroupKey]:
        """Return all jobs whose label names a LocalQueue."""
        return [key for key, job in self._records.items() if job.local_queue is not None]


class Runtimes:
    """Runtimes, which are objects with templates of jobs, and the jobs that name each runtime.

    A change of a runtime concerns only these jobs. An admitted job keeps the runtime with which it was
    admitted, as its pods do.
    """

    def __init__(self) -> None:
        self._specs: dict[RuntimeName, Json] = {}
        self._jobs: dict[GroupKey, tuple[JobKind, AnyJob]] = {}
        self._runtime_names: dict[GroupKey, RuntimeName] = {}
        self._jobs_by_runtime: defaultdict[RuntimeName, set[GroupKey]] = defaultdict(set)
        self._used_specs: dict[GroupKey, Json] = {}

    def put(self, name: RuntimeName, spec: Json) -> Collection[GroupKey]:
        """Record a runtime. Return the jobs that it concerns."""
        if self._specs.get(name) == spec:
            return ()
        self._specs[name] = spec
        return self._jobs_of(name)

    def drop(self, name: RuntimeName) -> Collection[GroupKey]:
        """Remove a runtime. Return the jobs that it concerned."""
        return self._jobs_of(name) if self._specs.pop(name, None) is not None else ()

    def complete(self, key: GroupKey, row: WorkloadRow, kind: JobKind, job: AnyJob) -> AnyJob:
        """Return a new or changed job. If it names a runtime, add the runtime's fields."""
        if row.runtime is None:
            return job
        obj = as_json(kind, job)
        if (name := runtime_named_by(row, obj)) is None:
            return job
        self._remove_job(key)
        self._jobs[key], self._runtime_names[key] = (kind, job), name
        self._jobs_by_runtime[name].add(key)
        spec = self._specs.get(name)
        if is_suspended(row, obj) or key not in self._used_specs:
            self._used_specs.pop(key, None)
            if spec is not None:
                self._used_specs[key] = spec
        return replace(job, spec=with_runtime(obj, self._used_specs.get(key))["spec"])

    def forget(self, key: GroupKey) -> None:
        self._remove_job(key)
        self._used_specs.pop(key, None)

    def job(self, key: GroupKey) -> tuple[JobKind, AnyJob] | None:
        """Return a job that names a runtime, as it was recorded."""
        return self._jobs.get(key)

    def used_spec(self, key: GroupKey) -> Json | None:
        """Return the spec of a job's runtime; None if the runtime does not exist."""
        return self._used_specs.get(key)

    def _remove_job(self, key: GroupKey) -> None:
        if key in self._runtime_names:
            discard_value(self._jobs_by_runtime, self._runtime_names.pop(key), key)
            del self._jobs[key]

    def _jobs_of(self, name: RuntimeName) -> Collection[GroupKey]:
        return sorted(self._jobs_by_runtime.get(name, ()))


_MAX_OWNERS = 8  # limit of levels of owners, because owner references may form a loop


class Owner(NamedTuple):
    """Owner of pods, as far as an owner reference identifies it."""

    key: GroupKey  # key of the group of its pods
    kind: str = ""  # such as "apps/v1/Deployment"; empty: unknown

    @classmethod
    def from_reference(cls, namespace: str, reference: OwnerReference) -> Self:
        kind = f"{reference.api_version}/{reference.kind}"
        return cls(group_of_owner(namespace, reference.uid), kind)


class Ancestor(NamedTuple):
    """Facts about an owner that apply to the groups of its pods: queue, author and rights."""

    author: str = ""  # user whom admission recorded on the owner; empty: none
    queue: str = ""  # queue that the owner names; empty: none
    local_queue: LocalQueueLabel | None = None  # label by which the owner names a LocalQueue
    usable_queue: str = ""  # restricted queue that its author may use, by its annotation
    controller: Owner | None = None


class Ancestors:
    """Owners of pods, and owners of these owners, with the groups that depend on them.

    Owners and pods come from different watches. If an owner comes later than its pods, the groups of the pods
    are returned.
    """

    def __init__(self) -> None:
        self.are_read: Callable[[str], bool] = lambda _: False  # whether all owners of a kind are known
        self._ancestors: dict[GroupKey, Ancestor] = {}
        self._groups_by_owner: defaultdict[GroupKey, set[GroupKey]] = defaultdict(set)  # by owner
        self._owners_by_group: dict[GroupKey, list[GroupKey]] = {}  # owners by group

    def put(self, kind: str, meta: Meta) -> Collection[GroupKey]:
        """Record an owner. Return the groups that depend on the owner, if it has changed."""
        key, owner = group_of_owner(meta.namespace, meta.uid), controller_of(meta.owner_references)
        ancestor = Ancestor(
            author=recorded_author(meta, kind),
            queue=queue_named_by(meta),
            local_queue=local_queue_label(meta),
            usable_queue=recorded_usable_queue(meta, kind),
            controller=Owner.from_reference(meta.namespace, owner) if owner is not None else None,
        )
        if self._ancestors.get(key) == ancestor:
            return ()
        self._ancestors[key] = ancestor
        return tuple(self._groups_by_owner.get(key, ()))

    def drop(self, namespace: str, uid: str) -> None:
        self._ancestors.pop(group_of_owner(namespace, uid), None)

    def record_owners(self, group: GroupKey, owners: Iterable[Owner]) -> None:
        """Record the owners of a group. The group depends on these owners, and on the owners above them."""
        owner_keys = [owner.key for owner, _ in self._chain_of(owners)]
        if owner_keys == self._owners_by_group.get(group, []):
            return
        for key in self._owners_by_group.pop(group, ()):
            discard_value(self._groups_by_owner, key, group)
        if owner_keys:
            self._owners_by_group[group] = owner_keys
            for key in owner_keys:
                self._groups_by_owner[key].add(group)

    def author(self, owners: Iterable[Owner]) -> str:
        """Return the author of the nearest owner that has an author; empty if none has one."""
        authors = (record.author for _, record in self._chain_of(owners) if record is not None)
        return next(filter(None, authors), "")

    def nearest_naming_queue(self, owners: Iterable[Owner]) -> Ancestor:
        """Return the nearest owner that names a queue or a LocalQueue; an empty record if none does."""
        ancestors = (ancestors for _, ancestors in self._chain_of(owners) if ancestors is not None)
        return next((each for each in ancestors if each.queue or each.local_queue), NO_ANCESTOR)

    def are_coming(self, owners: Iterable[Owner]) -> bool:
        """Return whether an owner of a watched kind has not come yet."""
        return any(record is None and self.are_read(owner.kind) for owner, record in self._chain_of(owners))

    def _chain_of(self, owners: Iterable[Owner]) -> Iterator[tuple[Owner, Ancestor | None]]:
        """Yield each owner and the owners above it, the nearest first, with their records.

        A record is None if the owner is unknown.
        """
        for owner in owners:
            ancestor: Owner | None = owner
            for _ in range(_MAX_OWNERS):
                if ancestor is None:
                    break
                record = self._ancestors.get(ancestor.key)
                yield ancestor, record
                ancestor = record.controller if record is not None else None


NO_ANCESTOR = Ancestor()
