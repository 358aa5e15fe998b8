"""The status that a queue should have, and how it differs from the one that it has."""

from collections.abc import Mapping
from typing import Any

import msgspec

from extender.api.objects.base import Condition
from extender.api.objects.queues import Queue, QueueFlavorStatus, QueueReservation, QueueStatus
from extender.controllers.conditions import dated
from extender.domain.decisions.decisions import QueueDecision
from extender.domain.decisions.queue_conditions import QueueCondition, conditions_of
from extender.domain.model.reservation import Reservation
from extender.domain.model.resources import quantities

Json = dict[str, Any]
_OF_STATE = ("state", "conditions")


def status_changes(queue: Queue, decision: QueueDecision, *, numbers: bool = True) -> Json:
    """The fields of the status of `queue` that have to change, as a merge patch. Without `numbers`, only
    those about its state."""
    before = queue.status
    return {
        name: patched(getattr(before, name), value)
        for name, value in _status(before, decision).items()
        if getattr(before, name) != value and (numbers or name in _OF_STATE)
    }


def patched(before: Any, value: Any) -> Any:
    """Amounts are merged into those before, so resources that are gone have to be removed with nulls."""
    if isinstance(value, QueueReservation):
        return {"nodes": value.nodes, "resource": patched(before and before.resource, value.resource)}
    gone = dict.fromkeys(before or ()) if isinstance(value, dict) else {}
    return gone | value if gone else msgspec.to_builtins(value)


def _status(before: QueueStatus, decision: QueueDecision) -> Json:
    return {
        "state": decision.state,
        "allocated": written(decision.allocated),
        "deserved": written(decision.deserved),
        "flavors": _flavors(decision),
        "borrowed": written(decision.borrowed) or ({} if before.borrowed else None),
        "share": round(decision.share, 3),
        **decision.counts,
        "reservation": _reservation(decision.reservation),
        "conditions": _conditions(before, decision),
    }


def _reservation(reservation: Reservation | None) -> QueueReservation | None:
    if reservation is None:
        return None
    return QueueReservation(reservation.node_names, written(reservation.asks))


def _flavors(decision: QueueDecision) -> list[QueueFlavorStatus] | None:
    used = decision.flavors.items()
    return [QueueFlavorStatus(name, {**written(amounts)}) for name, amounts in used] or None


def written(amounts: Mapping[str, float]) -> dict[str, str | int]:
    """Quantities, without zeros: a cluster has many resources of which most queues hold nothing."""
    return {name: text for name, text in quantities(amounts).items() if text != "0"}


def _conditions(before: QueueStatus, decision: QueueDecision) -> list[Condition]:
    """Conditions of other controllers stay as they are, and so do Muster's that have not changed."""
    by_type = {each.type: each for each in before.conditions or ()}
    ours = {
        condition.type: dated(_condition(condition), by_type.get(condition.type))
        for condition in conditions_of(decision)
    }
    return list((by_type | ours).values())


def _condition(condition: QueueCondition) -> Condition:
    return Condition(condition.type, str(condition.holds), condition.reason, condition.message)
