"""Which queue a new pod, Job or group goes to, and whether that queue takes it.

A pod of an existing group goes to the group's queue, whatever the queue's state: the group was taken in time.
A pod that names no queue and a group that does not exist yet is not judged: its group will be.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects import Meta, Pod
from extender.api.reviewed import NewOtherGroup, NewPod
from extender.domain.admission.faults import Code, Fault
from extender.domain.model.ownership import group_name
from extender.domain.model.pod_owners import group_name_of
from extender.domain.model.queue_of_group import says_queue
from extender.domain.queues.queue_tree import QueueTree
from extender.domain.queues.queue_view import QueueView

_BY_NAMESPACE = f"the namespace's annotation {keys.QUEUE} or its quota"


class Cluster(Protocol):
    """The part of the ledger that these rules need."""

    def queue_view(self, name: str) -> QueueView | None:
        """None if there is no such queue."""

    def namespace_queue(self, namespace: str) -> str:
        """The queue that the namespace's annotation or its quota names, or empty."""

    def group_queue(self, namespace: str, name: str) -> str | None:
        """The queue of a PodGroup; None if there is no PodGroup of this name."""


class Destination(msgspec.Struct, frozen=True):
    """The queue that an object goes to."""

    queue: str  # its name, whether it exists or not
    field: str  # the field that names it
    joined: bool = False  # whether it is the queue of an existing group that the object joins
    named: bool = True  # whether anything names it; otherwise it is `default`, for lack of another


def destination_of_pod(pod: NewPod, cluster: Cluster, path: str = "") -> Destination | None:
    """`path` is put before field names, because a Job's pod is its template. None: not to be judged."""
    meta = pod.metadata
    if named := group_name(pod):
        queue = cluster.group_queue(meta.namespace, named)
        if queue is not None:
            return Destination(queue, f"{path}metadata.annotations[{keys.GROUP_ANNOTATION}]", joined=True)
        return _own_queue(pod, path)
    own, joined = _own_queue(pod, path), _group_of_owner(pod, cluster)
    if joined is not None and (own is None or own.queue == joined.queue):
        return joined
    return own or by_namespace(meta.namespace, cluster)


def _group_of_owner(pod: NewPod, cluster: Cluster) -> Destination | None:
    owner = pod.controller
    queue = cluster.group_queue(pod.metadata.namespace, group_name_of(owner.uid)) if owner else None
    return Destination(queue, "metadata.ownerReferences", joined=True) if queue is not None else None


def _own_queue(pod: Pod, path: str) -> Destination | None:
    return _queue_named_in(pod.metadata, path)


def _queue_named_in(meta: Meta, path: str = "") -> Destination | None:
    for place in ("annotations", "labels"):
        if queue := (getattr(meta, place) or {}).get(keys.QUEUE):
            return Destination(queue, f"{path}metadata.{place}[{keys.QUEUE}]")
    return None


def by_namespace(namespace: str, cluster: Cluster) -> Destination:
    queue = cluster.namespace_queue(namespace)
    if queue:
        return Destination(queue, _BY_NAMESPACE)
    return Destination(keys.DEFAULT_QUEUE, "spec.queue", named=False)


def destination_of_other_group(group: NewOtherGroup, namespace: str, cluster: Cluster) -> Destination | None:
    """The queue of a PodGroup of scheduler-plugins or of Kubernetes. None if neither it nor its namespace
    names one: it may be meant for a scheduler without queues."""
    to = _queue_named_in(group.metadata) or by_namespace(namespace, cluster)
    return to if to.named else None


def destination_of_group(namespace: str, queue: str, cluster: Cluster) -> Destination:
    """The queue of a PodGroup or a Volcano Job."""
    if says_queue(queue):
        return Destination(queue, "spec.queue")
    to = by_namespace(namespace, cluster)
    return replace(to, named=to.named or bool(queue))


def judge_entry(to: Destination, cluster: Cluster) -> list[Fault]:
    """Faults unless the queue exists and takes new work."""
    view = cluster.queue_view(to.queue)
    if view is None:
        text = f"there is no queue {to.queue!r}: create it, or name an existing one"
        return [Fault(Code.QUEUE_NOT_FOUND, to.field, text)]
    if to.joined or view.state == "Open":
        return []
    text = (
        f"queue {to.queue!r} is {view.state} and takes no new work: "
        f"name another queue, or set spec.state of {view.to_open} to Open"
    )
    return [Fault(Code.QUEUE_NOT_OPEN, to.field, text)]


def judge_job_entry(to: Destination, cluster: Cluster, tree: Callable[[], QueueTree]) -> list[Fault]:
    """As `judge_entry`; in addition, work goes only to queues without children.

    A Job that names no queue is always taken (Volcano's design of queue states), and its pods wait until
    `default` is open.
    """
    faults = judge_entry(to, cluster) if to.named else []
    if faults or to.joined or not to.named:
        return faults
    if to.queue == keys.ROOT_QUEUE:
        text = f"queue {to.queue!r} contains only other queues: name one of those"
        return [Fault(Code.QUEUE_IS_ROOT, to.field, text)]
    if below := ", ".join(sorted(tree().children(to.queue))):
        text = f"queue {to.queue!r} contains other queues and takes no work itself: name one of {below}"
        return [Fault(Code.QUEUE_NOT_LEAF, to.field, text)]
    return []
