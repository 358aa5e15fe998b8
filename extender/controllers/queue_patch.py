"""What the status of a queue is to say, and how that differs from what it says."""

from collections.abc import Mapping
from typing import Any

import msgspec

from extender.api.objects import Condition, Queue, QueueStatus
from extender.controllers.conditions import dated
from extender.domain.decisions.decisions import QueueDecision
from extender.domain.decisions.queue_conditions import QueueCondition, conditions_of
from extender.domain.model.resources import quantities

Json = dict[str, Any]
_OF_STATE = ("state", "conditions")


def news(queue: Queue, decision: QueueDecision, *, numbers: bool = True) -> Json:
    """What the status of `queue` does not say yet, as a merge patch. Without `numbers`: of its state only."""
    there = queue.status
    return {
        name: _patch(getattr(there, name), value)
        for name, value in _status(there, decision).items()
        if getattr(there, name) != value and (numbers or name in _OF_STATE)
    }


def _patch(there: Any, value: Any) -> Any:
    """Amounts are merged into what is there: one that is gone is taken out."""
    gone = dict.fromkeys(there or ()) if isinstance(value, dict) else {}
    return gone | value if gone else msgspec.to_builtins(value)


def _status(there: QueueStatus, decision: QueueDecision) -> Json:
    return {
        "state": decision.state,
        "allocated": _written(decision.allocated),
        "deserved": _written(decision.deserved),
        "share": round(decision.share, 3),
        **decision.counts,
        "conditions": _conditions(there, decision),
    }


def _written(amounts: Mapping[str, float]) -> dict[str, str]:
    """Without zeros: a cluster has many resources of which most queues hold nothing."""
    return {name: text for name, text in quantities(amounts).items() if text != "0"}


def _conditions(there: QueueStatus, decision: QueueDecision) -> list[Condition]:
    """Those of others stay as they are, and so do ours that say the same as before."""
    before = {each.type: each for each in there.conditions or ()}
    ours = {
        condition.type: dated(_condition(condition), before.get(condition.type))
        for condition in conditions_of(decision)
    }
    return list((before | ours).values())


def _condition(condition: QueueCondition) -> Condition:
    return Condition(condition.type, str(condition.holds), condition.reason, condition.message)
