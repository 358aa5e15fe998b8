"""Runner of `muster simulate`: it assembles the workload, runs it, and makes the report."""

from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from extender.api.configuration import Configuration
from extender.domain.model.resources import CPU
from extender.domain.snapshot.snapshot import Limits, Snapshot
from extender.files.manifests import load
from extender.sim.virtual import trace
from extender.sim.virtual.manifest_workload import from_manifests, make_nodes
from extender.sim.virtual.measurements import Measurements
from extender.sim.virtual.report import SimulationReport, report
from extender.sim.virtual.simulation import Simulation
from extender.sim.virtual.trace import ClusterSize, from_rows
from extender.sim.virtual.workload import DumpedState, InvalidWorkload, VirtualWorkload
from extender.terminal.text import progress, working

_PODS_PER_NODE, _JOBS_PER_NODE = 500, 400  # sizes of clusters for generated traces


class SimulationOptions(msgspec.Struct, frozen=True):
    """Options of a simulation. 0 or an empty value means the default."""

    files: tuple[Path, ...] = ()
    create_namespaces: bool = False
    traces: tuple[Path, ...] = ()
    synthetic: int = 0  # number of pods to generate
    synthetic_jobs: int = 0  # number of jobs to generate, in a tree of queues
    nodes: int = 0
    node_cpu: str = ""
    node_memory: str = ""
    node_gpu: int = 0
    node_devices: tuple[str, int] | None = None
    window: int = 0
    usage_half_life: float | None = None
    seed: int = 0
    compare: str = ""  # whether to run it again with the strategy traverse only
    run_seconds: float | None = None  # run time of pods that declare none; None means that they do not end
    state: Snapshot | None = None  # state of a dump from which the simulation continues

    def make_nodes(self) -> VirtualWorkload:
        """Return nodes as `muster run` makes them.

        A workload of only generated pods gets larger and more nodes.
        """
        node_count = self.synthetic // _PODS_PER_NODE + self.synthetic_jobs // _JOBS_PER_NODE
        is_synthetic = (self.synthetic or self.synthetic_jobs) and not self.files and not self.traces
        count, cpu, memory = (max(3, node_count), "32", "128Gi") if is_synthetic else (3, "4", "16Gi")
        amounts = (self.node_cpu or cpu, self.node_memory or memory, self.node_gpu)
        return make_nodes(self.nodes or count, *amounts, self.node_devices)


class Result(NamedTuple):
    report: SimulationReport
    measurements: Measurements
    end: float  # time of the last event, in seconds
    notes: tuple[str, ...] = ()  # notes about objects that were left out


def workload(options: SimulationOptions) -> VirtualWorkload:
    """Return the workload, and show progress.

    Raises:
        InvalidManifests: A file is invalid.
        InvalidWorkload: An object is invalid.
    """
    with working("reading the workload"):
        result = VirtualWorkload()
        if options.state is not None:
            result = VirtualWorkload(state=(DumpedState(options.state, options.run_seconds),))
        if options.files:
            manifests = load(options.files, options.create_namespaces)
            result += from_manifests(manifests, options.seed, options.run_seconds)
        if not result.allocatable:
            result += options.make_nodes()
        rows = [row for path in options.traces for row in trace.read(path)]
        rows = [row if row.seconds is not None else row._replace(seconds=options.run_seconds) for row in rows]
        result = result.with_new(from_rows(rows, (), {}))
        if options.synthetic:
            rows = trace.gang_rows(options.synthetic, _capacity(result), options.seed)
            result = result.with_new(from_rows(rows, (), trace.WEIGHTS))
        if options.synthetic_jobs:
            result = result.with_new(VirtualWorkload(queues=tuple(trace.team_queues())))
            rows = trace.job_rows(options.synthetic_jobs, _capacity(result), options.seed)
            result = result.with_new(from_rows(rows, (), {}))
        if not (result.pod_count or result.groups or result.unmanaged_objects):
            raise InvalidWorkload("\n".join([*result.notes, "no pods in there: nothing to simulate"]))
        return result


def _capacity(workload: VirtualWorkload) -> ClusterSize:
    """Return the size of the cluster, with all nodes as small as the smallest."""
    allocatable = workload.allocatable
    cpus = min(offer.get(CPU, 0) for offer in allocatable)
    return ClusterSize(len(allocatable), max(cpus // 1000, 1))


def simulate(options: SimulationOptions) -> Result:
    """Return the result, and show progress on a terminal.

    Raises:
        InvalidManifests: A file is invalid.
        InvalidWorkload: An object is invalid.
    """
    virtual_workload = workload(options)
    defaults = options.state.limits if options.state is not None else Limits(window=Configuration().window)
    stated_half_life = options.usage_half_life
    half_life = defaults.usage_half_life if stated_half_life is None else stated_half_life
    limits = replace(defaults, window=options.window or defaults.window, usage_half_life=half_life)
    result = _run(virtual_workload, limits, "starting pods in virtual time")
    if not options.compare:
        return result
    limits = replace(limits, max_reserved_part=0, max_reclaims=0)
    compared = _run(virtual_workload.with_strategy("traverse"), limits, "the same with traverse only")
    return result._replace(report=replace(result.report, compared=compared.report))


def _run(virtual_workload: VirtualWorkload, limits: Limits, title: str) -> Result:
    measurements = Measurements(virtual_workload)
    simulation = _simulation(virtual_workload, limits, measurements)
    with progress(title, total=virtual_workload.pod_count) as advance:
        end = simulation.run(advance)
    measurements.close(end)
    nodes = len(virtual_workload.allocatable)
    unmanaged_objects, refused = virtual_workload.unmanaged_objects, simulation.refused_pods
    simulation_report = report(measurements, nodes, simulation.cycle_count, end, unmanaged_objects, refused)
    return Result(simulation_report, measurements, end, virtual_workload.notes)


def _simulation(virtual_workload: VirtualWorkload, limits: Limits, measurements: Measurements) -> Simulation:
    schedulers = frozenset(Configuration().scheduler_names)
    try:
        return Simulation(virtual_workload, limits, schedulers, measurements)
    except Exception as fault:
        if virtual_workload.dumped is None:
            raise
        # a readable dump that was edited and contradicts itself
        raise InvalidWorkload(f"the dump cannot go on: {type(fault).__name__}: {fault}") from fault
