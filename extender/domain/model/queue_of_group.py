"""Names of queues on objects: explicit ones, LocalQueue labels, namespace annotations, and records of entry.

The precedence between them is in `queues/local_queues`.
"""

from typing import NamedTuple

from extender.api.keys import AUTHOR, DEFAULT_QUEUE, KUEUE_QUEUE, LOCAL_QUEUE, MAY_USE, QUEUE, QUEUE_UID
from extender.api.objects.base import Meta
from extender.api.objects.cluster import Namespace


class LocalQueueLabel(NamedTuple):
    """The LocalQueue that a PodGroup, a pod or a job names by a label."""

    name: str  # name of a LocalQueue of its namespace, existing or not
    key: str  # key of the label, which is kept where the label is copied

    @property
    def is_kueues(self) -> bool:
        """Return whether Kueue reads the same label."""
        return self.key == KUEUE_QUEUE


def local_queue_label(meta: Meta) -> LocalQueueLabel | None:
    """Return Muster's own label, else Kueue's, else None; an empty label names nothing."""
    labels = meta.labels or {}
    for key in (LOCAL_QUEUE, KUEUE_QUEUE):
        if name := labels.get(key):
            return LocalQueueLabel(name, key)
    return None


class QueueOfOwner(NamedTuple):
    """The queue or LocalQueue that the nearest owner of an object names."""

    queue: str
    local_queue: LocalQueueLabel | None
    is_known: bool  # whether all owners have been read


NO_QUEUE_OF_OWNER = QueueOfOwner("", None, is_known=True)


def entry_annotation(queue_uid: str, group_uid: str) -> dict[str, str]:
    """Return the annotation of a PodGroup for the queue that admitted the group.

    The record outlives the queue. It includes the UID of the PodGroup, since it is ignored on a copy from a
    file or a backup.
    """
    return {QUEUE_UID: f"{queue_uid}/{group_uid}"}


def recorded_queue(group: Meta) -> str:
    """Return the UID of the queue that admitted the group; empty if none, or by another object's record."""
    written = (group.annotations or {}).get(QUEUE_UID)
    if not written:
        return ""
    queue_uid, _, group_uid = written.partition("/")
    return queue_uid if group_uid == group.uid else ""


def use_record(queue: str, kind: str) -> dict[str, str]:
    """Return the annotation for the right to use a restricted queue, which admission writes.

    Its writer must have that right (manifests/marks.yaml). It names the kind of its object: a copy on an
    object that a controller makes neither counts nor is refused.
    """
    return {MAY_USE: f"{queue}/{kind}"}


def recorded_use(meta: Meta, kind: str) -> str:
    """Return the queue that the author of an object of this kind may use; empty if none is recorded."""
    queue, _, recorded = (meta.annotations or {}).get(MAY_USE, "").partition("/")
    return queue if recorded == kind and len(queue) <= _LONGEST_NAME else ""


_LONGEST_NAME = 253  # of any object; each owner of pods in memory has its record
LONGEST_USER = 1024  # characters of a user name; each pod in memory has its author


def author_record(kind: str, user: str) -> dict[str, str]:
    """Return the annotation for the author of a job or pod, which admission writes.

    No annotation is returned where the name of the user is empty or too long. The annotation names the
    kind: a copy on an object of another kind does not count.
    """
    return {AUTHOR: f"{kind}/{user}"} if 0 < len(user) <= LONGEST_USER else {}


def recorded_author(meta: Meta, kind: str) -> str:
    """Return the user who made an object of this kind; empty if that is not recorded, or too long."""
    recorded, _, user = (meta.annotations or {}).get(AUTHOR, "").partition("/")
    return user if recorded == kind and len(user) <= LONGEST_USER else ""


def explicit_queue(named: str) -> str:
    """Return the queue that spec.queue of a PodGroup or Job asks for; empty if none.

    `default` counts as none, because schemas fill it in: the namespace may name another queue.
    """
    return named if named != DEFAULT_QUEUE else ""


def namespace_queue(namespace: Namespace) -> str:
    """Return the queue that a namespace names for the pods and groups in it; empty if none."""
    return (namespace.metadata.annotations or {}).get(QUEUE, "")
