"""What the groups of each queue hold and ask for together, updated by differences.

Only resources that some node offers are added up: a queue cannot hold others, and no pod can make a queue's
status longer than the cluster's list of resources.
"""

from collections.abc import Collection, Iterable

import msgspec

from extender.domain.model.resources import Resources
from extender.domain.snapshot.group_view import GroupView


class Used(msgspec.Struct):
    """The sums of one queue; amounts are without zeros."""

    groups: int = 0  # groups that the queue counts
    views: int = 0  # groups that name it
    allocated: dict[str, int] = {}  # what pods on nodes, and pods pinned to nodes, ask for
    requested: dict[str, int] = {}  # the same, and what entitled groups wait for
    by_flavor: dict[str, dict[str, int]] = {}  # of what is allocated, the amounts on each flavor


class Usage:
    def __init__(self) -> None:
        self._of: dict[str, Used] = {}
        self._offered: frozenset[str] = frozenset()
        self._of_local: dict[str, dict[str, int]] = {}  # what groups hold, by LocalQueue
        self.turned: set[str] = set()  # LocalQueues that were counted anew

    @property
    def queues(self) -> Collection[str]:
        """The queues that groups name."""
        return self._of.keys()

    def of(self, queue: str) -> Used:
        return self._of.get(queue) or Used()

    def of_local_queue(self, key: str) -> Resources:
        """What its groups hold; without zeros."""
        return self._of_local.get(key, {})

    def sum_up(self, offered: Iterable[str], views: Iterable[GroupView]) -> None:
        """Nodes offer the resources `offered` now. If that has changed, all sums are made again from `views`,
        which are all that were counted so far."""
        names = frozenset(offered)
        if names == self._offered:
            return
        self._offered, self._of, self._of_local = names, {}, {}
        for view in views:
            self.count(view, 1)

    def count(self, view: GroupView, times: int) -> None:
        """Add a group; with `times` -1, remove it. A group that is not entitled, is held, or is
        kept out by its LocalQueue or namespace, asks for nothing."""
        used = self._of.setdefault(view.queue, Used())
        self._add(used.allocated, view.allocated, times)
        self._add(used.requested, view.allocated, times)
        if view.entitled and not (view.fault or view.held or view.is_kept_out):
            self._add(used.requested, view.pending, times)
        if view.local_queue is not None:
            self._count_local(view.local_queue.key, view.allocated, times)
        for flavor, amounts in view.by_flavor.items():
            self._add(used.by_flavor.setdefault(flavor, {}), amounts, times)
            if not used.by_flavor[flavor]:
                del used.by_flavor[flavor]
        used.groups += times if view.is_in_queue else 0
        used.views += times
        if not used.views:
            del self._of[view.queue]

    def _count_local(self, key: str, amounts: Resources, times: int) -> None:
        self.turned.add(key)
        held = self._of_local.setdefault(key, {})
        self._add(held, amounts, times)
        if not held:
            del self._of_local[key]

    def _add(self, sums: dict[str, int], amounts: Resources, times: int) -> None:
        for name, amount in amounts.items():
            if name not in self._offered:
                continue
            now = sums.get(name, 0) + amount * times
            if now:
                sums[name] = now
            else:
                sums.pop(name, None)
