"""Sizes of the loads. The number of pods of a race also decides the sizes of the other cases."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.bench.cases.racing import Races


VARIANTS = ("all nodes", "gated", "ungated", "view", "racks")  # the competitors of the stock scheduler


@dataclass(frozen=True)
class Sizes:
    nodes: tuple[int, ...] = (1000, 5000)
    pods: int = 10_000
    gangs: tuple[int, ...] = (20, 500)
    rounds: int = 1
    variants: tuple[str, ...] = VARIANTS
    own_cores: bool = False  # each part has a slice of the CPU
    bound: int | None = None  # pods that run before; None: the default of the case

    def with_changes(self, **changes: Any) -> "Sizes":
        return replace(self, **changes)

    def __str__(self) -> str:
        nodes, gangs = (",".join(map(str, numbers)) for numbers in (self.nodes, self.gangs))
        load = f", {self.bound} bound before" if self.bound else ""
        cores = ", each part with its own cores" if self.own_cores else ""
        return f"{self.pods} pods in gangs of {gangs} on {nodes} nodes{load}{cores}, {self.rounds} round(s)"

    @property
    def most_nodes(self) -> int:
        """Return the number of nodes for cases that use only one size."""
        return max(self.nodes)

    @property
    def burst_pods(self) -> int:
        """Return the number of pods that all wait when the scheduler starts."""
        return min(3200, self.pods)

    @property
    def aborted_members(self) -> int:
        """Return the number of members of the gang that is aborted."""
        return min(1000, self.pods // 10)

    @property
    def waiting_groups(self) -> int:
        """Return the number of groups that wait in a decision."""
        return min(10_000, self.pods // 10)

    @property
    def pending_jobs(self) -> tuple[int, ...]:
        """Return the numbers of pending Jobs, at most the pods of the largest case."""
        return tuple(number for number in (200, 1000, 10_000) if number <= self.pods)

    @property
    def jobs(self) -> int:
        """Return the number of jobs of a trace in virtual time."""
        return 700 if self.pods >= 10_000 else 200

    @property
    def seeds(self) -> int:
        """Return the number of traces of each kind, one for each seed."""
        return 5 if self.pods >= 10_000 else 2

    @property
    def kueue_scale(self) -> float:
        """Return the factor on the numbers of jobs of Kueue's benchmark."""
        return min(1.0, self.pods / 10_000)

    @property
    def bound_before(self) -> int:
        """Return the number of pods that are bound already when a process starts."""
        return 5 * self.pods if self.bound is None else self.bound

    @property
    def patience(self) -> float:
        """Return the seconds after which an unfinished load counts as stuck: less than 20 pods/s."""
        return 60 + self.pods / 20


QUICK = Sizes(nodes=(100,), pods=400, gangs=(20, 100))


@dataclass(frozen=True)
class Bench:
    """Input of a case. The races are shared: three cases look at the same runs."""

    sizes: Sizes
    races: "Races"
