"""What the ledger remembers of a LocalQueue: a namespace's way into a queue."""

from collections.abc import Iterable, Mapping

import msgspec

from extender.api.keys import STOP_NONE
from extender.api.objects.queues import LocalQueue
from extender.domain.model.local_queue_label import LocalQueueLabel
from extender.domain.queues.spec_fields import stop_policy_fault


class LocalQueueRecord(msgspec.Struct, frozen=True, gc=False):
    namespace: str
    name: str
    queue: str = ""  # the queue that its groups go to
    stop_policy: str = ""  # as that of a queue, for its groups only
    uid: str = ""  # empty: there is no such LocalQueue
    fault: str = ""  # what is wrong with its spec, for people; empty if nothing is

    @property
    def key(self) -> str:
        """No queue has such a name, since none has a slash."""
        return f"{self.namespace}/{self.name}"

    @property
    def exists(self) -> bool:
        return bool(self.uid)

    @property
    def leads_to(self) -> str:
        """The queue of its groups. One that does not exist, or names none, leads to no queue that could
        exist."""
        return self.queue or self.key

    @property
    def is_shut(self) -> bool:
        """Whether none of its groups may start."""
        return not self.exists or bool(self.fault or self.stop_policy)


def local_queue_record(local: LocalQueue) -> LocalQueueRecord:
    meta, spec = local.metadata, local.spec
    fault = stop_policy_fault(spec.stop_policy) or ("" if spec.queue else "spec.queue names no queue")
    return LocalQueueRecord(
        namespace=meta.namespace,
        name=meta.name,
        queue=spec.queue,
        stop_policy="" if spec.stop_policy == STOP_NONE else spec.stop_policy,
        uid=meta.uid,
        fault=fault and f"LocalQueue {meta.namespace}/{meta.name}: {fault}",
    )


def records_by_key(objects: Iterable[LocalQueue]) -> dict[str, LocalQueueRecord]:
    """By `namespace/name`."""
    records = map(local_queue_record, objects)
    return {record.key: record for record in records}


def find_local_queue(
    namespace: str, label: LocalQueueLabel, known: Mapping[str, LocalQueueRecord], kueue_is_served: bool
) -> LocalQueueRecord | None:
    """What a label names, whether it exists or not. A label of Kueue's that names none of ours is Kueue's own
    where the cluster has Kueue: None; where it has not, it is a mistake to be told."""
    found = known.get(f"{namespace}/{label.name}")
    if found is None and label.is_kueues and kueue_is_served:
        return None
    return found or LocalQueueRecord(namespace, label.name)
