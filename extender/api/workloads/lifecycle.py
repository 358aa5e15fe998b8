"""What an object says of itself: whether it is suspended, and how it ended."""

from enum import Enum

from extender.api.workloads.shape import Json, Sign, WorkloadRow, at


class JobOutcome(Enum):
    """How an object ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


def is_suspended(row: WorkloadRow, obj: Json) -> bool:
    """Whether its controller is told to make nothing. What is not true counts as false, as for the API."""
    return bool(row.suspend) and at(obj, row.suspend) is True


def outcome_of(row: WorkloadRow, obj: Json) -> JobOutcome | None:
    """None while it is not finished, whatever its status looks like."""
    if any(_shows(obj, each) for each in row.failed):
        return JobOutcome.FAILED
    if any(_shows(obj, each) for each in row.succeeded):
        return JobOutcome.SUCCEEDED
    return None


def _shows(obj: Json, sign: Sign) -> bool:
    if sign.condition:
        return _is_true(obj, sign.condition)
    return all(at(obj, path) in values for path, values in sign.fields.items())


def _is_true(obj: Json, condition: str) -> bool:
    found = at(obj, ("status", "conditions"))
    conditions = found if isinstance(found, list) else []
    return any(
        isinstance(each, dict) and each.get("type") == condition and each.get("status") == "True"
        for each in conditions
    )
