"""Expected starts of groups by the known run times of others, and names of those with an unknown end."""

from collections.abc import Mapping
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.domain.explain import forecast
from extender.domain.explain.forecast import (
    _MAX_FACTOR_KEYS,
    FUTURES,
    MAX_CYCLES,
    Calibration,
    ExpectedStart,
    RunLaw,
    forecasts,
    interval_of,
)
from extender.domain.explain.future import Method
from extender.domain.model.reasons import Reason
from extender.domain.model.records import GroupKey
from tests.domain.builders import node, preemption, queue
from tests.domain.world import World, gang, key

NEVER = preemption(within_queue="Never", unmanaged="Never")


def foretold(world: World, cycles: int = MAX_CYCLES) -> Mapping[str, ExpectedStart]:
    """Return the expected starts by name."""
    work = forecasts(world.decisions, cycles)
    while True:
        try:
            next(work)
        except StopIteration as end:
            return {name.partition("/")[2]: start for name, start in end.value.items()}


def one_node(strategy: str = "", **runs: Any) -> World:
    """Return a world of four cores, three of which `runs` holds."""
    world = World(node("n"), queue("q", preemption=NEVER, strategy=strategy))
    return world.add(gang("runs", 1, queue="q", cpu="3", created="2026-01-01", **runs)).start("runs")


def waits(name: str = "waits", cpu: str = "2", day: int = 2, **more: Any) -> list[Any]:
    return gang(name, 1, queue="q", cpu=cpu, created=f"2026-01-0{day}", **more)


def test_a_declared_end_gives_an_interval_about_it() -> None:
    world = one_node(run_time="1h").add(waits()).settle()
    found = foretold(world)["waits"]
    assert found.method is Method.DECLARED
    assert found.p50 - world.now == pytest.approx(3600, rel=0.02)
    assert 2900 < found.p10 - world.now < 3500
    assert 3700 < found.p90 - world.now < 4300


def test_a_forecast_is_deterministic() -> None:
    world = one_node(run_time="1h").add(waits()).settle()
    assert foretold(world) == foretold(world)


def test_a_learnt_end_gives_a_wider_one() -> None:
    world = World(node("n"), queue("q", preemption=NEVER))
    for number, seconds in enumerate((1000, 1500, 800, 1200)):
        name = f"train-{number}"
        world.add(gang(name, 1, queue="q", cpu="3")).start(name).settle()
        world.pass_time(seconds)
        world.finish(f"{name}-0").settle()
        world.delete(f"{name}-0")
        world.ledger.intake.drop_group(key(name))
        world.settle()
    world.add(gang("train-9", 1, queue="q", cpu="3")).start("train-9").add(waits()).settle()
    found = foretold(world)["waits"]
    assert found.method is Method.LEARNT
    assert 900 < found.p50 - world.now < 1400
    assert found.p10 < found.p50 - 200
    assert found.p90 > found.p50 + 200


def test_an_active_deadline_of_kubernetes_is_a_certain_end() -> None:
    found = foretold(world := one_node(run_limit=600).add(waits()).settle())["waits"]
    assert (found.method, found.is_known) == (Method.DECLARED, True)
    assert found.p50 <= found.p90 <= world.now + 601


def test_a_start_for_which_others_are_evicted_says_so() -> None:
    """`hog` has no known end and holds the deserved share of the other queue."""
    world = World(node("n"), queue("q", preemption=NEVER), queue("poor"))
    world.add(gang("hog", 4, 2, queue="q")).start("hog").pass_time(600)
    world.add(gang("rich", 2, queue="poor")).settle()
    found = foretold(world)["rich"]
    assert (found.method, found.is_known) == (Method.RECLAIM, True)


def test_the_cause_of_an_unknown_start_names_the_group_and_the_annotation() -> None:
    world = one_node().add(waits(), waits("next", day=3)).settle()
    says = "team/runs of queue q has no known end (annotation kube-muster.io/run-time)"
    assert {name: start.unknown for name, start in foretold(world).items()} == {"waits": says, "next": says}
    assert foretold(world)["waits"].p90 == inf


def test_a_forecast_has_few_stops_for_many_groups_with_equal_waits() -> None:
    """Limit the stops: after the first one, the cost of a cycle is known."""
    world = one_node().add(*(waits(f"w{n:02}") for n in range(20))).settle()
    assert len(list(forecasts(world.decisions))) < 20


def test_the_start_of_a_blocked_group_depends_on_that_of_its_blockers() -> None:
    """Wait in a strict queue, although the small group would fit now."""
    world = one_node("fifo").add(waits(), waits("small", cpu="1", day=3)).settle()
    assert foretold(world)["small"].unknown == foretold(world)["waits"].unknown != ""


def test_an_earlier_group_without_a_run_time_is_named_as_well() -> None:
    world = one_node(run_time="1h").add(waits(cpu="4"), waits("next", cpu="4", day=3)).settle()
    found = foretold(world)
    assert found["waits"].is_known
    assert found["next"].unknown.startswith("team/waits of queue q ")


def test_a_start_beyond_the_limit_of_cycles_is_unknown() -> None:
    world = one_node(run_time="1h")
    world.add(*(waits(f"w{day}", cpu="4", day=day, run_time="1h") for day in (2, 3, 4))).settle()
    found = foretold(world, cycles=6)
    assert [found[name].is_known for name in ("w2", "w3", "w4")] == [True, True, False]
    assert found["w4"].unknown == "the simulation limit was reached before it started"
    assert foretold(world)["w4"].is_known


def test_a_start_that_no_end_allows_is_unknown() -> None:
    world = one_node(run_time="1h").add(waits(cpu="5")).settle()
    says = f"nothing that is expected to happen starts it: {Reason.NEVER_FITS.meaning}"
    assert foretold(world)["waits"].unknown == says


@given(st.floats(1, 1e7), st.floats(0.01, 3), st.floats(1, 1e7) | st.just(inf), st.floats(0, 1e8), st.data())
def test_a_law_gives_later_ends_for_later_parts_and_none_in_the_past(
    usual: float, varies: float, limit: float, ran: float, data: st.DataObject
) -> None:
    law = RunLaw(usual, varies, limit, is_empirical=True)
    ends = [law.end((number + 0.5) / FUTURES, 0.0, ran).at for number in range(FUTURES)]
    assert ends == sorted(ends)
    assert all(ran <= at < inf for at in ends)
    if ran < limit < inf:
        assert max(ends) <= max(limit, 1.0) * 1.000001


def test_estimates_that_miss_are_corrected_until_four_of_five_are_right() -> None:
    """Starts that come twice as late as the interval says, and vary more."""
    calibration, inside, factors = Calibration(), 0, [1.2, 1.6, 1.9, 2.0, 2.1, 2.4, 2.9, 1.4, 2.2, 1.8]
    reported, group = ExpectedStart(0.0, 90.0, 100.0, 110.0, Method.LEARNT), key("waits")
    for number in range(400):
        now = calibration.correct_forecast(group, reported)
        start = 100.0 * factors[number * 7 % len(factors)]
        inside += number >= 200 and interval_of(now, start) == "inside"
        calibration = calibration.after(group, now, start)
    assert inside >= 160
    assert calibration.correct_forecast(group, reported).p50 == pytest.approx(195, rel=0.1)
    assert calibration.correct_forecast(group, replace(reported, method=Method.DECLARED)).p50 == 100.0


def test_wrong_declarations_in_one_namespace_change_no_estimates_of_others() -> None:
    reported, honest = ExpectedStart(0.0, 90.0, 100.0, 110.0), [GroupKey(f"{name}/g") for name in "abc"]
    calibration, new = Calibration(), GroupKey("new/g")
    for number in range(100):
        calibration = calibration.after(GroupKey(f"liar/{number}"), reported, 1.0)
    assert calibration.correct_forecast(GroupKey("liar/next"), reported).p50 < 10.0
    assert calibration.correct_forecast(new, reported) == reported
    for _ in range(5):
        for group in honest:
            calibration = calibration.after(group, calibration.correct_forecast(group, reported), 200.0)
    own = calibration.correct_forecast(honest[0], reported).p50
    assert own > 120.0
    assert (
        100.0 <= calibration.correct_forecast(new, reported).p50 <= own
    )  # what most missed is expected of it


def test_calibration_remembers_few_namespaces() -> None:
    reported, calibration = ExpectedStart(0.0, 90.0, 100.0, 110.0), Calibration()
    for number in range(2 * _MAX_FACTOR_KEYS):
        calibration = calibration.after(GroupKey(f"n{number}/g"), reported, 200.0)
    assert len(calibration.factors) == _MAX_FACTOR_KEYS


@pytest.mark.parametrize("kinds", [1, 12])
def test_a_long_queue_delays_no_estimates_of_others(kinds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimate other queues; groups too far back in the large one get no estimate."""
    most = {1: "_MAX_POSITION", 12: "_MAX_KINDS"}[kinds]
    monkeypatch.setattr(forecast, most, 4)
    world = one_node(run_time="1h")
    world.add(queue("other", preemption=NEVER), gang("other", 1, queue="other", cpu="4", run_time="1m"))
    world.add(*(waits(f"w{n:02}", cpu=f"{3000 + n % kinds}m", run_time="1m") for n in range(12))).settle()
    found = foretold(world)
    assert [found[f"w{n:02}"].unknown for n in range(12)] == [""] * 4 + [forecast._LIMIT_TEXT] * 8
    assert found["other"].is_known
