"""`muster why`: what a name, or a workload, leads to."""

import pytest

from extender.api.keys import GATE, QUEUE
from extender.cli.output import Json
from extender.cli.why.explanation import Statement
from tests.cli.api_proxy import ApiProxy
from tests.cli.cluster import Cluster

COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}


def answers_to(cluster: Cluster, target: str) -> list[tuple[str, str, str, str]]:
    """Return kind, name, group and verdict of each answer."""
    shown = cluster.json("why", target)
    every = shown["items"] if shown["kind"] == "List" else [shown]
    return [(each["kind"], each["name"], each.get("group", ""), each["verdict"]) for each in every]


def pods(cluster: Cluster, owner: Json, *names: str, group: str = "") -> None:
    for name in names:
        cluster.pod(name, group, gates=[GATE], metadata={"ownerReferences": [owner]})


# ---- a name alone


@pytest.mark.parametrize(
    ("name", "kind"), [("g", "PodGroup"), ("q", "Queue"), ("g-0", "Pod"), ("idle", "Deployment")]
)
def test_a_name_is_looked_for_among_all(cluster: Cluster, proxy: ApiProxy, name: str, kind: str) -> None:
    cluster.gang("g", 1)
    cluster.queue("q")
    proxy.workload("apps/v1", "Deployment", "idle", spec={"replicas": 0})
    ((of, called, _, _),) = answers_to(cluster, name)
    assert (of, called) == (kind, name)


def test_all_objects_of_one_name_are_listed(cluster: Cluster, proxy: ApiProxy) -> None:
    cluster.group("train")
    cluster.queue("train", state="Open")
    proxy.workload("batch/v1", "Job", "train", spec={"suspend": True})
    assert cluster.output("why", "train") == (
        "In namespace team, train may mean:\n\n"
        "WHAT             VERDICT   REASON\n"
        "podgroup/train   Waiting   NoRoom\n"
        "job/train        NoPods    -\n"
        "queue/train      Open      -\n\n"
        "About one of them, for example: muster why podgroup/train -n team\n"
    )


def test_a_job_in_the_group_of_its_name_is_one_answer(cluster: Cluster, proxy: ApiProxy) -> None:
    cluster.group("train")
    pods(cluster, proxy.workload("batch/v1", "Job", "train"), "train-a", "train-b", group="train")
    assert answers_to(cluster, "train") == [("PodGroup", "train", "", "Waiting")]


def test_a_pod_in_the_group_of_its_name_is_one_answer(cluster: Cluster, proxy: ApiProxy) -> None:
    cluster.group("train", min_member=1)
    cluster.pod("train", "train", gates=[GATE])
    assert answers_to(cluster, "train") == [("Pod", "train", "train", "Waiting")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("trian", "is called 'trian' in namespace team; did you mean podgroup/train?"),
        ("far", "is called 'far' in namespace team; there is podgroup/far in namespace other: add -n other"),
        ("zzz", "is called 'zzz' in namespace team"),
    ],
)
def test_a_name_that_no_kind_has_is_reported(
    cluster: Cluster, proxy: ApiProxy, name: str, message: str
) -> None:
    cluster.group("train")
    cluster.group("far", namespace="other")
    assert cluster.refuses("why", name) == f"Error: no pod, podgroup, queue or workload {message}"


@pytest.mark.parametrize("target", ["{}", "podgroup/{}"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("trian", "2 pods name trian: did you mean train?"),
        ("far", "1 pod names far: there is podgroup/far in namespace other: add -n other"),
        ("zzz", "1 pod names zzz: no podgroup has this name"),
    ],
)
def test_pods_that_name_a_group_that_there_is_not_are_counted(
    cluster: Cluster, proxy: ApiProxy, target: str, name: str, message: str
) -> None:
    cluster.group("train")
    cluster.group("far", namespace="other")
    for pod, group in (("a", "trian"), ("b", "trian"), ("c", "far"), ("d", "zzz")):
        cluster.pod(pod, group, gates=[GATE])
    assert cluster.refuses("why", target.format(name)).endswith(f" in namespace team; {message}")


def test_unreadable_kinds_are_named(cluster: Cluster, proxy: ApiProxy) -> None:
    proxy.workload("batch/v1", "Job", "other")
    proxy.unreadable |= {"x"}  # every object of that name
    assert "you may not read pods, podgroups, jobs, cronjobs, queues" in cluster.refuses("why", "x")


# ---- workloads


def test_a_job_leads_to_its_group(cluster: Cluster, proxy: ApiProxy) -> None:
    cluster.group("g", min_member=2)
    pods(cluster, proxy.workload("batch/v1", "Job", "train"), "train-a", "train-b", group="g")
    assert answers_to(cluster, "job/train") == [("Job", "train", "g", "Waiting")]
    assert "Members: 2 needed, 2 there" in cluster.output("why", "job/train")


@pytest.mark.parametrize(
    "target", ["jobs/train", "job.batch/train", "jobs.batch/train", "Job/train", "cj/nightly"]
)
def test_workloads_are_named_as_kubectl_names_them(cluster: Cluster, proxy: ApiProxy, target: str) -> None:
    cluster.group("g")
    job = proxy.workload("batch/v1", "Job", "train", proxy.workload("batch/v1", "CronJob", "nightly"))
    pods(cluster, job, "train-a", group="g")
    assert answers_to(cluster, target)[0][2:] == ("g", "Waiting")


@pytest.mark.parametrize(
    ("target", "chain"),
    [
        ("deployment/x", [("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet")]),
        ("sts/x", [("apps/v1", "StatefulSet")]),
        ("jobset/x", [("jobset.x-k8s.io/v1alpha2", "JobSet"), ("batch/v1", "Job")]),
        ("pytorchjob/x", [("kubeflow.org/v1", "PyTorchJob")]),
        ("mpijob.kubeflow.org/x", [("kubeflow.org/v2beta1", "MPIJob")]),
    ],
)
def test_owners_are_followed_up(
    cluster: Cluster, proxy: ApiProxy, target: str, chain: list[tuple[str, str]]
) -> None:
    cluster.group("g")
    cluster.group("other")
    cluster.pod("stranger", "other", gates=[GATE])
    owner: Json | None = None
    for number, (api_version, kind) in enumerate(chain):
        owner = proxy.workload(api_version, kind, "x" if number == 0 else f"x-{number}", owner)
    assert owner
    pods(cluster, owner, "x-pod", group="g")
    assert [group for _, _, group, _ in answers_to(cluster, target)] == ["g"]


@pytest.mark.parametrize("named", [{"labels": {QUEUE: "q"}}, {"annotations": {QUEUE: "q"}}])
def test_pods_of_a_deployment_are_in_its_queue(cluster: Cluster, proxy: ApiProxy, named: Json) -> None:
    cluster.queue("q", state="Open")
    web = proxy.workload("apps/v1", "Deployment", "web", **named)
    owner = proxy.workload("apps/v1", "ReplicaSet", "web-1", web)
    group = "podgroup-uid-ReplicaSet-web-1"
    cluster.group(group, more_metadata={"ownerReferences": [owner]})
    pods(cluster, owner, "web-1-a", group=group)
    answer = cluster.answer("deployment/web")
    assert answer.queue is not None
    assert answer.queue.name == "q"


def test_a_group_that_an_operator_made_is_its_owners(cluster: Cluster, proxy: ApiProxy) -> None:
    owner = proxy.workload("kubeflow.org/v1", "PyTorchJob", "train")
    cluster.group("train-0", more_metadata={"ownerReferences": [owner]})
    assert answers_to(cluster, "pytorchjob/train") == [("PyTorchJob", "train", "train-0", "Waiting")]


def test_executors_belong_to_the_owner_of_their_driver(cluster: Cluster, proxy: ApiProxy) -> None:
    cluster.group("g")
    app = {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "name": "etl",
        "uid": "u",
    }
    cluster.pod("driver", "h", node="n0", metadata={"uid": "d", "ownerReferences": [app]})
    driver = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": "d"}
    pods(cluster, driver, "exec-1", group="g")
    assert ("SparkApplication", "etl", "g", "Waiting") in answers_to(cluster, "sparkapplication/etl")


def test_a_workload_with_several_groups_lists_them(cluster: Cluster, proxy: ApiProxy) -> None:
    owner = proxy.workload("jobset.x-k8s.io/v1alpha2", "JobSet", "x")
    for name in ("driver", "workers"):
        cluster.group(name)
        pods(cluster, proxy.workload("batch/v1", "Job", name, owner), f"{name}-0", group=name)
    shown = cluster.output("why", "jobset/x").splitlines()
    assert [line.split()[0] for line in shown[3:5]] == ["podgroup/driver", "podgroup/workers"]


def test_ended_runs_of_a_cron_job_are_left_out(cluster: Cluster, proxy: ApiProxy) -> None:
    cron = proxy.workload("batch/v1", "CronJob", "nightly")
    for name, phase in (("monday", "Completed"), ("tuesday", "Pending")):
        cluster.group(name, phase)
        pods(cluster, proxy.workload("batch/v1", "Job", name, cron), f"{name}-0", group=name)
    assert answers_to(cluster, "cronjob/nightly") == [("CronJob", "nightly", "tuesday", "Waiting")]


def test_equal_pods_without_a_group_are_one_answer(cluster: Cluster, proxy: ApiProxy) -> None:
    owner = proxy.workload("batch/v1", "Job", "x")
    pods(cluster, owner, "a", "b", "c")
    answer = cluster.answer("job/x")
    assert (answer.display_name, answer.verdict) == ("pod/a", "Waiting")
    assert Statement("MorePods", pods="2 more pods") in answer.notes


@pytest.mark.parametrize(
    ("kind", "parts", "verdict", "stands"),
    [
        ("CronJob", {"spec": {"suspend": True}}, "NoPods", Statement("WorkloadSuspended")),
        ("Deployment", {"spec": {"replicas": 0}}, "NoPods", Statement("NoReplicas")),
        ("Job", {}, "NoPods", Statement("NoPods")),
        ("Job", {"status": COMPLETE}, "Ended", Statement("WorkloadEndedAs", ending="Complete")),
    ],
)
def test_a_workload_without_pods(
    cluster: Cluster, proxy: ApiProxy, kind: str, parts: Json, verdict: str, stands: Statement
) -> None:
    proxy.workload("apps/v1" if kind == "Deployment" else "batch/v1", kind, "x", **parts)
    answer = cluster.answer(f"{kind.lower()}/x")
    assert (answer.verdict, answer.sentence) == (verdict, [stands])


def test_a_deployment_whose_pods_are_refused_says_why(cluster: Cluster, proxy: ApiProxy) -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": 'queue "vip" is restricted'}
    proxy.workload("apps/v1", "Deployment", "web", status={"conditions": [failure]})
    assert '\n  queue "vip" is restricted\n' in cluster.output("why", "deploy/web")


def test_resuming_a_job_is_offered_to_those_with_the_right(cluster: Cluster, proxy: ApiProxy) -> None:
    proxy.workload("batch/v1", "Job", "x", spec={"suspend": True})
    line = """kubectl -n team patch jobs.batch x --type merge -p '{"spec": {"suspend": false}}'"""
    assert line in cluster.output("why", "job/x")
    proxy.denied.add(("patch", "jobs"))
    command = next(each for each in cluster.json("why", "job/x")["commands"] if each["line"] == line)
    assert (command["right"], command["allowed"]) == ("patch jobs x in team", False)


def test_without_the_right_to_list_pods_a_workload_leads_nowhere(cluster: Cluster, proxy: ApiProxy) -> None:
    proxy.workload("batch/v1", "Job", "x")
    cluster.lock(("pods", "team"))
    assert cluster.codes("job/x") == ("Unknown", "", ["PodsUnknown"])


def test_a_workload_that_is_not_there(cluster: Cluster, proxy: ApiProxy) -> None:
    proxy.workload("batch/v1", "Job", "train")
    assert cluster.misses("why", "job/tarin") == ("tarin", ["train"])
    assert cluster.refuses("why", "jobset/x") == "Error: the cluster knows no jobsets.jobset.x-k8s.io"


def test_owners_in_a_circle_end(cluster: Cluster, proxy: ApiProxy) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "uid-Job-a"}
    proxy.workload("batch/v1", "Job", "a", job)
    pods(cluster, job, "p")
    assert answers_to(cluster, "job/a")[0][0] == "Pod"
