"""Builders of small workloads, and a simulation of them that is checked at every step."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from extender.domain.model.records import PodRecord
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.snapshot import Limits
from extender.sim.virtual.manifest_workload import make_nodes
from extender.sim.virtual.measurements import Measurements
from extender.sim.virtual.report import SimulationReport, report
from extender.sim.virtual.runner import Result
from extender.sim.virtual.simulation import Simulation
from extender.sim.virtual.trace import Row, from_rows, read
from extender.sim.virtual.workload import VirtualWorkload
from tests.domain.builders import queue

SCHEDULERS = frozenset({"muster"})


class CheckingObserver(Measurements):
    """Observer that checks at every step that no node is above its capacity and no gang is partial."""

    def __init__(self, workload: VirtualWorkload) -> None:
        super().__init__(workload)
        self.cluster: Simulation | None = None
        self.instants = 0
        groups = (group for _, group in workload.groups)
        self._members = {f"{g.metadata.namespace}/{g.metadata.name}": g.spec.min_member for g in groups}
        self._ran: Counter[str] = Counter()

    def pod_bound(self, pod: PodRecord, now: float) -> None:
        super().pod_bound(pod, now)
        if not pod.node:  # a pod with a node ran before the simulation
            self._ran[pod.group] += 1

    def decided(self, decisions: Decisions, now: float) -> None:
        super().decided(decisions, now)
        assert self.cluster is not None
        self.instants += 1
        for name, _, idle, _ in self.cluster.ledger.nodes():
            assert min(idle.values()) >= 0, f"{name} is over its capacity at {now}: {idle}"
        for group, ran in self._ran.items():
            assert ran >= max(self._members.get(group, 1), 1), f"{group} runs with {ran} members at {now}"


def cluster(nodes: int = 2, cpu: str = "4", memory: str = "16Gi") -> VirtualWorkload:
    return make_nodes(nodes, cpu, memory)


def row(
    group: str,
    members: int,
    arrival: float = 0.0,
    seconds: float | None = 10.0,
    cpu: str = "1",
    needed: int = 0,
    **more: str | int,
) -> Row:
    return Row(arrival, group, members, needed or members, seconds, {"cpu": cpu}, **more)  # type: ignore[arg-type]


def run(workload: VirtualWorkload, limits: Limits | None = None) -> Result:
    """Run the simulation with checks and measurements."""
    measurements = CheckingObserver(workload)
    simulation = Simulation(workload, limits or Limits(), SCHEDULERS, measurements)
    measurements.cluster = simulation
    end = simulation.run()
    measurements.close(end)
    return Result(
        report(
            measurements, len(workload.nodes), simulation.cycle_count, end, refused=simulation.refused_pods
        ),
        measurements,
        end,
    )


def with_reclaiming_queues(rows: Sequence[Row], weights: Mapping[str, int] = {}) -> VirtualWorkload:
    """Return the workload of rows, with queues that reclaim capacity at once."""
    queues = tuple(
        queue(name, weights.get(name, 1)) for name in sorted({row.queue for row in rows} | {*weights})
    )
    return VirtualWorkload(queues=queues) + from_rows(rows, queues, {})


def run_rows(*rows: Row, nodes: int = 2, cpu: str = "4") -> Result:
    return run(cluster(nodes, cpu) + with_reclaiming_queues(rows))


def run_trace(folder: Path, text: str) -> SimulationReport:
    path = folder / "trace.csv"
    path.write_text(text)
    return run(cluster() + from_rows(read(path), (), {})).report


def starts(result: Result) -> dict[str, float | None]:
    """Return the time at which each group was complete."""
    timelines: Iterable[tuple[str, float | None]] = (
        (timeline.name.partition("/")[2], timeline.started_at)
        for timeline in result.measurements.timelines.values()
    )
    return dict(timelines)
