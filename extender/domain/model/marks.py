"""That a group stood whole, or that its start was admitted, as it is noted on its PodGroup for the day on
which Muster has to start anew.

A mark names the object that it was written on, as the note of the queue does (queue_notes.py): a copy that
somebody applied from a file says nothing. Whether marks count at all is for the ledger to know: only where
the API server keeps them to Muster (manifests/marks.yaml), since a PodGroup has no status subresource, so
a user who may change it may write into its status.
"""

from extender.api.keys import ADMITTED, STOOD_WHOLE, STOOD_WHOLE_NOTE
from extender.api.objects import Condition, Meta

_MESSAGE = "all members that it needs ran at the same time: "
_DIGITS = 10  # of the largest minMember


def whole_condition(group_uid: str, members: int) -> Condition:
    """For the status of Volcano's PodGroups. `members`: how many it needed."""
    return Condition(STOOD_WHOLE, "True", "AllMembersStarted", _MESSAGE + _note(group_uid, members))


def said_members(condition: Condition, group_uid: str) -> int | None:
    """How many members the group needed when it stood whole; None: it does not say that it did."""
    if condition.status != "True" or not condition.message.startswith(_MESSAGE):
        return None
    return _members(condition.message.removeprefix(_MESSAGE), group_uid)


def whole_note(group_uid: str, members: int) -> dict[str, str]:
    """The annotation for PodGroups whose status is somebody else's."""
    return {STOOD_WHOLE_NOTE: _note(group_uid, members)}


def noted_members(group: Meta) -> int | None:
    """As `said_members`."""
    return _members((group.annotations or {}).get(STOOD_WHOLE_NOTE, ""), group.uid)


def admitted_note(group_uid: str, is_admitted: bool) -> dict[str, str | None]:
    """The annotation while a start that Muster admitted is not whole; without it, what takes it away."""
    return {ADMITTED: group_uid if is_admitted else None}


def notes_admitted(group: Meta) -> bool:
    noted = (group.annotations or {}).get(ADMITTED, "")
    return bool(noted) and noted == group.uid


def _note(group_uid: str, members: int) -> str:
    return f"{members}/{group_uid}"


def _members(noted: str, group_uid: str) -> int | None:
    members, _, uid = noted.partition("/")
    is_number = members.isascii() and members.isdigit() and len(members) <= _DIGITS
    return int(members) if is_number and uid and uid == group_uid else None
