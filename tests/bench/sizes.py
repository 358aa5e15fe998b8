"""Sizes of the loads. The number of pods of a race also determines the sizes of the other cases."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.bench.cases.racing import Races


VARIANTS = ("all nodes", "gated", "ungated", "view", "racks")  # variants that race with the stock scheduler


@dataclass(frozen=True)
class Sizes:
    """Sizes of all cases of a run."""

    nodes: tuple[int, ...] = (1000, 5000)
    pods: int = 10_000
    gangs: tuple[int, ...] = (20, 500)
    rounds: int = 1
    variants: tuple[str, ...] = VARIANTS
    own_cores: bool = False  # whether each part has its own slice of the CPU
    bound: int | None = None  # number of pods that run before; None means the default of the case

    def with_changes(self, **changes: Any) -> "Sizes":
        return replace(self, **changes)

    def __str__(self) -> str:
        nodes, gangs = (",".join(map(str, numbers)) for numbers in (self.nodes, self.gangs))
        load = f", {self.bound} bound before" if self.bound else ""
        cores = ", each part with its own cores" if self.own_cores else ""
        return f"{self.pods} pods in gangs of {gangs} on {nodes} nodes{load}{cores}, {self.rounds} round(s)"

    @property
    def most_nodes(self) -> int:
        """Return the number of nodes for cases that use only one size of cluster."""
        return max(self.nodes)

    @property
    def burst_pods(self) -> int:
        """Return the number of pods that exist before the schedulers start."""
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
        """Return the numbers of pending Jobs to measure, without numbers above the pods of a race."""
        return tuple(number for number in (200, 1000, 10_000) if number <= self.pods)

    @property
    def jobs(self) -> int:
        """Return the number of jobs of a trace in virtual time."""
        return 700 if self.pods >= 10_000 else 200

    @property
    def seeds(self) -> int:
        """Return the number of seeds. Each seed has its own trace of each kind."""
        return 5 if self.pods >= 10_000 else 2

    @property
    def kueue_scale(self) -> float:
        """Return the factor on the numbers of jobs in Kueue's benchmark."""
        return min(1.0, self.pods / 10_000)

    @property
    def bound_before(self) -> int:
        """Return the number of pods that are already bound when a process starts."""
        return 5 * self.pods if self.bound is None else self.bound

    @property
    def patience(self) -> float:
        """Return the time limit of a load in seconds.

        A load that binds less than 20 pods/s exceeds the limit.
        """
        return 60 + self.pods / 20


QUICK = Sizes(nodes=(100,), pods=400, gangs=(20, 100))


@dataclass(frozen=True)
class Bench:
    """Input of a case. Three cases share the same races."""

    sizes: Sizes
    races: "Races"
