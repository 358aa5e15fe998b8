"""From what the command line names to a report: assemble the workload, run it, measure it."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from extender.api.configuration import Configuration
from extender.domain.resources import CPU, offered
from extender.domain.snapshot import Limits
from extender.sim.files.manifests import load
from extender.sim.virtual import synthetic, trace
from extender.sim.virtual.objects import from_manifests, made_nodes
from extender.sim.virtual.report import Report, report
from extender.sim.virtual.rows import from_rows
from extender.sim.virtual.simulation import Simulation
from extender.sim.virtual.tally import Tally
from extender.sim.virtual.workload import InvalidWorkload, Workload


class Wish(msgspec.Struct, frozen=True):
    """What to simulate. `synthetic`: how many pods to make up; `window` 0: as `muster serve` has it."""

    files: tuple[Path, ...] = ()
    traces: tuple[Path, ...] = ()
    synthetic: int = 0
    nodes: int = 3
    node_cpu: str = "4"
    node_memory: str = "16Gi"
    window: int = 0
    seed: int = 0


class Result(NamedTuple):
    """`end` is the second at which the last thing happened."""

    report: Report
    tally: Tally
    end: float


def workload(wish: Wish) -> Workload:
    """Raises InvalidManifests and InvalidWorkload."""
    made = from_manifests(load(wish.files), wish.seed) if wish.files else Workload()
    if not made.nodes:
        made += made_nodes(wish.nodes, wish.node_cpu, wish.node_memory)
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
