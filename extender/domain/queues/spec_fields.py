"""The fields of a queue's spec as the domain takes them, and what is wrong with any of them."""

from collections.abc import Iterator
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from extender.api import keys
from extender.api.durations import as_seconds
from extender.api.objects.base import Quantities
from extender.api.objects.queues import QueueLimits, QueuePreemption, QueueSpec, RunningLimit
from extender.api.quantities import BadQuantity, Quantity, at_most
from extender.domain.model.resources import Resources, asked, offered
from extender.domain.queues.queue_rules import Limit, PreemptionRules, RunningLimits

MOST_OVERSELL = 100
D = TypeVar("D", float, None)
RESERVE_AFTER = 600.0  # seconds
START_TIMEOUT = 300.0  # seconds
_STOP_POLICIES = ("", keys.STOP_NONE, keys.STOP_HOLD, keys.STOP_DRAIN)


def running_limits(limits: QueueLimits | None) -> RunningLimits:
    if limits is None:
        return RunningLimits()
    return RunningLimits(_limit(limits), _limit(limits.per_user), _limit(limits.per_namespace))


def policy_fault(spec: QueueSpec) -> str:
    """The first field that makes no sense, for people; empty if all do."""
    if fault := stop_policy_fault(spec.stop_policy):
        return fault
    negative = ((name, number) for name, number in _counts(spec) if number is not None and number < 0)
    return next((f"{name} is {number}; it must be 0 or more" for name, number in negative), "")


def stop_policy_fault(written: str) -> str:
    """What is wrong with a spec.stopPolicy, for people; empty if nothing is."""
    if written in _STOP_POLICIES:
        return ""
    return f"spec.stopPolicy is {written[:40]!r}; it must be one of {', '.join(_STOP_POLICIES[1:])}"


def _limit(limit: RunningLimit | None) -> Limit:
    return Limit(limit.groups, limit.pods) if limit is not None else Limit()


def _counts(spec: QueueSpec) -> Iterator[tuple[str, int | None]]:
    yield "spec.ageing", spec.ageing
    limits = spec.limits or QueueLimits()
    parts = {"": limits, ".perUser": limits.per_user, ".perNamespace": limits.per_namespace}
    for part, limit in parts.items():
        if limit is not None:
            yield f"spec.limits{part}.groups", limit.groups
            yield f"spec.limits{part}.pods", limit.pods


class QueueAmounts(NamedTuple):
    """What a queue says in quantities; fields as in QueueRecord."""

    capability: Resources | None = None
    deserved: Resources | None = None
    guarantee: Resources = MappingProxyType({})
    borrowing_limit: Resources | None = None
    lending_limit: Resources | None = None
    oversell: float | None = None
    default_request: Resources = MappingProxyType({})


def amounts_of(spec: QueueSpec) -> QueueAmounts:
    """Raises BadQuantity."""
    return QueueAmounts(
        capability=offered(spec.capability) if spec.capability else None,
        deserved=offered(spec.deserved) if spec.deserved else None,
        guarantee=offered(spec.guarantee.resource) if spec.guarantee else {},
        borrowing_limit=_amounts("borrowingLimit", spec.borrowing_limit),
        lending_limit=_amounts("lendingLimit", spec.lending_limit),
        oversell=_oversell(spec.oversell),
        default_request=asked(spec.default_request),
    )


def _amounts(field: str, quantities: Quantities | None) -> Resources | None:
    """A limit of 0 is one, too. Raises BadQuantity."""
    amounts = None if quantities is None else offered(quantities)
    for name, amount in (amounts or {}).items():
        if amount < 0:
            raise BadQuantity(f"spec.{field}[{name}] is {(quantities or {})[name]}; allowed is 0 or more")
    return amounts


def _oversell(quantity: Quantity | None) -> float | None:
    """To three decimals. Raises BadQuantity."""
    if quantity is None:
        return None
    factor = at_most(quantity, 1000) / 1000
    if not 1.0 <= factor <= MOST_OVERSELL:
        raise BadQuantity(f"spec.oversell is {quantity}; allowed is 1 to {MOST_OVERSELL}")
    return factor


def preemption_of(written: QueuePreemption | None) -> PreemptionRules:
    """Raises BadQuantity."""
    rules = written or QueuePreemption()
    return PreemptionRules(
        within_queue=rules.within_queue != keys.NEVER,
        unmanaged=rules.unmanaged != keys.NEVER,
        min_runtime=_seconds("spec.preemption.minRuntime", rules.min_runtime),
        after=_seconds("spec.preemption.after", rules.after),
    )


def _seconds(field: str, text: str) -> float:
    """Raises BadQuantity."""
    try:
        return as_seconds(text) if text else 0.0
    except ValueError as fault:
        raise BadQuantity(f"{field}: {text!r} is no duration, such as 90s or 10m") from fault


def duration_of(text: str, default: D) -> float | D:
    """What cannot be read counts as not given; the API server refuses it."""
    try:
        return as_seconds(text)
    except ValueError:
        return default
