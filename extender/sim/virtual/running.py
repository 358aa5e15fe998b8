"""From what the command line names to a report: assemble the workload, run it, measure it."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from extender.api.configuration import Configuration
from extender.domain.model.resources import CPU, offered
from extender.domain.snapshot.limits import Limits
from extender.sim.files.manifests import load
from extender.sim.virtual import synthetic, trace
from extender.sim.virtual.objects import from_manifests, made_nodes
from extender.sim.virtual.report import Report, report
from extender.sim.virtual.rows import from_rows
from extender.sim.virtual.simulation import Simulation
from extender.sim.virtual.tally import Tally
from extender.sim.virtual.workload import InvalidWorkload, Workload


class Wish(msgspec.Struct, frozen=True):
    """What to simulate. `synthetic`: how many pods to make up. What is 0 or empty takes its default."""

    files: tuple[Path, ...] = ()
    traces: tuple[Path, ...] = ()
    synthetic: int = 0
    nodes: int = 0
    node_cpu: str = ""
    node_memory: str = ""
    window: int = 0
    seed: int = 0

    def made_nodes(self) -> Workload:
        """As `muster run` makes them; a made-up trace alone gets a cluster of its size."""
        alone = self.synthetic and not self.files and not self.traces
        count, cpu, memory = (max(3, self.synthetic // 500), "32", "128Gi") if alone else (3, "4", "16Gi")
        return made_nodes(self.nodes or count, self.node_cpu or cpu, self.node_memory or memory)


class Result(NamedTuple):
    """`end` is the second at which the last thing happened."""

    report: Report
    tally: Tally
    end: float


def workload(wish: Wish) -> Workload:
    """Raises InvalidManifests and InvalidWorkload."""
    made = from_manifests(load(wish.files), wish.seed) if wish.files else Workload()
    if not made.nodes:
        made += wish.made_nodes()
    rows = [row for path in wish.traces for row in trace.read(path)]
    made += from_rows(rows, made.queues, {})
    if wish.synthetic:
        invented = synthetic.rows(wish.synthetic, _room(made), wish.seed)
        made += from_rows(invented, made.queues, synthetic.WEIGHTS)
    if not made.members:
        raise InvalidWorkload("no pods in there: nothing to simulate")
    return made


def _room(made: Workload) -> synthetic.Room:
    """All nodes as if they were as small as the smallest."""
    cpus = min(offered(node.status.allocatable).get(CPU, 0) for node in made.nodes)
    return synthetic.Room(len(made.nodes), max(cpus // 1000, 1))


def simulate(wish: Wish) -> Result:
    """Raises InvalidManifests and InvalidWorkload."""
    given, configuration = workload(wish), Configuration()
    tally = Tally(given)
    limits = Limits(window=wish.window or configuration.window)
    simulation = Simulation(given, limits, frozenset(configuration.scheduler_names), [tally])
    end = simulation.run()
    tally.pass_time(end)
    return Result(report(tally, len(given.nodes), simulation.stage.rounds, end), tally, end)
