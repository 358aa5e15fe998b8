"""Estimated starts of groups: computed quickly, written once, compared with the actual starts."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY

from extender.api.units import unix_seconds
from extender.controllers import estimates as module
from extender.controllers.estimates import Estimates, differs_much, estimate_of
from extender.domain.explain.forecast import ExpectedStart
from extender.domain.explain.future import Method
from extender.domain.model.reasons import Reason
from extender.domain.snapshot.decisions import Decisions
from tests.controllers.podgroup_bench import PodGroupBench
from tests.domain.builders import node, preemption, queue
from tests.domain.world import gang, key
from tests.rows import each_of

NEVER = preemption(within_queue="Never", unmanaged="Never")


def line(**runs: Any) -> list[Any]:
    """Return a cluster in which `next` waits for `runs`, which holds three of four cores."""
    return [
        node("n"),
        queue("q", preemption=NEVER),
        gang("runs", 1, queue="q", cpu="3", created="2026-01-01", **runs),
        gang("next", 1, queue="q", cpu="2", created="2026-01-02"),
    ]


@pytest.fixture
def bench() -> Iterator[PodGroupBench]:
    new_bench = PodGroupBench(*line(run_time="1h"))
    with new_bench.writing():
        new_bench.start("runs")
        new_bench.run("runs-0").settle()
        new_bench.estimates.on_decisions(new_bench.decisions)
        yield new_bench


def reported(bench: PodGroupBench) -> Any:
    """Return the estimate once the forecast is computed."""
    bench.advance(module._FORECAST_INTERVAL)
    bench.estimates.on_decisions(bench.decisions)
    bench.estimates.compute_slice()
    return bench.estimates.get(key("next"))


def counted(interval: str) -> float:
    return REGISTRY.get_sample_value("muster_estimate_error_count", {"interval": interval}) or 0.0


def test_an_estimate_is_written_into_the_status_once(bench: PodGroupBench) -> None:
    estimate = reported(bench)
    assert (estimate.method, estimate.unknown_because) == ("Declared", "")
    assert estimate.at_p50 < estimate.at_p90
    bench.advance(60)
    bench.look()
    written = bench.copies["next"].status.waiting
    assert written is not None
    assert written.estimate == estimate
    bench.advance(60)
    assert reported(bench) == estimate
    assert bench.look() == []


def test_a_new_group_gets_no_estimate_at_once(bench: PodGroupBench) -> None:
    bench.advance(module._MIN_WAIT - 0.1)
    bench.estimates.on_decisions(bench.decisions)
    bench.estimates.compute_slice()
    assert bench.estimates.get(key("next")) is None
    bench.advance(0.1)
    bench.estimates.compute_slice()
    assert bench.estimates.get(key("next")) is not None


def test_a_group_that_waits_for_a_place_in_the_window_is_no_reason_to_work() -> None:
    bench = PodGroupBench(node("n", cpu="8"), queue("q"))
    bench.ledger.limits = replace(bench.ledger.limits, window=4)
    bench.add(gang("a", 3, queue="q"), gang("b", 3, queue="q")).settle()
    assert bench.decisions.groups[key("b")].reason is Reason.WINDOW_FULL
    bench.estimates.on_decisions(bench.decisions)
    bench.advance(60)
    bench.estimates.compute_slice()
    assert bench.estimates.get(key("b")) is None


def test_an_unknown_estimate_replaces_the_known_one(bench: PodGroupBench) -> None:
    reported(bench)
    bench.advance(60)
    bench.look()
    bench.add(gang("runs", 1, queue="q", cpu="3", created="2026-01-01")[0])  # without its run time
    bench.settle()
    estimate = reported(bench)
    assert estimate.unknown_because.startswith("team/runs ")
    bench.advance(60)
    bench.look()
    written = bench.copies["next"].status.waiting
    assert written is not None
    assert written.estimate == estimate
    assert estimate.at_p50 is None


def test_a_changed_wall_clock_moves_the_published_estimates(bench: PodGroupBench) -> None:
    before = unix_seconds(reported(bench).at_p50)
    bench.wall_steps += 3600
    bench.settle()
    bench.advance(module._UNCHANGED_INTERVAL)
    assert unix_seconds(reported(bench).at_p50) == pytest.approx(before + 3600, abs=module._LARGE_SECONDS)


def test_another_process_keeps_the_written_estimate_until_it_has_its_own(bench: PodGroupBench) -> None:
    estimate = reported(bench)
    bench.advance(60)
    bench.look()
    bench.estimates._published_estimates.clear()
    bench.advance(60)
    assert bench.look() == []
    assert bench.copies["next"].status.waiting.estimate == estimate  # type: ignore[union-attr]


@pytest.mark.parametrize(("after", "interval"), [(60, "before"), (3600, "inside"), (9000, "after")])
def test_a_start_is_compared_with_the_first_published_estimate(
    bench: PodGroupBench, after: float, interval: str
) -> None:
    reported(bench)
    before = counted(interval)
    bench.advance(after)
    bench.finish("runs-0").settle()
    bench.estimates.on_decisions(bench.decisions)
    assert counted(interval) == before + 1
    assert bench.estimates.get(key("next")) is None


def test_a_deleted_group_is_forgotten_and_not_compared(bench: PodGroupBench) -> None:
    reported(bench)
    before = sum(map(counted, ("before", "inside", "after")))
    bench.delete("next-0")
    bench.ledger.intake.drop_group(key("next"))
    bench.settle()
    bench.estimates.on_decisions(bench.decisions)
    assert bench.estimates._published_estimates == {}
    assert sum(map(counted, ("before", "inside", "after"))) == before


def test_a_follower_makes_no_estimates(bench: PodGroupBench) -> None:
    reported(bench)
    bench.leading = False
    bench.estimates.compute_slice()
    assert bench.estimates.get(key("next")) is None
    bench.estimates.compute_slice()
    assert bench.estimates.get(key("next")) is None


def test_a_failed_forecast_is_dropped_and_the_next_is_made(
    bench: PodGroupBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(decisions: Decisions, cycles: int) -> Iterator[None]:
        yield
        raise ValueError

    with monkeypatch.context() as patched:
        patched.setattr(module, "forecasts", broken)
        with pytest.raises(ValueError):  # noqa: PT011
            reported(bench)
    bench.add(node("m", cpu="1")).settle()
    assert reported(bench).method == "Declared"


def test_forecasts_take_at_most_a_fiftieth_of_a_core(
    bench: PodGroupBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round of decisions takes 40 ms, and there is always another one."""
    now, worked = 0.0, 0.0

    def endless(decisions: Decisions, cycles: int) -> Iterator[None]:
        nonlocal worked
        while True:
            worked += 0.04
            yield

    monkeypatch.setattr(module, "forecasts", endless)
    estimates = Estimates(bench.ledger, lambda: True, lambda: now, lambda: worked)
    estimates.on_decisions(bench.decisions)
    while now < 3600:
        before, rest = worked, estimates.compute_slice()
        assert worked - before <= 0.2 * rest or worked == before
        now += worked - before + rest
    assert 0.015 * now < worked <= 0.02 * now + module._MAX_SAVED_SECONDS


@each_of(
    (ExpectedStart(0.0, 900, 1000, 1100), False),
    (ExpectedStart(0.0, 900, 1150, 1250), False),
    (ExpectedStart(0.0, 900, 1300, 1400), True),
    (ExpectedStart(950.0, 960, 1050, 1150), False),  # 50 seconds are not much
    (ExpectedStart(950.0, 960, 1100, 1200), True),
    (ExpectedStart(0.0, 900, 1000, 1100, Method.LEARNT), True),
    (ExpectedStart(0.0, unknown="team/x has no known end"), True),
)
def test_changes_of_an_estimate_that_are_published(now: ExpectedStart, expected: bool) -> None:
    assert differs_much(ExpectedStart(0.0, 900, 1000, 1100), now) is expected


@each_of(3e11, 1e300)
def test_a_time_beyond_the_calendar_is_no_timestamp(p99: float) -> None:
    """The API server would refuse the whole status."""
    reported = estimate_of(ExpectedStart(0.0, 10.0, 20.0, p99), epoch=1.8e9)
    assert (reported.at_p50, reported.at_p90) == (None, None)
    assert reported.unknown_because
