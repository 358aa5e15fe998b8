"""What the groups of each queue hold and ask for together, kept up by difference."""

from collections.abc import Collection

import msgspec

from extender.domain.model.resources import add
from extender.domain.snapshot.group_view import GroupView


class Used(msgspec.Struct):
    """`groups`: those that the queue has. `views`: those that name it."""

    groups: int = 0
    views: int = 0
    allocated: dict[str, int] = {}
    requested: dict[str, int] = {}


class Usage:
    def __init__(self) -> None:
        self._of: dict[str, Used] = {}

    @property
    def queues(self) -> Collection[str]:
        """Those that groups name."""
        return self._of.keys()

    def of(self, queue: str) -> Used:
        return self._of.get(queue) or Used()

    def count(self, view: GroupView, times: int) -> None:
        """1 when a group comes, -1 when it goes. One that is not entitled asks for nothing."""
        used = self._of.setdefault(view.queue, Used())
        add(used.allocated, view.allocated, times)
        add(used.requested, view.allocated, times)
        if view.entitled and not view.fault:
            add(used.requested, view.pending, times)
        used.groups += times if view.is_in_queue else 0
        used.views += times
        if not used.views:
            del self._of[view.queue]
