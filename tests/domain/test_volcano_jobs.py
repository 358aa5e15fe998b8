"""Volcano Jobs wait as jobs: without pods, by Muster's note alone, as the group that Volcano would make."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.cluster import Namespace
from extender.api.workloads.shape import VOLCANO_JOB
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.snapshot.job_start_and_suspension import JobStep, job_podgroup
from extender.domain.snapshot.jobs import AnyJob, JobRules
from tests.domain.builders import NAMESPACE, node, pod, queue
from tests.domain.volcano_world import VolcanoWorld, task, volcano_job
from tests.property_examples import examples
from tests.rows import each_of


def world_of(*jobs: AnyJob, cpu: str = "4", **options: Any) -> VolcanoWorld:
    return VolcanoWorld(node("n0", cpu=cpu), queue("q"), **options).submit(*jobs)


def key_of(name: str) -> GroupKey:
    return GroupKey(f"{NAMESPACE}/{name}-uid-{name}")


def podgroup_of(world: VolcanoWorld, name: str) -> dict[str, Any]:
    managed = world.settle().ledger.managed_job(key_of(name))
    assert managed is not None
    return job_podgroup(managed.job, managed.queue, managed.member_count)


def test_a_volcano_job_waits_without_pods_until_all_of_them_fit() -> None:
    world = world_of(volcano_job("first", task("a", 1), task("b", 2)), volcano_job("second", task("a", 2)))
    world.run_whole("first").work()
    assert world.verdict(world.podgroup_name("first")) is Verdict.RUNNING
    assert (world.suspended("second"), world.pods_of("second")) == (True, [])
    assert world.reason(world.podgroup_name("second")) is Reason.NO_ROOM
    world.set_phase("first", "Completed")
    world.finish(*world.pods_of("first")).work()
    assert not world.suspended("second")
    assert len(world.pods_of("second")) == 2


def test_the_podgroup_of_a_volcano_job_equals_that_of_volcano() -> None:
    tasks = (task("master", 1, minAvailable=1), task("worker", 4, minAvailable=2))
    made = podgroup_of(world_of(volcano_job("mpi", *tasks, minAvailable=3, queue="q")), "mpi")
    assert made["metadata"]["name"] == "mpi-uid-mpi"
    assert made["spec"] == {"minMember": 3, "minTaskMember": {"master": 1, "worker": 2}, "queue": "q"}
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"], owner["name"]) == (*VOLCANO_JOB, "mpi")


def in_parts(total: int, size: int, least: int) -> dict[str, Any]:
    policy = {"totalPartitions": total, "partitionSize": size, "minPartitions": least}
    return task("w", total * size, partitionPolicy=policy)


def test_the_podgroup_of_a_volcano_job_has_the_partitions_of_its_tasks() -> None:
    topology = {"mode": "hard", "highestTierAllowed": 1}
    parts = in_parts(4, 3, 2)
    parts["partitionPolicy"]["networkTopology"] = topology
    made = podgroup_of(world_of(volcano_job("j", task("m", 1), parts, queue="q"), cpu="20"), "j")
    assert (made["spec"]["minMember"], made["spec"]["minTaskMember"]) == (7, {"m": 1, "w": 6})
    assert made["spec"]["subGroupPolicy"] == [
        {
            "name": "w",
            "subGroupSize": 3,
            "minSubGroups": 2,
            "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "w"}},
            "matchLabelKeys": ["volcano.sh/partition-id"],
            "networkTopology": topology,
        }
    ]


@pytest.mark.parametrize("master", ["a", "long"])  # its pod comes before the others by name, or after them
@given(total=st.integers(1, 6), size=st.integers(1, 5), least=st.integers(1, 6), more=st.integers(0, 9))
@settings(max_examples=examples(20), deadline=None)
def test_a_volcano_job_starts_and_grows_by_whole_partitions(
    master: str, total: int, size: int, least: int, more: int
) -> None:
    least = min(least, total)
    tasks = task(master, 1), in_parts(total, size, least)
    world = world_of(volcano_job("j", *tasks, queue="q"), cpu=str(1 + least * size)).work()
    placed = {name for name in world.pods_of("j") if world.claim(name)}
    assert placed == {f"j-{master}-0", *(f"j-w-{index}" for index in range(least * size))}
    world.scheduler_takes(*placed).run(*placed).add(node("n1", cpu=str(more))).work()
    grown = {name for name in world.pods_of("j") if world.claim(name)} | placed
    parts = min(least + more // size, total)
    assert grown == placed | {f"j-w-{index}" for index in range(parts * size)}


@each_of(
    ((in_parts(4, 2, 3),), {}, 6),
    ((in_parts(4, 2, 0), task("b", 1)), {}, 9),
    ((task("a", 1), task("b", 2)), {}, 3),
    ((task("a", 1), task("b", 4, minAvailable=2)), {}, 3),
    ((task("a", 1), task("b", 4)), {"minAvailable": 2}, 2),
    ((task("a", 1), task("b", 4)), {"minAvailable": 0}, 5),
    ((task("a", 0),), {}, 0),
)
def test_the_podgroup_of_a_volcano_job_has_its_minimum(
    tasks: tuple[dict[str, Any], ...], spec: dict[str, Any], members: int
) -> None:
    assert podgroup_of(world_of(volcano_job("j", *tasks, **spec)), "j")["spec"]["minMember"] == members


@each_of(
    (task("a", 2, minAvailable=-1), True),  # negative
    (task("a" * 300, 2, minAvailable=1), True),  # long name
    (task("a", 2, minAvailable="some"), False),  # no number
)
def test_the_podgroup_of_an_odd_volcano_job_is_written_once(odd: dict[str, Any], starts: bool) -> None:
    """Volcano's own kind refuses none of these. `work` asserts that all writes end."""
    world = world_of(volcano_job("j", odd, minAvailable=2)).work()
    assert world.suspended("j") is not starts
    assert (world.reason(world.podgroup_name("j")) is Reason.INVALID_SPEC) is not starts


def test_a_volcano_job_starts_with_the_needed_pods_of_each_role() -> None:
    """Four workers alone would fit, but then the master does not fit."""
    tasks = (task("worker", 4), task("master", 1, cpu="2", minAvailable=1))
    world = world_of(volcano_job("j", *tasks, minAvailable=3)).work()
    planned = world.decision(world.podgroup_name("j")).plan
    assert "uid-j-master-0" in planned
    assert len(planned) == 3


@each_of(("", "", "default"), ("q", "", "q"), ("default", "q", "q"), ("", "q", "q"), ("q", "other", "q"))
def test_the_queue_that_it_enters(named: str, of_namespace: str, entered: str) -> None:
    world = world_of(volcano_job("j", task("a", 1), queue=named))
    world.add(queue("other"))
    world.ledger.intake.set_namespace(
        Namespace(replace(world.jobs["j"].metadata, name=NAMESPACE, annotations={keys.QUEUE: of_namespace}))
    )
    managed = world.settle().ledger.managed_job(key_of("j"))
    assert managed is not None
    assert managed.queue == entered


def test_a_minimum_above_the_pods_of_the_tasks_is_reported() -> None:
    world = world_of(volcano_job("j", task("a", 2), minAvailable=3)).work()
    assert world.reason(world.podgroup_name("j")) is Reason.INVALID_SPEC
    assert (
        "spec.minAvailable: invalid value 3: its tasks make 2 pods"
        in world.decision(world.podgroup_name("j")).detail
    )


def test_pods_that_come_once_others_run_do_not_keep_those_from_starting() -> None:
    """All pods fit; by minMember alone the master would wait for workers that wait for it."""
    world = world_of(volcano_job("j", task("master", 1), task("worker", 2, dependsOn={"name": ["master"]})))
    world.stopped = True
    world.work()
    assert world.annotation_of("j")
    master = volcano_job("j", task("master", 1))
    world.stopped = False
    world._reconcile(replace(master, metadata=world.jobs["j"].metadata))
    world.settle().scheduler_takes("j-master-0")
    assert world.pods["j-master-0"].spec.node_name == "n0"


@each_of(3, 11)
def test_a_job_starts_with_pods_of_tasks_that_wait_for_no_other(least: int) -> None:
    """The master comes first by name, but its controller creates it once the workers run."""
    workers = task("worker", 10)
    master = task("master", 1, dependsOn={"name": ["worker"]})
    world = world_of(volcano_job("j", master, workers, minAvailable=least), cpu=str(least))
    world.stopped = True
    world.work()
    admitted = replace(volcano_job("j", workers), metadata=world.jobs["j"].metadata)
    world.stopped = False
    world._reconcile(admitted)
    planned = {name for name in world.settle().pods_of("j") if world.claim(name)}
    assert len(planned) == min(least, 10)
    world.scheduler_takes(*planned).run(*planned).settle()
    assert world.verdict(world.podgroup_name("j")) is Verdict.RUNNING


def test_a_volcano_job_whose_start_fails_is_suspended_by_an_empty_record() -> None:
    world = VolcanoWorld(node("n0", cpu="4"), queue("q", start_timeout="1m"))
    world.submit(volcano_job("j", task("a", 2), queue="q")).work()
    assert world.annotation_of("j") == "now"
    world.pass_time(61)
    assert world.settle().suspended("j") is False
    world.work()
    assert (world.annotation_of("j"), world.pods_of("j")) == ("", [])
    assert world.suspended("j")
    world.pass_time(50)
    assert world.work().annotation_of("j") == "now", "it tries again"


@each_of(1, 3)
def test_a_minimum_that_changes_while_a_job_runs_is_that_of_its_podgroup(needed: int) -> None:
    world = world_of(volcano_job("j", task("a", 3), minAvailable=2)).work()
    for _ in range(2):  # those that it needs, and then the third
        planned = sorted(world.plan(world.podgroup_name("j")))
        world.scheduler_takes(*planned).run(*planned).work()
    world.change("j", minAvailable=needed)
    world.work()
    assert world.podgroups["j"].spec.min_member == needed
    assert world.verdict(world.podgroup_name("j")) is Verdict.RUNNING


def test_ended_pods_still_count_as_needed_members() -> None:
    world = world_of(volcano_job("j", task("a", 3))).run_whole("j").work()
    world.finish("j-a-0").work()
    assert world.podgroups["j"].spec.min_member == 3


def test_no_controller_is_asked_about_refused_pods_of_a_volcano_job() -> None:
    """Muster makes the pods itself, and gets the refusals."""
    world = world_of(volcano_job("j", task("a", 2)))
    world.stopped = True
    world.work().pass_time(60)
    managed = world.settle().ledger.managed_job(key_of("j"))
    assert managed is not None
    assert (managed.lacks_pods, managed.next_lookup_at) == (True, None)
    world.ledger.record_refusal(key_of("j"), "exceeded quota: q")
    world.work()
    assert world.suspended("j")
    decision = world.decision(world.podgroup_name("j"))
    assert decision.reason is Reason.BACKING_OFF
    assert decision.detail.endswith("exceeded quota: q")


def test_a_stopped_volcano_job_frees_its_capacity_and_waits_once_it_is_resumed() -> None:
    world = world_of(volcano_job("first", task("a", 4)), volcano_job("second", task("a", 4)))
    world.run_whole("first").work()
    world.command("first", "AbortJob")
    world.work()
    assert ("first", JobStep.FORGET_START) in world.steps
    assert (world.suspended("first"), world.suspended("second")) == (True, False)
    world.command("first", "ResumeJob")
    world.work()
    assert world.suspended("first"), "it waits for capacity again"
    assert world.decision(world.podgroup_name("first")).verdict is Verdict.WAITING


def test_a_volcano_job_that_is_stopped_before_its_start_does_not_start() -> None:
    world = world_of(volcano_job("j", task("a", 1), phase="Aborted")).work()
    assert world.annotation_of("j") is None
    world.command("j", "ResumeJob")
    assert world.work().annotation_of("j") == "now"


@each_of(*product(["suspended", "queue"], ["Running", "Restarting", "Completing", "Terminating"]))
def test_jobs_that_volcano_has_started_go_on(mode: str, phase: str) -> None:
    world = world_of(volcano_job("j", task("a", 1)), jobs=JobRules(mode))
    world.stopped = True
    world.set_phase("j", phase, running=1)
    world.add(pod("j-a-0", group=world.podgroup_name("j"), gated=False, on="n0", phase="Running")).work()
    assert world.annotation_of("j") is None
    assert world.pods_of("j") == ["j-a-0"]


def test_jobs_that_other_controllers_admit_are_left_alone() -> None:
    world = world_of(volcano_job("j", task("a", 1)))
    assert world.ledger.manages(key_of("j"))
    world.ledger.intake.leave_jobs((VOLCANO_JOB,))
    assert not world.ledger.manages(key_of("j"))
    assert world.work().steps == []
    world.ledger.intake.leave_jobs(())
    assert world.work().annotation_of("j") == "now"


Deed = tuple[str, str, int]  # what is done, to which job, and for how many seconds or pods
ACTIONS = st.tuples(
    st.sampled_from(["run", "end", "AbortJob", "ResumeJob", "pass"]),
    st.sampled_from(["a", "b"]),
    st.integers(1, 4),
)


@settings(max_examples=examples(25))
@given(st.tuples(st.integers(0, 3), st.integers(0, 3)), st.lists(ACTIONS, min_size=3, max_size=12))
def test_only_admitted_volcano_jobs_have_pods_and_stopped_ones_have_none(
    workers: tuple[int, int], deeds: list[Deed]
) -> None:
    world = VolcanoWorld(node("n0", cpu="4"), queue("q", start_timeout="1m"))
    for each, count in zip("ab", workers, strict=True):
        world.submit(volcano_job(each, task("m", 1), task("w", count), queue="q")).work()
    for deed, name, number in deeds:
        if deed == "pass":
            world.pass_time(40.0 * number)
        elif deed == "run":
            planned = [pod for pod in world.pods_of(name) if world.plan(world.podgroup_name(name)).get(pod)]
            world.scheduler_takes(*planned).run(*planned)
        elif deed == "end" and world.annotation_of(name):
            world.finish(*(pod for pod in world.pods_of(name) if world.pods[pod].spec.node_name))
            world.set_phase(name, "Completed")
        elif deed in ("AbortJob", "ResumeJob"):
            phase = world.jobs[name].status.get("state", {}).get("phase")
            if (phase == "Aborted") is (deed == "ResumeJob") and phase != "Completed":
                world.command(name, deed)
        world.work()
        for each, reported in world.jobs.items():
            phase = reported.status.get("state", {}).get("phase", "")
            assert phase == "Completed" or bool(world.pods_of(each)) is not world.suspended(each)
            assert phase != "Aborted" or not world.annotation_of(each)
        holding = [pod for pod in world.pods.values() if pod.spec.node_name and pod.status.phase == "Running"]
        assert len(holding) <= 4
