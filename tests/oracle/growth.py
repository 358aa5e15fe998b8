"""Starts of optional members, after the turns of all gangs.

They start one by one: first those within their queue's deserved share, then those that borrow capacity; both
in the order of shares.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from extender.domain.model.reasons import Reason
from tests.oracle.admission import Replay, obstacle
from tests.oracle.placement import FreeCapacity, Pod, fit, free_capacity, most_that_fit, total
from tests.oracle.states import Group, State


@dataclass
class PendingMembers:
    """Missing members of one group with equal requests, and the nodes of those that start."""

    group: Group
    pod: Pod
    missing: int
    nodes: list[str]


class Growth:
    """Turns of optional members, after those of `replay`."""

    def __init__(self, before: State, replay: Replay) -> None:
        self.before, self.replay, self.shares = before, replay, replay.shares
        self.grown: list[tuple[Pod, str]] = []

    def violated_rules(self) -> Iterator[str]:
        incomplete = [group for group in self.before.groups if 0 < len(group.nodes) < len(group.pods)]
        groups = sorted(incomplete, key=lambda group: group.order)
        all_pending = [
            pending
            for group in groups
            if not self._obstacles(group)
            for pending in self._pending_members(group)
        ]
        reserved, self.shares.reserved = self.shares.reserved, Counter()
        yield from self._take_turns(all_pending, lends=False)
        self.shares.reserved = reserved
        yield from self._take_turns([pending for pending in all_pending if pending.missing], lends=True)
        yield from (f"a member of {pending.group.name} may start" for pending in all_pending if pending.nodes)
        for group in groups:
            pending_of_group = [
                pending for pending in all_pending if pending.group is group and pending.missing
            ]
            possible_reasons = self._obstacles(group) or {
                reason for pending in pending_of_group for reason in self._possible_reasons(pending)
            }
            reason = self.replay.decision(group).reason
            if reason not in (possible_reasons or (None,)):
                yield f"members of {group.name} wait for {reason}, and not for {sorted(possible_reasons)}"

    def _obstacles(self, group: Group) -> frozenset[Reason]:
        """Return the obstacles of a group. A start timeout does not matter for a running group."""
        return obstacle(self.before, group) - {Reason.START_TIMED_OUT}

    def _pending_members(self, group: Group) -> Iterator[PendingMembers]:
        plan = self.replay.decision(group).plan
        by_uid = {f"uid-{group.name}-{n}": pod for n, pod in enumerate(group.pods) if n >= len(group.nodes)}
        for pod in dict.fromkeys(by_uid.values()):
            similar = [uid for uid, member in by_uid.items() if member == pod]
            yield PendingMembers(
                group, pod, len(similar), [node for uid, node in plan.items() if uid in similar]
            )

    def _take_turns(self, all_pending: list[PendingMembers], lends: bool) -> Iterator[str]:
        pending_by_queue: dict[str, list[PendingMembers]] = {}
        for pending in all_pending:
            pending_by_queue.setdefault(pending.group.queue, []).append(pending)
        while (queue := self.replay.next_queue(pending_by_queue)) is not None:
            pending = pending_by_queue[queue][0]
            is_open = self._is_open(queue, pending.pod, lends)
            starts = is_open and bool(pending.nodes)
            if starts:
                yield from self._start(pending, lends)
            elif is_open and fit([pending.pod], self.capacity) and not (lends and self.replay.claimants):
                yield f"one more member of {pending.group.name} starts"
            if not (starts and pending.missing):
                pending_by_queue[queue].pop(0)

    def _is_open(self, queue: str, pod: Pod, lends: bool) -> bool:
        """Return whether the queue lets one more pod start."""
        requests = total([pod])
        if self.shares.is_above_ceiling(queue, requests) or not self.replay.places(queue):
            return False
        return lends or not self.shares.is_above_share(queue, requests)

    def _start(self, pending: PendingMembers, lends: bool) -> Iterator[str]:
        name, capacity = pending.nodes.pop(0), self.capacity
        if not fit([pending.pod], {node: amounts for node, amounts in capacity.items() if node.name == name}):
            yield f"a member of {pending.group.name} fits on {name}"
        queue, pending.missing = pending.group.queue, pending.missing - 1
        self.grown.append((pending.pod, name))
        self.shares.add_usage(queue, total([pending.pod]))
        self.replay.started[queue] = self.replay.started.get(queue, 0) + 1
        if lends:
            for claimant in self.replay.claimants[:1]:
                if most_that_fit(claimant.pods, self.capacity) < most_that_fit(claimant.pods, capacity):
                    yield f"capacity that {claimant.name} claims is not borrowed by {pending.group.name}"

    @property
    def capacity(self) -> FreeCapacity:
        return free_capacity(self.replay.state.nodes, [*self.replay.state.placed_pods, *self.grown])

    def _possible_reasons(self, pending: PendingMembers) -> Iterator[Reason]:
        if self.shares.is_above_ceiling(pending.group.queue, total([pending.pod])):
            yield Reason.QUEUE_CEILING
        if not self.replay.places(pending.group.queue):
            yield Reason.WINDOW_FULL
        if not fit([pending.pod], self.capacity):
            yield Reason.NO_ROOM
        elif self.replay.claimants:
            yield Reason.QUEUE_SHARE
