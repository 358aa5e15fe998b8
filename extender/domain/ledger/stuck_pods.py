"""Pods that cannot end: being deleted, past their grace period, on a node that nobody can reach.

They hold room on their node, but count for no queue, ceiling or share: else they would keep out the pods that
replace them for as long as the node is away. ResourceQuota does not count pods past their grace, either.

Callers hold the ledger's lock."""

from collections import defaultdict
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from extender.api.units import as_datetime
from extender.domain.ledger.registry import Registry
from extender.domain.model.records import PodRecord, Uid
from extender.domain.snapshot.nodes import NodeRecord

_UNREACHABLE = "node.kubernetes.io/unreachable"  # the taint that the node lifecycle controller sets
_FEW = 64  # pods, at which it is looked who is gone
_SLACK = 5.0  # seconds that clocks may differ


class _Leaving(NamedTuple):
    """A pod that is being deleted."""

    pod: PodRecord
    over_at: float  # when its grace is over, on the ledger's clock


class StuckPods:
    """`uids`: those of pods that are stuck. The wall clock is read once for each deletion, to tell when its
    grace is over on the ledger's clock: steps of the wall clock shift nothing that is known."""

    def __init__(
        self, registry: Registry, clock: Callable[[], float], wall_clock: Callable[[], float]
    ) -> None:
        self.uids: set[Uid] = set()
        self._registry, self._clock, self._wall_clock = registry, clock, wall_clock
        self._leaving: defaultdict[str, dict[Uid, _Leaving]] = defaultdict(dict)  # by node
        self._away: set[str] = set()  # nodes that cannot be reached, or are deleted while pods are left there
        self._deleted: set[str] = set()  # those of them that are deleted
        # A heap, and the same as a set: when the grace of pods is over, and their nodes.
        self._due: list[tuple[float, Uid, str]] = []
        self._awaited: set[tuple[float, Uid, str]] = set()

    @property
    def next_at(self) -> float | None:
        """When the next one is stuck, unless it ends before."""
        return self._due[0][0] if self._due else None

    def follow(self, before: PodRecord | None, now: PodRecord | None) -> None:
        """Note a change of a pod of ours; `now`: None if it is gone."""
        if now is not None and now.deleting and now.holds_room:
            before_that = self._leaving[now.node].get(now.uid)
            if before_that is None or before_that.pod.gone_by != now.gone_by:
                self._leaving[now.node][now.uid] = _Leaving(now, self._over_at(now))
            if now.node in self._away:
                self._expect(self._leaving[now.node][now.uid])
        elif before is not None and before.node in self._leaving:
            self._leaving[before.node].pop(before.uid, None)
            if not self._leaving[before.node]:
                del self._leaving[before.node]
                self._away -= {before.node} & self._deleted
                self._deleted.discard(before.node)
            self.uids.discard(before.uid)

    def note_node(self, node: NodeRecord) -> None:
        self._deleted.discard(node.name)
        self._note(node.name, is_away=any(taint.key == _UNREACHABLE for taint in node.taints))

    def note_deleted(self, node: str) -> None:
        """Nobody can reach what is left there, either."""
        if node in self._leaving:
            self._deleted.add(node)
        self._note(node, is_away=node in self._leaving)

    def _note(self, node: str, is_away: bool) -> None:
        if is_away is (node in self._away):
            return
        (self._away.add if is_away else self._away.discard)(node)
        for uid, leaving in self._leaving.get(node, {}).items():
            if is_away:
                self._expect(leaving)
            elif uid in self.uids:
                self.uids.discard(uid)
                self._registry.touch(leaving.pod.group)

    def settle(self) -> None:
        """Count those no more whose grace is over."""
        now = self._clock()
        while self._due and self._due[0][0] <= now:
            _, uid, node = due = heappop(self._due)
            self._awaited.discard(due)
            leaving = self._leaving.get(node, {}).get(uid)
            if leaving is not None and node in self._away and uid not in self.uids:
                self.uids.add(uid)
                self._registry.touch(leaving.pod.group)

    def _over_at(self, pod: PodRecord) -> float:
        """Return when the grace of a pod is over."""
        try:
            left = as_datetime(pod.gone_by).timestamp() - self._wall_clock()
        except (ValueError, OverflowError):  # whatever the timestamp says
            return inf
        return self._clock() + left + _SLACK

    def _expect(self, leaving: _Leaving) -> None:
        due = leaving.over_at, leaving.pod.uid, leaving.pod.node
        if leaving.over_at < inf and due not in self._awaited:
            self._awaited.add(due)
            heappush(self._due, due)
            self._forget_those_gone()

    def _forget_those_gone(self) -> None:
        """Forget the grace of pods that ended before it was over: users choose how long it is."""
        if len(self._due) % _FEW == 0 and len(self._due) > 2 * sum(map(len, self._leaving.values())):
            self._due = [due for due in self._due if due[1] in self._leaving.get(due[2], ())]
            heapify(self._due)
            self._awaited = set(self._due)
