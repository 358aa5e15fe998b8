"""The changes that people make to groups and queues by one word: a merge patch each, whoever sends it."""

from collections.abc import Mapping
from typing import Any

from extender.api.keys import HOLD, START_TIMEOUTS, STOP_DRAIN, STOP_HOLD, STOP_NONE

Patch = Mapping[str, Any]

OPEN, CLOSED = "Open", "Closed"  # spec.state of a queue

OF_GROUP: Mapping[str, Patch] = {
    "hold": {"metadata": {"annotations": {HOLD: "true"}}},
    "resume": {"metadata": {"annotations": {HOLD: None, START_TIMEOUTS: None}}},
}
OF_QUEUE: Mapping[str, Patch] = {
    "open": {"spec": {"state": OPEN}},
    "close": {"spec": {"state": CLOSED}},
    "hold": {"spec": {"stopPolicy": STOP_HOLD}},
    "drain": {"spec": {"stopPolicy": STOP_DRAIN}},
    "resume": {"spec": {"stopPolicy": STOP_NONE}},
}


def of_priority(priority_class: str) -> Patch:
    """Return the patch of a group's priority class; a group that stands for a job follows its job."""
    return {"spec": {"priorityClassName": priority_class}}
