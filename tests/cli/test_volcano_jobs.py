"""`muster job` and `muster why` of Volcano Jobs, which Commands stop and resume, as with vcctl."""

import pytest

from extender.api.keys import HOLD, STARTED
from extender.apimachinery.kinds import COMMANDS, NAMESPACES, POD_GROUPS, VOLCANO_JOBS, Json
from extender.cli.why.explanation import Statement
from tests.cli.cluster import Cluster, ago
from tests.cli.test_jobs import job

KIND = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}


def queued(
    cluster: Cluster, name: str, phase: str = "", record: str | None = None, group: bool = True
) -> None:
    """Add a job with its PodGroup; `phase`: of the job."""
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    task = {"name": "worker", "replicas": 4, "template": {"spec": {"containers": [container]}}}
    meta = {"name": name, "namespace": "team", "annotations": {} if record is None else {STARTED: record}}
    conditions = [{"status": phase or "Pending", "lastTransitionTime": ago(hours=1)}]
    status = {"state": {"phase": phase}, "conditions": conditions} if phase else {}
    spec = {
        "schedulerName": "volcano",
        "queue": "research",
        "minAvailable": 3,
        "maxRetry": 3,
        "tasks": [task],
    }
    cluster._put(VOLCANO_JOBS, meta, {"spec": spec, "status": status})
    if group:
        owner = {**KIND, "name": name, "uid": f"uid-{name}", "controller": True}
        course = {"Running": "Running", "Completed": "Completed"}.get(phase, "Pending")
        more = {"ownerReferences": [owner]}
        reason = "Running" if course == "Running" else "NoRoom"
        cluster.group(
            f"{name}-uid-{name}", course, reason, queue="research", min_member=3, more_metadata=more
        )


@pytest.fixture
def sample(cluster: Cluster) -> Cluster:
    cluster._put(NAMESPACES, {"name": "team"}, {})
    cluster.queue("research", {"weight": 2}, state="Open")
    queued(cluster, "waits")
    queued(cluster, "back", "Running", record="")
    queued(cluster, "runs", "Running", record=ago(hours=2))
    queued(cluster, "theirs", "Running")
    queued(cluster, "stopped", "Aborted", record="")
    queued(cluster, "over", "Completed", record=ago(hours=2))
    return cluster


def listed(cluster: Cluster) -> dict[str, Json]:
    items = cluster.json("job", "list")["items"]
    return {each["name"]: each for each in items}


def commands(cluster: Cluster) -> list[tuple[str, str, str]]:
    found = cluster.store.all(COMMANDS)
    return [(each["metadata"]["namespace"], each["target"]["name"], each["action"]) for each in found]


def test_how_each_stands(sample: Cluster) -> None:
    assert {name: (each["state"], each["pods"], each["queue"]) for name, each in listed(sample).items()} == {
        "waits": ("Waiting", 4, "research"),
        "back": ("Waiting", 4, "research"),
        "runs": ("Running", 4, "research"),
        "theirs": ("Running", 4, "research"),
        "stopped": ("Suspended", 4, "research"),
        "over": ("Ended", 4, "research"),
    }


def test_why_explains_a_volcano_job_by_its_short_name(sample: Cluster) -> None:
    assert sample.answer("vcjob/waits").sentence[-1] == Statement("JobWaits", pods="3 pods")
    assert "muster job resume vcjob/stopped" in sample.output("why", "vcjob/stopped")
    queued(sample, "gone", "Failed", group=False)
    assert sample.codes("vcjob/gone") == ("Ended", "", ["WorkloadEnded"])


@pytest.mark.parametrize(("name", "verdict"), [("waits", "Waiting"), ("runs", "Running"), ("over", "Ended")])
def test_why_accepts_all_names_of_kubectl_for_a_volcano_job(sample: Cluster, name: str, verdict: str) -> None:
    assert sample.output("why", f"vcjob/{name}").startswith(f"vcjob/{name} in namespace team")
    answer = sample.json("why", f"vcjob/{name}")
    assert {**KIND, "verdict": verdict} == {key: answer[key] for key in (*KIND, "verdict")}


def test_why_lists_jobs_of_both_kinds_with_one_name(sample: Cluster) -> None:
    queued(sample, "same", group=False)
    job(sample, "same")
    reported = sample.output("why", "same").splitlines()
    assert [line.split()[0] for line in reported if "NoPods" in line] == ["job/same", "vcjob/same"]


def test_a_queue_is_described_with_them(sample: Cluster) -> None:
    assert "vcjob/team/waits: NoRoom\n    behind vcjob/team/back," in sample.output(
        "queue", "describe", "research"
    )


def test_describe_shows_its_tasks(sample: Cluster) -> None:
    described = sample.output("job", "describe", "waits")
    assert "worker   4       cpu 2" in described


def test_a_pending_volcano_job_is_held_and_resumed_by_its_podgroup(sample: Cluster) -> None:
    assert sample.output("job", "hold", "vcjob/waits") == "job.batch.volcano.sh/waits held\n"
    group = sample.store.get(POD_GROUPS, "team", "waits-uid-waits")
    assert group is not None
    assert group["metadata"]["annotations"] == {HOLD: "true"}
    sample.output("job", "resume", "waits")
    assert commands(sample) == []


@pytest.mark.parametrize(
    ("command", "name", "wanted"),
    [
        ("stop", "runs", [("team", "runs", "AbortJob")]),
        ("stop", "theirs", [("team", "theirs", "AbortJob")]),
        ("stop", "stopped", []),
        ("resume", "stopped", [("team", "stopped", "ResumeJob")]),
    ],
)
def test_commands_stop_and_resume_it(
    sample: Cluster, command: str, name: str, wanted: list[tuple[str, str, str]]
) -> None:
    sample.output("job", command, name)
    assert commands(sample) == wanted


def test_a_resumed_volcano_job_waits_again_even_if_its_record_is_still_there(sample: Cluster) -> None:
    queued(sample, "just", "Aborting", record=ago(hours=2))
    sample.output("job", "resume", "just")
    found = sample.store.get(VOLCANO_JOBS, "team", "just")
    assert found is not None
    assert found["metadata"]["annotations"] == {STARTED: ""}


@pytest.mark.parametrize("way", ["client", "server"])
def test_a_dry_run_makes_no_command(sample: Cluster, way: str) -> None:
    sample.output("job", "stop", "runs", "--dry-run", way)
    assert commands(sample) == []


@pytest.mark.parametrize(
    ("command", "name", "message"),
    [
        ("hold", "runs", "muster job stop vcjob/runs suspends it"),
        ("stop", "waits", "muster job hold vcjob/waits"),
        ("stop", "over", "vcjob/over has ended"),
    ],
)
def test_a_command_that_does_not_fit_the_state_is_refused(
    sample: Cluster, command: str, name: str, message: str
) -> None:
    assert message in sample.refuses("job", command, name)


def test_why_names_the_setting_for_a_volcano_job_that_muster_does_not_run(sample: Cluster) -> None:
    queued(sample, "alone", group=False)
    assert sample.codes("vcjob/alone") == ("NoPods", "", ["JobOfOthers", "JobNotTaken"])
    assert "--volcano-jobs or --manage-jobs" in sample.answer("vcjob/alone").sentence[-1].off


def test_jobs_of_both_kinds_with_one_name_are_distinguished(sample: Cluster) -> None:
    job(sample, "waits")
    assert "may be job/waits and vcjob/waits: name one of them" in sample.refuses(
        "job", "hold", "waits", status=2
    )
