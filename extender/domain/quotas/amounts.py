"""The amounts of a quota, as those of a queue."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from extender.api.quantities import BadQuantity, Quantity, at_most
from extender.domain.model.resources import CPU, MEMORY, Resources, counts, offered
from extender.domain.quotas.records import Written

MOST_JOBS = "kube-queue/max-jobs"  # in the amounts of a tree: how many jobs may run at the same time
_MOST_GROUPS = 2**31 - 1
_ALMOST_NONE = {CPU: "1m", MEMORY: "1"}  # a capability of 0 of these means no limit to a Queue


class QuotaAmounts(NamedTuple):
    """`faults` by field: min[cpu]. With faults, the amounts are not to be used."""

    capability: Written = {}
    guarantee: Written = {}
    most_groups: int | None = None
    faults: tuple[tuple[str, str], ...] = ()

    @property
    def largest(self) -> Resources:
        return offered(self.capability)

    @property
    def promised(self) -> Resources:
        return offered(self.guarantee)


def amounts_of(least: Mapping[str, Any] | None, most: Mapping[str, Any] | None) -> QuotaAmounts:
    """`least`: min, `most`: max, as they are written."""
    faults: list[tuple[str, str]] = []
    low, high = _read("min", least or {}, faults), _read("max", most or {}, faults)
    jobs = high.pop(MOST_JOBS, None)
    low.pop(MOST_JOBS, None)
    faults = faults or [*_above(low, high)]
    if faults:
        return QuotaAmounts(faults=tuple(sorted(faults)))
    return QuotaAmounts(
        {name: _limit(name, amount) for name, amount in high.items()},
        {name: amount for name, amount in low.items() if offered({name: amount})[name] > 0},
        None if jobs is None else min(at_most(jobs), _MOST_GROUPS),
    )


def _above(low: Written, high: Written) -> Iterator[tuple[str, str]]:
    for name in low.keys() & high.keys():
        if at_most(low[name], 1000) > at_most(high[name], 1000):
            yield f"min[{name}]", f"got {low[name]}; allowed is the max, {high[name]}, or less"


def _read(field: str, amounts: Mapping[str, Any], faults: list[tuple[str, str]]) -> Written:
    """Those that can be read; what the scheduler does not count is left out."""
    found: Written = {}
    for name, value in amounts.items():
        if not counts(name):
            continue
        try:
            found[name] = _quantity(value)
            if at_most(found[name], 1000) < 0:
                faults.append((f"{field}[{name}]", f"got {value}; allowed is 0 or more"))
        except ValueError as fault:  # BadQuantity, or a number of more digits than Python prints
            faults.append((f"{field}[{name}]", f"got {fault}"))
    return found


def _quantity(value: object) -> Quantity:
    """Raises BadQuantity. YAML reads 0.5 as a number, which Kubernetes takes."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadQuantity(f"{str(value)[:60]!r} is not a quantity such as 500m, 2 or 1.5Gi")
    text: Quantity = repr(value) if isinstance(value, float) else value
    at_most(text)
    return text


def _limit(name: str, amount: Quantity) -> Quantity:
    return _ALMOST_NONE[name] if name in _ALMOST_NONE and offered({name: amount})[name] <= 0 else amount
