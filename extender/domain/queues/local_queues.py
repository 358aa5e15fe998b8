"""Routes into queues: LocalQueues, their queues, and the precedence between several routes."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from extender.api.keys import STOP_NONE
from extender.api.objects.queues import LocalQueue
from extender.domain.model.queue_of_group import LocalQueueLabel
from extender.domain.queues.records import not_selected, stop_policy_fault
from extender.domain.queues.states import QueueState
from extender.domain.queues.tree import QueueInfo


class LocalQueueRecord(msgspec.Struct, frozen=True, gc=False):
    """Record of a LocalQueue, the route from a namespace into a queue."""

    namespace: str
    name: str
    queue: str = ""  # the queue that its groups enter
    stop_policy: str = ""  # spec.stopPolicy, which concerns only groups of this LocalQueue
    uid: str = ""  # empty if the LocalQueue does not exist
    fault: str = ""  # fault of its spec, for users; empty if valid

    @property
    def key(self) -> str:
        """Return namespace/name. This is never the name of a queue, because queue names have no slash."""
        return f"{self.namespace}/{self.name}"

    @property
    def exists(self) -> bool:
        return bool(self.uid)

    @property
    def target(self) -> str:
        """Return the queue that the groups enter.

        If the LocalQueue names no queue, return a name that no queue can have.
        """
        return self.queue or self.key

    @property
    def is_closed(self) -> bool:
        """Return whether no group of the LocalQueue may start."""
        return not self.exists or bool(self.fault or self.stop_policy)


def local_queue_record(local_queue: LocalQueue) -> LocalQueueRecord:
    """Return the record of a LocalQueue."""
    meta, spec = local_queue.metadata, local_queue.spec
    fault = stop_policy_fault(spec.stop_policy) or ("" if spec.queue else "spec.queue names no queue")
    return LocalQueueRecord(
        namespace=meta.namespace,
        name=meta.name,
        queue=spec.queue,
        stop_policy="" if spec.stop_policy == STOP_NONE else spec.stop_policy,
        uid=meta.uid,
        fault=f"LocalQueue {meta.namespace}/{meta.name}: {fault}" if fault else "",
    )


def records_by_key(objects: Iterable[LocalQueue]) -> dict[str, LocalQueueRecord]:
    """Return the records of LocalQueues, keyed by `namespace/name`."""
    return {record.key: record for record in map(local_queue_record, objects)}


class QueueRoutes(NamedTuple):
    """Routes into queues for groups and jobs that name no queue themselves."""

    namespace_queue: Callable[[str], str]  # returns the queue that a namespace or its quota names, or ""
    local_queues: Mapping[str, LocalQueueRecord]  # keyed by `namespace/name`
    kueue_is_served: bool = False  # whether the cluster has Kueue

    def local_queue(self, namespace: str, label: LocalQueueLabel | None) -> LocalQueueRecord | None:
        """Return the LocalQueue that a label names.

        The result may stand for a LocalQueue that does not exist. None means that there is no label, or that
        Kueue handles the label. Kueue handles its own label if the cluster has Kueue and Muster has no
        LocalQueue of that name. In a cluster without Kueue, the label counts as a mistake.
        """
        if label is None:
            return None
        record = self.local_queues.get(f"{namespace}/{label.name}")
        if record is None and label.is_kueue_label and self.kueue_is_served:
            return None
        return record or LocalQueueRecord(namespace, label.name)

    def queue_of(self, namespace: str, queue: str, label: LocalQueueLabel | None) -> str:
        """Return the queue of a group or job; empty if nothing names a queue.

        The order of precedence is: the queue that the object itself names, the queue of its LocalQueue, the
        queue of its namespace. If the result is empty, a group enters `default`, and a suspended job enters
        no queue.

        Args:
            namespace: The namespace of the group or job.
            queue: The queue that a PodGroup (see `explicit_queue`), pods without a PodGroup, or a job name.
            label: The label that names a LocalQueue, if any.
        """
        if queue:
            return queue
        record = self.local_queue(namespace, label)
        return record.target if record is not None else self.namespace_queue(namespace)


READY = "Ready"


class Activity(NamedTuple):
    """Readiness of a LocalQueue: whether groups may start in it."""

    reason: str  # code of the reason; READY means that groups may start
    message: str  # for users, without numbers

    @property
    def is_active(self) -> bool:
        return self.reason == READY


def activity_of(local_queue: LocalQueueRecord, queue: QueueInfo, namespace_allowed: bool) -> Activity:
    """Return the first obstacle to starts in a LocalQueue, or `Ready` without an obstacle.

    Args:
        local_queue: The LocalQueue.
        queue: The queue that the LocalQueue names.
        namespace_allowed: Whether that queue accepts groups of the LocalQueue's namespace.
    """
    name = local_queue.queue
    if local_queue.fault:
        return Activity("InvalidSpec", local_queue.fault)
    if not queue.exists:
        return Activity("QueueNotFound", f"queue {name} does not exist")
    if queue.fault:
        return Activity("InvalidSpec", queue.fault)
    if queue.state != QueueState.OPEN:
        return Activity("QueueNotOpen", f"queue {name} is {queue.state}")
    if not namespace_allowed:
        return Activity("NamespaceNotAllowed", not_selected(name, local_queue.namespace))
    policies = {f"queue {name}": queue.record.stop_policy, "this LocalQueue": local_queue.stop_policy}
    for owner, policy in policies.items():
        if policy:
            return Activity("Stopped", f"spec.stopPolicy of {owner} is {policy}")
    return Activity(READY, f"groups enter queue {name}")
