"""State of the second judge: limits and their recent values, gangs, and evicted pods."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tests.storm.testimony import GroupFact, Load, PodFact


class Wrong(StrEnum):
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
    wrong: Wrong
    facts: str

    @property
    def what(self) -> str:
        return f"{self.wrong}: {self.facts}"


@dataclass
class Limit:
    """An amount of a node or of a queue now, and what it was before: (until when, how much)."""

    now: Load | None
    of_node: bool  # which has nothing of what it does not name
    before: list[tuple[float, Load | None]] = field(default_factory=list)

    def becomes(self, amount: Load | None, at: float) -> None:
        if amount != self.now:
            self.before.append((at, self.now))
            self.now = amount

    def most(self, name: str, since: float) -> int | None:
        """Return the largest value since then; None: there was no limit to it at some time."""
        amounts = [self.now, *(amount for until, amount in self.before if until >= since)]
        if any(amount is None or (name not in amount and not self.of_node) for amount in amounts):
            return None
        return max(amount.get(name, 0) for amount in amounts if amount is not None)


@dataclass
class NodeLabels:
    """Labels of a node now, or before it was gone, and earlier ones: (until when, which)."""

    now: Mapping[str, str]
    before: list[tuple[float, Mapping[str, str]]] = field(default_factory=list)

    def becomes(self, labels: Mapping[str, str], at: float) -> None:
        if labels != self.now:
            self.before.append((at, self.now))
            self.now = labels

    def values(self, name: str, since: float) -> set[str]:
        """Return the values that a label had since then."""
        labels_ = [self.now, *(labels for until, labels in self.before if until >= since)]
        return {labels[name] for labels in labels_ if name in labels}


@dataclass
class Gang:
    record: GroupFact | None = None
    pods: dict[str, PodFact] = field(default_factory=dict)
    was_whole: bool = False
    attempt: float | None = None  # since when it holds nodes and has never run fully
    runs_since: float | None = None
    ran: bool = False  # whole, which is more than being bound: kubelets may refuse
    stood: bool = False  # for a good while
    accused: bool = False

    def is_whole(self, members: Iterable[PodFact]) -> bool:
        standing = list(members)
        tasks = Counter(pod.task for pod in standing)
        record = self.record
        return (
            record is not None
            and len(standing) >= record.least
            and all(tasks[task] >= minimum for task, minimum in record.tasks.items())
        )


@dataclass(frozen=True)
class Leave:
    pod: PodFact
    when: float  # of the clock
