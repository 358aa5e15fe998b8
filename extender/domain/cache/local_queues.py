"""The LocalQueues that the API has, and the groups that name each: a change of one touches only those."""

from collections import defaultdict
from collections.abc import Collection

from extender.domain.cache.keyed_sets import take_out
from extender.domain.model.local_queue_label import LocalQueueLabel
from extender.domain.model.records import GroupKey
from extender.domain.queues.local_queue_records import LocalQueueRecord, find_local_queue


class LocalQueues:
    """By `namespace/name`. A label of Kueue's counts where it names a LocalQueue of ours; where it does not,
    it is Kueue's own if the cluster has Kueue (`kueue_is_served`), and a mistake to be told if it has not."""

    def __init__(self) -> None:
        self.kueue_is_served = False
        self.turned: set[str] = set()  # those of which anything but numbers may have changed
        self._records: dict[str, LocalQueueRecord] = {}
        self._named_by: defaultdict[str, set[GroupKey]] = defaultdict(set)
        self._label_of: dict[GroupKey, str] = {}
        self._to_queue: defaultdict[str, set[str]] = defaultdict(set)
        self._in_namespace: defaultdict[str, set[str]] = defaultdict(set)

    # ---- changes

    def put(self, record: LocalQueueRecord) -> Collection[GroupKey] | None:
        """The groups that it concerns; None if nothing changed."""
        if self._records.get(record.key) == record:
            return None
        self._forget(record.key)
        self._records[record.key] = record
        self._to_queue[record.queue].add(record.key)
        self._in_namespace[record.namespace].add(record.key)
        self.turned.add(record.key)
        return self._groups_of(record.key)

    def drop(self, key: str) -> Collection[GroupKey] | None:
        """The groups that it concerned; None if it was not known."""
        return self._groups_of(key) if self._forget(key) else None

    def follow(self, group: GroupKey, namespace: str, label: LocalQueueLabel | None) -> None:
        """Note which LocalQueue a group names; None: none."""
        before, now = self._label_of.pop(group, ""), f"{namespace}/{label.name}" if label else ""
        if before != now:
            take_out(self._named_by, before, group)
        if now:
            self._label_of[group] = now
            self._named_by[now].add(group)

    def note_queue(self, queue: str) -> None:
        """Something about a queue changed."""
        self.turned |= self.of_queue(queue)

    def note_namespace(self, namespace: str) -> None:
        """Something about a namespace changed."""
        self.turned.update(self._in_namespace.get(namespace, ()))

    # ---- reading

    def get(self, key: str) -> LocalQueueRecord | None:
        return self._records.get(key)

    def named(self, namespace: str, label: LocalQueueLabel) -> LocalQueueRecord | None:
        """What a label names, whether it exists or not; None where the label is Kueue's own."""
        return find_local_queue(namespace, label, self._records, self.kueue_is_served)

    @property
    def keys(self) -> set[str]:
        return set(self._records)

    def of_queue(self, queue: str) -> set[str]:
        """The LocalQueues that lead into a queue."""
        return set(self._to_queue.get(queue, ()))

    @property
    def naming(self) -> Collection[GroupKey]:
        """All groups that name a LocalQueue."""
        return list(self._label_of)

    def _groups_of(self, key: str) -> Collection[GroupKey]:
        return list(self._named_by.get(key, ()))

    def _forget(self, key: str) -> bool:
        record = self._records.pop(key, None)
        if record is not None:
            take_out(self._to_queue, record.queue, key)
            take_out(self._in_namespace, record.namespace, key)
            self.turned.add(key)
        return record is not None
