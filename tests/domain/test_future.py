"""A simulated future is consistent at every step, and ended groups leave nothing behind."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api.keys import RUN_TIME
from extender.domain.explain.future import Future, Method
from extender.domain.model.records import GroupKey
from extender.domain.model.resources import total
from extender.domain.placement.departures import RunTimes
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.snapshot import Snapshot
from tests.domain.builders import anti_affinity, foreign_pod, node, preemption, queue
from tests.domain.job_world import JobWorld, job, podgroup_name
from tests.domain.world import World, comparable, gang, key, nodes
from tests.property_examples import examples
from tests.rows import each_of

_MAX_CYCLES = 500  # rounds
NEVER = preemption(within_queue="Never", unmanaged="Never")


def future_of(world: World) -> Future:
    snapshot = world.ledger.snapshot()
    return Future(snapshot, RunTimes(snapshot).expected_end)


def played(world: World) -> dict[GroupKey, float]:
    """Return by group after how many seconds it starts."""
    future = future_of(world)
    for _ in range(_MAX_CYCLES):
        if not future.step():
            return {key: at - future.began_at for key, at in future.starts.items()}
    raise AssertionError("no end")


def crowd(seed: int) -> World:
    """Return two queues that lend to each other, with gangs of which some are kept apart."""
    rng = random.Random(seed)
    world = World(*nodes("a", "b", "c"), queue("q", weight=3), queue("r", capability={"cpu": "9"}))
    for number in range(rng.randrange(4, 14)):
        more: dict[str, Any] = {"cpu": rng.choice(["1", "2", "3"])}
        if rng.random() < 0.3:
            more |= {"labels": {"app": "x"}, "affinity": anti_affinity(app="x")}
        if rng.random() < 0.2:
            more["host_port"] = 80
        seconds, owner = rng.choice(["60s", "10m", "1h"]), f"rs-{number}"
        name, size = f"g{number}", rng.choice([1, 1, 2, 3])
        queue_name = rng.choice(["q", "r"])
        least = rng.choice([size, 1])
        world.add(
            gang(
                name,
                size,
                least,
                queue=queue_name,
                run_time=seconds,
                created="2026-01-01",
                owner=owner,
                **more,
            )
        )
        if rng.random() < 0.3:
            world.settle()
            plan = world.plan(name)
            if len(plan) == size:
                for pod, node_name in plan.items():
                    world.scheduler_takes(pod, offered=[node_name]).run(pod)
    return world.settle()


def sums(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """Return the usage of queues, by their groups."""
    held = {
        name: [group for group in snapshot.groups.values() if group.queue == name] for name in snapshot.queues
    }
    return {name: total(group.allocated for group in groups) for name, groups in held.items()}


@settings(max_examples=examples(25))
@given(st.integers(0, 10**6))
def test_a_future_agrees_with_itself(seed: int) -> None:
    world = crowd(seed)
    future = future_of(world)
    for _ in range(_MAX_CYCLES):
        advanced = future.step()
        snapshot = future.snapshot
        assert (snapshot.capacity >= 0).all()
        assert {name: dict(queue.allocated) for name, queue in snapshot.queues.items()} == sums(snapshot)
        assert comparable(future.decisions) == comparable(decide(snapshot))
        if not advanced:
            break
    assert not advanced
    assert future.starts.keys() >= {
        key for key, group in world.ledger.snapshot().groups.items() if group.waiting_pods
    }
    assert not future.snapshot.groups
    assert (future.snapshot.capacity == future.snapshot.allocatable).all()
    ports, terms = future.snapshot.occupancy.port_counts, future.snapshot.occupancy
    assert not any((*ports.values(), *terms.selected_counts.values(), *terms.carrier_counts.values()))


@each_of({"labels": {"app": "x"}, "affinity": anti_affinity(app="x")}, {"host_port": 80})
def test_anti_affinity_of_an_ended_pod_ends_with_it(more: dict[str, Any]) -> None:
    world = World(node("n"), queue("q"))
    world.add(gang("runs", 1, queue="q", run_time="10m", created="2026-01-01", **more)).start("runs")
    world.add(gang("waits", 1, queue="q", run_time="10m", created="2026-01-02", **more)).settle()
    assert played(world)[key("waits")] == pytest.approx(600, abs=5)


def test_a_group_without_a_known_end_never_ends() -> None:
    world = World(node("n"), queue("q", preemption=NEVER))
    world.add(gang("runs", 1, queue="q", cpu="3")).start("runs")
    world.add(gang("waits", 1, queue="q", cpu="2"), gang("fits", 1, queue="q", cpu="1")).settle()
    future = future_of(world)
    while future.step():
        pass
    assert future.starts.keys() == {key("fits")}
    assert future.endless_groups == {key("runs"), key("fits")}


def test_pods_that_are_being_deleted_go_when_their_grace_is_over() -> None:
    world = World(node("n"), queue("q", preemption=NEVER), foreign_pod("old", on="n", cpu="3"))
    world.mark_deleted("old")
    world.add(gang("waits", 1, queue="q", cpu="2")).settle()
    assert played(world) == {key("waits"): pytest.approx(1.0)}


def test_jobs_make_their_pods_when_they_start_and_end_with_them() -> None:
    world = JobWorld(node("n", cpu="2"), queue("q", preemption=NEVER))
    timed: dict[str, Any] = {"queue": "q", "annotations": {RUN_TIME: "10m"}}
    world.submit(job("a", 2, **timed)).run_whole("a").work()
    world.submit(job("b", 2, **timed), job("c", 1, **timed)).settle()
    future = future_of(world)
    for _ in range(_MAX_CYCLES):
        if not future.step():
            break
    found = {name: future.starts[GroupKey(f"team/{podgroup_name(name)}")] - future.began_at for name in "bc"}
    assert found == {"b": pytest.approx(600, abs=5), "c": pytest.approx(1200, abs=15)}
    assert not future.snapshot.groups
    assert (future.snapshot.capacity == future.snapshot.allocatable).all()


def test_a_job_that_gives_way_waits_again_with_all_its_pods() -> None:
    """`hog` holds all of two nodes, twice its share."""
    world = JobWorld(*nodes("a", "b", cpu="2"), queue("hog"), queue("poor"))
    world.submit(job("old", 4, queue="hog", annotations={RUN_TIME: "1h"})).run_whole("old").work()
    world.submit(job("new", 2, queue="poor", annotations={RUN_TIME: "5m"})).settle()
    future = future_of(world)
    old, new = (GroupKey(f"team/{podgroup_name(name)}") for name in ("old", "new"))
    while new not in future.starts and future.step():
        pass
    assert future.start_method(new) is Method.RECLAIM
    assert {victim.group for victim in future.victims[new]} == {old}
    assert [pod.is_expected for pod in future.snapshot.groups[old].waiting_pods] == [True] * 4
