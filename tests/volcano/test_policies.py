"""Policies of Volcano Jobs and their tasks: which events ask for what, and when."""

from typing import Any

from extender.api.objects.volcano import LifecyclePolicy, PartitionPolicy
from extender.volcano.admission import with_defaults
from extender.volcano.pods import JobPod
from extender.volcano.policies import JobRequest, outdated_requests, policy_requests, request_for_lost_pod
from extender.volcano.states import Action
from tests.rows import each_of
from tests.volcano.jobs import NOW, after, in_phase, job, look, pod, policy, task

ABORT_ON_FAILURE = policy("AbortJob", "PodFailed")


def asks(policies: list[LifecyclePolicy], *pods: JobPod, group: str = "", version: int = 0) -> str:
    """Return the action of a job's own policies; empty: nothing."""
    given = with_defaults(job(policies=policies, status=in_phase("Running", version=version)))
    return next((request.action.value for request in policy_requests(given, pods, group)), "")


# ---- events


@each_of(
    ("PodFailed", [pod(0, "Failed")], True),
    ("PodFailed", [pod(0, "Failed", is_deleting=True)], False),
    ("PodFailed", [pod(0, "Succeeded"), pod(1)], False),
    ("*", [pod(0, "Failed")], True),
    ("*", [pod(0), pod(1, "Pending")], False),
    ("TaskCompleted", [pod(0, "Succeeded"), pod(1)], False),
    ("TaskCompleted", [pod(0, "Succeeded"), pod(1, "Succeeded")], True),
    ("TaskFailed", [pod(0, restart_count=2), pod(1, "Pending", restart_count=1)], True),
    ("TaskFailed", [pod(0, restart_count=2), pod(1)], False),
    ("TaskFailed", [pod(0, "Succeeded", restart_count=3), pod(1)], False),
    ("PodRunning", [pod(0), pod(1)], False),  # Volcano's own, which policies do not see
    ("OutOfSync", [pod(0), pod(1)], False),
    ("CommandIssued", [pod(0), pod(1)], False),
    ("JobUpdated", [pod(0), pod(1)], False),
    ("PodPending", [pod(0, "Pending")], False),  # only with a timeout
)
def test_events_of_pods(event: str, pods: list[JobPod], fits: bool) -> None:
    assert asks([policy("TerminateJob", event)], *pods) == ("TerminateJob" if fits else "")


@each_of(
    ("Unknown", [pod(0), pod(1, "Pending")], True),
    ("Running", [pod(0), pod(1, "Pending")], False),
    ("", [pod(0), pod(1, "Pending")], False),
    ("Unknown", [pod(0), pod(1, "Pending", was_bound=True)], False),
    ("Unknown", [pod(0, "Pending"), pod(1, "Pending")], False),  # of the time before a restart
    ("Unknown", [pod(0, is_deleting=True), pod(1, "Pending")], False),
)
def test_a_group_with_only_some_running_pods(group: str, pods: list[JobPod], fits: bool) -> None:
    assert asks([policy("RestartJob", "Unknown")], *pods, group=group) == ("RestartJob" if fits else "")


@each_of((3, 3, True), (3, 4, False), (None, 3, False), (0, 0, False))
def test_exit_codes(exit_code: int | None, of_policy: int, fits: bool) -> None:
    found = asks([policy("CompleteJob", exit_code=of_policy)], pod(0, "Failed", exit_code=exit_code))
    assert found == ("CompleteJob" if fits else "")


def test_pods_of_an_older_version_raise_nothing() -> None:
    policies = [policy("AbortJob", "*")]
    assert asks(policies, pod(0, "Failed"), pod(1, restart_count=9), version=1) == ""
    assert asks(policies, pod(0, "Failed", version=1), version=1) == "AbortJob"


def test_pods_that_ended_before_a_resume_count_for_a_completed_task() -> None:
    pods = pod(0, "Succeeded"), pod(1, "Succeeded", version=1)
    assert asks([policy("CompleteJob", "TaskCompleted")], *pods, version=1) == "CompleteJob"


# ---- which policy


@each_of(
    ([policy("RestartTask", "PodFailed")], [ABORT_ON_FAILURE], "RestartTask"),
    ([policy("RestartTask", "TaskCompleted")], [ABORT_ON_FAILURE], "AbortJob"),
    ([policy("RestartPod", exit_code=3), policy("RestartTask", "*")], [], "RestartPod"),
    ([policy("RestartPod", exit_code=4), policy("RestartTask", "*")], [], "RestartTask"),
    ([], [policy("RestartJob", "PodEvicted", "PodFailed"), ABORT_ON_FAILURE], "RestartJob"),
    ([policy("SyncJob", "PodFailed")], [ABORT_ON_FAILURE], ""),
    ([policy("Explode", "PodFailed")], [ABORT_ON_FAILURE], ""),
    ([policy("RestartTask", "PodFailed", timeout="soon")], [ABORT_ON_FAILURE], "AbortJob"),
    ([policy("RestartPartition", "PodFailed")], [ABORT_ON_FAILURE], ""),  # it has none
)
def test_the_first_matching_policy_of_the_task_then_of_the_job_applies(
    of_task: list[LifecyclePolicy], of_job: list[LifecyclePolicy], expected: str
) -> None:
    given = with_defaults(job(task("w", 2, policies=of_task), policies=of_job, status=in_phase("Running")))
    found = policy_requests(given, [pod(0, "Failed", exit_code=3), pod(1)], "")
    assert [request.action.value for request in found] == ([expected] if expected else [])


def test_the_field_event_counts_like_a_list_of_one() -> None:
    assert asks([LifecyclePolicy("AbortJob", event="PodFailed")], pod(0, "Failed")) == "AbortJob"


def test_policies_of_other_tasks_do_not_count() -> None:
    tasks = task("m", 1, policies=[ABORT_ON_FAILURE]), task("w", 1)
    given = with_defaults(job(*tasks, status=in_phase("Running")))
    assert policy_requests(given, [pod(0, "Failed")], "") == []
    assert len(policy_requests(given, [pod(0, "Failed", of="m")], "")) == 1


def test_the_failure_that_came_first_counts() -> None:
    tasks = task("m", 1, policies=[policy("CompleteJob", "PodFailed")]), task("w", 1)
    new_job = job(*tasks, policies=[ABORT_ON_FAILURE], status=in_phase("Running"))
    pods = [pod(0, "Failed", of="m", ended_at=NOW - 5), pod(0, "Failed", ended_at=NOW - 6)]
    assert look(new_job, *pods).status.state.phase == "Aborting"


def test_an_action_without_effect_hides_no_other() -> None:
    tasks = (
        task("m", 1, policies=[policy("ResumeJob", "PodFailed")]),
        task("w", 1, policies=[ABORT_ON_FAILURE]),
    )
    given, failed = job(*tasks, status=in_phase("Running")), pod(0, "Failed", of="m", ended_at=NOW - 60)
    assert look(given, failed, pod(0)).remarks == ()
    assert look(given, failed, pod(0, "Failed")).status.state.phase == "Aborting"


# ---- timeouts


@each_of(
    (pod(0, "Failed"), policy("AbortJob", "PodFailed", timeout="30s"), NOW + 20.0),
    (pod(0, "Pending"), policy("AbortJob", "PodPending", timeout="2m"), NOW + 20.0),
)
def test_a_timeout_begins_with_the_event(found: JobPod, rule: LifecyclePolicy, due: float) -> None:
    new_job = job(min_available=1, policies=[rule], status=in_phase("Running"))
    early = look(new_job, found, pod(1), now=due - 1.0)
    assert (early.status.state.phase, early.due_at) == ("Running", due)
    assert look(new_job, found, pod(1), now=due).status.state.phase == "Aborting"


def test_a_pod_that_runs_meanwhile_cancels_its_timeout() -> None:
    new_job = job(policies=[policy("AbortJob", "PodPending", timeout="2m")], status=in_phase("Running"))
    assert look(new_job, pod(0), pod(1), now=NOW + 1000.0).status.state.phase == "Running"


# ---- pods that have gone


def request_after_loss(pod: JobPod, **of: Any) -> JobRequest | None:
    policies = [policy("RestartJob", "PodEvicted", timeout=of.pop("timeout", ""))]
    new_job = job(policies=policies, status=of.pop("status", in_phase("Running", version=1)), **of)
    return request_for_lost_pod(with_defaults(new_job), pod, NOW)


def test_a_deleted_pod_triggers_its_policy() -> None:
    request = request_after_loss(pod(0, version=1), timeout="10s")
    assert request is not None
    assert (request.action, request.pod, request.at) == (Action.RESTART, "j-w-0", NOW + 10.0)


@each_of(
    (pod(0), None),  # of an older version
    (pod(2, version=1), None),  # the task has shrunk
    (pod(0, of="x", version=1), None),
    (pod(0, version=1), in_phase("Aborted", version=1)),
    (pod(0, version=1), in_phase("Pending", "RestartPod", "j-w-0: it failed", version=1, retry_count=1)),
    (pod(0, version=1), in_phase("Running", "RestartTask", "w: it failed", version=1, retry_count=1)),
)
def test_pods_deleted_on_purpose_trigger_nothing(before: JobPod, status: Any) -> None:
    assert request_after_loss(before, status=status or in_phase("Running", version=1)) is None


def test_deletions_of_pods_outside_the_restart_trigger_their_policy() -> None:
    status = in_phase("Running", "RestartPod", "j-w-0: it failed", version=1, retry_count=1)
    assert request_after_loss(pod(1, version=1), status=status) is not None
    assert request_after_loss(pod(0, version=1, retry=1), status=status) is not None


def test_a_delayed_action_is_cancelled_when_its_pod_runs_again() -> None:
    new_job = job(min_available=1, status=in_phase("Running"))
    request = JobRequest(Action.RESTART, "w", "j-w-0", at=NOW + 10.0)
    early = look(new_job, pod(1), request=request)
    assert (early.status.state.phase, early.due_at) == ("Running", NOW + 10.0)
    assert outdated_requests([request], [pod(0), pod(1)], NOW) == [request]
    assert outdated_requests([request], [pod(0, "Pending"), pod(1)], NOW) == []
    assert outdated_requests([request], [pod(0), pod(1)], NOW + 10.0) == []
    assert look(new_job, pod(1), now=NOW + 10.0, request=request).status.state.phase == "Restarting"


# ---- several at a time


def test_pods_that_fail_together_are_restarted_together() -> None:
    """The second does not count as a further retry."""
    parts = PartitionPolicy(2, 1)
    new_job = job(
        task("w", 3, partition_policy=parts),
        policies=[policy("RestartPod", "PodFailed")],
        status=in_phase("Running"),
    )
    pods, deleted = [pod(0, "Failed"), pod(1, "Failed"), pod(2)], set()
    for _ in range(4):
        found = look(new_job, *pods)
        deleted |= {each.name for each in found.pods_to_delete}
        pods = [each for each in pods if each.name not in deleted]
        new_job = after(new_job, found)
    assert deleted == {"j-w-0", "j-w-1"}
    assert (new_job.status.retry_count, new_job.status.state.phase) == (1, "Pending")
