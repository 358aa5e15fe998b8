"""The two promises that no run may break, judged over a recorded history.

Watches of different kinds arrive in any order, their versions do not: one etcd counts them all. So the
history is first put in the order of its versions and judged afterwards, never while it arrives.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.e2e.harness.amounts import MILLI, Amounts


@dataclass(frozen=True, slots=True)
class Seen:
    """One event: the version at which it happened and when the observer received it."""

    version: int
    at: float
    key: str


@dataclass(frozen=True, slots=True)
class PodSeen(Seen):
    """A pod as an event left it. `holds` is false when it is unbound, over or deleted."""

    uid: str
    node: str
    gang: str | None
    holds: bool
    requests: Amounts


@dataclass(frozen=True, slots=True)
class NodeSeen(Seen):
    """A node with its room; without allocatable it was deleted."""

    allocatable: Amounts | None


@dataclass(frozen=True, slots=True)
class GangSeen(Seen):
    """A PodGroup; without minMember it was deleted."""

    min_member: int | None


@dataclass
class Gang:
    """How far one gang stands, and since when it has been in pieces."""

    name: str
    min_member: int | None = None
    stood_whole: bool = False
    partial_since: float | None = None
    members: set[str] = field(default_factory=set)

    def judge(self, at: float, deadline: float) -> str | None:
        """Called after each change of its members; a gang that stood whole once is never judged again."""
        if self.min_member is None or self.stood_whole:
            return None
        standing = len(self.members)
        since, self.partial_since = self.partial_since, None
        self.stood_whole = standing >= self.min_member
        if 0 < standing < self.min_member:
            self.partial_since = at if since is None else since
        return self._late(since, at, deadline)

    def _late(self, since: float | None, at: float, deadline: float) -> str | None:
        if since is None or at - since <= deadline:
            return None
        return (
            f"gang {self.name} stood between 0 and {self.min_member} for {at - since:.1f} s of {deadline:g} s"
        )


class Judge:
    """Replays a history and collects what was wrong in it."""

    def __init__(self, deadline: float) -> None:
        self.violations: list[str] = []
        self._deadline = deadline
        self._nodes: dict[str, Amounts] = {}
        self._pods: dict[str, PodSeen] = {}
        self._gangs: dict[str, Gang] = {}
        self._on_node: dict[str, set[str]] = defaultdict(set)

    def replay(self, history: Iterable[Seen], until: float) -> list[str]:
        for event in sorted(history, key=lambda seen: (seen.version, seen.at)):
            self._take(event)
        for gang in self._gangs.values():
            self._judge_gang(gang, until)
        return list(dict.fromkeys(self.violations))

    def _take(self, event: Seen) -> None:
        match event:
            case PodSeen():
                self._take_pod(event)
            case NodeSeen():
                self._take_node(event)
            case GangSeen():
                self._take_gang(event)

    def _take_node(self, event: NodeSeen) -> None:
        """A node that shrinks under its pods is no scheduler's fault: only bindings are judged."""
        if event.allocatable is None:
            self._nodes.pop(event.key, None)
        else:
            self._nodes[event.key] = event.allocatable

    def _take_gang(self, event: GangSeen) -> None:
        gang = self._gang(event.key)
        if event.min_member is None:
            self._gangs[event.key] = Gang(event.key, members=gang.members)
        else:
            gang.min_member = event.min_member
            self._judge_gang(gang, event.at)

    def _take_pod(self, event: PodSeen) -> None:
        before = self._pods.get(event.uid)
        self._pods[event.uid] = event
        if event.holds:
            self._on_node[event.node].add(event.uid)
            if before is None or not before.holds:
                self._judge_node(event)
        else:
            self._on_node[event.node].discard(event.uid)
        if event.gang is not None:
            self._move(self._gang(event.gang), event)

    def _move(self, gang: Gang, event: PodSeen) -> None:
        if event.holds:
            gang.members.add(event.uid)
        else:
            gang.members.discard(event.uid)
        self._judge_gang(gang, event.at)

    def _judge_node(self, event: PodSeen) -> None:
        room = self._nodes.get(event.node)
        if room is None:
            return
        held = Amounts()
        for uid in self._on_node[event.node]:
            held += self._pods[uid].requests
        asked = event.requests  # what it does not ask for is not of its making: a device that vanished
        over = {name: value for name, value in held.items() if asked[name] and value > room[name]}
        if over:
            told = ", ".join(
                f"{name} {value / MILLI:g} of {room[name] / MILLI:g}" for name, value in over.items()
            )
            self.violations.append(f"node {event.node} over its allocatable when {event.key} came: {told}")

    def _judge_gang(self, gang: Gang, at: float) -> None:
        if (violation := gang.judge(at, self._deadline)) is not None:
            self.violations.append(violation)

    def _gang(self, key: str) -> Gang:
        return self._gangs.setdefault(key, Gang(key))
