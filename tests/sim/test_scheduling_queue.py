"""Retries of a pod: the stock scheduler's rules of backoff and requeueing."""

import pytest

from extender.sim.scheduler.queue import QueuedPod, SchedulingQueue
from tests.clock import Clock
from tests.sim.requests import Json, pod


@pytest.fixture
def queue(clock: Clock) -> SchedulingQueue:
    return SchedulingQueue(clock)


def named(name: str, **spec: object) -> Json:
    new_pod = pod(name, **spec)
    new_pod["metadata"]["uid"] = name
    return new_pod


def popped(queue: SchedulingQueue) -> QueuedPod:
    item = queue.pop()
    assert item is not None
    return item


def is_idle(queue: SchedulingQueue) -> bool:
    """Return whether all pods are parked or gated."""
    return not queue.busy


def test_priority_first_then_age(queue: SchedulingQueue, clock: Clock) -> None:
    for name, priority in (("old", 0), ("young", 0), ("important", 5)):
        clock.now += 1
        queue.update(named(name, priority=priority))
    assert [popped(queue).uid for _ in range(3)] == ["important", "old", "young"]


def test_a_gated_pod_waits_until_its_last_gate_is_gone(queue: SchedulingQueue) -> None:
    queue.update(named("a", schedulingGates=[{"name": "x"}]))
    assert is_idle(queue)
    queue.update(named("a"))
    assert popped(queue).uid == "a"


def test_a_refused_pod_is_parked_until_an_event_concerns_it(queue: SchedulingQueue) -> None:
    queue.update(named("a"))
    item = popped(queue)
    queue.add_unschedulable(item, by_extender=False)
    queue.requeue(concerns_all=False)
    assert is_idle(queue)
    queue.requeue()
    assert popped(queue) is item


def test_an_event_during_an_attempt_requeues_its_pod(queue: SchedulingQueue) -> None:
    queue.update(named("a"))
    item = popped(queue)
    queue.requeue()
    queue.add_unschedulable(item, by_extender=True)
    assert popped(queue) is item


def test_an_event_during_an_attempt_requeues_only_pods_that_it_concerns(queue: SchedulingQueue) -> None:
    """Count the event for all of them: the plugin that refuses a pod is known only when its try is over."""
    for name, by_extender in (("a", True), ("b", False)):
        queue.update(named(name))
        item = popped(queue)
        queue.requeue(concerns_all=False)
        queue.add_unschedulable(item, by_extender=by_extender)
        assert is_idle(queue) is not by_extender
        queue.forget(name)


def test_a_change_of_status_requeues_only_pods_that_the_extender_refused(queue: SchedulingQueue) -> None:
    for name, by_extender in (("a", True), ("b", False)):
        queue.update(named(name))
        queue.add_unschedulable(popped(queue), by_extender=by_extender)
        queue.update(named(name), concerns_all=False)
        assert is_idle(queue) is not by_extender
        queue.forget(name)


def test_a_backoff_is_cut_short_when_no_other_pod_waits(queue: SchedulingQueue) -> None:
    for name in ("a", "b"):
        queue.update(named(name))
    refused = popped(queue)
    queue.add_unschedulable(refused, by_extender=True)
    queue.requeue()
    assert popped(queue).uid == "b"
    assert popped(queue) is refused


def test_a_pods_own_change_requeues_it(queue: SchedulingQueue) -> None:
    queue.update(named("a"))
    queue.add_unschedulable(popped(queue), by_extender=True)
    queue.update(named("a", nodeSelector={"zone": "b"}))
    assert popped(queue).pod["spec"]["nodeSelector"] == {"zone": "b"}


def test_nothing_shortens_the_backoff_after_an_error(queue: SchedulingQueue, clock: Clock) -> None:
    """1, 2, 4, 8, 10, 10 seconds, each to the end of its second."""
    queue.update(named("a"))
    ends = []
    for _ in range(6):
        item = popped(queue)
        queue.add_failed(item)
        queue.requeue()
        queue.update(named("a"))
        ends.append(item.ready_at)
        clock.now = item.ready_at
    assert ends == [2.0, 5.0, 10.0, 19.0, 30.0, 41.0]


def test_errors_are_forgotten_with_the_first_refusal(queue: SchedulingQueue, clock: Clock) -> None:
    queue.update(named("a"))
    item = popped(queue)
    queue.add_failed(item)
    clock.now = item.ready_at
    queue.add_unschedulable(popped(queue), by_extender=True)
    assert (item.error_count, item.refusal_count) == (0, 1)


def test_a_deleted_pod_is_not_tried(queue: SchedulingQueue) -> None:
    queue.update(named("a"))
    queue.update(named("b"))
    queue.forget("a")
    tried = popped(queue)
    assert tried.uid == "b"
    queue.forget("b")
    queue.add_failed(tried)
    assert is_idle(queue)


def test_a_closed_queue_pops_nothing(queue: SchedulingQueue) -> None:
    queue.close()
    assert queue.pop() is None
