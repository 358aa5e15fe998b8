"""Check of a recorded history: no gang stays incomplete, and no node gets more pods than fit.

Events of different kinds arrive in any order. The check therefore first sorts the whole history by
resourceVersion, which orders the objects of all kinds.

A violation does not count if a scheduler could not have known better. For `sight` seconds, a scheduler may
not have seen that a node has shrunk, or that another scheduler has bound a pod. `undisturbed_time` excludes
the seconds of outages.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tests.e2e.harness.amounts import MILLI, Amounts


@dataclass(frozen=True, slots=True)
class Seen:
    """State of an object after an event, with its resourceVersion and the time at which the event arrived."""

    version: int
    at: float
    key: str


@dataclass(frozen=True, slots=True)
class PodSeen(Seen):
    """State of a pod after an event.

    `holds_capacity` is false for a pod that is unbound, ended or deleted.
    """

    uid: str
    node: str
    gang: str | None
    holds_capacity: bool
    requests: Amounts
    succeeded: bool = False  # A succeeded pod still counts as a member of its gang.
    foreign: bool = False  # whether the pod belongs to another scheduler


@dataclass(frozen=True, slots=True)
class NodeSeen(Seen):
    """State of a node after an event. `allocatable` is None for a deleted node."""

    allocatable: Amounts | None


@dataclass(frozen=True, slots=True)
class GangSeen(Seen):
    """State of a PodGroup after an event. `min_member` is None for a deleted PodGroup."""

    min_member: int | None


@dataclass(frozen=True)
class Violation:
    """Violation of a rule. `at` is the time in seconds of the history's clock."""

    at: float
    key: str  # key of the node or of the gang
    message: str


@dataclass
class Gang:
    """State of one gang. `incomplete_since` is the time since which the gang has been incomplete."""

    name: str
    min_member: int | None = None
    ran_fully: bool = False
    incomplete_since: float | None = None
    members: set[str] = field(default_factory=set)
    has_pod_group: bool = False
    deleted_at: float | None = None  # time at which the PodGroup was deleted

    def review(self, now: float, deadline: float) -> str | None:
        """Update the gang after a change of its members.

        Return a message if the gang was incomplete for longer than `deadline` seconds. After a gang has run
        fully once, later changes are not checked, and the result is None.
        """
        if self.min_member is None or self.ran_fully:
            return None
        member_count = len(self.members)
        since, self.incomplete_since = self.incomplete_since, None
        self.ran_fully = member_count >= self.min_member
        if 0 < member_count < self.min_member:
            self.incomplete_since = now if since is None else since
        return self._message_if_late(since, now, deadline)

    def _message_if_late(self, since: float | None, now: float, deadline: float) -> str | None:
        """Return a message if the gang has been incomplete since `since` for longer than the deadline."""
        if since is None or now - since <= deadline:
            return None
        duration = f"{now - since:.1f} s of {deadline:g} s"
        return f"gang {self.name} stood between 0 and {self.min_member} for {duration}"


@dataclass
class Capacity:
    """Current capacity of a node, and its earlier capacities with the times until which they applied."""

    allocatable: Amounts
    earlier_amounts: list[tuple[float, Amounts]] = field(default_factory=list)

    def change(self, allocatable: Amounts, now: float) -> None:
        self.earlier_amounts.append((now, self.allocatable))
        self.allocatable = allocatable

    def largest(self, since: float) -> Amounts:
        """Return, for each resource, the largest capacity of the node since a time."""
        largest_amounts = Amounts(self.allocatable)
        for until, allocatable in self.earlier_amounts:
            if until > since:
                largest_amounts |= allocatable
        return largest_amounts


class Review:
    """Check of a history, which collects violations."""

    def __init__(
        self,
        deadline: float,
        *,
        sight: float = 0.0,
        undisturbed_time: Callable[[float], float] = lambda at: at,
        restarts: Sequence[float] = (),
    ) -> None:
        """Prepare a review.

        A restarted Muster does not know the size of a gang whose PodGroup was deleted before the restart.
        Such a gang is no longer checked.

        Args:
            deadline: Seconds for which a gang may be incomplete.
            sight: Seconds within which a scheduler may not have seen a change.
            undisturbed_time: Function that maps a time to the time without the seconds of outages.
            restarts: Times at which Muster was ready again after a restart.
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
        self._pods_by_node: dict[str, set[str]] = defaultdict(set)

    def replay(self, history: Iterable[Seen], until: float) -> list[str]:
        """Check all events of a history, and the gangs at the time `until`.

        Return the messages of violations.
        """
        for event in sorted(history, key=lambda fact: (fact.version, fact.at)):
            self._record(event)
        for gang in self._gangs.values():
            self._check_gang(gang, until)
        return list(dict.fromkeys(violation.message for violation in self.violations))

    def incomplete_gangs(self) -> list[str]:
        """Return a message for each gang that is incomplete at the end, even before the gang's deadline."""
        return [
            f"gang {gang.name} stands with {len(gang.members)} of {gang.min_member}"
            + ("" if gang.has_pod_group else ", and its PodGroup is gone")
            for gang in self._gangs.values()
            if gang.incomplete_since is not None
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
        """Record a node without a check. No scheduler is at fault if a node shrinks below its pods."""
        if event.allocatable is None:
            self._nodes.pop(event.key, None)
        elif (capacity := self._nodes.get(event.key)) is None:
            self._nodes[event.key] = Capacity(event.allocatable)
        else:
            capacity.change(event.allocatable, self._undisturbed_time(event.at))

    def _record_gang(self, event: GangSeen) -> None:
        """Record a gang. While members exist, the gang keeps its minMember after its PodGroup is deleted."""
        gang = self._gang_of_key(event.key)
        if event.min_member is None:
            gang.has_pod_group, gang.deleted_at = False, event.at
            self._forget(gang)
        else:
            gang.has_pod_group, gang.deleted_at = True, None
            gang.min_member = event.min_member
            self._check_gang(gang, event.at)

    def _record_pod(self, event: PodSeen) -> None:
        """Record a pod, check its node if the pod was just bound, and update its gang."""
        previous_state = self._pods.get(event.uid)
        self._pods[event.uid] = event
        if event.holds_capacity:
            self._pods_by_node[event.node].add(event.uid)
            if previous_state is None or not previous_state.holds_capacity:
                self._arrived_at[event.uid] = self._undisturbed_time(event.at)
                # A foreign pod that is created with a node has no scheduler.
                if not (event.foreign and previous_state is None):
                    self._check_node(event)
        else:
            self._pods_by_node[event.node].discard(event.uid)
        if event.gang is not None:
            self._update_members(self._gang_of_key(event.gang), event)

    def _update_members(self, gang: Gang, event: PodSeen) -> None:
        if event.holds_capacity or event.succeeded:
            gang.members.add(event.uid)
        else:
            gang.members.discard(event.uid)
        self._check_gang(gang, event.at)
        self._forget(gang)

    def _forget(self, gang: Gang) -> None:
        """Forget the state of a gang without a PodGroup and without members."""
        if not gang.has_pod_group and not gang.members:
            self._gangs[gang.name] = Gang(gang.name)

    def _check_node(self, event: PodSeen) -> None:
        """Check the node of a newly bound pod, in the resources that the pod requests.

        The pod's scheduler is not at fault for other resources.
        """
        capacity = self._nodes.get(event.node)
        since = self._undisturbed_time(event.at) - self._sight
        if capacity is None or self._is_unseen(event, since):
            return
        requested, largest_amounts = self._requested_amounts(event.node, since), capacity.largest(since)
        names = [name for name, value in event.requests.items() if value]
        excess = {name: requested[name] for name in names if requested[name] > largest_amounts[name]}
        if excess:
            excess_text = ", ".join(
                f"{name} {value / MILLI:g} of {largest_amounts[name] / MILLI:g}"
                for name, value in excess.items()
            )
            message = f"node {event.node} over its allocatable when {event.key} came: {excess_text}"
            self.violations.append(Violation(event.at, event.node, message))

    def _requested_amounts(self, node: str, since: float) -> Amounts:
        """Return the sum of the requests of a node's pods, except pods that schedulers may not know yet."""
        requested = Amounts()
        for uid in self._pods_by_node[node]:
            pod = self._pods[uid]
            if not self._is_unseen(pod, since):
                requested += pod.requests
        return requested

    def _is_unseen(self, pod: PodSeen, since: float) -> bool:
        """Return whether another scheduler bound a pod after `since`, so that schedulers may not know it."""
        return pod.foreign and self._arrived_at[pod.uid] > since

    def _check_gang(self, gang: Gang, at: float) -> None:
        """Check whether a gang was incomplete for longer than the deadline."""
        if self._is_forgotten(gang, at):
            gang.incomplete_since = None
        elif (message := gang.review(self._undisturbed_time(at), self._deadline)) is not None:
            self.violations.append(Violation(at, gang.name, message))

    def _is_forgotten(self, gang: Gang, at: float) -> bool:
        """Return whether Muster was restarted between the PodGroup's deletion and the gang's deadline."""
        if gang.deleted_at is None:
            return False
        latest_restart = at if gang.incomplete_since is None else gang.incomplete_since + self._deadline
        return any(
            gang.deleted_at <= restart <= at and self._undisturbed_time(restart) <= latest_restart
            for restart in self._restarts
        )

    def _gang_of_key(self, key: str) -> Gang:
        return self._gangs.setdefault(key, Gang(key))
