"""State of the second judge: limits and their recent values, gangs, and evicted pods."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tests.storm.facts import GroupFact, Load, PodFact


class AccusationCode(StrEnum):
    """Codes of the accusations."""

    PARTIAL_GANG = "a gang held nodes without running fully"
    LATE_BINDING = "a pod was bound after the deadline of its gang"
    NODE_OVER = "a node was over its allocatable"
    QUEUE_OVER = "a queue was over its capability"
    BOUND_TWICE = "a pod was bound twice"
    TWO_DOMAINS = "members that share a domain were bound in two"
    NEEDLESS_EVICTION = "a pod was evicted without a reason"


class Purpose(StrEnum):
    """Codes of evictions, by their purpose."""

    UNDONE_START = "a start that was undone"
    TAKEN = "capacity that another group took"
    UNTAKEN = "capacity that no group took"
    SHORT_LIVED = "a gang that ran fully for a short time"
    NONE = "nothing"


@dataclass(frozen=True)
class Accusation:
    at: float
    about: str
    code: AccusationCode
    facts: str

    @property
    def message(self) -> str:
        return f"{self.code}: {self.facts}"


@dataclass
class Limit:
    """Current amount of a node or queue, and its earlier amounts with the times until which they applied."""

    current: Load | None
    of_node: bool  # a node has 0 of an unnamed resource; a queue does not limit it
    former: list[tuple[float, Load | None]] = field(default_factory=list)

    def change(self, amount: Load | None, at: float) -> None:
        if amount != self.current:
            self.former.append((at, self.current))
            self.current = amount

    def largest(self, name: str, since: float) -> int | None:
        """Return the largest amount of a resource since a time; None if it had no limit at some time."""
        amounts = [self.current, *(amount for until, amount in self.former if until >= since)]
        if any(amount is None or (name not in amount and not self.of_node) for amount in amounts):
            return None
        return max(amount.get(name, 0) for amount in amounts if amount is not None)


@dataclass
class NodeLabels:
    """Current or last labels of a node, and earlier ones with the times until which they applied."""

    current: Mapping[str, str]
    former: list[tuple[float, Mapping[str, str]]] = field(default_factory=list)

    def change(self, labels: Mapping[str, str], at: float) -> None:
        if labels != self.current:
            self.former.append((at, self.current))
            self.current = labels

    def values(self, name: str, since: float) -> set[str]:
        """Return the values that a label had since a time."""
        recent_labels = [self.current, *(labels for until, labels in self.former if until >= since)]
        return {labels[name] for labels in recent_labels if name in labels}


@dataclass
class Gang:
    record: GroupFact | None = None
    pods: dict[str, PodFact] = field(default_factory=dict)
    was_whole: bool = False
    attempt: float | None = None  # when it began to hold nodes; None: it holds none, or was complete once
    runs_since: float | None = None
    ran: bool = False  # all needed members ran; a bound pod may never run, if its kubelet refuses it
    ran_long: bool = False  # for at least RAN_LONG seconds
    accused: bool = False

    def is_whole(self, members: Iterable[PodFact]) -> bool:
        present = list(members)
        tasks = Counter(pod.task for pod in present)
        record = self.record
        return (
            record is not None
            and len(present) >= record.min_member
            and all(tasks[task] >= minimum for task, minimum in record.tasks.items())
        )


@dataclass(frozen=True)
class UnsettledEviction:
    pod: PodFact
    at: float  # in undisturbed seconds
