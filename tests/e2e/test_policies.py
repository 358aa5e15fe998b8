"""Policies inside a queue on a real kube-scheduler: order, overtaking, hold, limits."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.e2e.harness.resources import POD_GROUPS, QUEUES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

HOLD = "kube-muster.io/hold"
MILD = {"withinQueue": "Never", "unmanaged": "Never"}


def update_queue(stage: Stage, name: str, **spec: Any) -> None:
    stage.api.patch(QUEUES, name, {"spec": spec})


def annotate(stage: Stage, group: str, annotations: Mapping[str, str | None]) -> None:
    stage.api.patch(POD_GROUPS, group, {"metadata": {"annotations": dict(annotations)}}, stage.namespace)


def single(stage: Stage, name: str, cpu: str, **more: Any) -> list[str]:
    """Create a gang of one in the queue q; it waits from now on, or starts."""
    return stage.gang(name, 1, cpu=cpu, queue="q", gated=True, **more)


@pytest.mark.parametrize("strategy", ["traverse", "fifo"])
def test_fifo_against_traverse(stage: Stage, scheduler: KubeScheduler, strategy: str) -> None:
    """Request 2 cpus for the first group and 1 for the second, where 3 of 4 are taken."""
    stage.nodes(1, cpu="4")
    stage.queue("q", dequeueStrategy=strategy)
    early = single(stage, "early", "3")
    stage.wait_phase(early)
    large = single(stage, "large", "2")
    stage.wait_reason("large", "NoRoom")
    small = single(stage, "small", "1")
    if strategy == "traverse":
        stage.wait_phase(small)
        stage.finish(small)
    else:
        stage.wait_reason("small", "BehindOthers")
        assert stage.bound(small) == {}
    stage.finish(early)
    stage.wait_phase(large)


def test_rotation_gives_the_turn_to_groups_that_had_none(stage: Stage, scheduler: KubeScheduler) -> None:
    """Give the turn to `second`, after `first` has passed `large`, when all is free and both do not fit.

    Names decide where two were created within a second.
    """
    stage.nodes(1, cpu="4")
    stage.queue("q", dequeueStrategy="rotation")
    early = single(stage, "early", "3")
    stage.wait_phase(early)
    stage.queue("other")
    rest = stage.gang("rest", 1, cpu="1", queue="other", gated=True)
    stage.wait_phase(rest)
    large = single(stage, "a-large", "4")
    stage.wait_reason("a-large", "NoRoom")
    first, second = single(stage, "b-first", "1"), single(stage, "c-second", "2")
    for name in ("b-first", "c-second"):
        stage.wait_reason(name, "NoRoom")
    stage.finish(rest)
    stage.wait_phase(first)
    stage.finish([*early, *first])
    stage.wait_phase(second)
    assert stage.bound(large) == {}
    stage.finish(second)
    stage.wait_phase(large)


def test_strict_priority_tries_the_best_group_first(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(1, cpu="2")
    stage.queue("q", dequeueStrategy="priority", preemption=MILD)
    high = stage.priority("policies-high", 100)
    early = single(stage, "early", "2")
    stage.wait_phase(early)
    low = single(stage, "low", "2")
    stage.wait_reason("low", "NoRoom")
    best = single(stage, "best", "2", priorityClassName=high)
    stage.wait_reason("best", "NoRoom")
    stage.finish(early)
    stage.wait_phase(best)
    assert stage.bound(low) == {}
    stage.finish(best)
    stage.wait_phase(low)


def test_the_queue_of_higher_priority_comes_first(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(1, cpu="2")
    stage.queue("q")
    stage.queue("urgent", priority=10)
    early = single(stage, "early", "2")
    stage.wait_phase(early)
    late = single(stage, "late", "2")
    stage.wait_reason("late", "NoRoom", "QueueShare")
    urgent = stage.gang("urgent", 1, cpu="2", queue="urgent", gated=True)
    stage.wait_reason("urgent", "NoRoom", "QueueShare", "Reclaiming")
    stage.finish(early)
    stage.wait_phase(urgent)
    assert stage.bound(late) == {}


def test_a_group_is_held_and_resumed(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(1, cpu="4")
    stage.queue("q", dequeueStrategy="fifo")
    blocker = single(stage, "blocker", "4")
    stage.wait_phase(blocker)
    held = stage.gang("held", 2, queue="q", gated=True)
    stage.wait_reason("held", "NoRoom")
    annotate(stage, "held", {HOLD: "true"})
    stage.wait_reason("held", "Held")
    stage.finish(blocker)
    after = single(stage, "after", "1")
    stage.wait_phase(after)
    assert stage.bound(held) == {}
    annotate(stage, "held", {HOLD: None})
    stage.wait_phase(held)


def test_a_queue_is_held_and_resumed(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(1, cpu="4")
    stage.queue("q", stopPolicy="Hold")
    waits = single(stage, "waits", "1")
    stage.wait_reason("waits", "QueueStopped")
    assert stage.bound(waits) == {}
    update_queue(stage, "q", stopPolicy="None")
    stage.wait_phase(waits)
    update_queue(stage, "q", stopPolicy="Hold")
    later = single(stage, "later", "1")
    stage.wait_reason("later", "QueueStopped")
    assert stage.phases(waits) == {"Running"}
    assert stage.bound(later) == {}


def test_limits_count_groups_and_pods_of_a_queue(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(2, cpu="8")
    stage.queue("q", limits={"groups": 2, "perNamespace": {"pods": 5}})
    first = stage.gang("first", 3, queue="q", gated=True)
    stage.wait_phase(first)
    large = stage.gang("large", 3, queue="q", gated=True)
    stage.wait_reason("large", "QueueCeiling")
    second = stage.gang("second", 2, queue="q", gated=True)
    stage.wait_phase(second)
    third = single(stage, "third", "1")
    stage.wait_reason("third", "QueueCeiling")
    wait_for(lambda: "groups: 2 run" in stage.message("third"), what="the message counts groups")
    assert stage.bound([*large, *third]) == {}
    stage.finish(first)
    stage.wait_phase(large)
