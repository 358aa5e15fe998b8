"""Routes of groups into queues: by their own field, a LocalQueue, an owner, or their namespace."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from extender.api.keys import DEFAULT_QUEUE
from extender.domain.ledger.groups import Group
from extender.domain.ledger.jobs import NO_ANCESTOR, Ancestor, discard_value
from extender.domain.model.queue_of_group import LocalQueueLabel, explicit_queue
from extender.domain.model.records import GroupKey
from extender.domain.model.selectors import Labels
from extender.domain.queues.local_queues import LocalQueueRecord, QueueRoutes
from extender.domain.snapshot.jobs import JobRecord, queue_of_job


class LocalQueues:
    """Existing LocalQueues, and the groups that name each LocalQueue. The keys are `namespace/name`.

    A label of Kueue that names no LocalQueue of Muster is left to Kueue if the cluster has Kueue
    (`kueue_is_served`). Otherwise, the label is reported as a mistake.
    """

    def __init__(self) -> None:
        self.kueue_is_served = False
        self.changed_keys: set[str] = set()  # LocalQueues with changes other than in numbers
        self.records: dict[str, LocalQueueRecord] = {}
        self._groups_by_key: defaultdict[str, set[GroupKey]] = defaultdict(set)
        self._key_by_group: dict[GroupKey, str] = {}
        self._keys_by_queue: defaultdict[str, set[str]] = defaultdict(set)
        self._keys_by_namespace: defaultdict[str, set[str]] = defaultdict(set)

    def put(self, record: LocalQueueRecord) -> Collection[GroupKey] | None:
        """Record a LocalQueue. Return the groups that name it; None if nothing changed."""
        if self.records.get(record.key) == record:
            return None
        self._forget(record.key)
        self.records[record.key] = record
        self._keys_by_queue[record.queue].add(record.key)
        self._keys_by_namespace[record.namespace].add(record.key)
        self.changed_keys.add(record.key)
        return self._groups_of(record.key)

    def drop(self, key: str) -> Collection[GroupKey] | None:
        """Remove a LocalQueue. Return the groups that name it; None if it was unknown."""
        return self._groups_of(key) if self._forget(key) else None

    def record_group(self, group: GroupKey, namespace: str, label: LocalQueueLabel | None) -> None:
        """Record the LocalQueue that a group names; None means that the group names none."""
        old_key, new_key = self._key_by_group.pop(group, ""), f"{namespace}/{label.name}" if label else ""
        if old_key != new_key:
            discard_value(self._groups_by_key, old_key, group)
        if new_key:
            self._key_by_group[group] = new_key
            self._groups_by_key[new_key].add(group)

    def record_queues(self, queues: Iterable[str]) -> None:
        """Mark the LocalQueues that lead to any of these queues, which have changed."""
        self.changed_keys.update(*(self._keys_by_queue.get(queue, ()) for queue in queues))

    def record_namespace(self, namespace: str) -> None:
        """Mark the LocalQueues of a changed namespace."""
        self.changed_keys.update(self._keys_by_namespace.get(namespace, ()))

    @property
    def naming_groups(self) -> Collection[GroupKey]:
        """Return all groups that name a LocalQueue."""
        return list(self._key_by_group)

    def _groups_of(self, key: str) -> Collection[GroupKey]:
        return list(self._groups_by_key.get(key, ()))

    def _forget(self, key: str) -> bool:
        """Forget a LocalQueue. Return whether it was known."""
        record = self.records.pop(key, None)
        if record is not None:
            discard_value(self._keys_by_queue, record.queue, key)
            discard_value(self._keys_by_namespace, record.namespace, key)
            self.changed_keys.add(key)
        return record is not None


class Routes:
    """Routes of groups by namespace, by LocalQueue and by owner.

    Attributes:
        nearest_owner_of: Returns the nearest owner of a group that names a queue.
    """

    def __init__(self, nearest_owner_of: Callable[[Group], Ancestor]) -> None:
        self.nearest_owner_of = nearest_owner_of
        self._named_queues: dict[str, str] = {}  # by namespace: queue in its annotation
        self._quota_queues: Mapping[str, str] = {}  # by namespace: queue of its quota
        self.local_queues = LocalQueues()
        self._namespace_labels: dict[str, Labels] = {}
        self._min_members: dict[str, str] = {}
        self._groups_by_namespace: defaultdict[str, set[GroupKey]] = defaultdict(set)

    def set_namespace(self, namespace: str, queue: str, labels: Labels, min_member: str = "") -> bool:
        """Record a namespace. Return whether any value has changed.

        Args:
            namespace: The name of the namespace.
            queue: The queue that its annotation names.
            labels: Its labels.
            min_member: The default number of pods of a job that start together.
        """
        old = self._named_queues.get(namespace, "")
        if (old, self.labels_of(namespace), self.min_member_of(namespace)) == (queue, labels, min_member):
            return False
        self._named_queues[namespace] = queue
        self._min_members[namespace] = min_member
        self._namespace_labels[namespace] = labels
        self.local_queues.record_namespace(namespace)
        return True

    def drop_namespace(self, namespace: str) -> bool:
        """Remove a namespace. Return whether any value has changed."""
        has_changed = self.set_namespace(namespace, "", {})
        self._named_queues.pop(namespace, None)
        self._namespace_labels.pop(namespace, None)
        self._min_members.pop(namespace, None)
        return has_changed

    def set_quota_namespaces(self, queues: Mapping[str, str]) -> set[str]:
        """Record the queues of the quotas of namespaces.

        Return the namespaces whose queue changes thereby.
        """
        changed_names = {name for name, _ in queues.items() ^ self._quota_queues.items()}
        self._quota_queues = dict(queues)
        return {name for name in changed_names if not self._named_queues.get(name)}

    def record_group(self, group: Group) -> None:
        """Record the queue and LocalQueue that a group names, so that their changes reach the group."""
        self._groups_by_namespace[group.namespace].add(group.key)
        self.local_queues.record_group(group.key, group.namespace, self._effective_names(group).local_queue)

    def forget(self, group: Group) -> None:
        discard_value(self._groups_by_namespace, group.namespace, group.key)
        self.local_queues.record_group(group.key, group.namespace, None)

    def namespace_queue(self, namespace: str) -> str:
        """Return the default queue of a namespace, or empty. The annotation comes before the quota."""
        return self._named_queues.get(namespace) or self._quota_queues.get(namespace, "")

    @property
    def routes_into_queues(self) -> QueueRoutes:
        return QueueRoutes(self.namespace_queue, self.local_queues.records, self.local_queues.kueue_is_served)

    def queue_of_job(self, job: JobRecord) -> str:
        """Return the queue that a job enters; empty if it enters no queue."""
        return queue_of_job(job, self.routes_into_queues)

    def labels_of(self, namespace: str) -> Labels:
        return self._namespace_labels.get(namespace, {})

    def min_member_of(self, namespace: str) -> str:
        return self._min_members.get(namespace, "")

    def groups_in(self, namespace: str) -> Collection[GroupKey]:
        return self._groups_by_namespace.get(namespace, ())

    def label_of(self, group: Group) -> LocalQueueLabel | None:
        """Return the LocalQueue label by which a group enters its queue; None if it enters in another way."""
        return self._effective_names(group).local_queue if self.local_queue_of(group) is not None else None

    def local_queue_of(self, group: Group) -> LocalQueueRecord | None:
        """Return the LocalQueue of a group, which may not exist.

        None means that the group names no LocalQueue, or names a queue directly.
        """
        names, routes = self._effective_names(group), self.routes_into_queues
        return None if names.queue else routes.local_queue(group.namespace, names.local_queue)

    def queue_of(self, group: Group) -> str:
        """Return the queue of a group. After its PodGroup is deleted, this is still the queue that it named.

        A group that starts or has started keeps its queue even if it names another one later, because its
        capacity was granted in that queue.
        """
        if group.start_queue:
            return group.start_queue
        names, routes = self._effective_names(group), self.routes_into_queues
        return routes.queue_of(group.namespace, names.queue, names.local_queue) or DEFAULT_QUEUE

    def names_queue(self, group: Group) -> bool:
        """Return whether a group itself names a queue or a LocalQueue, whatever its owners name."""
        names = _own_names(group)
        return bool(names.queue or names.local_queue)

    def _effective_names(self, group: Group) -> Ancestor:
        """Return the queue and LocalQueue that count for a group.

        If the group itself names none, the names of its nearest owner that names one count.
        """
        return _own_names(group) if self.names_queue(group) else self.nearest_owner_of(group)


def _own_names(group: Group) -> Ancestor:
    """Return the queue and LocalQueue that a group names itself: by its PodGroup, its job, or its pods."""
    if (record := group.last_record) is not None:
        return Ancestor(queue=explicit_queue(record.queue), local_queue=record.local_queue)
    if (job := group.job) is not None:
        return Ancestor(queue=job.queue, local_queue=job.local_queue)
    pod = next(iter(group.pods.values()), None)
    return NO_ANCESTOR if pod is None else Ancestor(queue=pod.queue, local_queue=pod.local_queue)
