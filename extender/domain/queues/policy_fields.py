"""The policies that an owner gives a queue: limits on what runs, and what is wrong with any of them."""

from collections.abc import Iterator

from extender.api import keys
from extender.api.objects import QueueLimits, QueueSpec, RunningLimit
from extender.domain.queues.queue_rules import Limit, RunningLimits

_STOP_POLICIES = ("", keys.STOP_NONE, keys.STOP_HOLD, keys.STOP_DRAIN)


def running_limits(limits: QueueLimits | None) -> RunningLimits:
    if limits is None:
        return RunningLimits()
    return RunningLimits(_limit(limits), _limit(limits.per_user), _limit(limits.per_namespace))


def policy_fault(spec: QueueSpec) -> str:
    """The first field that makes no sense, for people; empty if all do."""
    if spec.stop_policy not in _STOP_POLICIES:
        allowed = ", ".join(_STOP_POLICIES[1:])
        return f"spec.stopPolicy is {spec.stop_policy[:40]!r}; it must be one of {allowed}"
    negative = ((name, number) for name, number in _counts(spec) if number is not None and number < 0)
    return next((f"{name} is {number}; it must be 0 or more" for name, number in negative), "")


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
