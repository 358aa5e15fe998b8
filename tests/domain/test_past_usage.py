"""Past usage of queues and users: its averages, the order by it, and that a restart keeps it."""

from math import log
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.queues import Queue, QueueStatus, QueueUsage
from extender.api.units import timestamp_at
from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey
from extender.domain.queues.past_usage import HeldAmounts, PastUsage, UsageKey, UsageMeter, parts_of
from extender.domain.scheduling.decide import decide
from tests.domain.builders import node, queue
from tests.domain.world import LIMITS, World, comparable, gang
from tests.property_examples import examples
from tests.rows import each_of

HOUR = 3600.0
RETENTION = replace(LIMITS, usage_half_life=HOUR)
Q = UsageKey("q")


def test_usage_of_a_half_life_ago_counts_half() -> None:
    begun = PastUsage(0.0).after_sample(HOUR, HOUR, {Q: 1.0})
    assert begun.used_parts == {Q: 0.5}
    assert begun.after_sample(2 * HOUR, HOUR, {Q: 1.0}).used_parts == {Q: 0.75}
    assert begun.after_sample(2 * HOUR, HOUR, {}).used_parts == {Q: 0.25}
    assert begun.after_sample(100 * HOUR, HOUR, {}).used_parts == {}


def test_usage_recorded_by_a_clock_that_was_ahead_counts_at_most_as_recorded() -> None:
    tomorrow = QueueUsage(timestamp_at(24 * HOUR), 0.5, [], [])
    assert PastUsage(0.0).with_status("q", tomorrow, HOUR).used_parts[Q] <= 1.0


@given(st.lists(st.tuples(st.floats(0.0, HOUR), st.floats(0.0, 1.0)), min_size=1, max_size=9))
def test_an_average_lies_between_the_usages_however_often_it_is_sampled(
    steps: list[tuple[float, float]],
) -> None:
    past, now = PastUsage(0.0), 0.0
    for seconds, held in steps:
        half = past.after_sample(now + seconds / 2, HOUR, {Q: held}).after_sample(
            now + seconds, HOUR, {Q: held}
        )
        past, now = past.after_sample(now + seconds, HOUR, {Q: held}), now + seconds
        assert half.used_parts.get(Q, 0.0) == pytest.approx(past.used_parts.get(Q, 0.0), abs=1e-3)
    assert 0.0 <= past.used_parts.get(Q, 0.0) <= max(held for _, held in steps)


def test_small_usages_in_a_large_cluster_add_up() -> None:
    past = PastUsage(0.0)
    for instant in range(1, 201):
        past = past.after_sample(instant * HOUR / 200, HOUR, {Q: 1e-5})
    assert past.used_parts == {Q: pytest.approx(5e-6)}


def test_parts_are_of_the_resource_of_which_it_is_the_most_for_queue_user_and_namespace() -> None:
    total = {"cpu": 10, "gpu": 8, "pods": 10}
    parts = parts_of(HeldAmounts("q", "alice", "team", {"cpu": 2, "gpu": 4}), total)
    assert parts == dict.fromkeys((Q, UsageKey("q", user="alice"), UsageKey("q", namespace="team")), 0.5)
    parts = parts_of(HeldAmounts("q", "", "team", {"cpu": 1, "pods": 9}), total)
    assert parts == dict.fromkeys((Q, UsageKey("q", namespace="team")), 0.1)


A_GROUP = GroupKey("team/g")


def test_seconds_between_two_timestamps_count() -> None:
    meter = UsageMeter(PastUsage(0.0), HOUR)
    meter.sample(0.0, {"cpu": 4})
    meter.record_holdings({A_GROUP: HeldAmounts("q", "", "team", {"cpu": 4})}, 100.0)
    meter.record_holdings({A_GROUP: None}, 160.0)
    meter.sample(600.0, {"cpu": 4})
    assert meter.past_usage.used_parts[Q] == pytest.approx(60.0 / HOUR * log(2.0), rel=0.1)


def test_a_group_that_ran_before_this_process_counts_since_the_status_was_written() -> None:
    meter, half = UsageMeter(PastUsage(10 * HOUR), HOUR), QueueUsage(timestamp_at(9 * HOUR), 0.5)
    for name, share in (("q", 0.5), ("new", None)):
        meter.restore(name, half if share else None)
    meter.sample(10 * HOUR, {"cpu": 4})
    for name in ("q", "new"):
        running = HeldAmounts(name, "", "team", {"cpu": 4}, running_since=timestamp_at(0.0))
        meter.record_holdings({GroupKey(f"team/{name}"): running}, 10 * HOUR)
    meter.sample(10 * HOUR + 60.0, {"cpu": 4})
    assert meter.past_usage.part_by_queue["q"] == pytest.approx(0.75, abs=0.01)
    assert meter.past_usage.part_by_queue["new"] == pytest.approx(1.0, abs=0.01)


def test_a_clock_that_is_set_back_stops_nothing() -> None:
    meter = UsageMeter(PastUsage(10 * HOUR), HOUR)
    meter.sample(10 * HOUR, {"cpu": 4})
    meter.record_holdings({A_GROUP: HeldAmounts("q", "", "team", {"cpu": 4})}, 10 * HOUR)
    assert meter.is_due(HOUR)
    meter.sample(HOUR, {"cpu": 4})
    meter.sample(2 * HOUR, {"cpu": 4})
    assert meter.past_usage.part_by_queue["q"] == pytest.approx(0.5)


def submitted_by(user: str) -> dict[str, str]:
    return {keys.SUBMITTER: user}


def used(*queues: Any) -> World:
    """Return a world in which alice has used queue a, and all of the cluster, for an hour."""
    world = World(node("n", cpu="4"), *queues, limits=RETENTION)
    world.add(gang("old", 4, queue="a", notes=submitted_by("alice"))).start("old")
    world.pass_time(HOUR)
    return world


def test_in_a_fair_queue_the_user_with_the_least_usage_goes_first() -> None:
    world = used(queue("a", strategy="fair"))
    world.add(gang("hers", 4, queue="a", notes=submitted_by("alice"), created="2026-01-01T00:00:00Z"))
    world.add(gang("his", 4, queue="a", notes=submitted_by("bob"), created="2026-01-02T00:00:00Z"))
    world.add(gang("urgent", 4, queue="a", notes=submitted_by("alice"), priority=9))
    world.finish(*(f"old-{n}" for n in range(4))).settle()
    assert [world.decision(name).position for name in ("his", "urgent", "hers")] == [0, 1, 2]
    assert world.verdict("his") is Verdict.STARTING


@settings(max_examples=examples(15))
@given(st.lists(st.sampled_from(["wait", "come", "start", "end"]), max_size=12))
def test_decisions_do_not_depend_on_memory_while_past_usage_changes(steps: list[str]) -> None:
    world = used(queue("root", fair_share="Historical"), queue("a", strategy="fair"), queue("b"))
    for number, step in enumerate(steps):
        match step:
            case "wait":
                world.pass_time(HOUR / 7)
            case "come":
                user = ("alice", "bob")[number % 2]
                world.add(gang(f"g{number}", 2, queue="ab"[number % 3 % 2], notes=submitted_by(user)))
            case "start":
                world.settle().start(
                    *(f"g{n}" for n in range(12) if f"g{n}-0" in world.pods and world.plan(f"g{n}"))
                )
            case "end":
                world.finish(*(name for name, pod in world.pods.items() if pod.status.phase == "Running"))
        snapshot = world.ledger.snapshot()
        assert comparable(decide(snapshot, world.decisions)) == comparable(decide(snapshot))
        world.settle()


@each_of(("Historical", "b"), ("Instant", "a"), ("", "b"))
def test_queues_take_turns_by_their_recent_usage(fair_share: str, first: str) -> None:
    root = queue("root", fair_share=fair_share)
    world = used(root, queue("a", created="2025-01-01"), queue("b", created="2025-01-02"))
    world.finish(*(f"old-{n}" for n in range(4)))
    world.add(gang("of-a", 3, queue="a"), gang("of-b", 3, queue="b")).settle()
    assert world.verdict(f"of-{first}") is Verdict.STARTING


def test_the_first_group_of_a_queue_and_not_its_age_breaks_ties() -> None:
    older, younger = queue("a", created="2025-01-01"), queue("b", created="2025-01-02")
    world = World(node("n", cpu="4"), older, younger)
    world.add(gang("late", 3, queue="a", created="2026-01-02T00:00:00Z"))
    world.add(gang("early", 3, queue="b", created="2026-01-01T00:00:00Z")).settle()
    assert world.verdict("early") is Verdict.STARTING


def test_a_restart_continues_from_recorded_statuses() -> None:
    world = used(queue("a")).settle()
    usage = world.queue("a").usage
    assert usage is not None
    assert [each.name for each in usage.users or ()] == ["alice"]
    assert usage.share == pytest.approx(0.5, abs=0.02)
    written = msgspec.json.decode(msgspec.json.encode(usage), type=type(usage))
    again = World(node("n"), limits=RETENTION)
    again.now = world.now + HOUR
    again.add(Queue(queue("a").metadata, status=QueueStatus(usage=written)), queue("b")).settle()
    found = again.queue("a").usage
    assert found is not None
    assert found.share == pytest.approx(usage.share / 2, abs=0.02)
    assert again.queue("b").usage is None


def test_without_a_half_life_no_usage_is_recorded() -> None:
    limits = replace(LIMITS, usage_half_life=0.0)
    world = World(node("n"), queue("a"), gang("g", 1, queue="a"), limits=limits).start("g")
    world.pass_time(HOUR)
    assert world.queue("a").usage is None


def test_in_a_cluster_without_nodes_decisions_settle() -> None:
    world = World(queue("a"), gang("g", 1, queue="a")).settle()
    assert world.ledger.snapshot().version == world.ledger.snapshot().version
