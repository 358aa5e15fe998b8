"""Finding a condition in a status."""

from collections.abc import Iterable

from extender.api.objects.base import Condition


def condition(conditions: Iterable[Condition] | None, kind: str) -> Condition | None:
    """The condition of this type; None where the status has none."""
    return next((each for each in conditions or () if each.type == kind), None)
