"""`muster job`, and `muster why` of jobs that wait without pods."""

import json
from pathlib import Path
from typing import Any

import pytest

from extender.api.keys import (
    GATE,
    GROUP_ANNOTATION,
    HOLD,
    KUEUE_QUEUE,
    PARTIAL_START,
    QUEUE,
    START_TIMEOUTS,
    STARTED,
)
from extender.apimachinery.errors import StatusError
from extender.apimachinery.kinds import EVENTS, JOBS, KIND_BY_NAME, POD_GROUPS, Json, ResourceKind
from extender.cli.why.explanation import Statement
from tests.cli.api_proxy import ApiProxy
from tests.cli.cluster import Cluster, ago
from tests.rows import each_of

NO_ROOM = "cpu: 8 needed, 2 left on suitable nodes; position 2 in queue research"
DONE = {"conditions": [{"type": "Complete", "status": "True"}]}


def job(
    cluster: Cluster,
    name: str,
    *,
    suspend: bool = True,
    parallelism: int = 4,
    queue: str = "research",
    scheduler: str = "muster",
    notes: Json | None = None,
    labels: Json | None = None,
    status: Json | None = None,
    owner: Json | None = None,
    of_pods: Json | None = None,
) -> Json:
    """Return the owner reference of a job, as its PodGroup has it."""
    notes = {**({QUEUE: queue} if queue else {}), **(notes or {})}
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}
    spec = {
        "suspend": suspend,
        "parallelism": parallelism,
        "template": {
            "metadata": of_pods or {},
            "spec": {"schedulerName": scheduler, "containers": [container]},
        },
    }
    meta = {"name": name, "namespace": "team", "annotations": notes, "labels": labels or {}}
    owners = {"ownerReferences": [owner]} if owner else {}
    cluster._put(JOBS, meta | owners, {"spec": spec, "status": status or {}})
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-{name}"}
    return {**reference, "controller": True}


def queued(
    cluster: Cluster, name: str, notes: Json | None = None, job_notes: Json | None = None, **rest: Any
) -> None:
    """Add a job with its PodGroup."""
    status = {key: rest.pop(key) for key in ("phase", "reason", "message", "more") if key in rest}
    owner = job(cluster, name, notes=job_notes, **rest)
    meta = {"ownerReferences": [owner], "annotations": notes or {}}
    more = {"minResources": {"cpu": "8"}}
    cluster.group(
        f"podgroup-uid-{name}", queue="research", min_member=4, more_metadata=meta, more_spec=more, **status
    )


def unit(cluster: Cluster, name: str) -> Json:
    return stored(cluster, f"podgroup-uid-{name}", POD_GROUPS)


def stored(cluster: Cluster, name: str, kind: ResourceKind = JOBS) -> Json:
    found = cluster.store.get(kind, "team", name)
    assert found is not None
    return found


@pytest.fixture
def sample(cluster: Cluster) -> Cluster:
    """Return a cluster with one job in each state."""
    started = {STARTED: ago(hours=2)}
    cluster.queue("research", {"weight": 2}, state="Open")
    queued(cluster, "waits", message=NO_ROOM, more={"waiting": {"position": 2}})
    queued(cluster, "held", notes={HOLD: "true"}, reason="Held")
    queued(cluster, "late", notes={START_TIMEOUTS: "3"}, reason="StartTimedOut", message="3 times in a row")
    queued(cluster, "starts", suspend=False, job_notes=started, phase="Inqueue", reason="Starting")
    queued(cluster, "runs", suspend=False, job_notes=started, phase="Running", reason="Running")
    queued(cluster, "stopped", job_notes=started)
    queued(cluster, "over", suspend=False, job_notes=started, phase="Completed", status=DONE)
    return cluster


STATES = {
    "waits": "Waiting",
    "held": "Held",
    "late": "Held",
    "starts": "Starting",
    "runs": "Running",
    "stopped": "Suspended",
    "over": "Ended",
}


def states(cluster: Cluster, *more: str) -> dict[str, Json]:
    items = cluster.json("job", "list", *more)["items"]
    return {each["name"]: each for each in items}


# ---- list


def test_each_state_is_reported(sample: Cluster) -> None:
    assert {name: each["state"] for name, each in states(sample).items()} == STATES


def test_a_job_that_is_nested_too_deeply_is_skipped_and_named(sample: Cluster) -> None:
    nested: Json = {}
    for _ in range(150):
        nested = {"a": nested}
    job(sample, "deep", of_pods={"labels": nested})
    result = sample.muster("job", "list", "-n", "team", "-o", "json")
    assert (result.exit_code, result.stderr) == (
        0,
        "Skipped jobs team/deep: nested deeper than 100 levels\n",
    )
    assert {each["name"] for each in json.loads(result.stdout)["items"]} == {*STATES}


def test_a_job_that_waits_as_pods_waits_and_all_its_pods_count(cluster: Cluster) -> None:
    owner = job(cluster, "plain", suspend=False, parallelism=8)
    cluster.group("podgroup-uid-plain", min_member=1, more_metadata={"ownerReferences": [owner]})
    assert (states(cluster)["plain"]["state"], states(cluster)["plain"]["pods"]) == ("Waiting", 8)


def test_pods_that_start_one_by_one_say_how_to_start_them_together(cluster: Cluster) -> None:
    owner = job(cluster, "plain", suspend=False)
    meta = {"ownerReferences": [owner]}
    cluster.group("podgroup-uid-plain", "Running", min_member=1, more_metadata=meta)
    for number, node in enumerate(("n", "")):
        cluster.pod(f"plain-{number}", "podgroup-uid-plain", node=node, metadata=meta)
    found = cluster.answer("job/plain")
    assert {"SomeRun", "StartApart"} <= {statement.code for statement in (*found.sentence, *found.notes)}


def test_a_group_that_muster_made_is_corrected_on_its_job(cluster: Cluster) -> None:
    owner = job(cluster, "train", suspend=False)
    cluster.group(
        "podgroup-uid-train",
        reason="InvalidSpec",
        min_member=1,
        more_metadata={"ownerReferences": [owner]},
    )
    (edit,) = cluster.answer("job/train").commands
    assert (edit.code, edit.what) == ("Edit", "jobs.batch train")


def test_a_job_may_start_with_the_pods_that_are_there(cluster: Cluster) -> None:
    meta = {"ownerReferences": [job(cluster, "train", suspend=False)]}
    cluster.group("podgroup-uid-train", reason="NotEnoughMembers", min_member=4, more_metadata=meta)
    for number in range(2):
        cluster.pod(f"train-{number}", "podgroup-uid-train", metadata=meta)
    line = "kubectl -n team annotate --overwrite jobs.batch train kube-muster.io/min-member=2"
    assert line in cluster.output("why", "job/train")


def test_the_table_has_queue_position_pods_and_reason(sample: Cluster) -> None:
    head, *rows = (line.split() for line in sample.output("job", "list").splitlines())
    assert head == ["NAME", "KIND", "QUEUE", "STATE", "POSITION", "PODS", "REASON", "AGE"]
    assert ["waits", "Job", "research", "Waiting", "2", "4", "NoRoom", "20d"] in rows
    assert ["late", "Job", "research", "Held", "-", "4", "StartTimedOut", "20d"] in rows
    assert ["runs", "Job", "research", "Running", "-", "4", "-", "20d"] in rows


def test_wide_shows_more(sample: Cluster) -> None:
    (line,) = [
        line for line in sample.output("job", "list", "-o", "wide").splitlines() if line.startswith("late")
    ]
    assert line.split()[8:] == ["-", "-", "3", "podgroup-uid-late", "3", "times", "in", "a", "row"]


def test_the_json_form_is_for_programs(sample: Cluster) -> None:
    assert states(sample)["waits"] == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": "team",
        "name": "waits",
        "queue": "research",
        "state": "Waiting",
        "position": 2,
        "pods": 4,
        "reason": "NoRoom",
        "message": NO_ROOM,
        "letGo": None,
        "startTimeouts": 0,
        "podGroup": "podgroup-uid-waits",
    }


def test_a_job_that_is_not_suspended_waits_for_its_queue_without_a_podgroup(sample: Cluster) -> None:
    mistyped = {"annotations": {QUEUE: "reserch"}}
    job(sample, "typo", suspend=False, queue="", of_pods=mistyped)
    job(sample, "shut", suspend=False, queue="", of_pods={"labels": {QUEUE: "closed"}})
    sample.queue("closed", state="Closed")
    job(sample, "other", suspend=False, scheduler="default-scheduler", of_pods=mistyped)
    job(sample, "done", suspend=False, status=DONE, of_pods=mistyped)
    found = states(sample)
    assert found.keys() == {*STATES, "typo", "shut"}
    missing = Statement("QueueIsMissing", queue="reserch").text
    assert (found["typo"]["message"], found["typo"]["podGroup"]) == (missing, None)
    not_open = Statement("QueueIsNotOpen", queue="closed", state="Closed")
    assert (found["shut"]["reason"], found["shut"]["message"]) == ("QueueNotOpen", not_open.text)
    (line,) = [line for line in sample.output("job", "list").splitlines() if line.startswith("typo")]
    assert line.split() == ["typo", "Job", "reserch", "Waiting", "-", "4", "QueueNotFound", "20d"]


def test_pods_of_a_job_say_whose_group_they_are_in_while_its_queue_is_missing(cluster: Cluster) -> None:
    cluster.queue("research", state="Open")
    owner = job(cluster, "train", suspend=False, queue="")
    meta = {"ownerReferences": [owner], "annotations": {QUEUE: "reserch"}}
    cluster.pod("train-0", gates=(GATE,), metadata=meta)
    cluster.pod("train-1", gates=(GATE,), metadata=meta)
    assert cluster.codes("pod/train-0") == ("Waiting", "QueueNotFound", ["GroupOfOwner", "Reason"])
    answer = cluster.answer("pod/train-0")
    assert (answer.sentence[0].owner, answer.detail) == (
        "job/train",
        Statement("QueueIsMissing", queue="reserch"),
    )
    answer = cluster.answer("job/train")
    assert (answer.reason, answer.notes[0]) == ("QueueNotFound", Statement("MorePods", pods="1 more pod"))


def queue_of(cluster: Cluster, target: str) -> str:
    found = cluster.answer(target).queue
    return found.name if found is not None else ""


def test_pods_of_a_running_job_are_in_its_queue(cluster: Cluster) -> None:
    cluster.queue("research", state="Open")
    meta = {"ownerReferences": [job(cluster, "train", suspend=False, queue="research")]}
    cluster.pod("train-0", gates=(GATE,), metadata=meta)
    assert queue_of(cluster, "pod/train-0") == "research"
    cluster.group("podgroup-uid-train", min_member=4, more_metadata=meta)
    assert queue_of(cluster, "podgroup/podgroup-uid-train") == "research"
    assert states(cluster)["train"]["queue"] == "research"


def test_names_are_validated_as_by_kubectl(sample: Cluster) -> None:
    assert "job.batch/waits" in sample.output("job", "list", "-o", "name").splitlines()


def test_jobs_of_all_namespaces_are_listed(sample: Cluster) -> None:
    assert sample.output("job", "list", "-A").startswith("NAMESPACE   NAME")
    assert states(sample, "-A").keys() == states(sample).keys()


def test_groups_of_no_job_are_left_out(cluster: Cluster) -> None:
    cluster.group("plain")
    cluster.group(
        "podgroup-u", more_metadata={"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "uid": "u"}]}
    )
    result = cluster.muster("job", "list")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "No jobs found in namespace team\n")


def test_jobs_that_may_not_be_read_are_shown_by_their_podgroups(sample: Cluster) -> None:
    sample.lock(("jobs", "team"))
    result = sample.muster("job", "list")
    assert "you may not list jobs in team" in result.stderr
    shown = {line.split()[0]: line.split()[3] for line in result.stdout.splitlines()[1:]}
    assert (shown["waits"], shown["held"], shown["runs"]) == ("Waiting", "Held", "Running")


def test_without_the_right_to_list_groups_of_all_namespaces_it_names_the_role(sample: Cluster) -> None:
    sample.lock(("podgroups", ""))
    assert "kube-muster-view" in sample.refuses("job", "list", "-A")


# ---- describe


def test_a_described_pending_job_has_its_spec_events_and_remedies(sample: Cluster) -> None:
    about = {"kind": "Job", "name": "waits"}
    event = {"type": "Warning", "reason": "StartGivenUp", "message": "m", "lastTimestamp": ago(hours=5)}
    sample._put(EVENTS, {"name": "e", "namespace": "team"}, {"involvedObject": about, **event})
    output = sample.output("job", "describe", "waits")
    paragraphs = [each.splitlines() for each in output.split("\n\n")]
    assert (paragraphs[0][0].split()[0], paragraphs[0][0].split()[-1]) == (
        "job/waits",
        "podgroup/podgroup-uid-waits",
    )
    assert [line.split(":")[1].strip() for line in paragraphs[1]] == [
        *("Waiting", "research", "4 pods", "cpu 8", "2", "-", "-", "none", "20d")
    ]
    assert paragraphs[2][0] == "Waiting for 30m: NoRoom"
    (sets,) = [paragraph for paragraph in paragraphs if paragraph[0] == "Pods that it makes:"]
    assert sets[1:] == ["  ROLE   COUNT   REQUESTS OF EACH", "  -      4       cpu 2, memory 1Gi"]
    (events,) = [paragraph for paragraph in paragraphs if paragraph[0] == "Events:"]
    assert events[1].split()[:3] == ["TYPE", "REASON", "AGE"]
    assert events[2].split() == ["Warning", "StartGivenUp", "5h", "m"]


def test_a_described_job_has_its_admission_and_its_start_timeouts(sample: Cluster) -> None:
    assert "Admitted:        120m ago" in sample.output("job", "describe", "job/runs")
    assert "Start timeouts:  3 in a row" in sample.output("job", "describe", "jobs/late")


def test_a_described_job_shows_a_partial_start(cluster: Cluster) -> None:
    cluster.queue("research", {"weight": 2}, state="Open")
    queued(
        cluster,
        "small",
        suspend=False,
        parallelism=4,
        job_notes={STARTED: ago(hours=2), PARTIAL_START: "4/6"},
    )
    described = cluster.output("job", "describe", "small")
    assert "Started with:    4 of 6 pods" in described
    assert "Resources:       cpu 8, memory 4Gi\n" in described


def test_the_runtime_that_a_job_takes_its_pods_from_is_named_where_it_is_missing(cluster: Cluster) -> None:
    meta = {"name": "train", "namespace": "team", "annotations": {QUEUE: "research"}}
    spec = {"suspend": True, "runtimeRef": {"name": "torch"}}
    cluster._put(KIND_BY_NAME["trainer.kubeflow.org/v1alpha1", "TrainJob"], meta, {"spec": spec})
    assert "ClusterTrainingRuntime torch" in cluster.output("job", "describe", "trainjob/train")


def test_unknown_pods_of_a_job_are_reported(cluster: Cluster) -> None:
    queued(cluster, "odd", parallelism="many", reason="InvalidSpec")
    assert "its pods are not known: spec.parallelism: invalid value 'many'" in cluster.output(
        "job", "describe", "odd"
    )


# ---- hold, resume, stop


def test_a_job_that_waits_is_held_and_resumed(sample: Cluster) -> None:
    assert sample.output("job", "hold", "waits") == "job.batch/waits held\n"
    assert unit(sample, "waits")["metadata"]["annotations"] == {HOLD: "true"}
    assert sample.output("job", "resume", "job/waits") == "job.batch/waits resumed\n"
    assert not unit(sample, "waits")["metadata"].get("annotations")


def test_resume_forgets_starts_that_came_too_late(sample: Cluster) -> None:
    sample.output("job", "resume", "late")
    assert not unit(sample, "late")["metadata"].get("annotations")


def test_resume_lets_a_suspended_job_queue_again(sample: Cluster) -> None:
    sample.output("job", "resume", "stopped")
    found = stored(sample, "stopped")
    assert STARTED not in found["metadata"]["annotations"]
    assert found["spec"]["suspend"] is True


@pytest.fixture
def unsuspended(cluster: Cluster) -> Cluster:
    """Return a cluster with three jobs created unsuspended: one waits, one runs, one names no queue."""
    cluster.queue("research", {"weight": 2}, state="Open")
    queued(cluster, "waits", suspend=False, message=NO_ROOM, more={"waiting": {"position": 1}})
    queued(cluster, "runs", suspend=False, phase="Running", reason="Running")
    queued(cluster, "plain", suspend=False, phase="Running", reason="Running", queue="")
    return cluster


def test_a_job_whose_pods_name_a_podgroup_is_listed_held_and_stopped(cluster: Cluster) -> None:
    pod_metadata = {"annotations": {GROUP_ANNOTATION: "gang"}}
    job(cluster, "sweep", suspend=False, of_pods=pod_metadata)
    assert "sweep" not in states(cluster), "there is no such group"
    cluster.group("gang", queue="research")
    assert (states(cluster)["sweep"]["state"], states(cluster)["sweep"]["podGroup"]) == ("Waiting", "gang")
    cluster.output("job", "hold", "sweep")
    assert states(cluster)["sweep"]["state"] == "Held"
    cluster.output("job", "resume", "sweep")
    cluster.output("job", "stop", "sweep")
    assert states(cluster)["sweep"]["state"] == "Suspended"
    cluster.output("job", "resume", "sweep")
    assert stored(cluster, "sweep")["spec"]["suspend"] is False, "no other controller would unsuspend it"


def test_jobs_of_a_listed_job_are_not_listed(cluster: Cluster) -> None:
    whole = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "w", "uid": "w"}
    owner = {**whole, "controller": True}
    cluster.group("gang", queue="research")
    job(cluster, "in-group", of_pods={"annotations": {GROUP_ANNOTATION: "gang"}}, owner=owner, suspend=False)
    job(cluster, "in-missing-queue", queue="missing", owner=owner, suspend=False)
    assert states(cluster) == {}
    assert "does not wait or run as a job of Muster's" in cluster.refuses("job", "stop", "in-group")


def test_a_job_that_waits_with_its_pods_is_held_and_resumed(unsuspended: Cluster) -> None:
    unsuspended.output("job", "hold", "waits")
    assert unit(unsuspended, "waits")["metadata"]["annotations"] == {HOLD: "true"}
    assert states(unsuspended)["waits"]["state"] == "Held"
    unsuspended.output("job", "resume", "waits")
    assert states(unsuspended)["waits"]["state"] == "Waiting"


@each_of("waits", "runs", "plain")
def test_a_job_that_was_created_unsuspended_is_stopped_and_resumed(
    name: str, *, unsuspended: Cluster
) -> None:
    unsuspended.output("job", "stop", name)
    assert states(unsuspended)[name]["state"] == "Suspended"
    unsuspended.output("job", "resume", name)
    found = stored(unsuspended, name)
    assert STARTED not in found["metadata"].get("annotations", {})
    assert found["spec"]["suspend"] is (name != "plain"), "without a queue no controller would unsuspend it"


def test_stop_suspends_and_leaves_the_record(sample: Cluster) -> None:
    assert (
        sample.output("job", "stop", "runs", "starts") == "job.batch/runs stopped\njob.batch/starts stopped\n"
    )
    for name in ("runs", "starts"):
        assert stored(sample, name)["spec"]["suspend"] is True
        assert STARTED in stored(sample, name)["metadata"]["annotations"]
    assert states(sample)["runs"]["state"] == "Suspended"


@pytest.mark.parametrize(("command", "name"), [("hold", "waits"), ("resume", "stopped"), ("stop", "runs")])
@pytest.mark.parametrize(("way", "printed"), [("client", "dry run"), ("server", "server dry run")])
def test_a_dry_run_changes_nothing(sample: Cluster, command: str, name: str, way: str, printed: str) -> None:
    before = (stored(sample, name), unit(sample, name))
    assert f"({printed})" in sample.output("job", command, name, "--dry-run", way)
    assert (stored(sample, name), unit(sample, name)) == before


@pytest.mark.parametrize(
    ("command", "name", "message"),
    [
        ("hold", "runs", "muster job stop job/runs suspends it"),
        ("stop", "waits", "muster job hold job/waits keeps it from starting"),
        ("hold", "over", "job/over has ended; it cannot be held"),
        ("hold", "free", "muster why job/free says why"),
        ("resume", "free", "muster why job/free says why"),
        ("resume", "waits", "job/waits is neither held nor stopped"),
        ("stop", "loose", "muster why job/loose says why"),
    ],
)
def test_a_command_that_does_not_fit_the_state_is_refused(
    sample: Cluster, command: str, name: str, message: str
) -> None:
    job(sample, "free", queue="")
    job(sample, "loose", suspend=False)
    assert message in sample.refuses("job", command, name)


def test_a_job_that_changes_meanwhile_is_left(sample: Cluster) -> None:
    sample.store.refused_writes[JOBS] = StatusError(409, "Conflict", "the object has been modified")
    assert sample.refuses("job", "stop", "runs") == "It was changed at the same time: try again."


def test_a_missing_right_is_named(sample: Cluster) -> None:
    sample.store.refused_writes[JOBS] = StatusError(403, "Forbidden", 'cannot patch resource "jobs"')
    assert sample.refuses("job", "stop", "runs") == ('Error: not allowed: cannot patch resource "jobs"')


def test_a_right_to_look_that_is_missing_is_named(sample: Cluster, proxy: ApiProxy) -> None:
    proxy.workload("batch/v1", "Job", "other")
    proxy.unreadable |= {"waits"}
    needed_right = "the search needs the right to get jobs waits in team"
    assert needed_right in sample.refuses("job", "describe", "job/waits")


# ---- names


def test_a_name_that_is_almost_one_is_offered(sample: Cluster) -> None:
    assert sample.misses("job", "describe", "job/wait") == ("wait", ["job/waits"])
    assert sample.misses("job", "hold", "wait") == ("wait", ["job/waits"])


def test_a_name_of_several_kinds_is_refused_without_its_kind(cluster: Cluster, proxy: ApiProxy) -> None:
    proxy.workload("batch/v1", "Job", "x", spec={"suspend": True})
    proxy.workload("jobset.x-k8s.io/v1alpha2", "JobSet", "x", spec={"suspend": True})
    assert "may be job/x and jobset/x" in cluster.refuses("job", "describe", "x", status=2)
    assert cluster.output("job", "describe", "jobset/x").startswith("jobset/x in namespace team\n")


@each_of("pod/x", "queue/x", "a/b/c", "job/", "/x")
def test_a_kind_that_is_no_job_is_refused(value: str, *, cluster: Cluster) -> None:
    printed = cluster.refuses("job", "describe", value, status=2)
    assert repr(value) in printed
    assert "must be" in printed


def test_a_kind_that_the_cluster_lacks_is_named(cluster: Cluster, proxy: ApiProxy) -> None:
    proxy.workload("batch/v1", "Job", "x")
    assert "knows no rayjobs.ray.io" in cluster.refuses("job", "describe", "rayjob/x")


# ---- why


def test_a_pending_job_without_pods_is_explained(sample: Cluster) -> None:
    printed = sample.json("why", "job/waits")
    assert (printed["kind"], printed["name"], printed["group"]) == ("Job", "waits", "podgroup-uid-waits")
    assert (printed["verdict"], printed["reason"], printed["detail"]) == ("Waiting", "NoRoom", NO_ROOM)
    assert sample.answer("job/waits").sentence[-1] == Statement("JobWaits", pods="4 pods")
    assert printed["remedies"]


@each_of("held", "late", "stopped")
def test_the_command_that_helps_is_offered(name: str, *, sample: Cluster) -> None:
    lines = [each["line"] for each in sample.json("why", f"job/{name}")["commands"]]
    assert f"muster job resume job/{name} -n team" in lines


def test_a_stopped_job_is_explained(sample: Cluster) -> None:
    assert sample.codes("job/stopped") == ("NoPods", "", ["JobStopped"])


def test_a_bare_name_leads_to_the_job_once(sample: Cluster) -> None:
    assert sample.json("why", "waits")["kind"] == "Job"


@pytest.mark.parametrize(
    ("parts", "code", "commands"),
    [
        ({"queue": ""}, "JobWithoutQueue", ["NameItsQueue", "Unsuspend"]),
        ({"scheduler": "other"}, "JobOfScheduler", ["Unsuspend"]),
        ({"queue": "", "labels": {KUEUE_QUEUE: "lq"}}, "JobNotTaken", ["CheckMuster"]),
        ({"owner": {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "js", "uid": "u",
                    "controller": True}}, "JobIsPart", ["AskWhole"]),
        ({}, "JobNotTaken", ["CheckMuster"]),
    ],
)  # fmt: skip
def test_a_job_that_muster_leaves_alone_is_explained(
    cluster: Cluster, parts: dict[str, Any], code: str, commands: list[str]
) -> None:
    job(cluster, "x", **parts)
    answer = cluster.answer("job/x")
    assert cluster.codes("job/x") == ("NoPods", "", ["JobSuspendedByOthers", code])
    assert (answer.group, [offer.code for offer in answer.commands]) == ("", commands)


@pytest.mark.parametrize(("may_ask", "code"), [(True, "JobNotPermitted"), (False, "JobNotTaken")])
def test_a_kind_that_muster_may_not_change_is_named_to_users_who_may_see_that(
    cluster: Cluster, proxy: ApiProxy, may_ask: bool, code: str
) -> None:
    template = {"spec": {"schedulerName": "muster", "containers": [{"name": "main", "image": "i"}]}}
    spec = {"suspend": True, "replicatedJobs": [{"name": "w", "template": {"spec": {"template": template}}}]}
    proxy.workload("jobset.x-k8s.io/v1alpha2", "JobSet", "x", spec=spec)
    cluster.namespace("team", "research")
    proxy.install_muster()
    proxy.denied_to_muster.add(("patch", "jobsets"))
    if not may_ask:
        proxy.unreadable.add("deployments")
    assert cluster.answer("jobset/x").sentence[-1].code == code


@pytest.mark.parametrize("has_kueue", [True, False])
def test_a_job_of_kueue_is_left_to_it_where_the_cluster_has_it(
    cluster: Cluster, proxy: ApiProxy, has_kueue: bool
) -> None:
    """Leave the job to Kueue, whatever other queue applies to it."""
    cluster.namespace("team", "research")
    template = {"spec": {"schedulerName": "muster", "containers": [{"name": "main", "image": "i"}]}}
    spec = {"suspend": True, "template": template}
    proxy.workload("batch/v1", "Job", "x", labels={KUEUE_QUEUE: "lq"}, spec=spec)
    if has_kueue:
        proxy.workload("kueue.x-k8s.io/v1beta1", "LocalQueue", "lq")
    assert (cluster.answer("job/x").sentence[-1] == Statement("JobOfKueue")) is has_kueue


def test_a_queue_of_the_namespace_counts(cluster: Cluster) -> None:
    cluster.namespace("team", "research")
    job(cluster, "x", queue="")
    assert cluster.answer("job/x").sentence[-1].code == "JobNotTaken"


# ---- kinds of the configuration file

CONFIGURATION = """\
apiVersion: config.kube-muster.io/v1alpha1
kind: MusterConfiguration
jobKinds:
  - apiVersion: example.com/v1
    kind: TrainingRun
    plural: trainingruns
    suspend: spec.control.suspend
    podSets: [{template: spec.template, count: spec.replicas}]
    succeeded: {conditions: [Done]}
    failed: never
"""


@pytest.fixture
def training_run(cluster: Cluster, proxy: ApiProxy, tmp_path: Path) -> str:
    """Add a pending training run; return the flag for the file that describes its kind."""
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    template = {"spec": {"schedulerName": "muster", "containers": [container]}}
    spec = {"control": {"suspend": True}, "replicas": 4, "template": template}
    owner = proxy.workload("example.com/v1", "TrainingRun", "train", spec=spec)
    cluster.queue("research", {"weight": 2}, state="Open")
    cluster.group(
        f"podgroup-{owner['uid']}",
        queue="research",
        min_member=4,
        reason="NoRoom",
        message=NO_ROOM,
        more_metadata={"ownerReferences": [owner]},
    )
    path = tmp_path / "muster.yaml"
    path.write_text(CONFIGURATION)
    return f"--config={path}"


def test_kinds_of_the_configuration_file_are_known(
    cluster: Cluster, training_run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Take kinds from the flag, before and behind the name, and from the variable."""
    found = cluster.json("why", "trainingrun/train", training_run)
    assert (found["kind"], found["verdict"], found["reason"]) == ("TrainingRun", "Waiting", "NoRoom")
    assert Statement("JobWaits", pods="4 pods").text in found["sentence"]
    assert "TrainingRun" in cluster.output("job", "list", training_run)
    assert "No jobs found" in cluster.muster("job", "list").stderr, "without it"
    monkeypatch.setenv("MUSTER_CONFIG", training_run.partition("=")[2])
    assert "NoRoom" in cluster.output("job", "describe", "trainingrun/train")
    assert "NoRoom" in cluster.output("why", "train")


def test_the_error_for_an_unknown_kind_says_how_to_add_it(cluster: Cluster, training_run: str) -> None:
    for command in (("why",), ("job", "describe")):
        refusal = cluster.refuses(*command, "trainingrun/train", status=2)
        assert "--config" in refusal
    path = Path(training_run.partition("=")[2])
    path.write_text(CONFIGURATION.replace("spec.control.suspend", "control"))
    refusal = cluster.refuses("why", "trainingrun/train", training_run, status=2)
    assert "jobKinds[0].suspend: " in refusal


# ---- as vcctl has it


def test_vcctls_names_do_the_same(sample: Cluster) -> None:
    assert sample.output("job", "view", "--name", "waits") == sample.output("job", "describe", "waits")
    assert sample.output("job", "suspend", "--name", "runs") == "job.batch/runs stopped\n"
    assert stored(sample, "runs")["spec"]["suspend"] is True
    assert sample.output("job", "resume", "--name", "runs") == "job.batch/runs resumed\n"
    assert sample.refuses("job", "suspend", status=2).startswith("Error: JOB: required value: NAME or")


def test_a_job_is_deleted_by_its_own_uid(cluster: Cluster) -> None:
    job(cluster, "train")
    dry = cluster.output("job", "delete", "train", "--dry-run", "server")
    assert dry.startswith("job.batch/train deleted (server")
    assert cluster.store.get(JOBS, "team", "train")
    assert cluster.output("job", "delete", "job/train") == "job.batch/train deleted\n"
    assert cluster.store.get(JOBS, "team", "train") is None
    assert "a job 'train' of any kind not found" in cluster.refuses("job", "delete", "train")


def test_a_volcano_job_of_flags(cluster: Cluster) -> None:
    """Create the Job as it would be where the API server has none of them."""
    flags = ("--replicas", "4", "--min", "2", "--requests", "cpu=2, memory=1Gi", "--queue", "research")
    printed = cluster.json("job", "run", "--name", "train", *flags, "--dry-run", "client")
    (task,) = printed["spec"].pop("tasks")
    assert printed == {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"minAvailable": 2, "schedulerName": "volcano", "queue": "research"},
    }
    (container,) = task["template"]["spec"]["containers"]
    assert (task["replicas"], container["image"]) == (4, "busybox")
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": "1Gi"},
        "limits": {"cpu": "1000m", "memory": "100Mi"},
    }
    assert "knows no jobs.batch.volcano.sh" in cluster.refuses("job", "run", "--name", "train")


@each_of("cpu", "cpu=-1", "cpu=lots", "=1", "")
def test_invalid_amounts_are_refused(amounts: str, *, cluster: Cluster) -> None:
    error = cluster.refuses("job", "run", "--name", "x", "--requests", amounts, status=2)
    assert f"{amounts!r}: must be NAME=QUANTITY with commas between" in error


@each_of(
    (("job", "stop", "job/runs"), "the search needs the right to get /apis"),
    (("job", "stop", "runs"), "the search needs the right to get /apis"),
    (("why", "job/none"), "you may not get /apis"),
    (("why", "none"), "you may not read /apis"),
)
def test_a_missing_right_to_discover_kinds_is_named(
    command: tuple[str, ...], said: str, *, sample: Cluster, proxy: ApiProxy
) -> None:
    proxy.unreadable.add("apis")
    assert said in sample.refuses(*command)


# ---- groups by the names of their owners


@each_of("hold", "resume")
def test_an_empty_name_of_a_group_is_refused(command: str, *, cluster: Cluster) -> None:
    assert "'': must be NAME or KIND/NAME" in cluster.refuses(command, "", status=2)


def test_groups_are_held_by_the_names_of_their_owners(sample: Cluster) -> None:
    assert sample.output("hold", "waits", "job/runs") == "job/waits held\njob/runs held\n"
    assert [unit(sample, name)["metadata"]["annotations"] for name in ("waits", "runs")] == [
        {HOLD: "true"}
    ] * 2
    sample.output("resume", "podgroup-uid-waits")
    for named in ("jobs.batch/waits", "pg/podgroup-uid-waits", "waits"):
        assert sample.output("hold", named) == "job/waits held\n"
        assert sample.output("resume", named) == "job/waits resumed\n"
        assert sample.output("podgroup", "describe", named).startswith("podgroup/podgroup-uid-waits ")
    assert "'queue/default': must be a group" in sample.refuses("hold", "queue/default", status=2)
    assert not unit(sample, "waits")["metadata"].get("annotations")


def test_an_owner_of_several_groups_takes_one_of_their_names(sample: Cluster) -> None:
    of = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "controller": True}
    for number in (0, 1):
        owner = {**of, "name": "serve", "uid": "u"}
        sample.group(f"podgroup-u-{number}", more_metadata={"ownerReferences": [owner]})
    refused = sample.refuses("hold", "lws/serve")
    assert refused == "Error: 'lws/serve' means several groups: name one of podgroup-u-0, podgroup-u-1"
