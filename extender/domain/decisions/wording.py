"""What conditions, events and the log say of a group, so that all of them say the same."""

import re

from extender.domain.decisions.decisions import GroupDecision

_PLACE = re.compile(r"(?:^|; )position (\d{1,9}) in queue ")


def message_of(decision: GroupDecision, change: str = "") -> str:
    """The numbers behind its reason, its place in line, and what would start it."""
    return "; ".join(filter(None, (decision.detail, place(decision), change)))


def place(decision: GroupDecision) -> str:
    """`position 3 in queue research`; empty for a group that is not in line."""
    return f"position {decision.position} in queue {decision.queue}" if decision.position else ""


def position_in(text: str) -> int:
    """The position that `message_of` has put into a text; 0 where it has put none."""
    found = _PLACE.search(text)
    return int(found[1]) if found else 0
