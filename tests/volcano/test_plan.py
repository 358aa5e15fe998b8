"""One look at a Volcano Job: what is created, deleted and written."""

from itertools import product
from typing import Any

from msgspec.structs import replace

from extender.api.objects.volcano import JobCondition, PartitionPolicy, VolcanoJob, VolumeSpec
from extender.api.units import timestamp_at
from extender.domain.model.reasons import EventReason
from extender.volcano.plan import Plan
from extender.volcano.pods import JobPod
from extender.volcano.policies import JobRequest
from extender.volcano.states import Action
from tests.rows import each_of
from tests.volcano.jobs import NOW, after, in_phase, job, look, pod, policy, task


def names(objects: Any) -> list[str]:
    return [each["metadata"]["name"] if isinstance(each, dict) else each.name for each in objects]


def job_request(action: Action, **more: Any) -> JobRequest:
    return JobRequest(action, message="somebody asked", **more)


CODES = [policy("AbortJob", exit_code=code) for code in range(1, 514)]
WIDE_POD: dict[str, Any] = {"containers": [{}] * 60, "initContainers": [{}] * 5}


# ---- it begins


def test_a_new_job_is_pending_gets_its_pods_and_another_look() -> None:
    found = look(job(task("m", 1), task("w", 2)))
    assert (found.status.state.phase, found.status.min_available) == ("Pending", 3)
    assert found.status.conditions == [JobCondition("Pending", timestamp_at(NOW))]
    assert names(found.new_pods) == ["j-m-0", "j-w-0", "j-w-1"]
    assert found.due_at == NOW
    assert look(job(status=in_phase("Pending"))).due_at is None


@each_of(
    (
        job(*(task(f"t{n}", 1) for n in range(257))),
        "spec.tasks: invalid value 257: must be at most 256",
    ),  # tasks
    (
        job(replace(task("w", 1), template={"spec": WIDE_POD})),
        "spec.tasks[0].template.spec.containers: invalid value 65: must be at most 64",
    ),  # containers
    (
        job(volumes=[VolumeSpec(f"/{n}", "claim") for n in range(257)]),
        "spec.volumes: invalid value 257: must be at most 256",
    ),  # volumes
    (
        job(replace(task("w", 1), policies=CODES[1:]), policies=CODES),
        "spec.policies, with those of tasks: invalid value 1025: must be at most 1024",
    ),  # policies
)
def test_a_job_of_too_many_tasks_gets_no_pods(given: VolcanoJob, reported: str) -> None:
    """Each look would go through them all; a pod of 1.4 MB, with all variables, would take 12 GB."""
    found = look(given, existing_claims={"claim": False})
    assert found.new_pods == ()
    assert reported in found.remarks[0].message


def test_an_unknown_phase_becomes_pending() -> None:
    found = look(job(status=in_phase("Inqueue", version=1)))
    assert (found.status.state.phase, found.status.version, len(found.new_pods)) == ("Pending", 1, 2)


def test_a_job_that_waits_has_no_pods() -> None:
    """Create no pod for a job that needs none either, and let policies wait with it."""
    for given in (job(), job(task("w", 0)), job(policies=[policy("AbortJob", "PodFailed")])):
        found = look(given, pod(0, "Failed"), admitted=False)
        assert (found.status.state.phase, found.new_pods) == ("Pending", ())


def test_the_same_state_again_changes_nothing() -> None:
    pods, given = (pod(0), pod(1)), job()
    for _ in range(3):
        given = after(given, look(given, *pods))
    assert given.status.state.phase == "Running"
    assert (again := look(given, *pods)).status == given.status
    assert (again.new_pods, again.pods_to_delete, again.due_at) == ((), (), None)


def test_pods_are_counted_by_phase_and_task() -> None:
    phases = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
    pods = [pod(index, phase) for index, phase in enumerate(phases)]
    status = look(job(task("w", 6), status=in_phase("Running")), *pods, pod(5, is_deleting=True)).status
    counts = (status.pending, status.running, status.succeeded, status.failed, status.unknown)
    assert (counts, status.terminating) == ((1, 1, 1, 1, 1), 1)
    by_task = status.task_status_count
    assert by_task is not None
    assert by_task["w"].phase == dict.fromkeys(sorted(phases), 1)


# ---- scaling


def test_a_task_that_grows_gets_the_missing_pods_and_one_that_shrinks_loses_the_last() -> None:
    found = look(job(task("w", 5), status=in_phase("Running")), pod(0), pod(2), pod(4, is_deleting=True))
    assert names(found.new_pods) == ["j-w-1", "j-w-3"]
    found = look(job(task("w", 1), status=in_phase("Running")), *(pod(index) for index in range(4)))
    assert names(found.pods_to_delete) == ["j-w-3", "j-w-2", "j-w-1"]
    assert (found.status.running, found.status.terminating) == (1, 3)


def test_a_million_pods_are_created_a_hundred_at_a_time() -> None:
    new_job = job(task("w", 10**6), status=in_phase("Pending"))
    assert names(look(new_job).new_pods) == [f"j-w-{index}" for index in range(100)]
    found = look(new_job, *(pod(index, "Pending") for index in range(100)))
    assert names(found.new_pods)[0] == "j-w-100"


def test_needed_pods_are_created_first_task_by_task() -> None:
    parts = PartitionPolicy(total_partitions=3, partition_size=2, min_partitions=1)
    new_job = job(task("m", 1), task("w", 6, partition_policy=parts))
    first = ["j-m-0", "j-w-0", "j-w-1"]
    assert names(look(new_job).new_pods) == first
    assert names(look(new_job, pod(0, "Pending", of="m"), pod(0, "Pending")).new_pods) == ["j-w-1"]
    there = pod(0, "Pending", of="m"), *(pod(index, "Pending") for index in range(2))
    assert names(look(new_job, *there).new_pods) == [f"j-w-{index}" for index in range(2, 6)]


def test_a_task_of_no_pods() -> None:
    found = look(job(task("w", 0), status=in_phase("Running")))
    assert (found.status.state.phase, found.new_pods) == ("Running", ())


# ---- tasks that wait for others


@each_of(
    ("", ["a", "b"], True),
    ("", ["a"], False),
    ("all", ["a"], False),
    ("any", ["b"], True),
    ("any", [], False),
)
def test_a_task_waits_for_others(iteration: str, ready: list[str], may_begin: bool) -> None:
    new_job = job(task("a", 1), task("b", 1), task("w", 1, ["a", "b"], iteration), status=in_phase("Pending"))
    pods = [pod(0, of=name, is_ready=name in ready) for name in ("a", "b")]
    assert names(look(new_job, *pods).new_pods) == (["j-w-0"] if may_begin else [])


def test_as_many_pods_as_the_other_task_needs_suffice() -> None:
    new_job = job(task("a", 3, min_available=2), task("w", 1, ["a"]), status=in_phase("Pending"))
    pods = [pod(0, of="a"), pod(1, "Succeeded", of="a"), pod(2, "Pending", of="a")]
    assert names(look(new_job, *pods).new_pods) == ["j-w-0"]
    assert not look(new_job, pods[0], pod(1, of="a", is_deleting=True), pods[2]).new_pods


# ---- claims


def test_volume_claims_are_created_before_pods() -> None:
    volumes = [VolumeSpec("/data", volume_claim={"accessModes": ["ReadWriteOnce"]})]
    new_job = job(volumes=volumes)
    found = look(new_job)
    assert (names(found.new_claims), found.new_pods) == (["j-u-0"], ())
    assert found.new_claims[0]["spec"] == volumes[0].volume_claim
    found = look(new_job, existing_claims={"j-u-0": True})
    assert (found.new_claims, len(found.new_pods)) == ((), 2)
    assert found.status.controlled_resources == {"volume-pvc-j-u-0": "j-u-0"}


def test_pods_wait_for_a_named_volume_claim_that_is_missing() -> None:
    found = look(job(volumes=[VolumeSpec("/data", "gone")]))
    assert (found.new_claims, found.new_pods) == ((), ())
    assert [(each.reason, "gone" in each.message) for each in found.remarks] == [
        (EventReason.CLAIM_MISSING, True)
    ]


# ---- actions


@each_of(
    (Action.ABORT, "Aborting", "Aborted", True),
    (Action.TERMINATE, "Terminating", "Terminated", True),
    (Action.COMPLETE, "Completing", "Completed", True),
    (Action.RESTART, "Restarting", "Pending", False),
)
def test_an_action_on_a_running_job(action: Action, phase: str, last: str, reserved: bool) -> None:
    new_job = job(task("w", 3), status=in_phase("Running", version=4))
    pods = [pod(0, version=4), pod(1, "Succeeded", version=4), pod(2, "Failed", version=4)]
    found = look(new_job, *pods, request=job_request(action))
    status = found.status
    assert (status.state.phase, status.state.reason, status.version) == (phase, action, 5)
    assert names(found.pods_to_delete) == (["j-w-0"] if reserved else ["j-w-2", "j-w-1", "j-w-0"])
    assert status.retry_count == (0 if reserved else 1)
    new_job = after(new_job, found)
    if reserved:
        going = pod(0, version=4, is_deleting=True)
        assert look(new_job, going, *pods[1:]).status.state.phase == phase
        found = look(new_job, *pods[1:])
        assert (found.status.succeeded, found.status.failed) == (1, 1)
    else:
        found = look(new_job)
    assert (found.status.state.phase, found.pods_to_delete) == (last, ())


def test_the_next_look_continues_a_restart() -> None:
    """The status was written, and then nothing was deleted."""
    given, pods = job(status=in_phase("Running")), (pod(0), pod(1, "Succeeded"))
    given = after(given, look(given, *pods, request=job_request(Action.RESTART)))
    found = look(given, *pods)
    assert (found.status.state.phase, names(found.pods_to_delete)) == ("Restarting", ["j-w-1", "j-w-0"])
    found = look(given, pod(0, is_deleting=True), pod(1, "Succeeded", is_deleting=True))
    assert (found.status.state.phase, found.new_pods) == ("Restarting", ())
    given = after(given, look(given))
    assert (given.status.state.phase, given.status.retry_count) == ("Pending", 1)
    created = [new.build() for new in look(given).new_pods]
    notes = [each["metadata"]["annotations"] for each in created]
    assert [record["volcano.sh/job-version"] for record in notes] == ["1", "1"]
    assert [record["volcano.sh/job-retry-count"] for record in notes] == ["1", "1"]


def test_a_restart_of_all_during_that_of_a_part() -> None:
    """It counts as no further retry."""
    status = in_phase("Restarting", "RestartPod", "j-w-0: it failed", version=1, retry_count=1)
    found = look(job(status=status), pod(1, version=1), request=job_request(Action.RESTART))
    assert (found.status.state.phase, found.status.version, found.status.retry_count) == ("Restarting", 2, 1)
    assert (found.status.state.reason, names(found.pods_to_delete)) == ("RestartJob", ["j-w-1"])
    assert names(look(after(job(), found), pod(1, version=1)).pods_to_delete) == ["j-w-1"]


def test_an_exit_during_a_restart_is_not_lost() -> None:
    new_job = job(status=in_phase("Restarting", "RestartJob", version=1, retry_count=1))
    found = look(new_job, pod(0), request=job_request(Action.ABORT))
    assert (found.status.state.phase, names(found.pods_to_delete)) == ("Aborting", ["j-w-0"])


def test_pods_created_from_an_outdated_copy_of_the_job_are_deleted() -> None:
    """Delete pods from the time before the restart; newer ones stay, also for an outdated copy."""
    new_job = job(status=in_phase("Running", version=1, retry_count=1))
    assert names(look(new_job, pod(0), pod(1, version=1, retry=1)).pods_to_delete) == ["j-w-0"]
    outdated = job(status=in_phase("Restarting", "RestartTask", "w: it failed", retry_count=1))
    assert names(look(outdated, pod(0), pod(1, retry=1)).pods_to_delete) == ["j-w-0"]


@each_of(pod(2, "Failed", version=9, retry=9), pod(0, "Failed", "x", version=9))
def test_the_state_of_surplus_pods_does_not_count(forged: JobPod) -> None:
    new_job = job(status=in_phase("Running", running=2), policies=[policy("RestartJob", "PodFailed")])
    found = look(new_job, pod(0), pod(1), forged)
    assert (found.status.state.phase, found.status.version, found.status.retry_count) == ("Running", 0, 0)
    assert names(found.pods_to_delete) in ([], [forged.name])


def test_resume_keeps_ended_pods() -> None:
    new_job = job(task("w", 3), status=in_phase("Aborted", version=1))
    pods = [pod(0, "Succeeded"), pod(1, "Failed")]
    new_job = after(new_job, look(new_job, *pods, request=job_request(Action.RESUME)))
    assert (new_job.status.state.phase, new_job.status.retry_count, new_job.status.version) == (
        "Restarting",
        1,
        2,
    )
    found = look(new_job, *pods)
    assert (found.status.state.phase, found.pods_to_delete) == ("Pending", ())
    assert names(look(after(new_job, found), *pods).new_pods) == ["j-w-2"]


@each_of(*product(["Completed", "Failed", "Terminated"], Action))
def test_an_ended_job_stays_ended(phase: str, action: Action) -> None:
    found = look(job(status=in_phase(phase)), pod(0), pod(1, "Failed"), request=job_request(action, task="w"))
    assert (found.status.state.phase, found.status.version) == (phase, 0)
    assert (names(found.pods_to_delete), found.new_pods) == (["j-w-0"], ())


TARGETS = {
    Action.RESTART_TASK: ({"task": "w"}, ["j-w-3", "j-w-2", "j-w-1", "j-w-0"]),
    Action.RESTART_PARTITION: ({"task": "w", "partition": "1"}, ["j-w-3", "j-w-2"]),
    Action.RESTART_POD: ({"task": "w", "pod": "j-w-2"}, ["j-w-2"]),
}


@each_of(*TARGETS)
def test_the_restart_of_a_part(action: Action) -> None:
    """Repeat the deletion if the status was written, and then nothing was deleted."""
    target, expected = TARGETS[action]
    parts = PartitionPolicy(2, 2)
    new_job = job(task("m", 1), task("w", 4, partition_policy=parts), status=in_phase("Running", version=3))
    old: dict[str, Any] = {"version": 3}
    pods = [pod(0, of="m", **old), *(pod(at, partition=str(at // 2), **old) for at in range(4))]
    found = look(new_job, *pods, request=job_request(action, **target))
    assert (found.status.state.phase, names(found.pods_to_delete)) == ("Restarting", expected)
    assert (found.status.version, found.status.retry_count) == (3, 1)
    new_job = after(new_job, found)
    assert names(look(new_job, *pods).pods_to_delete) == expected
    rest = [each for each in pods if each.name not in expected]
    new_job = after(new_job, look(new_job, *rest))
    assert (new_job.status.state.phase, names(look(new_job, *rest).new_pods)) == ("Pending", sorted(expected))
    new = [pod(at, partition=str(at // 2), retry=1, **old) for at in range(4)]
    whole = {each.name: each for each in (*new, *rest)}.values()
    found = look(new_job, *whole)
    assert (found.status.state.phase, found.pods_to_delete, found.new_pods) == ("Running", (), ())


@each_of(Action.RESTART_TASK, Action.RESTART_POD, Action.RESTART_PARTITION)
def test_a_restart_without_a_task_does_nothing(action: Action) -> None:
    new_job = job(status=in_phase("Running"))
    found = look(
        new_job, pod(0), pod(1), request=job_request(action, task="w" if action == "RestartPartition" else "")
    )
    assert (found.status.state.phase, found.status.retry_count, found.pods_to_delete) == ("Running", 0, ())


def test_after_its_last_retry_a_job_has_failed_and_keeps_ended_pods() -> None:
    new_job = job(policies=[policy("RestartJob", "PodFailed")], max_retry=1, status=in_phase("Running"))
    pods = (pod(0), pod(1, "Failed", exit_code=3))
    found = look(new_job, *pods)
    assert (found.status.state.phase, names(found.pods_to_delete)) == ("Restarting", ["j-w-0"])
    found = look(after(new_job, found), pods[1])
    assert (found.status.state.phase, found.pods_to_delete) == ("Failed", ())
    assert "pod j-w-1 failed with exit code 3" in found.status.state.message
    assert "1 times" in found.status.state.message


@each_of((0, 0.0), (2, 0.0), (3, 1.0), (5, 4.0), (9, 60.0), (10**6, 60.0))
def test_retries_beyond_the_default_have_growing_pauses(retries: int, seconds: float) -> None:
    """Count pauses from the last retry: a job that has run for long since then waits no more."""
    rules = [policy("RestartJob", "PodFailed"), policy("AbortJob", "PodEvicted")]
    new_job = job(policies=rules, max_retry=10**9, status=in_phase("Running", retry_count=retries))
    restarted = NOW - 100.0
    failed = pod(1, "Failed", ended_at=restarted)
    at = {now: look(new_job, pod(0), failed, now=restarted + now) for now in (0.0, seconds - 0.5, seconds)}
    assert at[seconds].status.state.phase == "Restarting"
    if seconds:
        assert (at[0.0].status.state.phase, at[0.0].due_at) == ("Running", restarted + seconds)
        assert at[seconds - 0.5].status.state.phase == "Running"


# ---- its queue reclaims its capacity


@each_of("Running", "Restarting")
def test_a_job_that_must_wait_again_loses_all_its_pods(phase: str) -> None:
    given, pods = job(status=in_phase(phase, version=2)), (pod(0, version=2), pod(1, "Succeeded", version=2))
    found = look(given, *pods, admitted=False)
    assert (found.status.state.phase, found.status.version, found.status.retry_count) == ("Pending", 3, 0)
    assert names(found.pods_to_delete) == ["j-w-1", "j-w-0"]
    found = look(after(given, found), *pods, admitted=False)
    assert (found.status.state.phase, len(found.pods_to_delete), found.new_pods) == ("Pending", 2, ())
    assert "reclaimed" in found.status.state.message
    state = look(after(given, found), pod(0, version=3), pod(1, version=3)).status.state
    assert (state.phase, state.reason, state.message) == ("Running", "", "")


def test_a_job_that_waits_may_be_aborted() -> None:
    new_job = job()
    new_job = after(new_job, look(new_job, admitted=False, request=job_request(Action.ABORT)))
    assert new_job.status.state.phase == "Aborting"
    assert look(new_job, admitted=False).status.state.phase == "Aborted"


# ---- it ends


def test_the_running_duration_of_a_job() -> None:
    conditions = [
        JobCondition("Pending", timestamp_at(NOW - 90)),
        JobCondition("Running", timestamp_at(NOW - 60)),
    ]
    new_job = job(status=in_phase("Running", conditions=conditions))
    status = look(new_job, pod(0, "Succeeded"), pod(1, "Succeeded")).status
    assert (status.state.phase, status.running_duration) == ("Completed", "60s")
    assert [each.status for each in status.conditions or ()] == ["Pending", "Running", "Completed"]


def test_a_job_that_has_ended_keeps_its_counts() -> None:
    new_job = job(status=in_phase("Running"), min_success=1)
    new_job = after(new_job, look(new_job, pod(0, "Succeeded"), pod(1)))
    assert (new_job.status.state.phase, new_job.status.running) == ("Completed", 1)
    new_job = after(new_job, look(new_job, pod(0, "Succeeded"), pod(1)))
    assert (new_job.status.succeeded, new_job.status.terminating) == (1, 1)
    new_job = after(new_job, look(new_job, pod(0, "Succeeded")))
    assert (new_job.status.succeeded, new_job.status.terminating) == (1, 0)
    assert look(new_job).status == new_job.status


def test_conditions_have_each_phase_once() -> None:
    given, seen = job(), []
    for pods in ((), (pod(0), pod(1)), (pod(0), pod(1, "Pending")), (pod(0), pod(1))):
        given = after(given, look(given, *pods))
        seen.append([each.status for each in given.status.conditions or ()])
    assert seen == [["Pending"], ["Pending", "Running"], ["Running", "Pending"], ["Pending", "Running"]]


@each_of(
    ("Completed", 100, True, 0.0),
    ("Failed", 101, False, 1.0),
    ("Terminated", 0, True, -100.0),
    ("Aborted", 0, False, None),
    ("Running", 0, False, None),
    ("Completed", None, False, None),
)
def test_an_ended_job_is_deleted_after_its_ttl(
    phase: str, ttl: int | None, deleted: bool, due: float | None
) -> None:
    found = look(job(ttl_seconds_after_finished=ttl, status=in_phase(phase)), pod(0), pod(1))
    assert found.deletes_job is deleted
    assert found.due_at == (NOW + due if due is not None else None)


def test_a_job_that_is_being_deleted_is_left_unchanged() -> None:
    new_job = job(status=in_phase("Running"))
    meta = type(new_job.metadata)(name="j", namespace="n", uid="u", deletion_timestamp=timestamp_at(NOW))
    gone = type(new_job)(meta, new_job.spec, new_job.status)
    found = look(gone, pod(0), request=job_request(Action.RESTART))
    assert (found.status, found.new_pods, found.pods_to_delete) == (gone.status, (), ())


# ---- Volcano ran it before


@each_of("Pending", "Running", "Completed", "Failed", "Terminated", "Aborted")
def test_a_job_that_volcano_ran_is_taken_over_unchanged(phase: str) -> None:
    """It notes no retry count where there was none yet, and counts what has ended as nothing."""
    alive = phase in ("Pending", "Running")
    pods = [pod(0, "Running" if alive else "Failed", version=3), pod(1, "Succeeded", version=1)]
    recorded = {"plugin-svc": "svc", "volume-pvc-j-pvc-x7": "j-pvc-x7"}
    new_job = job(
        task("w", 3), min_available=3, status=in_phase(phase, version=3, controlled_resources=recorded)
    )
    if alive:
        pods.append(pod(2, phase, version=3))
    found = look(new_job, *pods)
    assert (found.status.state, found.status.version) == (new_job.status.state, 3)
    assert (found.status.controlled_resources, found.pods_to_delete, found.new_pods) == (recorded, (), ())


def test_a_restart_that_volcano_began_is_completed() -> None:
    pods = pod(0, version=1), pod(1, "Failed", version=1)
    found = look(job(status=in_phase("Restarting", version=2, retry_count=1)), *pods)
    assert (found.status.state.phase, names(found.pods_to_delete)) == ("Restarting", ["j-w-0"])


# ---- what is wrong with it


def test_a_pod_of_others_is_left_unchanged_and_named_in_a_warning() -> None:
    found = look(job(), foreign_names={"j-w-0"})
    assert names(found.new_pods) == ["j-w-1"]
    assert [(each.reason, "j-w-0" in each.message) for each in found.remarks] == [
        (EventReason.POD_NAME_TAKEN, True)
    ]


@each_of(
    (job(task("w", 1), task("w", 2)), "spec.tasks[1].name: duplicate value 'w'"),
    (job(min_available=3), "spec.minAvailable: invalid value 3: "),
    (job(task("w", 1, ["v"])), "spec.tasks[0].dependsOn: invalid value 'v': must be the name of a task"),
    (job(task("v", 1, ["w"]), task("w", 1, ["v"])), "'v -> w -> v': these tasks wait"),
    (job(task("w", 1, ["w"])), "'w -> w': these tasks wait"),
    (
        job(policies=[policy("Explode", "*")]),
        "spec.policies[0].action: invalid value 'Explode': ",
    ),
    (
        job(policies=[policy("AbortJob", "*", timeout="soon")]),
        "spec.policies[0].timeout: invalid value 'soon': must be a duration",
    ),
    (job(plugins={"magic": None}), "spec.plugins: invalid value 'magic': must be one of env, svc"),
)
def test_a_fault_is_reported_and_stops_nothing(given: Any, words: str) -> None:
    """Report the fault once, when it begins."""
    found = look(given, pod(0, "Failed"))
    assert any(words in each for each in faults(found)), found.remarks
    assert faults(look(after(given, found), pod(0, "Failed"))) == []


def faults(found: Plan) -> list[str]:
    return [each.message for each in found.remarks if each.reason is EventReason.JOB_FAULTY]


def test_all_faults_are_one_warning() -> None:
    wrong = job(min_available=9, plugins={"magic": None, "svc": ["--loud"]})
    [said] = faults(look(wrong))
    assert all(words in said for words in ("invalid value 9", "'magic'", "flag --loud"))


def test_of_tasks_with_the_same_name_the_first_counts() -> None:
    assert names(look(job(task("w", 1), task("w", 3))).new_pods) == ["j-w-0"]
