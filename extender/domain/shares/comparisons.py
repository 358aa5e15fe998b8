"""Comparisons of what a queue holds with what it deserves, and with the most that it may hold."""

from collections.abc import Mapping

from extender.domain.model.resources import Resources, show

Portions = Mapping[str, float]  # amounts by resource; not whole numbers, since a division makes fractions

EPSILON = 0.1  # of a millicore, a byte, a device: smaller differences do not count


def share(allocated: Resources, deserved: Portions) -> float:
    """The part of its deserved amount that a queue holds, in its dominant resource. For a queue that deserves
    nothing it is 1 if the queue holds anything, otherwise 0."""
    ratios = (allocated.get(name, 0) / due for name, due in deserved.items() if due >= EPSILON)
    return max(ratios, default=1.0 if any(allocated.values()) else 0.0)


def within(
    asked: Resources, allocated: Resources, limit: Portions, but: frozenset[str] = frozenset()
) -> bool:
    """Whether `asked` on top of `allocated` stays within `limit`, in the dimensions that are asked for.

    Names in `but` are not compared; for a name that `limit` lacks, the limit is 0.
    """
    return not exceeded(asked, allocated, limit, but)


def excess(asked: Resources, allocated: Resources, limit: Portions) -> str:
    """A sentence on how `asked` on top of `allocated` would exceed `limit`; empty when it would not."""
    return ", ".join(
        f"{name}: {show(name, allocated.get(name, 0))} held + {show(name, asked[name])} asked"
        f" > {show(name, limit.get(name, 0))}"
        for name in exceeded(asked, allocated, limit)
    )


def exceeded(
    asked: Resources, allocated: Resources, limit: Portions, but: frozenset[str] = frozenset()
) -> list[str]:
    """The asked-for dimensions in which `limit` would be exceeded."""
    return [
        name
        for name, amount in asked.items()
        if amount > 0 and name not in but and allocated.get(name, 0) + amount > limit.get(name, 0.0) + EPSILON
    ]
