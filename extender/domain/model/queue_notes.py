"""Which queue took a group in, noted on the PodGroup so that it is known after that queue is gone.

The note names the UID of the group as well. So it counts for the object that it was written on, and not for a
copy that was applied from a file or restored from a backup.
"""

from extender.api.keys import QUEUE_UID
from extender.api.objects.base import Meta


def note(queue_uid: str, group_uid: str) -> dict[str, str]:
    """The annotation to write."""
    return {QUEUE_UID: f"{queue_uid}/{group_uid}"}


def noted_queue(group: Meta) -> str:
    """The UID of the queue that took the group in; empty if none did, or if the note was written on another
    object."""
    queue_uid, _, group_uid = (group.annotations or {}).get(QUEUE_UID, "").partition("/")
    return queue_uid if group_uid == group.uid else ""
