"""Headroom in virtual time: a bound on the wait at a ceiling, however many small groups come."""

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from extender.api.objects.base import Meta, Quantities
from extender.api.objects.queues import Queue, QueueLimits, QueueSpec
from extender.domain.model.resources import CPU
from extender.domain.snapshot.snapshot import Limits
from extender.sim.virtual.manifest_workload import make_nodes
from extender.sim.virtual.simulation import Simulation
from extender.sim.virtual.trace import Row, from_rows
from tests.sim_virtual.test_reservations import Started, Watch

TWO_HOURS = 2 * 3600.0
CAME, PATIENCE, RUNS = 901.0, 600.0, 300.0


class Case(NamedTuple):
    """Case of small jobs in queue `stream`, every 32 s for two hours, and `big` in queue `own`.

    `big` comes once 8 run. The nodes have capacity for all: 8 cpus, or pods, are the ceiling.
    """

    specs: Mapping[str, QueueSpec]
    own: str
    stream: str
    declared: float | None  # how long the small ones say that they run


EIGHT: Quantities = {CPU: "8"}
ONE = {"q": QueueSpec(capability=EIGHT)}
PODS = {"q": QueueSpec(limits=QueueLimits(pods=8))}
BORROWING_QUEUES = {
    "p": QueueSpec(capability=EIGHT),
    "poor": QueueSpec(parent="p"),
    "rich": QueueSpec(parent="p", reclaimable=False),
}
CASES = {
    "at capability": Case(ONE, "q", "q", RUNS),
    "at capability, of unknown run time": Case(ONE, "q", "q", None),
    "at limits.pods": Case(PODS, "q", "q", RUNS),
    "at limits.pods, of unknown run time": Case(PODS, "q", "q", None),
    "under a parent's ceiling, behind borrowers": Case(BORROWING_QUEUES, "poor", "rich", RUNS),
    "the same, of unknown run time": Case(BORROWING_QUEUES, "poor", "rich", None),
}


def started(case: Case) -> float:
    """Return the time when `big` started, or the end if it did not."""
    rows = [
        Row(32.0 * n, f"small{n}x", 1, 1, RUNS, {CPU: "1"}, case.stream, declared=case.declared)
        for n in range(int(TWO_HOURS / 32.0))
    ]
    rows.append(Row(CAME, "big", 4, 4, RUNS, {CPU: "1"}, case.own))
    after = f"{PATIENCE:.0f}s"
    queues = tuple(Queue(Meta(name), replace(spec, reserve_after=after)) for name, spec in case.specs.items())
    watch = Watch()
    cluster = make_nodes(4, "8", "64Gi", 0) + replace(from_rows(rows, queues, {}), queues=queues)
    with suppress(Started):
        Simulation(cluster, Limits(), frozenset({"muster"}), watch).run()
    return TWO_HOURS if watch.began is None else watch.began


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_large_gang_starts_in_front_of_a_stream_of_small_ones(case: Case) -> None:
    assert started(case) <= CAME + PATIENCE + RUNS + 1.0
