"""Laps: whose turn it is in a queue that rotates.

Each waiting group has its turn once in a lap. It has had it when its start failed, or when it lacked room, a
share or the ceiling and groups behind it started. Then it goes on to the next lap, behind all that have not
had theirs. As long as none of them passes it, it keeps its turn.

A group that comes joins the newest lap, so a stream of new ones never keeps back those who had their turn.
Laps are remembered with the history of a group's starts; after a restart a new lap begins.
"""

from collections.abc import Iterable
from functools import cached_property

from extender.domain.lifecycle.state import State, state_of
from extender.domain.snapshot.group_view import GroupView


class Laps:
    def __init__(self, groups: Iterable[GroupView]) -> None:
        self._groups = groups

    def of(self, group: GroupView) -> int:
        """The lap in which a group has its next turn. One that could not be judged for many laps has one turn
        in advance of the others, not many."""
        newest = self._newest.get(group.queue, 0)
        return newest if group.start.lap is None else max(group.start.lap, newest - 1)

    @cached_property
    def _newest(self) -> dict[str, int]:
        """By queue, of the groups that wait."""
        newest: dict[str, int] = {}
        for group in self._groups:
            lap = group.start.lap
            if lap is not None and lap > newest.get(group.queue, 0) and state_of(group) is State.WAITING:
                newest[group.queue] = lap
        return newest
