"""Heads of lines: groups that wait and let none pass."""

from collections.abc import Iterable

from extender.domain.model.records import GroupKey
from extender.domain.scheduling.running_counts import Scope


class Heads:
    """By whom they hold up: all groups of a queue, or those of one user or namespace in it."""

    def __init__(self) -> None:
        self._of: dict[Scope, GroupKey] = {}

    def note(self, scope: Scope, group: GroupKey) -> None:
        self._of.setdefault(scope, group)

    def before(self, scopes: Iterable[Scope]) -> GroupKey | None:
        """The head behind which a group waits to which `scopes` apply; None: none holds it up."""
        if not self._of:
            return None
        return next((self._of[scope] for scope in scopes if scope in self._of), None)
