"""What skips of families have in common."""

from collections.abc import Callable

from tests.conformance.cases import Case
from tests.conformance.verdicts import Skip


def in_family(*families: str, where: Callable[[Case], bool] = lambda _: True) -> Callable[[Case], bool]:
    """Cases of these families that need something."""
    return lambda case: case.kind in families and where(case)


def not_built(*families: str) -> tuple[Skip, ...]:
    """For families of which nothing can be run so far; a check takes its family off this list."""
    return tuple(Skip(f"family {family}: not built yet", in_family(family)) for family in families)
