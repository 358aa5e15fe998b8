"""What a queue holds against what it deserves, and against what it may hold at most."""

from collections.abc import Mapping

from extender.domain.model.resources import Resources

Portions = Mapping[str, float]  # amounts that need not be whole: a division makes fractions

EPSILON = 0.1  # of a millicore, a byte, a device: less than that is nothing


def share(allocated: Resources, deserved: Portions) -> float:
    """How much of what it deserves a queue holds, in its dominant resource. A queue that deserves nothing and
    holds something has its share."""
    ratios = (allocated.get(name, 0) / due for name, due in deserved.items() if due >= EPSILON)
    return max(ratios, default=1.0 if any(allocated.values()) else 0.0)


def within(
    asked: Resources, allocated: Resources, limit: Portions, but: frozenset[str] = frozenset()
) -> bool:
    """Whether `asked` on top of `allocated` stays within `limit`, in the dimensions that are asked for.

    Names in `but` are not compared; a name that `limit` lacks has none of it.
    """
    return not exceeded(asked, allocated, limit, but)


def exceeded(
    asked: Resources, allocated: Resources, limit: Portions, but: frozenset[str] = frozenset()
) -> list[str]:
    """The asked-for dimensions in which `limit` would be overrun."""
    return [
        name
        for name, amount in asked.items()
        if amount > 0 and name not in but and allocated.get(name, 0) + amount > limit.get(name, 0.0) + EPSILON
    ]
