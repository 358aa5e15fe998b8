"""What a group needs to stand whole."""

from collections.abc import Mapping
from typing import NamedTuple


class Needs(NamedTuple):
    min_member: int
    """How many members."""
    min_task_member: Mapping[str, int]
    """How many of each role."""

    def within(self, most: "Needs") -> "Needs":
        """These needs, each number limited to that of `most`."""
        roles = {role: min(n, most.min_task_member.get(role, 0)) for role, n in self.min_task_member.items()}
        return Needs(min(self.min_member, most.min_member), {role: n for role, n in roles.items() if n})
