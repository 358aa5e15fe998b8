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
    UNASKED_EVICTION = "a pod was evicted, and nothing asked"


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
    def what(self) -> str:
        return f"{self.code}: {self.facts}"


@dataclass
class Limit:
    """Current amount of a node or queue, and its earlier amounts with the times until which they applied."""

    now: Load | None
    of_node: bool  # a node has 0 of an unnamed resource; a queue does not limit it
    before: list[tuple[float, Load | None]] = field(default_factory=list)

    def change(self, amount: Load | None, at: float) -> None:
        if amount != self.now:
            self.before.append((at, self.now))
            self.now = amount

    def most(self, name: str, since: float) -> int | None:
        """Return the largest amount of a resource since a time; None if it had no limit at some time."""
        amounts = [self.now, *(amount for until, amount in self.before if until >= since)]
        if any(amount is None or (name not in amount and not self.of_node) for amount in amounts):
            return None
        return max(amount.get(name, 0) for amount in amounts if amount is not None)


@dataclass
class NodeLabels:
    """Current or last labels of a node, and earlier ones with the times until which they applied."""

    now: Mapping[str, str]
    before: list[tuple[float, Mapping[str, str]]] = field(default_factory=list)

    def change(self, labels: Mapping[str, str], at: float) -> None:
        if labels != self.now:
            self.before.append((at, self.now))
            self.now = labels

    def values(self, name: str, since: float) -> set[str]:
        """Return the values that a label had since a time."""
        labels_ = [self.now, *(labels for until, labels in self.before if until >= since)]
        return {labels[name] for labels in labels_ if name in labels}


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
        standing = list(members)
        tasks = Counter(pod.task for pod in standing)
        record = self.record
        return (
            record is not None
            and len(standing) >= record.min_member
            and all(tasks[task] >= minimum for task, minimum in record.tasks.items())
        )


@dataclass(frozen=True)
class UnsettledEviction:
    pod: PodFact
    at: float  # in undisturbed seconds
