"""The jobs that the API has, by the group of their pods and by namespace."""

from collections import defaultdict
from collections.abc import Collection

from extender.domain.cache.keyed_sets import take_out
from extender.domain.jobs.job_record import JobRecord
from extender.domain.model.records import GroupKey
from extender.domain.model.shapes import Shape


class Jobs:
    def __init__(self) -> None:
        self._records: dict[GroupKey, JobRecord] = {}
        self._in_namespace: defaultdict[str, set[GroupKey]] = defaultdict(set)

    def __contains__(self, key: GroupKey) -> bool:
        return key in self._records

    def get(self, key: GroupKey) -> JobRecord | None:
        return self._records.get(key)

    def put(self, record: JobRecord) -> bool:
        """True if anything that matters changed."""
        if self._records.get(record.group) == record:
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

    @property
    def with_label(self) -> list[GroupKey]:
        """Those that name any LocalQueue."""
        return [key for key, job in self._records.items() if job.local_queue is not None]

    @property
    def shapes(self) -> set[Shape]:
        """Those of the pods that they will make."""
        return {each.pod.shape for job in self._records.values() for each in job.pods}
