"""Amounts and their comparison. Cases write `cpuMilli` and `memoryBytes`, Muster `cpu` and `memory`."""

from collections.abc import Iterator, Mapping
from typing import Any

from extender.domain.model.resources import CPU, MEMORY

TOLERANCE = 1.0  # of a millicore, a byte, a device
_NAMES = {"cpuMilli": CPU, "memoryBytes": MEMORY}


def amounts(vector: Mapping[str, Any]) -> dict[str, float]:
    """Return a vector of a case by Muster's names.

    `scalars` may be a separate map; "inf" is infinity.
    """
    flat = {name: amount for name, amount in vector.items() if name != "scalars"}
    flat |= vector.get("scalars") or {}
    return {_NAMES.get(name, name): _number(amount) for name, amount in flat.items()}


def _number(amount: Any) -> float:
    """Return a number; whole ones stay whole: some are too large for a float."""
    return amount if isinstance(amount, int) else float(amount)


def whole_amounts(vector: Mapping[str, Any]) -> dict[str, int]:
    """Return the same vector in whole numbers, as requests and capacities are."""
    return {name: int(amount) for name, amount in amounts(vector).items()}


def differing(title: str, expected: Mapping[str, float], actual: Mapping[str, float]) -> Iterator[str]:
    """Yield the differences of two vectors beyond the tolerance; an absent value is 0."""
    for name in sorted(expected.keys() | actual.keys()):
        expected_amount, actual_amount = expected.get(name, 0.0), actual.get(name, 0.0)
        if expected_amount != actual_amount and not abs(expected_amount - actual_amount) <= TOLERANCE:
            yield f"{title} {name}: expected {expected_amount:.10g}, got {actual_amount:.10g}"


def unequal(title: str, expected: object, actual: object) -> Iterator[str]:
    if expected != actual:
        yield f"{title}: expected {expected}, got {actual}"


def ratio_difference(title: str, expected: float, actual: float) -> Iterator[str]:
    """Yield the difference of two ratios beyond the tolerance."""
    if abs(expected - actual) > 1e-6:
        yield f"{title}: expected {expected:.6g}, got {actual:.6g}"
