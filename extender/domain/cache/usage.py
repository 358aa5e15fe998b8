"""What the groups of each queue hold and ask for together, kept up by difference.

Only resources that some node offers are summed up: a queue holds nothing of what is not there, and no pod can
make a queue's status longer than the cluster has resources.
"""

from collections.abc import Collection, Iterable

import msgspec

from extender.domain.model.resources import Resources
from extender.domain.snapshot.group_view import GroupView


class Used(msgspec.Struct):
    """Amounts have no zeros."""

    groups: int = 0  # those that the queue has
    views: int = 0  # those that name it
    allocated: dict[str, int] = {}  # what pods on nodes, and pods pinned to nodes, ask for
    requested: dict[str, int] = {}  # the same, and what entitled groups wait for


class Usage:
    def __init__(self) -> None:
        self._of: dict[str, Used] = {}
        self._offered: frozenset[str] = frozenset()

    @property
    def queues(self) -> Collection[str]:
        """Those that groups name."""
        return self._of.keys()

    def of(self, queue: str) -> Used:
        return self._of.get(queue) or Used()

    def sum_up(self, offered: Iterable[str], views: Iterable[GroupView]) -> None:
        """Nodes offer these resources now. Where that is news, `views`, which are all that were counted, are
        summed up again."""
        names = frozenset(offered)
        if names == self._offered:
            return
        self._offered, self._of = names, {}
        for view in views:
            self.count(view, 1)

    def count(self, view: GroupView, times: int) -> None:
        """1 when a group comes, -1 when it goes. One that is not entitled asks for nothing."""
        used = self._of.setdefault(view.queue, Used())
        self._add(used.allocated, view.allocated, times)
        self._add(used.requested, view.allocated, times)
        if view.entitled and not view.fault:
            self._add(used.requested, view.pending, times)
        used.groups += times if view.is_in_queue else 0
        used.views += times
        if not used.views:
            del self._of[view.queue]

    def _add(self, sums: dict[str, int], amounts: Resources, times: int) -> None:
        for name, amount in amounts.items():
            if name not in self._offered:
                continue
            now = sums.get(name, 0) + amount * times
            if now:
                sums[name] = now
            else:
                sums.pop(name, None)
