"""Small workloads in a few words, and a run of them that is watched at every moment."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from extender.domain.decisions.decisions import Decisions
from extender.domain.model.records import PodRecord
from extender.domain.snapshot.limits import Limits
from extender.sim.virtual.objects import made_nodes
from extender.sim.virtual.report import Report, report
from extender.sim.virtual.rows import from_rows
from extender.sim.virtual.running import Result
from extender.sim.virtual.simulation import Observer, Simulation
from extender.sim.virtual.stage import Stage
from extender.sim.virtual.tally import Tally
from extender.sim.virtual.trace import Row, read
from extender.sim.virtual.workload import Workload

SCHEDULERS = frozenset({"muster"})


class Watchman(Observer):
    """Looks at every moment whether a node is over its room, or a gang stands in pieces."""

    def __init__(self, needed: dict[str, int]) -> None:
        self.stage: Stage | None = None
        self.moments = 0
        self._needed = needed
        self._ran: Counter[str] = Counter()

    def bound(self, pod: PodRecord, now: float) -> None:
        if not pod.node:  # else it came with its node, from before
            self._ran[pod.group] += 1

    def settled(self, decisions: Decisions, now: float) -> None:
        assert self.stage is not None
        self.moments += 1
        for name, _, idle, _ in self.stage.ledger.nodes():
            assert min(idle.values()) >= 0, f"{name} is over its room at {now}: {idle}"
        for group, ran in self._ran.items():
            assert ran >= self._needed.get(group, 1), f"{group} runs with {ran} members at {now}"


def cluster(nodes: int = 2, cpu: str = "4", memory: str = "16Gi") -> Workload:
    return made_nodes(nodes, cpu, memory)


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


def run(given: Workload, limits: Limits | None = None) -> Result:
    """Watched, and measured."""
    needed = {f"{g.metadata.namespace}/{g.metadata.name}": max(g.spec.min_member, 1) for _, g in given.groups}
    watchman, tally = Watchman(needed), Tally(given)
    simulation = Simulation(given, limits or Limits(), SCHEDULERS, [watchman, tally])
    watchman.stage = simulation.stage
    end = simulation.run()
    tally.pass_time(end)
    return Result(report(tally, len(given.nodes), simulation.stage.rounds, end), tally, end)


def run_rows(*rows: Row, nodes: int = 2, cpu: str = "4") -> Result:
    return run(cluster(nodes, cpu) + from_rows(rows, (), {}))


def run_trace(folder: Path, text: str) -> Report:
    path = folder / "trace.csv"
    path.write_text(text)
    return run(cluster() + from_rows(read(path), (), {})).report


def starts(result: Result) -> dict[str, float | None]:
    """When each group stood whole."""
    stories: Iterable[tuple[str, float | None]] = (
        (key.partition("/")[2], story.started) for key, story in result.tally.stories.items()
    )
    return dict(stories)
