"""Trees of queues: the made-up trace, how fair it is by level, and the comparison with traverse only."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api.keys import ROOT_QUEUE
from extender.cli import main
from extender.domain.snapshot.decisions import QueueDecision
from extender.sim.virtual import trace
from extender.sim.virtual.chart import chart
from extender.sim.virtual.measurements import Fairness, jain
from extender.sim.virtual.trace import ClusterSize
from tests.sim_virtual.bench import row, run_rows

TRACE = Path(__file__).parents[2] / "examples" / "trace.csv"
CAPACITY = ClusterSize(10, 32)
EXPECTED_TABLE = """\
against traverse only, without reservations and reclaim
                             as given   traverse
makespan                        1h00m      1h00m
utilisation of cpu              85.9%      85.9%
utilisation of memory           76.3%      76.3%
fairness of level 1              0.77       0.77
evicted pods                        0          0
mean wait                       5m25s      5m25s
longest wait                   20m00s     20m00s
mean wait of 1-3 pods           4m10s      4m10s
longest wait of 1-3 pods        5m00s      5m00s
mean wait of 4-15 pods          7m00s      7m00s
longest wait of 4-15 pods      20m00s     20m00s
mean wait of 16-63 pods            0s         0s
longest wait of 16-63 pods         0s         0s
"""


def queue(name: str, parent: str, share: float, wanted: int = 10) -> QueueDecision:
    """Return a queue that holds 5 cpu."""
    held, asked = {"cpu": 5}, {"cpu": wanted}
    return QueueDecision(name, "Open", 1, parent, held, asked, {}, {}, share)


def tree(*queues: QueueDecision) -> dict[str, QueueDecision]:
    root = queue(ROOT_QUEUE, "", 1.0)
    return {each.name: each for each in (root, *queues)}


@pytest.mark.parametrize(
    ("shares", "index"),
    [([1, 1, 1], 1.0), ([0.5, 0.5], 1.0), ([1, 0], 0.5), ([3, 1], 0.8), ([0, 0], 1.0), ([0, 0, 0, 2], 0.25)],
)
def test_jains_index(shares: list[float], index: float) -> None:
    assert jain(shares) == pytest.approx(index)


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=20), st.floats(0.01, 100.0))
def test_jains_index_is_between_its_bounds_whatever_the_unit(shares: list[float], unit: float) -> None:
    index = jain(shares)
    assert 1 / len(shares) - 1e-9 <= index <= 1 + 1e-9
    assert jain([unit * share for share in shares]) == pytest.approx(index)


def test_levels_are_averaged_over_the_time_in_which_siblings_want_more() -> None:
    fairness = Fairness()
    a, b = queue("a", ROOT_QUEUE, 1.0), queue("b", ROOT_QUEUE, 0.0)
    below = queue("a1", "a", 2.0), queue("a2", "a", 2.0), queue("b1", "b", 9.0)
    fairness.add(tree(a, b, *below), 10.0)
    fairness.add(tree(a, replace(b, share=1.0), *below), 30.0)
    fairness.add(tree(a, replace(b, requested={"cpu": 5})), 1000.0)  # b has all that it wants
    assert fairness.means() == {1: (0.5 * 10 + 30) / 40, 2: 1.0}


def test_a_made_up_tree_is_the_same_for_the_same_seed() -> None:
    first, again, other = (trace.job_rows(500, CAPACITY, seed) for seed in (7, 7, 8))
    assert first == again != other
    assert len({each.queue for each in first}) == 20
    assert {each.queue for each in first} <= {each.metadata.name for each in trace.team_queues()}
    assert [each.arrival for each in first] == sorted(each.arrival for each in first)


def test_its_sizes_and_run_times_are_heavy_tailed() -> None:
    rows = trace.job_rows(2000, CAPACITY, 0)
    works = sorted(each.members * int(each.requests["cpu"]) * (each.seconds or 0.0) for each in rows)
    assert sum(works[-200:]) > 0.5 * sum(works)
    assert sorted(each.members for each in rows)[1000] <= 2 < 16 < max(each.members for each in rows)
    assert 0.5 < sum(each.declared is not None for each in rows) / 2000 < 0.8


def test_it_is_simulated_and_compared() -> None:
    command = ["simulate", "--synthetic-jobs", "60", "--compare", "traverse", "-o", "json"]
    report = json.loads(CliRunner().invoke(main, command).output)
    other = report["compared"]
    assert (report["groups"], report["done"], other["done"], other["compared"]) == (60, 60, 60, None)
    assert (other["evictions"], other["reservations"]) == (0, 0)
    assert {each["level"] for each in report["fairness"]} <= {1, 2}
    assert sum(each["groups"] for each in report["sizes"]) == 60


def test_both_are_printed_side_by_side() -> None:
    given = ["simulate", "--trace", str(TRACE), "--nodes", "4", "--node-cpu", "8"]
    output = CliRunner().invoke(main, [*given, "--compare", "traverse"]).output
    assert output.endswith(EXPECTED_TABLE)


def test_reservations_and_evictions_are_counted_and_marked() -> None:
    """`b` takes the capacity of `held`, which then waits for longer than its queue's patience."""
    result = run_rows(row("held", 8, seconds=2000.0), row("b", 8, arrival=2.0, seconds=2000.0, priority=5))
    assert (result.report.evictions, result.report.reservations) == (8, 1)
    drawn = chart(result)
    assert "default/held: 8 pods evicted for others" in drawn
    assert "default/held: nodes were reserved for " in drawn
    assert ">nodes reserved<" in drawn
    assert ">evicted for others<" in drawn
