"""Conditions of stored objects, and the times in them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from extender.sim.apiserver.kinds import Json


def now(later: float = 0) -> str:
    return (datetime.now(UTC) + timedelta(seconds=later)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(type_: str, status: str, reason: str, message: str = "") -> Json:
    made = {"type": type_, "status": status, "reason": reason, "lastTransitionTime": now()}
    return {**made, "message": message} if message else made


def set_condition(status: Json, new: Json) -> bool:
    """Put a condition in the place of the one of its type; false when it says the same already."""
    before = status.get("conditions", [])
    old = next((each for each in before if each["type"] == new["type"]), None)
    if old and _meaning(old) == _meaning(new):
        return False
    status["conditions"] = [*(each for each in before if each is not old), new]
    return True


def _meaning(condition: Json) -> tuple[Any, ...]:
    return tuple(condition.get(name) for name in ("status", "reason", "message"))


def find_stored_condition(obj: Json, type_: str) -> Json:
    """The condition of a type in an object's status; empty where there is none."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == type_), {})
