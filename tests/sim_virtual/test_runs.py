"""Results of small traces, to the number, and invariants at every step of any trace."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api.keys import HISTORICAL
from extender.api.objects.base import Meta
from extender.api.objects.queues import Queue, QueuePreemption, QueueSpec
from extender.domain.snapshot.snapshot import Limits
from extender.sim.virtual.report import Waits
from extender.sim.virtual.runner import Result, SimulationOptions, simulate
from extender.sim.virtual.trace import Row, from_rows
from extender.sim.virtual.workload import VirtualWorkload
from tests.domain.builders import preemption, queue
from tests.property_examples import examples
from tests.sim_virtual.bench import cluster, row, run, run_rows, run_trace, starts

TRACE = """\
arrival, queue, group, members, cpu, seconds
0,       one,   a,     4,       1,   100
10,      two,   b,     4,       1,   50
20,      one,   c,     4,       2,   30
30,      two,   d,     2,       1,   20
"""


def test_a_trace_to_the_number(tmp_path: Path) -> None:
    """8 cpu. b fills them at 10; d takes b's place at 60; c needs all of them, and has them at 100."""
    report = run_trace(tmp_path, TRACE)
    assert (report.makespan, report.pods, report.groups, report.done) == (130.0, 14, 4, 4)
    assert report.waits == Waits(mean=27.5, median=15.0, p95=80.0, max=80.0)
    assert report.utilisation == {"cpu": 0.8462}  # 880 of 1040 cpu seconds
    one, two = report.queues
    assert (one.waits, two.waits) == (Waits(40, 40, 80, 80), Waits(15, 15, 30, 30))
    assert (one.allocated, one.deserved) == ({"cpu": 0.6154}, {"cpu": 0.7308})
    assert (two.allocated, two.deserved) == ({"cpu": 0.2308}, {"cpu": 0.2308})
    assert report.never_started == []


def test_the_same_seed_gives_the_same_report() -> None:
    first, again, other = (
        simulate(SimulationOptions(synthetic=100, nodes=4, node_cpu="16", seed=seed)).report
        for seed in (7, 7, 8)
    )
    assert first == again != other


def test_a_higher_priority_takes_the_capacity_and_the_victim_runs_again() -> None:
    result = run_rows(row("held", 8), row("b", 8, arrival=2.0, priority=5))
    assert starts(result)["b"] == 2.0
    assert (result.report.pods, result.report.done) == (16, 2)
    assert result.report.makespan == 22.0


def test_five_queues_contend_to_the_end() -> None:
    result = simulate(SimulationOptions(synthetic=300, nodes=3, node_cpu="32", node_memory="128Gi"))
    report = result.report
    assert (report.pods, report.done, len(report.queues)) == (300, report.groups, 5)
    assert report.utilisation["cpu"] > 0.7
    assert sum(timeline.wait != 0 for timeline in result.measurements.timelines.values()) > report.groups / 3


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    def one(number: int) -> Row:
        members = draw(st.integers(1, 6))
        return row(
            f"g{number}",
            members,
            arrival=float(draw(st.integers(0, 30))),
            seconds=draw(st.sampled_from([0.0, 5.0, 20.0, None])),
            cpu=draw(st.sampled_from(["500m", "1", "3"])),
            needed=draw(st.integers(1, members)),
            queue=draw(st.sampled_from(["one", "two"])),
            priority=draw(st.integers(0, 1)),
        )

    return [one(number) for number in range(draw(st.integers(1, 12)))]


@given(rows())
@settings(max_examples=examples(12), deadline=None)
def test_no_node_is_over_its_capacity_and_no_gang_is_partial(given_rows: list[Row]) -> None:
    """The watchman asserts this at every step."""
    result = run_rows(*given_rows)
    for row_ in given_rows:
        started = starts(result)[row_.group]
        assert started is not None or any(
            each.group.endswith(row_.group) for each in result.report.never_started
        )


def test_all_that_can_run_runs() -> None:
    result = run_rows(*(row(f"g{n}", 2 + n % 3, seconds=10.0 + n, cpu="2") for n in range(20)))
    assert result.report.done == 20


# ---- one rule each


def test_surplus_members_follow_as_capacity_comes() -> None:
    result = run_rows(row("big", 3, seconds=20.0, cpu="2"), row("elastic", 4, cpu="2", needed=1))
    (timeline,) = (each for key, each in result.measurements.timelines.items() if key.endswith("elastic"))
    assert sorted((run.start, count) for run, count in timeline.runs_of_members.items() if count) == [
        (0.0, 1),
        (10.0, 1),
        (20.0, 2),
    ]


def test_what_fits_nowhere_says_so() -> None:
    report = run_rows(row("fits", 1), row("giant", 1, cpu="5")).report
    (never,) = report.never_started
    assert (never.group, never.reason) == ("default/giant", "NeverFits")
    assert (report.makespan, report.done) == (10.0, 1)


def test_a_gang_larger_than_the_window_says_so() -> None:
    given_ = cluster() + from_rows([row("wide", 4)], (), {})
    (never,) = run(given_, Limits(window=3)).report.never_started
    assert never.reason == "TooLargeForWindow"


def test_rows_of_one_group_add_up(tmp_path: Path) -> None:
    text = "arrival,group,members,minMember,cpu,seconds\n0,job,1,1,1,60\n30,job,3,2,1,10\n"
    report = run_trace(tmp_path, text)
    assert (report.pods, report.groups, report.done, report.makespan) == (4, 1, 1, 90.0)
    assert report.waits == Waits(0, 0, 0, 0)  # it waits from the time when its members are there


@pytest.mark.parametrize(("priority", "first"), [(0, "a"), (5, "b")])
def test_priority_goes_before_age(priority: int, first: str) -> None:
    """Both need the whole cluster; a is older by a second, and neither is above what holds it."""
    held = row("held", 8, priority=5)
    a, b = row("a", 8, arrival=1.0), row("b", 8, arrival=2.0, priority=priority)
    result = run_rows(held, a, b)
    assert starts(result) == {"held": 0.0, first: 10.0, "ab".replace(first, ""): 20.0}


def reclaiming_at_once(name: str, **more: Any) -> Queue:
    return Queue(Meta(name), QueueSpec(preemption=QueuePreemption(after="0s", at_most="0s", **more)))


def evicted(result: Result) -> dict[str, list[float]]:
    """Return the times at which pods of each group were evicted."""
    timelines = ((timeline.name, timeline.evictions) for timeline in result.measurements.timelines.values())
    return {name.partition("/")[2]: sorted(instants) for name, instants in timelines if instants}


@pytest.mark.parametrize(("minimum", "instant"), [("0s", 150.0), ("300s", 300.0)])
def test_no_pod_is_evicted_before_its_minimum_run_time(minimum: str, instant: float) -> None:
    """Count from the start of a pod in its status: poor comes later and is due half of the capacity."""
    queues = (reclaiming_at_once("rich", min_runtime=minimum), reclaiming_at_once("poor"))
    rows = [row("held", 8, seconds=9000.0, needed=1, queue="rich"), row("due", 4, 150.0, queue="poor")]
    given_ = cluster() + VirtualWorkload(queues=queues) + from_rows(rows, queues, {})
    assert evicted(run(given_)) == {"held": [instant]}


def test_what_ran_shortest_goes_first() -> None:
    """The older gang was whole later than the younger one, and starts again with all its work ahead."""
    queues = (reclaiming_at_once("rich"), reclaiming_at_once("poor"))
    older = [row("older", 1, arrival, 900.0, "2", queue="rich") for arrival in (0.0, 60.0)]
    others = row("younger", 2, 30.0, 900.0, "2", queue="rich"), row("due", 2, 900.0, cpu="2", queue="poor")
    result = run(cluster() + VirtualWorkload(queues=queues) + from_rows([*older, *others], queues, {}))
    assert evicted(result) == {"older": [900.0]}
    assert result.report.makespan == 910.0 + 900.0


@pytest.mark.parametrize(("half_life", "last"), [(0.0, "b"), (60.0, "a")])
def test_past_usage_of_queues_counts_if_it_is_recorded(half_life: float, last: str) -> None:
    """Start b first, although a is first by name: a has held all until then."""
    queues = (
        Queue(Meta("p"), QueueSpec(fair_share=HISTORICAL)),
        *(Queue(Meta(name), QueueSpec(parent="p")) for name in "ab"),
    )
    rows = [row("early", 8, seconds=100.0, queue="a")]
    rows += [row(name, 8, 50.0, queue=name) for name in "ab"]
    given_ = cluster() + VirtualWorkload(queues=queues) + from_rows(rows, queues, {})
    begun = starts(run(given_, Limits(usage_half_life=half_life)))
    assert max(begun, key=lambda name: begun[name] or 0.0) == last


@pytest.mark.parametrize(("moves", "evicted", "starts_at"), [(False, 0, 100.0), (True, 1, 30.0)])
def test_what_is_in_the_way_moves_if_its_queue_says_so(moves: bool, evicted: int, starts_at: float) -> None:
    """Two nodes of 4 cpu: from 20 on, 2 are free on each."""
    halves = [row(f"r{number}", 1, seconds=(100.0, 20.0)[number % 2], cpu="2") for number in range(4)]
    queues = (queue("default", preemption=preemption(consolidation=moves)),)
    rows = [*halves, row("whole", 1, arrival=30.0, cpu="4")]
    result = run(cluster() + VirtualWorkload(queues=queues) + from_rows(rows, queues, {}))
    assert (starts(result)["whole"], result.report.evictions) == (starts_at, evicted)
    assert result.report.done == 5


def test_pods_that_run_without_end_are_not_done() -> None:
    report = run_rows(row("service", 2, seconds=None), row("job", 2)).report
    assert (report.groups, report.done, report.makespan) == (2, 1, 10.0)
