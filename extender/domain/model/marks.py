"""Marks on a PodGroup: that the group stood whole, or that its start was admitted. They survive a restart of
Muster.

A mark names the UID of the object that it was written on, as the note of the queue does (queue_notes.py), so
a copy of the PodGroup applied from a file carries no valid mark. The ledger decides whether marks count at
all: a PodGroup has no status subresource, so users who may change it may write into its status too. Marks
count only where the API server lets only Muster write them (manifests/marks.yaml).
"""

from extender.api.keys import ADMITTED, STOOD_WHOLE, STOOD_WHOLE_NOTE
from extender.api.objects.base import Condition, Meta

_MESSAGE = "all members that it needs ran at the same time: "
_DIGITS = 10  # of the largest minMember


def whole_condition(group_uid: str, members: int) -> Condition:
    """For the status of Volcano's PodGroups. `members`: how many it needed."""
    return Condition(STOOD_WHOLE, "True", "AllMembersStarted", _MESSAGE + _note(group_uid, members))


def whole_members(condition: Condition, group_uid: str) -> int | None:
    """How many members the group needed when it stood whole; None unless the condition says that it did."""
    if condition.status != "True" or not condition.message.startswith(_MESSAGE):
        return None
    return _members(condition.message.removeprefix(_MESSAGE), group_uid)


def whole_note(group_uid: str, members: int) -> dict[str, str]:
    """The annotation for PodGroups whose status another controller writes."""
    return {STOOD_WHOLE_NOTE: _note(group_uid, members)}


def noted_members(group: Meta) -> int | None:
    """As `whole_members`, from the annotation of `whole_note`."""
    return _members((group.annotations or {}).get(STOOD_WHOLE_NOTE, ""), group.uid)


def admitted_note(group_uid: str, is_admitted: bool) -> dict[str, str | None]:
    """The annotation for a start that Muster admitted and that is not whole yet; its removal if not
    `is_admitted`."""
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
