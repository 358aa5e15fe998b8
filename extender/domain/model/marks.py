"""That a group stood whole, as it is noted on its PodGroup for the day on which Muster has to start anew.

A mark names the object that it was written on, as the note of the queue does (queue_notes.py): a copy that
somebody applied from a file says nothing. Whether marks count at all is for the ledger to know: only where
the API server keeps them to Muster (manifests/marks.yaml), since a PodGroup has no status subresource, so
a user who may change it may write into its status.
"""

from extender.api.keys import STOOD_WHOLE, STOOD_WHOLE_NOTE
from extender.api.objects import Condition, Meta

_MESSAGE = "all members that it needs ran at the same time; PodGroup "


def whole_condition(group_uid: str) -> Condition:
    """For the status of Volcano's PodGroups."""
    return Condition(STOOD_WHOLE, "True", "AllMembersStarted", _MESSAGE + group_uid)


def says_whole(condition: Condition, group_uid: str) -> bool:
    return condition.status == "True" and condition.message == _MESSAGE + group_uid


def whole_note(group_uid: str) -> dict[str, str]:
    """The annotation for PodGroups whose status is somebody else's."""
    return {STOOD_WHOLE_NOTE: group_uid}


def notes_whole(group: Meta) -> bool:
    noted = (group.annotations or {}).get(STOOD_WHOLE_NOTE, "")
    return bool(noted) and noted == group.uid
