"""Expectations of admission cases that differ from Muster."""

from typing import Any

from tests.conformance.cases import Case

_AMOUNTS = ("capability", "deserved", "guarantee")


def deletes_open_queue(case: Case) -> bool:
    """Return whether a queue may be deleted that is not Closed."""
    deletes = case.kind == "admission.queue" and case.input.get("operation") == "DELETE"
    return (
        deletes
        and case.expect["allowed"]
        and _queue_named(case, case.input.get("requestName", "")).get("state") != "Closed"
    )


def freezes_closing_queue(case: Case) -> bool:
    """Return whether a queue may not be changed because of its state."""
    if case.kind != "admission.queue" or case.input.get("operation") != "UPDATE":
        return False
    state = case.input.get("object", {}).get("state")
    before = (case.input.get("oldObject") or {}).get("state")
    return (
        state == before and state in ("Closing", "Unknown") and case.expect.get("reason") == "invalid-state"
    )


def changes_root(case: Case) -> bool:
    """Return whether root's amounts may change."""
    if case.kind != "admission.queue" or case.input.get("options", {}).get("protectRoot") is not False:
        return False
    now, before = case.input.get("object") or {}, case.input.get("oldObject") or {}
    return case.input.get("requestName") == "root" and any(
        now.get(name) != before.get(name) for name in _AMOUNTS
    )


def refuses_unsynced_queue(case: Case) -> bool:
    """Return whether a queue without a state yet takes nothing."""
    if (
        case.kind not in ("admission.podgroup", "admission.job")
        or case.expect.get("reason") != "queue-not-open"
    ):
        return False
    obj = case.input.get("object", {})
    return not _queue_named(case, (obj.get("spec") or obj).get("queue", "")).get("state")


def _queue_named(case: Case, name: str) -> dict[str, Any]:
    return next((queue for queue in case.input.get("existingQueues") or () if queue["name"] == name), {})
