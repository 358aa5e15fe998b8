"""A job of many completions keeps its capacity from one pod to the next."""

from extender.domain.ledger.claims import ClaimStage
from extender.domain.model.reasons import Verdict
from tests.domain.builders import node
from tests.domain.job_world import JobWorld, job, podgroup_name
from tests.rows import each_of


def running(completions: int = 6, parallelism: int = 2) -> JobWorld:
    """Return a world where the job has all the capacity, another one waits, and its controller is slow."""
    world = JobWorld(node("n0", cpu="1"), node("n1", cpu="1"))
    world.submit(job("train", parallelism, completions=completions)).run_whole("train")
    world.submit(job("next", 1)).work()
    assert world.suspended("next")
    world.stopped = True
    return world


def test_the_capacity_of_an_ended_pod_is_reserved_for_the_next() -> None:
    world = running()
    spot = world.pods["train-0"].spec.node_name
    world.finish("train-0").work()
    assert world.suspended("next")
    assert world.verdict(podgroup_name("train")) is Verdict.RUNNING
    world.stopped = False
    world.work()
    assert world.stage("train-2") is ClaimStage.PLANNED
    assert world.claim("train-2").node == spot  # type: ignore[union-attr]


def test_all_pods_of_a_job_may_end_at_once() -> None:
    world = running()
    world.finish("train-0", "train-1").work()
    assert world.suspended("next")
    world.stopped = False
    world.work().scheduler_takes("train-2", "train-3")
    assert world.verdict(podgroup_name("train")) is Verdict.RUNNING


def test_a_failed_pod_is_created_again_on_its_capacity() -> None:
    world = running()
    world.finish("train-1", phase="Failed").work()
    assert world.suspended("next")


@each_of((2, 1), (3, 2), (6, 6))
def test_the_last_pods_of_a_job_free_their_capacity_for_others(completions: int, finished: int) -> None:
    world = running(completions)
    world.stopped = False
    for number in range(finished):
        name = f"train-{number}"
        if world.pods[name].spec.node_name == "":
            world.scheduler_takes(name).run(name)
        world.finish(name).work()
    assert not world.suspended("next")


def test_without_completions_none_is_made_after_one_has_ended() -> None:
    world = JobWorld(node("n0", cpu="2")).submit(job("train", 2)).run_whole("train")
    world.submit(job("next", 1)).work()
    world.stopped = True
    world.finish("train-0").work()
    assert not world.suspended("next")


def test_the_capacity_of_an_ended_pod_is_freed_if_no_pod_comes() -> None:
    world = running()
    world.finish("train-0").work()
    world.pass_time(299)
    assert world.work().suspended("next")
    assert world.ledger.snapshot().expires_at is not None, "it is looked at again when the time has come"
    world.pass_time(2)
    assert not world.work().suspended("next")
    world.finish("train-1").work()
    assert not world.suspended("next")


def test_a_pod_that_comes_is_a_sign_of_life() -> None:
    world = running()
    world.finish("train-0").work()
    world.pass_time(299)
    world.stopped = False
    world.work().scheduler_takes("train-2").run("train-2")
    world.stopped = True
    world.finish("train-2").work()
    world.pass_time(299)
    assert world.work().suspended("next")


def test_a_job_that_is_suspended_keeps_none() -> None:
    world = running()
    world.finish("train-0").work()
    world.stopped = False
    world.change("train", suspend=True)
    assert not world.work().suspended("next")


def test_a_job_that_is_deleted_keeps_none() -> None:
    world = running()
    world.finish("train-0").work()
    world.remove("train")
    assert not world.work().suspended("next")
    assert world.ledger.snapshot().expires_at is None
