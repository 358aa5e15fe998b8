"""Elastic groups in virtual time: they grow and shrink with demand, and settle when it does."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extender.domain.model.records import PodRecord
from extender.domain.snapshot.snapshot import Limits
from extender.sim.virtual.manifest_workload import make_nodes
from extender.sim.virtual.simulation import Observer, Simulation
from extender.sim.virtual.trace import Row
from tests.property_examples import examples
from tests.sim_virtual.bench import row, with_reclaiming_queues

QUEUES = ("a", "b", "c")
CALM = 1000.0  # seconds


class Changes(Observer):
    """Observer of starts and evictions for others, and of the running pods of each group."""

    def __init__(self) -> None:
        self.started: list[float] = []
        self.evicted: list[tuple[float, str]] = []
        self.running: dict[str, set[str]] = {}
        self.least: dict[str, int] = {}

    def pod_bound(self, pod: PodRecord, now: float) -> None:
        self.started.append(now)
        self.running.setdefault(pod.group.partition("/")[2], set()).add(pod.uid)

    def pod_ended(self, pod: PodRecord, now: float) -> None:
        self.running[pod.group.partition("/")[2]].discard(pod.uid)

    def pod_reclaimed(self, pod: PodRecord, now: float) -> None:
        group = pod.group.partition("/")[2]
        self.evicted.append((now, group))
        self.pod_ended(pod, now)
        self.least[group] = min(len(self.running[group]), self.least.get(group, len(self.running[group])))


class Job(NamedTuple):
    queue: str
    after: int  # seconds after the one before
    members: int
    spare: int  # of these so many are not needed
    cpus: int  # of each
    priority: int


jobs = st.builds(
    Job,
    st.sampled_from(QUEUES),
    st.integers(0, 60),
    st.integers(1, 8),
    st.integers(0, 6),
    st.integers(1, 3),
    st.sampled_from([0, 0, 5]),
)


def watched(rows: Iterable[Row], weights: Iterable[int] = (1, 1, 1), memory: float = 3600.0) -> Changes:
    """Run on 3 nodes of 4 cpu. `memory`: seconds in which no pod is evicted again for the same group."""
    changes = Changes()
    workload = with_reclaiming_queues([*rows], dict(zip(QUEUES, weights, strict=True)))
    Simulation(
        make_nodes(3, "4", "64Gi", 0) + workload,
        Limits(reclaim_memory=memory),
        frozenset({"muster"}),
        changes,
    ).run()
    return changes


@settings(max_examples=examples(4), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(jobs, min_size=2, max_size=7), st.tuples(*[st.integers(1, 4)] * 3))
def test_with_constant_demand_all_settles(given_jobs: list[Job], weights: tuple[int, ...]) -> None:
    """All come within minutes and stay: after a while nothing starts and nothing is evicted any more."""
    rows, at = [], 0.0
    for number, job in enumerate(given_jobs):
        at, needed = at + job.after, max(job.members - job.spare, 1)
        more: dict[str, Any] = {"queue": job.queue, "priority": job.priority}
        rows.append(row(f"g{number}", job.members, at, None, str(job.cpus), needed, **more))
    changes = watched(rows, weights, memory=CALM / 4)
    assert not [instant for instant in changes.started if instant > at + CALM]
    assert not [instant for instant, _ in changes.evicted if instant > at + CALM]


@pytest.mark.parametrize("every", [1.0, 4.0, 30.0])
@pytest.mark.parametrize("members", [1, 3, 6])
def test_with_alternating_demand_no_more_is_evicted_than_is_asked_for(every: float, members: int) -> None:
    """Evict no more members than needed, for a gang of another queue that comes and ends every few seconds.

    The evicted members of the elastic group come back.
    """
    times = 16
    rows = [row("wide", 12, 0.0, None, needed=1, queue="a")]
    rows += [row(f"short{n}", members, 10.0 + n * every, every / 2, queue="b") for n in range(times)]
    changes = watched(rows)
    assert {group for _, group in changes.evicted} == {"wide"}
    assert len(changes.evicted) <= times * members
    assert len(changes.running["wide"]) == 12
    assert changes.least["wide"] == 12 - members
