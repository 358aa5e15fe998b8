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
class Line:
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
        waiting_lines = [
            line for group in groups if not self._obstacles(group) for line in self._lines(group)
        ]
        reserved, self.shares.reserved = self.shares.reserved, Counter()
        yield from self._pass(waiting_lines, lends=False)
        self.shares.reserved = reserved
        yield from self._pass([line for line in waiting_lines if line.missing], lends=True)
        yield from (f"a member of {line.group.name} may start" for line in waiting_lines if line.nodes)
        for group in groups:
            lines = [line for line in waiting_lines if line.group is group and line.missing]
            possible_reasons = self._obstacles(group) or {
                reason for line in lines for reason in self._possible_reasons(line)
            }
            reason = self.replay.decision(group).reason
            if reason not in (possible_reasons or (None,)):
                yield f"members of {group.name} wait for {reason}, and not for {sorted(possible_reasons)}"

    def _obstacles(self, group: Group) -> frozenset[Reason]:
        """Return the obstacles of a group. A start timeout does not matter for a running group."""
        return obstacle(self.before, group) - {Reason.START_TIMED_OUT}

    def _lines(self, group: Group) -> Iterator[Line]:
        plan = self.replay.decision(group).plan
        by_uid = {f"uid-{group.name}-{n}": pod for n, pod in enumerate(group.pods) if n >= len(group.nodes)}
        for pod in dict.fromkeys(by_uid.values()):
            similar = [uid for uid, member in by_uid.items() if member == pod]
            yield Line(group, pod, len(similar), [node for uid, node in plan.items() if uid in similar])

    def _pass(self, waiting_lines: list[Line], lends: bool) -> Iterator[str]:
        lines_by_queue: dict[str, list[Line]] = {}
        for line in waiting_lines:
            lines_by_queue.setdefault(line.group.queue, []).append(line)
        while (queue := self.replay.next_queue(lines_by_queue)) is not None:
            line = lines_by_queue[queue][0]
            is_open = self._is_open(queue, line.pod, lends)
            starts = is_open and bool(line.nodes)
            if starts:
                yield from self._start(line, lends)
            elif is_open and fit([line.pod], self.capacity) and not (lends and self.replay.claimants):
                yield f"one more member of {line.group.name} starts"
            if not (starts and line.missing):
                lines_by_queue[queue].pop(0)

    def _is_open(self, queue: str, pod: Pod, lends: bool) -> bool:
        """Return whether the queue lets one more pod start."""
        requests = total([pod])
        if self.shares.is_above_ceiling(queue, requests) or not self.replay.places(queue):
            return False
        return lends or not self.shares.is_above_share(queue, requests)

    def _start(self, line: Line, lends: bool) -> Iterator[str]:
        name, capacity = line.nodes.pop(0), self.capacity
        if not fit([line.pod], {node: amounts for node, amounts in capacity.items() if node.name == name}):
            yield f"a member of {line.group.name} fits on {name}"
        queue, line.missing = line.group.queue, line.missing - 1
        self.grown.append((line.pod, name))
        self.shares.take(queue, total([line.pod]))
        self.replay.started[queue] = self.replay.started.get(queue, 0) + 1
        if lends:
            for claimant in self.replay.claimants[:1]:
                if most_that_fit(claimant.pods, self.capacity) < most_that_fit(claimant.pods, capacity):
                    yield f"capacity that {claimant.name} claims is not borrowed by {line.group.name}"

    @property
    def capacity(self) -> FreeCapacity:
        return free_capacity(self.replay.state.nodes, [*self.replay.state.placed_pods, *self.grown])

    def _possible_reasons(self, line: Line) -> Iterator[Reason]:
        if self.shares.is_above_ceiling(line.group.queue, total([line.pod])):
            yield Reason.QUEUE_CEILING
        if not self.replay.places(line.group.queue):
            yield Reason.WINDOW_FULL
        if not fit([line.pod], self.capacity):
            yield Reason.NO_ROOM
        elif self.replay.claimants:
            yield Reason.QUEUE_SHARE
