"""Jobs of a tenant that Muster may not change, or whose pods are refused or stay: others start as before."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from extender.api.keys import QUEUE
from tests.e2e.harness import objects
from tests.e2e.harness.client import Client
from tests.e2e.harness.jobs import job
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import EVENTS, JOBS, NAMESPACES, POD_GROUPS, PODS, VOLCANO_JOBS, Resource
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.volcano_jobs import VERSION, VolcanoJobs, task
from tests.e2e.harness.waiting import wait_for

pytestmark = [
    pytest.mark.view,
    pytest.mark.muster_flags("--volcano-jobs=on", "--start-backoff=1s"),
    pytest.mark.usefixtures("job_rights", "volcano_kinds"),
]

Json = dict[str, Any]
MOST = 256 * 1024  # bytes of an object's annotations
ENDLESS = 2_000_000_000  # seconds


@pytest.fixture
def jobs(stage: Stage, editor: Client, muster: Muster, scheduler: KubeScheduler) -> VolcanoJobs:
    """Return Volcano Jobs of a user with the role edit, on four cpu."""
    stage.nodes(2, cpu="2")
    stage.start_controller_manager()
    return VolcanoJobs(editor, stage.namespace, stage.kubelet)


def full(**more: str) -> dict[str, str]:
    """Return as many annotations as the API server accepts."""
    used = sum(map(len, (*more, *more.values(), "fill")))
    return {**more, "fill": "x" * (MOST - used)}


def volcano_job(namespace: str) -> Json:
    meta = {"name": "full", "namespace": namespace, "annotations": full()}
    spec = {"schedulerName": "volcano", "tasks": [task(replicas=4)]}
    return {"apiVersion": VERSION, "kind": "Job", "metadata": meta, "spec": spec}


def kubernetes_job(namespace: str) -> Json:
    queue = {QUEUE: "default"}
    return job("full", namespace=namespace, parallelism=4, suspend=True, annotations=full(**queue))


@pytest.mark.parametrize(
    ("kind", "made"), [(JOBS, kubernetes_job), (VOLCANO_JOBS, volcano_job)], ids=["job", "vcjob"]
)
def test_a_job_that_muster_may_not_change_holds_no_capacity(
    stage: Stage, jobs: VolcanoJobs, kind: Resource, made: Callable[[str], Json]
) -> None:
    """It runs once it may be changed."""
    jobs.client.create(kind, made(stage.namespace))
    reported = partial(_is_reported, stage, "full", "StartGivenUp", "metadata.annotations: Too long")
    wait_for(reported, what="the reason is reported")
    other = stage.gang("other", 4, gated=True)
    stage.wait_phase(other)
    stage.delete_pods(other)
    jobs.client.patch(kind, "full", {"metadata": {"annotations": {"fill": None}}}, stage.namespace)
    wait_for(lambda: len(_running(stage)) == 4, what="its pods run")


def test_a_group_whose_annotations_are_full_waits_and_says_so(
    stage: Stage, jobs: VolcanoJobs, editor: Client
) -> None:
    new_group = objects.pod_group("full", namespace=stage.namespace, min_member=2, annotations=full())
    editor.create(POD_GROUPS, new_group)
    pods = stage.pods("full", 2, group="full", gated=True)
    stage.wait_reason("full", "InvalidSpec")
    stage.wait_phase(stage.gang("other", 2, gated=True))
    editor.patch(POD_GROUPS, "full", {"metadata": {"annotations": {"fill": None}}}, stage.namespace)
    stage.wait_phase(pods)
    editor.patch(POD_GROUPS, "full", {"metadata": {"annotations": {"fill": "x" * 261_000}}}, stage.namespace)
    stage.finish(pods)
    stage.wait_group("full", phase="Completed")


def test_pods_that_pod_security_refuses_end_the_start_within_seconds(stage: Stage, jobs: VolcanoJobs) -> None:
    """Report the API server's message; the job runs once its pods are not refused."""
    label = "pod-security.kubernetes.io/enforce"
    stage.api.patch(NAMESPACES, stage.namespace, {"metadata": {"labels": {label: "restricted"}}})
    jobs.create("refused", task(replicas=4))
    words = 'refused: violates PodSecurity "restricted:latest": allowPrivilegeEscalation'
    wait_for(partial(_is_reported, stage, "refused", "StartGivenUp", words), what="the reason is reported")
    stage.api.patch(NAMESPACES, stage.namespace, {"metadata": {"labels": {label: None}}})
    jobs.wait_pods("refused", 4, "Running")


@pytest.mark.parametrize("end", ["given back", "aborted", "deleted"])
def test_the_capacity_of_a_volcano_job_is_reclaimed_however_long_its_grace_periods_are(
    stage: Stage, jobs: VolcanoJobs, editor: Client, end: str
) -> None:
    """Its queue gives them three seconds. Its phase says what is true until they have gone."""
    stage.queue("greedy", preemption={"maxGracePeriod": "3s"})
    stage.queue("starved")
    jobs.create("slow", task(replicas=4, terminationGracePeriodSeconds=ENDLESS), queue="greedy")
    pods = jobs.wait_pods("slow", 4, "Running")
    for name in pods:
        editor.patch(PODS, name, {"metadata": {"finalizers": ["example.com/keep"]}}, stage.namespace)
    stage.kubelet.off()
    if end == "aborted":
        VolcanoJobs(stage.api, stage.namespace, stage.kubelet).command("slow", "AbortJob")
        jobs.wait_phase("slow", "Aborting")
    elif end == "deleted":
        editor.delete(VOLCANO_JOBS, "slow", stage.namespace)
        jobs.wait_pods("slow", 0)
    due = stage.gang("due", 2, queue="starved", gated=True)

    def graces() -> set[int | None]:
        return {stage.pod(name)["metadata"].get("deletionGracePeriodSeconds") for name in pods}

    wait_for(lambda: graces() == {3}, what="no more than their queue gives them")
    if end != "deleted":
        jobs.wait_status("slow", terminating=4)
        assert jobs.phase("slow") == ("Aborting" if end == "aborted" else "Pending")
    stage.kubelet.on()
    stage.wait_phase(due)
    if end == "aborted":
        assert jobs.phase("slow") == "Aborting", "its pods are there, with their finalizers"
    for name in pods:
        editor.patch(PODS, name, {"metadata": {"finalizers": None}}, stage.namespace)
    if end == "aborted":
        jobs.wait_phase("slow", "Aborted")


def _is_reported(stage: Stage, about: str, reason: str, words: str) -> bool:
    found = stage.api.items(EVENTS, stage.namespace)
    reported = (each for each in found if (each["involvedObject"]["name"], each["reason"]) == (about, reason))
    return any(words in each["message"] for each in reported)


def _running(stage: Stage) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in stage.api.items(PODS, stage.namespace)
        if pod["status"]["phase"] == "Running" and pod["metadata"]["name"].startswith("full-")
    ]
