"""How many groups and pods of each queue run or are on their way, against the queue's limits: for all of it,
for each user and for each namespace inside it.

Users whom no admission noted count as one user of their namespace.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from extender.domain.model.journal import Journal
from extender.domain.model.records import GroupKey
from extender.domain.queues.queue_rules import Limit, RunningLimits
from extender.domain.queues.queue_view import QueueView
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.snapshot import Snapshot

_NO_LIMIT = 10**9
UNKNOWN = "?"  # no user has this name


class Scope(NamedTuple):
    """What a limit applies to; `user` and `namespace` are empty where it applies to all."""

    queue: str
    user: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        if self.user == UNKNOWN:
            return f"unknown users of namespace {self.namespace} in queue {self.queue}"
        parts = {"user": self.user, "namespace": self.namespace}
        of = [f"{part} {name} in " for part, name in parts.items() if name]
        return f"{''.join(of)}queue {self.queue}"


class Excess(NamedTuple):
    """A limit that a group would break."""

    scope: Scope
    text: str
    """The numbers, for people."""
    always: bool
    """Whether it would even if nothing ran."""


Sums = Mapping[Scope, Counter[str]]
"""By what is limited: how many groups and pods run."""


class RunningCounts:
    def __init__(self, snapshot: Snapshot, journal: Journal) -> None:
        self._limits = {name: limits for name, queue in snapshot.queues.items() if (limits := _limits(queue))}
        self._pods: dict[GroupKey, int] = {}
        self._sums: dict[Scope, Counter[str]] = {}
        self._journal = journal
        for group in snapshot.groups.values() if self._limits else ():
            if group.queue in self._limits:
                self._add(group, pods_of(group))

    # ---- taking

    def take(self, group: GroupView, pods: int) -> None:
        """So many more members of a group are on their way; a negative number gives them back."""
        if group.queue in self._limits:
            self._add(group, pods)
            self._journal.note(partial(self._add, group, -pods))

    # ---- looking

    @property
    def sums(self) -> Sums:
        """Without what nothing runs of; never changed, if nothing is taken any more."""
        return {scope: sums for scope, sums in self._sums.items() if any(sums.values())}

    def excess(self, group: GroupView, pods: int) -> Excess | None:
        """The limit that `pods` more members of a group would break; None: they may come."""
        if group.queue not in self._limits:
            return None
        for scope, limit in self._scopes(group):
            for kind, most, more in self._asked(group, pods, limit):
                there = self._sums.get(scope, Counter())[kind]
                if there + more > most:
                    text = f"{scope}: {kind}: {there} run or start + {more} asked > {most}"
                    return Excess(scope, text, more > most)
        return None

    def headroom(self, group: GroupView) -> int:
        """How many more members of a group may come."""
        if self.excess(group, 0) is not None:
            return 0
        rooms = (
            limit.pods - self._sums.get(scope, Counter())["pods"]
            for scope, limit in self._scopes(group)
            if limit.pods is not None
        )
        return max(min(rooms, default=_NO_LIMIT), 0)

    def scopes_of(self, group: GroupView) -> Iterator[Scope]:
        """What a group counts towards: its queue, and what else is limited in it."""
        yield Scope(group.queue)
        yield from (scope for scope, _ in self._scopes(group) if scope != Scope(group.queue))

    def whose(self, group: GroupView) -> tuple[Hashable, ...]:
        """Equal for groups of a queue to which the same limits apply."""
        if group.queue not in self._limits:
            return ()
        return (self._is_there(group), *(scope for scope, _ in self._scopes(group)))

    # ---- inside

    def _asked(self, group: GroupView, pods: int, limit: Limit) -> Iterator[tuple[str, int, int]]:
        """What is limited: its kind, how many at most, and how many more."""
        if limit.groups is not None and not self._is_there(group):
            yield "groups", limit.groups, 1
        if limit.pods is not None and pods:
            yield "pods", limit.pods, pods

    def _is_there(self, group: GroupView) -> bool:
        return self._pods.get(group.key, 0) > 0

    def _scopes(self, group: GroupView) -> Iterator[tuple[Scope, Limit]]:
        limits = self._limits.get(group.queue)
        if limits is None:
            return
        namespace = group.key.partition("/")[0]
        unknown = "" if group.submitter else namespace
        yield Scope(group.queue), limits.queue
        if limits.user != Limit():
            yield Scope(group.queue, group.submitter or UNKNOWN, unknown), limits.user
        if limits.namespace != Limit():
            yield Scope(group.queue, "", namespace), limits.namespace

    def _add(self, group: GroupView, pods: int) -> None:
        before = self._pods.get(group.key, 0)
        self._pods[group.key] = now = before + pods
        for scope, _ in self._scopes(group):
            sums = self._sums.setdefault(scope, Counter())
            sums["pods"] += pods
            sums["groups"] += (now > 0) - (before > 0)


def pods_of(group: GroupView) -> int:
    """Members on nodes that have not finished, and those whose node the scheduler has been given."""
    return len(group.placed) - group.succeeded + group.leaving + len(group.pinned)


def _limits(queue: QueueView) -> RunningLimits | None:
    limits = queue.record.limits
    return limits if limits != RunningLimits() else None
