"""Common parts of the skips of families."""

from collections.abc import Callable

from tests.conformance.cases import Case


def in_family(*families: str, where: Callable[[Case], bool] = lambda _: True) -> Callable[[Case], bool]:
    """Return a check for cases of these families that meet a condition."""
    return lambda case: case.kind in families and where(case)
