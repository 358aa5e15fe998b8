"""The traces on which policies are compared are as published, and what evictions cost is measured exactly."""

from statistics import fmean

import pytest

from extender.api.objects.base import Meta
from extender.api.objects.queues import Queue, QueuePreemption, QueueSpec
from extender.sim.virtual.manifest_workload import make_nodes
from extender.sim.virtual.simulation import Simulation
from extender.sim.virtual.trace import from_rows
from extender.sim.virtual.workload import VirtualWorkload
from tests.bench.cases import evicting
from tests.bench.traces import TRACES, Trace, services_trace, training_trace
from tests.sim_virtual.bench import row


def test_training_is_as_published() -> None:
    """More than half of the jobs ask for one GPU, and half of them run for less than some minutes."""
    trace = training_trace(2000, 0)
    seconds = sorted(member.run_seconds or 0.0 for member in trace.workload.members)
    assert 0.5 < sum(units == 1 for units in trace.units.values()) / 2000 < 0.7
    assert 1.75 < fmean(trace.units.values()) < 3.72
    assert 60.0 < seconds[len(seconds) // 2] < 600.0 < fmean(seconds)
    assert 0.25 < fmean(member.fails for member in trace.workload.members) < 0.40


def test_services_never_end() -> None:
    trace = services_trace(50, 0)
    endless = [member for member in trace.workload.members if member.run_seconds is None]
    assert len(endless) == 40
    assert len(trace.units) == 50


@pytest.mark.parametrize("trace", sorted(TRACES))
def test_the_same_seed_makes_the_same_trace(trace: str) -> None:
    assert TRACES[trace](50, 7) == TRACES[trace](50, 7) != TRACES[trace](50, 8)


def test_what_evictions_cost() -> None:
    """A gang of 4 of 8 cpus is evicted after 100 s, and runs again after the gangs that took its capacity."""
    at_once = QueuePreemption(after="0s", at_most="0s")
    queues = tuple(Queue(Meta(name), QueueSpec(preemption=at_once)) for name in ("rich", "poor"))
    rows = [row(name, 4, seconds=1000.0, queue="rich") for name in ("a", "b")]
    rows.append(row("due", 4, 100.0, 200.0, queue="poor"))
    given = make_nodes(2, "4", "16Gi") + VirtualWorkload(queues=queues) + from_rows(rows, queues, {})
    trace = Trace(given, dict.fromkeys(("default/a", "default/b", "default/due"), 4), 100.0)
    measured = evicting.Cost(trace)
    end = Simulation(given, evicting.Policy().limits, frozenset({"muster"}), measured).run()
    measured.close(end)
    found = evicting.measures(trace, measured, end)
    assert (found["makespan h"] * 3600, found["all mean"]) == (1300.0, 0.0)
    assert (found["lost cpu h"], found["evictions"], found["most"]) == (400 / 3600, 1, 1)
    assert (found["delay s"], found["utilisation"], found["below due h"]) == (100.0, 1.0, 0.0)
