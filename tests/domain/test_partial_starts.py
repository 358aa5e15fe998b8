"""Jobs that say with how few pods they may run start with the most that fit."""

from collections import Counter
from typing import Any

import pytest

from extender.api import keys
from extender.api.objects.queues import QueueLimits
from extender.domain.model.reasons import Reason
from extender.domain.model.records import GroupKey
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.job_start_and_suspension import JobStep
from extender.domain.snapshot.snapshot import Limits
from tests.domain.builders import NAMESPACE, flavor, foreign_pod, node, on_flavor, queue
from tests.domain.job_world import JobWorld, job, podgroup_name
from tests.domain.world import timestamp
from tests.rows import each_of

NODES = (node("n0", cpu="3"), node("n1", cpu="2"))


def shrinking(name: str, parallelism: int, least: object, **options: Any) -> Any:
    return job(name, parallelism, annotations={keys.MIN_PARALLELISM: str(least)}, **options)


def started_with(world: JobWorld, name: str) -> tuple[int | None, str]:
    """Return how many pods the job makes, None while it waits, and the note of that."""
    found = world.jobs[name]
    record = (found.metadata.annotations or {}).get(keys.PARTIAL_START, "")
    return None if found.spec["suspend"] else found.spec["parallelism"], record


@each_of(
    (5, 2, "1", (5, "")),
    (8, 2, "1", (5, "5/8")),
    (8, 5, "1", (5, "5/8")),
    (8, 6, "1", (None, "")),
    (8, 1, "2", (2, "2/8")),
    (8, 9, "1", (None, "")),
    (3, 9, "1", (3, "")),
    (10_000, 1, "1", (5, "5/10000")),
)
def test_the_most_that_fit_start(
    parallelism: int, least: int, cpu: str, expected: tuple[int | None, str]
) -> None:
    world = JobWorld(*NODES).submit(shrinking("train", parallelism, least, cpu=cpu)).work()
    assert started_with(world, "train") == expected
    assert world.claim_count() == (expected[0] or 0)


def test_a_job_starts_with_the_pods_that_earlier_jobs_left_capacity_for() -> None:
    world = JobWorld(*NODES)
    dates = ((name, f"2026-01-0{day}T00:00:00Z") for day, name in enumerate("abc", 1))
    world.submit(*(shrinking(name, 4, 1, created=date) for name, date in dates))
    groups = world.decide().groups
    plans = [groups[GroupKey(f"{NAMESPACE}/{podgroup_name(name)}")].plan for name in "abc"]
    assert [len(plan) for plan in plans] == [4, 1, 0]
    assert Counter(spot for plan in plans for spot in plan.values()) == {"n0": 3, "n1": 2}


BOUNDS = {
    "capability": queue("q", capability={"cpu": "8"}),
    "that of its parent": queue("q", parent="p"),
    "limits.pods": queue("q", limits=QueueLimits(pods=8)),
    "limits.perNamespace": queue("q", limits=QueueLimits(per_namespace=QueueLimits(pods=8))),
    "flavors": queue("q", flavors=[flavor("f", capability={"cpu": "8"})]),
}


def bounded(bound: Any) -> JobWorld:
    """Return a world of 16 cpus, of which the groups of queue q may have 8."""
    nodes = (node(f"n{number}", labels=on_flavor("f")) for number in range(4))
    return JobWorld(*nodes, queue("p", capability={"cpu": "8"}), bound)


@pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS.keys())
@pytest.mark.parametrize(("least", "expected"), [(2, (8, "8/12")), (8, (8, "8/12")), (9, (None, ""))])
def test_the_limits_of_its_queue_count_as_well_as_free_capacity(
    least: int, expected: tuple[int | None, str], bound: Any
) -> None:
    world = bounded(bound).submit(shrinking("train", 12, least, queue="q")).work()
    assert started_with(world, "train") == expected
    assert expected[0] or world.reason(podgroup_name("train")) is Reason.NEVER_FITS


@each_of(*BOUNDS.values())
def test_a_shrinking_job_waits_while_others_hold_its_queues_whole_limit(bound: Any) -> None:
    world = bounded(bound).submit(job("first", 7, queue="q")).work()
    world.submit(shrinking("train", 12, 2, queue="q", created="2026-01-02T00:00:00Z")).work()
    assert world.reason(podgroup_name("train")) is Reason.QUEUE_CEILING
    world.run_whole("first").finish(*world.pods_of("first")[:3]).work()
    assert started_with(world, "train") == (4, "4/12")
    assert len(world.pods_of("train")) == 4


def test_a_shrinking_job_above_the_window_starts_with_the_size_of_the_window() -> None:
    world = JobWorld(*NODES, limits=Limits(window=2)).submit(shrinking("train", 5, 1)).work()
    assert started_with(world, "train") == (2, "2/5")


def test_a_shrinking_job_waits_for_the_window_instead_of_starting_smaller() -> None:
    world = JobWorld(node("n0", cpu="8"), limits=Limits(window=6))
    world.stopped = True
    world.submit(job("first", 4), shrinking("train", 3, 1, created="2026-01-02T00:00:00Z")).work()
    assert world.reason(podgroup_name("train")) is Reason.WINDOW_FULL
    world.stopped = False
    world.run_whole("first").work()
    assert started_with(world, "train") == (3, "")


def test_a_job_borrows_before_it_shrinks() -> None:
    world = JobWorld(*NODES, queue("own", weight=1), queue("idle", weight=4))
    world.submit(shrinking("train", 5, 1, queue="own")).work()
    assert started_with(world, "train") == (5, "")


def test_while_it_is_started_it_is_a_gang_of_that_size() -> None:
    world = JobWorld(*NODES).submit(shrinking("train", 8, 2)).run_whole("train").work()
    assert len(world.pods_of("train")) == 5
    assert world.podgroups["train"].spec.min_member == 5
    assert ("train", JobStep.GIVE_UP) not in world.steps
    world.pass_time(10_000)
    assert started_with(world.work(), "train") == (5, "5/8")


def test_the_next_start_requests_all_pods_again() -> None:
    small = JobWorld(node("n0", cpu="2"), queue("q", start_timeout="1m"))
    small.stopped = True
    small.submit(shrinking("train", 4, 1, queue="q")).work()
    assert started_with(small, "train") == (2, "2/4")
    small.advance(61).work()
    assert ("train", JobStep.GIVE_UP) in small.steps
    assert small.jobs["train"].spec["parallelism"] == 4
    assert keys.PARTIAL_START not in (small.jobs["train"].metadata.annotations or {})
    small.add(node("n1", cpu="2"))
    small.advance(400).work()
    assert started_with(small, "train") == (4, "")


def test_a_number_that_its_user_has_changed_meanwhile_stays() -> None:
    world = JobWorld(*NODES, queue("q", start_timeout="1m"))
    world.stopped = True
    world.submit(shrinking("train", 8, 1, queue="q")).work()
    world.change("train", parallelism=3)
    world.advance(61).work()
    assert world.jobs["train"].spec == {**world.jobs["train"].spec, "suspend": True, "parallelism": 3}


def test_a_job_suspended_by_its_user_requests_all_pods_when_it_queues_again() -> None:
    world = JobWorld(node("n0", cpu="2")).submit(shrinking("train", 4, 1)).run_whole("train").work()
    world.change("train", suspend=True)
    world.work()
    world.add(node("n1", cpu="2"))
    world.annotate("train", **{keys.STARTED: None})
    assert started_with(world.work(), "train") == (4, "")


@each_of("", "0", "-1", "two", "1.5", "9" * 30, "²")
def test_an_invalid_minimum_of_pods_is_the_reason_of_the_job(text: str) -> None:
    world = JobWorld(*NODES).submit(shrinking("train", 2, text), job("fine", 1)).work()
    assert world.suspended("train")
    assert not world.suspended("fine")
    assert keys.MIN_PARALLELISM in world.decision(podgroup_name("train")).detail


def test_a_start_that_is_lost_before_it_was_written_asks_for_all_again() -> None:
    world = JobWorld(*NODES)
    world.stopped = True
    world.submit(shrinking("train", 8, 2)).settle()
    assert world.claim_count() == 5
    others = [foreign_pod(f"s{number}", on="n0" if number < 3 else "n1") for number in range(5)]
    world.add(*others).settle()
    assert world.reason(podgroup_name("train")) is Reason.NO_ROOM
    assert world.plan(podgroup_name("train")) == {}
    world.delete(*(f"s{number}" for number in range(5)))
    world.add(node("n2", cpu="3"))
    assert started_with(world.work(), "train") == (8, "")


def test_a_decision_from_nothing_is_the_same() -> None:
    world = JobWorld(*NODES).submit(shrinking("train", 8, 2), shrinking("late", 4, 1), job("other", 2))
    for _ in range(3):
        snapshot = world.ledger.snapshot()
        assert decide(snapshot, world.ledger.decisions).groups == decide(snapshot).groups
        world.work()


def test_a_partly_fitting_job_gets_a_reservation_like_others() -> None:
    world = JobWorld(node("n0", cpu="2")).submit(job("runs", 1)).run_whole("runs")
    world.submit(shrinking("train", 8, 2, created=timestamp(0))).work()
    assert world.reason(podgroup_name("train")) is Reason.NO_ROOM
    for _ in range(19):
        world.pass_time(400)
        world.work()
    decision = world.decision(podgroup_name("train"))
    assert (decision.reason, decision.fault) == (Reason.NO_ROOM, "")
    assert decision.reservation is not None
    world.submit(job("late", 1, created=timestamp(world.now))).work()
    assert world.suspended("late")
    world.finish("runs-0")
    assert started_with(world.work(), "train") == (2, "2/8")
