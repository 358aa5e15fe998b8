"""From what the command line names to a report: assemble the workload, run it, measure it."""

from pathlib import Path

import msgspec

from extender.api.configuration import Configuration
from extender.api.quantities import at_most
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
    """What to simulate. `synthetic`: how many pods to make up."""

    files: tuple[Path, ...] = ()
    traces: tuple[Path, ...] = ()
    synthetic: int = 0
    nodes: int = 3
    node_cpu: str = "4"
    node_memory: str = "16Gi"
    seed: int = 0


def workload(wish: Wish) -> Workload:
    """Raises InvalidManifests and InvalidWorkload."""
    objects = from_manifests(load(wish.files), wish.seed) if wish.files else Workload()
    if not objects.nodes:
        objects += made_nodes(wish.nodes, wish.node_cpu, wish.node_memory)
    rows = [row for path in wish.traces for row in trace.read(path)]
    objects += from_rows(rows, objects.queues, {})
    if wish.synthetic:
        objects += _made_up(wish, objects)
    if not objects.members:
        raise InvalidWorkload("no pods in there: nothing to simulate")
    return objects


def _made_up(wish: Wish, there: Workload) -> Workload:
    room = synthetic.Room(wish.nodes, max(at_most(wish.node_cpu), 1))
    rows = synthetic.rows(wish.synthetic, room, wish.seed)
    return from_rows(rows, there.queues, synthetic.WEIGHTS)


def simulate(given: Workload) -> tuple[Report, Tally]:
    configuration = Configuration()
    tally = Tally(given)
    limits = Limits(window=configuration.window)
    simulation = Simulation(given, limits, frozenset(configuration.scheduler_names), [tally])
    end = simulation.run()
    tally.pass_time(end)
    return report(tally, len(given.nodes), simulation.stage.rounds, end), tally
