"""Reservations in virtual time: whatever comes and however it lies, a large gang starts within its bound."""

from contextlib import suppress
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.domain.model.records import GroupKey, PodRecord
from extender.domain.model.resources import CPU
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.snapshot import Limits
from extender.sim.virtual.manifest_workload import make_nodes
from extender.sim.virtual.simulation import Observer, Simulation
from extender.sim.virtual.trace import Row, from_rows
from extender.sim.virtual.workload import VirtualWorkload
from tests.property_examples import examples

BIG_GROUP = GroupKey("default/big")
PATIENCE, CAME = 60.0, 2.0
MAX_RUNTIME = 200  # seconds that any group runs
END, SOON = 8000.0, 2000.0  # seconds for which jobs come


class Job(NamedTuple):
    """A small group that comes `after` seconds after the one before."""

    after: int
    cpus: int
    runs: int
    declared: float | None
    """Declared run time as a multiple of the real one; None: no declaration."""


class Started(Exception):
    """Signal that the large gang runs: later events do not matter."""


class Watch(Observer):
    def __init__(self) -> None:
        self.began: float | None = None
        self.promised: list[float] = []

    def pod_bound(self, pod: PodRecord, now: float) -> None:
        if pod.group == BIG_GROUP:
            self.began = now
            raise Started

    def decided(self, decisions: Decisions, now: float) -> None:
        decision = decisions.groups.get(BIG_GROUP)
        reservation = decision.reservation if decision is not None else None
        if reservation is not None and reservation.starts_at is not None:
            self.promised.append(reservation.starts_at)


def job(run_times: st.SearchStrategy[float | None]) -> st.SearchStrategy[Job]:
    return st.builds(Job, st.integers(1, 20), st.integers(1, 3), st.integers(1, MAX_RUNTIME), run_times)


def run(jobs: list[Job], members: int, cpus: int, patience: float = PATIENCE, end: float = END) -> Watch:
    """Run three jobs that fill 3 nodes of 4 cpu; `big` comes soon, and the others again and again."""
    rows: list[Row] = []
    at, number = 0.0, 0
    while at < end:
        each = jobs[number % len(jobs)] if number >= 3 else Job(0, 3, MAX_RUNTIME, jobs[0].declared)
        name = f"j{number}x"
        at, number = at + (each.after if number != 2 else CAME), number + 1
        declared = None if each.declared is None else each.runs * each.declared
        rows.append(Row(at, name, 1, 1, float(each.runs), {CPU: str(each.cpus)}, declared=declared))
    rows.append(Row(1.0, "big", members, members, 10.0, {CPU: str(cpus)}))
    watch = Watch()
    cluster = make_nodes(3, "4", "16Gi", 0) + _impatient(from_rows(rows, (), {}), patience)
    with suppress(Started):
        Simulation(cluster, Limits(), frozenset({"muster"}), watch).run()
    return watch


def _impatient(workload: VirtualWorkload, patience: float = PATIENCE) -> VirtualWorkload:
    after = f"{patience:.0f}s"
    queues = [replace(queue, spec=replace(queue.spec, reserve_after=after)) for queue in workload.queues]
    return replace(workload, queues=tuple(queues))


SIZES = st.sampled_from([(3, 4), (1, 4), (2, 3)])  # of the large gang: its members, and the cpus of each
LONG = settings(max_examples=examples(4), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@LONG
@given(size=SIZES, jobs=st.lists(job(st.sampled_from([None, 0.0, 0.1, 1.0, 30.0])), min_size=1, max_size=12))
def test_a_large_gang_starts_within_its_bound_whatever_the_others_say(
    size: tuple[int, int], jobs: list[Job]
) -> None:
    """Bound the wait where declared run times are at most 30 times the real ones.

    No group passes after the first promise, and then all pods on the nodes have ended after the longest
    real run time.
    """
    began = run(jobs, *size).began
    assert began is not None
    assert began <= CAME + PATIENCE + 30.0 * MAX_RUNTIME + 2.0 * MAX_RUNTIME


@LONG
@given(size=SIZES, jobs=st.lists(job(st.just(0.0)), min_size=1, max_size=12))
def test_lies_about_short_runs_put_the_start_off_by_little(size: tuple[int, int], jobs: list[Job]) -> None:
    began = run(jobs, *size, end=SOON).began
    assert began is not None
    assert began <= CAME + PATIENCE + 5.0 * MAX_RUNTIME


@LONG
@given(size=SIZES, jobs=st.lists(job(st.sampled_from([1.0, 1.5, 3.0])), min_size=1, max_size=12))
def test_with_honest_run_times_the_start_is_never_later_than_promised(
    size: tuple[int, int], jobs: list[Job]
) -> None:
    watch = run(jobs, *size, end=SOON)
    assert watch.began is not None
    assert all(watch.began <= promise for promise in watch.promised)


def test_without_reservations_it_would_wait_until_no_more_come() -> None:
    """The stream that the others start behind: it leaves no three nodes free at the same time."""
    stream, end = [Job(5, 2, 60, 1.0)], 1000.0
    began, without = run(stream, 3, 4, end=end).began, run(stream, 3, 4, patience=2 * end, end=end).began
    assert began is not None
    assert without is not None
    assert began < end / 4 < end < without


DAY = 86_400.0


@pytest.mark.parametrize("name", ["liar-{}", "liar{}x"], ids=["of one series", "different series"])
def test_jobs_that_say_a_second_and_run_a_day_starve_no_group(name: str) -> None:
    """Start the large gang within a day and the time until no group passes it any more.

    Another job comes every twenty minutes, far more than there is capacity for. The gang waits for those
    that run already.
    """
    rows = [Row(1200.0 * n, name.format(100 + n), 1, 1, DAY, {CPU: "2"}, declared=1.0) for n in range(100)]
    rows.append(Row(1201.0, "big", 3, 3, 10.0, {CPU: "4"}))
    watch, cluster = Watch(), make_nodes(3, "4", "16Gi", 0) + _impatient(from_rows(rows, (), {}))
    with suppress(Started):
        Simulation(cluster, Limits(), frozenset({"muster"}), watch).run()
    assert watch.began is not None
    assert watch.began <= 1.1 * DAY


class Starts(Observer):
    def __init__(self) -> None:
        self.at: dict[str, float] = {}

    def pod_bound(self, pod: PodRecord, now: float) -> None:
        self.at.setdefault(pod.group.partition("/")[2], now)


@LONG
@given(
    arrivals=st.lists(st.integers(100, 20_000), min_size=1, max_size=8, unique=True),
    runs=st.sampled_from([None, 50.0, 5000.0]),
    declared=st.sampled_from([None, 1.0, 1000.0]),
)
def test_with_services_that_never_end_reserved_capacity_is_not_idle_without_limit(
    arrivals: list[int], runs: float | None, declared: float | None
) -> None:
    """Run a service on each of 3 nodes, which may declare an end, with capacity for 9 small groups."""
    rows = [Row(0.0, f"service{n}x", 1, 1, None, {CPU: "1"}, declared=declared) for n in range(3)]
    rows.append(Row(1.0, "big", 3, 3, 10.0, {CPU: "4"}))
    small = {f"s{n}x": float(at) for n, at in enumerate(arrivals)}
    rows += [Row(at, name, 1, 1, runs, {CPU: "1"}) for name, at in small.items()]
    rows.append(
        Row(50_000.0, "last", 1, 1, 1.0, {CPU: "1"})
    )  # virtual time ends an hour after the last event
    watch, limits = Starts(), Limits()
    cluster = make_nodes(3, "4", "16Gi", 0) + _impatient(from_rows(rows, (), {}))
    Simulation(cluster, limits, frozenset({"muster"}), watch).run()
    assert "big" not in watch.at
    for name, came in small.items():
        assert watch.at[name] - came <= (declared or 0.0) + limits.capacity_reserved + came / 2.0
