"""Names of queues on objects: explicit names, LocalQueue labels, annotations, and entry records.

The precedence between these names is in `queues/local_queues`.
"""

from typing import NamedTuple

from extender.api.keys import AUTHOR, DEFAULT_QUEUE, KUEUE_QUEUE, LOCAL_QUEUE, MAY_USE, QUEUE, QUEUE_UID
from extender.api.objects.base import Meta
from extender.api.objects.cluster import Namespace


class LocalQueueLabel(NamedTuple):
    """Label by which a PodGroup, a pod or a job names a LocalQueue."""

    name: str  # name of the LocalQueue, which may not exist
    key: str  # key of the label; copies of it get the same key

    @property
    def is_kueue_label(self) -> bool:
        """Return whether Kueue reads the same label."""
        return self.key == KUEUE_QUEUE


def local_queue_label(meta: Meta) -> LocalQueueLabel | None:
    """Return Muster's own label, else Kueue's label, else None. An empty label does not count."""
    labels = meta.labels or {}
    for key in (LOCAL_QUEUE, KUEUE_QUEUE):
        if name := labels.get(key):
            return LocalQueueLabel(name, key)
    return None


class QueueOfOwner(NamedTuple):
    """Queue or LocalQueue that the nearest owner of an object names."""

    queue: str
    local_queue: LocalQueueLabel | None
    is_known: bool  # whether all owners have been read


NO_QUEUE_OF_OWNER = QueueOfOwner("", None, is_known=True)


def entry_annotation(queue_uid: str, group_uid: str) -> dict[str, str]:
    """Return the annotation of a PodGroup that records the queue that admitted the group.

    The record outlives the queue. It includes the UID of the PodGroup. Therefore, it does not count on a copy
    of the PodGroup from a file or a backup.
    """
    return {QUEUE_UID: f"{queue_uid}/{group_uid}"}


def recorded_queue_uid(group: Meta) -> str:
    """Return the UID of the queue that admitted the group; empty without a valid record.

    A record with the UID of another PodGroup is not valid.
    """
    record = (group.annotations or {}).get(QUEUE_UID)
    if not record:
        return ""
    queue_uid, _, group_uid = record.partition("/")
    return queue_uid if group_uid == group.uid else ""


def may_use_annotation(queue: str, kind: str) -> dict[str, str]:
    """Return the annotation that records the right to use a restricted queue. Admission writes it.

    Only users with that right may write the annotation (manifests/marks.yaml). The annotation names the kind
    of its object. Therefore, a copy on an object of another kind has no effect, and is not refused.
    """
    return {MAY_USE: f"{queue}/{kind}"}


def recorded_usable_queue(meta: Meta, kind: str) -> str:
    """Return the queue that the author of an object may use.

    The result is empty without a record for this kind of object.
    """
    queue, _, recorded_kind = (meta.annotations or {}).get(MAY_USE, "").partition("/")
    return queue if recorded_kind == kind and len(queue) <= _MAX_NAME_LENGTH else ""


_MAX_NAME_LENGTH = 253  # limit of an object's name; it bounds the records of owners in memory
MAX_USER_LENGTH = 1024  # limit of a user name; it bounds the authors of pods in memory


def author_record(kind: str, user: str) -> dict[str, str]:
    """Return the annotation that records the author of a job or pod. Admission writes it.

    No annotation is returned if the user name is empty or too long. The annotation names the kind of its
    object, so that a copy on an object of another kind does not count.
    """
    return {AUTHOR: f"{kind}/{user}"} if 0 < len(user) <= MAX_USER_LENGTH else {}


def recorded_author(meta: Meta, kind: str) -> str:
    """Return the recorded author of an object of this kind.

    The result is empty if no author is recorded, or if the name is too long.
    """
    recorded_kind, _, user = (meta.annotations or {}).get(AUTHOR, "").partition("/")
    return user if recorded_kind == kind and len(user) <= MAX_USER_LENGTH else ""


def explicit_queue(queue: str) -> str:
    """Return the queue that spec.queue of a PodGroup or Job asks for; empty if none.

    `default` counts as no queue, because schemas fill it in, and the namespace may name another queue.
    """
    return queue if queue != DEFAULT_QUEUE else ""


def namespace_queue(namespace: Namespace) -> str:
    """Return the queue that a namespace names for its pods and groups; empty if it names none."""
    return (namespace.metadata.annotations or {}).get(QUEUE, "")
