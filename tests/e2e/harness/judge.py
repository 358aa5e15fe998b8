"""Check of a recorded history: no gang stays incomplete, and no node gets more pods than fit.

Events of different kinds arrive in any order, so the whole history is first sorted by resourceVersion, which
orders the objects of all kinds.

A violation does not count if a scheduler could not know better: for `sight` seconds, a scheduler may not have
seen that a node shrank or that another scheduler bound a pod. `undisturbed_time` excludes the seconds of
outages.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tests.e2e.harness.amounts import MILLI, Amounts


@dataclass(frozen=True, slots=True)
class Seen:
    """Event: its version, and the time at which the observer received it."""

    version: int
    at: float
    key: str


@dataclass(frozen=True, slots=True)
class PodSeen(Seen):
    """State of a pod after an event. `holds_capacity` is false if it is unbound, ended or deleted."""

    uid: str
    node: str
    gang: str | None
    holds_capacity: bool
    requests: Amounts
    succeeded: bool = False  # it counts as a member of a complete gang
    foreign: bool = False  # of another scheduler


@dataclass(frozen=True, slots=True)
class NodeSeen(Seen):
    """State of a node after an event; allocatable is None for a deleted one."""

    allocatable: Amounts | None


@dataclass(frozen=True, slots=True)
class GangSeen(Seen):
    """State of a PodGroup after an event; minMember is None for a deleted one."""

    min_member: int | None


@dataclass(frozen=True)
class Violation:
    """Violation, with its time in seconds of the history's clock."""

    at: float
    key: str  # of the node, or of the gang
    message: str


@dataclass
class Gang:
    """State of one gang, and since when it has been incomplete."""

    name: str
    min_member: int | None = None
    ran_fully: bool = False
    partial_since: float | None = None
    members: set[str] = field(default_factory=set)
    recorded: bool = False
    gone_at: float | None = None  # when its PodGroup was deleted

    def review(self, now: float, deadline: float) -> str | None:
        """Return the violation after a change of members, as a message; None after the gang ran fully."""
        if self.min_member is None or self.ran_fully:
            return None
        member_count = len(self.members)
        since, self.partial_since = self.partial_since, None
        self.ran_fully = member_count >= self.min_member
        if 0 < member_count < self.min_member:
            self.partial_since = now if since is None else since
        return self._violation_if_late(since, now, deadline)

    def _violation_if_late(self, since: float | None, now: float, deadline: float) -> str | None:
        if since is None or now - since <= deadline:
            return None
        duration = f"{now - since:.1f} s of {deadline:g} s"
        return f"gang {self.name} stood between 0 and {self.min_member} for {duration}"


@dataclass
class Capacity:
    """Current capacity of a node, and earlier capacities with the times until which they applied."""

    allocatable: Amounts
    former: list[tuple[float, Amounts]] = field(default_factory=list)

    def change(self, allocatable: Amounts, now: float) -> None:
        self.former.append((now, self.allocatable))
        self.allocatable = allocatable

    def largest(self, since: float) -> Amounts:
        """Return the largest amount of each resource since a time."""
        maximum = Amounts(self.allocatable)
        for until, allocatable in self.former:
            if until > since:
                maximum |= allocatable
        return maximum


class Review:
    """Review of a history, which collects violations."""

    def __init__(
        self,
        deadline: float,
        *,
        sight: float = 0.0,
        undisturbed_time: Callable[[float], float] = lambda at: at,
        restarts: Sequence[float] = (),
    ) -> None:
        """Prepare a review. `restarts`: times at which Muster was ready again.

        A restarted Muster does not know the size of a gang whose PodGroup was deleted before, so such gangs
        are not checked any more.
        """
        self.violations: list[Violation] = []
        self._deadline = deadline
        self._sight = sight
        self._undisturbed_time = undisturbed_time
        self._restarts = restarts
        self._nodes: dict[str, Capacity] = {}
        self._arrived_at: dict[str, float] = {}
        self._pods: dict[str, PodSeen] = {}
        self._gangs: dict[str, Gang] = {}
        self._on_node: dict[str, set[str]] = defaultdict(set)

    def replay(self, history: Iterable[Seen], until: float) -> list[str]:
        for event in sorted(history, key=lambda fact: (fact.version, fact.at)):
            self._record(event)
        for gang in self._gangs.values():
            self._judge_gang(gang, until)
        return list(dict.fromkeys(violation.message for violation in self.violations))

    def incomplete_gangs(self) -> list[str]:
        """Return the incomplete gangs at the end of the history, even before their deadline."""
        return [
            f"gang {gang.name} stands with {len(gang.members)} of {gang.min_member}"
            + ("" if gang.recorded else ", and its PodGroup is gone")
            for gang in self._gangs.values()
            if gang.partial_since is not None
        ]

    def _record(self, event: Seen) -> None:
        match event:
            case PodSeen():
                self._record_pod(event)
            case NodeSeen():
                self._record_node(event)
            case GangSeen():
                self._record_gang(event)

    def _record_node(self, event: NodeSeen) -> None:
        """Record a node. It is not checked: no scheduler is at fault if a node shrinks below its pods."""
        if event.allocatable is None:
            self._nodes.pop(event.key, None)
        elif (capacity := self._nodes.get(event.key)) is None:
            self._nodes[event.key] = Capacity(event.allocatable)
        else:
            capacity.change(event.allocatable, self._undisturbed_time(event.at))

    def _record_gang(self, event: GangSeen) -> None:
        """Record a gang. Its minMember is kept after the deletion of its PodGroup, while members exist."""
        gang = self._gang(event.key)
        if event.min_member is None:
            gang.recorded, gang.gone_at = False, event.at
            self._forget(gang)
        else:
            gang.recorded, gang.gone_at = True, None
            gang.min_member = event.min_member
            self._judge_gang(gang, event.at)

    def _record_pod(self, event: PodSeen) -> None:
        before = self._pods.get(event.uid)
        self._pods[event.uid] = event
        if event.holds_capacity:
            self._on_node[event.node].add(event.uid)
            if before is None or not before.holds_capacity:
                self._arrived_at[event.uid] = self._undisturbed_time(event.at)
                if not (event.foreign and before is None):  # it was created with a node, without a scheduler
                    self._judge_node(event)
        else:
            self._on_node[event.node].discard(event.uid)
        if event.gang is not None:
            self._update_members(self._gang(event.gang), event)

    def _update_members(self, gang: Gang, event: PodSeen) -> None:
        if event.holds_capacity or event.succeeded:
            gang.members.add(event.uid)
        else:
            gang.members.discard(event.uid)
        self._judge_gang(gang, event.at)
        self._forget(gang)

    def _forget(self, gang: Gang) -> None:
        if not gang.recorded and not gang.members:
            self._gangs[gang.name] = Gang(gang.name)

    def _judge_node(self, event: PodSeen) -> None:
        """Check a node in the resources of a newly bound pod, whose scheduler is not at fault for others."""
        capacity = self._nodes.get(event.node)
        since = self._undisturbed_time(event.at) - self._sight
        if capacity is None or self._is_unseen(event, since):
            return
        requested, maximum = self._requested(event.node, since), capacity.largest(since)
        names = [name for name, value in event.requests.items() if value]
        excess = {name: requested[name] for name in names if requested[name] > maximum[name]}
        if excess:
            listed = ", ".join(
                f"{name} {value / MILLI:g} of {maximum[name] / MILLI:g}" for name, value in excess.items()
            )
            message = f"node {event.node} over its allocatable when {event.key} came: {listed}"
            self.violations.append(Violation(event.at, event.node, message))

    def _requested(self, node: str, since: float) -> Amounts:
        requested = Amounts()
        for uid in self._on_node[node]:
            pod = self._pods[uid]
            if not self._is_unseen(pod, since):
                requested += pod.requests
        return requested

    def _is_unseen(self, pod: PodSeen, since: float) -> bool:
        return pod.foreign and self._arrived_at[pod.uid] > since

    def _judge_gang(self, gang: Gang, at: float) -> None:
        if self._is_forgotten(gang, at):
            gang.partial_since = None
        elif (message := gang.review(self._undisturbed_time(at), self._deadline)) is not None:
            self.violations.append(Violation(at, gang.name, message))

    def _is_forgotten(self, gang: Gang, at: float) -> bool:
        """Return whether Muster was restarted after the deletion of the PodGroup and before the deadline."""
        if gang.gone_at is None:
            return False
        latest = at if gang.partial_since is None else gang.partial_since + self._deadline
        return any(
            gang.gone_at <= restart <= at and self._undisturbed_time(restart) <= latest
            for restart in self._restarts
        )

    def _gang(self, key: str) -> Gang:
        return self._gangs.setdefault(key, Gang(key))
