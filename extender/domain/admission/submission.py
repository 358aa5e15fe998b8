"""Which queue a new pod, Job or group goes to, and whether that queue takes it.

A pod whose group is there already goes where the group is, whatever the queue's state: it came in time. A pod
that names a group which is not there yet, and no queue, is not judged: its group will be.
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
from extender.domain.queues.queue_tree import Picture
from extender.domain.queues.queue_view import QueueView

_BY_NAMESPACE = f"the namespace's annotation {keys.QUEUE}"


class Cluster(Protocol):
    """What is asked of the ledger."""

    def queue_view(self, name: str) -> QueueView | None:
        """None when there is no such queue."""

    def namespace_queue(self, namespace: str) -> str:
        """What the namespace's annotation names, else empty."""

    def group_queue(self, namespace: str, name: str) -> str | None:
        """The queue of a PodGroup; None when there is none of this name."""


class Destination(msgspec.Struct, frozen=True):
    """A queue and the field that names it. `joined`: by a group which is there already. `named`: somebody
    names it; else it is `default`, for want of another."""

    queue: str
    field: str
    joined: bool = False
    named: bool = True


def destination_of_pod(pod: NewPod, cluster: Cluster, path: str = "") -> Destination | None:
    """`path` is put before the fields: a Job's pod is its template. None: not to be judged."""
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
    """Of a PodGroup of scheduler-plugins or of Kubernetes. None where nobody names a queue: it may be for a
    scheduler that knows of none."""
    to = _queue_named_in(group.metadata) or by_namespace(namespace, cluster)
    return to if to.named else None


def destination_of_group(namespace: str, queue: str, cluster: Cluster) -> Destination:
    """Of a PodGroup or a Volcano Job."""
    if says_queue(queue):
        return Destination(queue, "spec.queue")
    to = by_namespace(namespace, cluster)
    return replace(to, named=to.named or bool(queue))


def judge_entry(to: Destination, cluster: Cluster) -> list[Fault]:
    """Whether the queue is there and takes something new."""
    view = cluster.queue_view(to.queue)
    if view is None:
        text = f"there is no queue {to.queue!r}: create it, or name one that is there"
        return [Fault(Code.QUEUE_NOT_FOUND, to.field, text)]
    if to.joined or view.state == "Open":
        return []
    text = (
        f"queue {to.queue!r} is {view.state} and takes nothing new: "
        f"name another queue, or set spec.state of {view.to_open} to Open"
    )
    return [Fault(Code.QUEUE_NOT_OPEN, to.field, text)]


def judge_job_entry(to: Destination, cluster: Cluster, picture: Callable[[], Picture]) -> list[Fault]:
    """As `judge_entry`; and work goes to queues at the end of a branch, not to those that hold queues.

    A Job that names no queue is always taken (Volcano's design of queue states), and its pods wait until
    `default` is open.
    """
    faults = judge_entry(to, cluster) if to.named else []
    if faults or to.joined or not to.named:
        return faults
    if to.queue == keys.ROOT_QUEUE:
        text = f"queue {to.queue!r} only holds other queues: name one of those"
        return [Fault(Code.QUEUE_IS_ROOT, to.field, text)]
    if below := ", ".join(sorted(picture().children(to.queue))):
        text = f"queue {to.queue!r} holds other queues and no work: name one of {below}"
        return [Fault(Code.QUEUE_NOT_LEAF, to.field, text)]
    return []
