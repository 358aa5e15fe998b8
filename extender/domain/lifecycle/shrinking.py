"""Shrinking: how many members of each role start where not all find room, for jobs that may run with fewer.

Rule: Kueue's partial admission. All roles give up the same part of what they can spare, rounded down, and by
binary search no more of it than is needed.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping

Members = Mapping[str, int]
"""How many members there are of each role."""


def shrunk(wanted: Members, least: Members, fits: Callable[[Members], bool]) -> Members | None:
    """The most members that fit; None if not even `least` do, or if no role may give up any. A role that
    `least` does not name gives up none."""
    spare = {role: max(n - least.get(role, n), 0) for role, n in wanted.items()}
    total = sum(spare.values())

    def without(given_up: int) -> Members:
        return {role: n - spare[role] * given_up // total for role, n in wanted.items()}

    if not total:
        return None
    given_up = bisect_left(range(total + 1), True, key=lambda some: fits(without(some)))
    return without(given_up) if given_up <= total else None
