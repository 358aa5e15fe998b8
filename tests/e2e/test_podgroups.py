"""The life of PodGroups: phases and counts, groups of pods that name none, groups of other kinds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.harness import manifests
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.objects import GROUP_NAME, QUEUE_NAME, pod_group
from tests.e2e.harness.objects import pod as pod_of
from tests.e2e.harness.process import Process
from tests.e2e.harness.resources import (
    DEPLOYMENTS,
    JOBS,
    PLUGINS_POD_GROUPS,
    POD_GROUPS,
    PODS,
    QUEUES,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
DATA = Path(__file__).parent / "data"
MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
OUR_MIN_MEMBER = "kube-muster.io/min-member"
QUEUE_UID = "kube-muster.io/queue-uid"
STOOD_WHOLE = "kube-muster.io/stood-whole"


@pytest.fixture
def controllers(cluster: ControlPlane) -> Iterator[Process]:
    """Yield a kube-controller-manager for this test."""
    process = cluster.start_controller_manager()
    yield process
    process.kill()


# ---- a whole life


def test_a_group_goes_through_its_phases_to_a_good_end(stage: Stage, scheduler: KubeScheduler) -> None:
    gang = stage.gang("a", 3)
    stage.wait_group("a", phase="Pending")
    stage.nodes(1, cpu="3")
    stage.wait_group("a", phase="Running", running=3)
    stage.finish(gang[:1])
    stage.wait_group("a", phase="Running", running=2, succeeded=1)
    stage.finish(gang[1:])
    found = stage.wait_group("a", phase="Completed", running=0, succeeded=3, failed=0)
    assert stage.reason("a") == "Completed"
    default = stage.api.get(QUEUES, "default")
    assert _taken_in_by(found) == default["metadata"]["uid"]


def test_a_group_that_ends_short_says_that_it_failed(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(1)
    queue = stage.queue("team")
    gang = stage.gang("a", 2, queue="team")
    stage.wait_group("a", phase="Running", running=2)
    stage.finish(gang[:1])
    stage.kubelet.finish(stage.namespace, gang[1:], "Failed")
    found = stage.wait_group("a", phase="Completed", running=0, succeeded=1, failed=1)
    assert stage.reason("a") == "Failed"
    assert _taken_in_by(found) == queue["metadata"]["uid"]


def test_a_group_that_lost_a_member_is_unknown_until_it_is_replaced(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    stage.nodes(1)
    gang = stage.gang("a", 2)
    stage.wait_group("a", phase="Running", running=2)
    stage.delete_pods(gang[:1])
    stage.wait_group("a", phase="Unknown", running=1)
    stage.pods("b", 1, group="a")
    stage.wait_group("a", phase="Running", running=2)


def test_a_group_that_needs_no_members_runs_with_its_first_member(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(1)
    stage.group("a", 0)
    stage.wait_group("a", phase="Pending")
    stage.wait_reason("a", "NotEnoughMembers")
    stage.pods("a", 1, group="a")
    stage.wait_group("a", phase="Running", running=1)


# ---- who comes first


# ---- groups of pods that name none


@pytest.mark.muster_flags("--podgroups-for-plain-pods", "always")
def test_a_plain_pod_gets_a_group_and_its_name(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(1)
    stage.queue("team")
    (pod,) = stage.pods("p", 1, queue="team", annotations={"volcano.sh/preemptable": "true"})
    name = stage.own_group(pod)
    found = stage.wait_group(name, phase="Running", running=1)
    assert found["spec"] == {
        "minMember": 1,
        "queue": "team",
        "minResources": {"cpu": "1", "memory": "67108864"},
    }
    assert [each["kind"] for each in found["metadata"]["ownerReferences"]] == ["Pod"]
    assert found["metadata"]["annotations"]["volcano.sh/preemptable"] == "true"
    wait_for(lambda: _group_of(stage, pod) == name, what="the pod bears the name of its group")
    stage.finish([pod])
    stage.wait_group(name, phase="Completed", succeeded=1)


@pytest.mark.muster_flags("--auto-groups", "off")
def test_switched_off_plain_pods_get_no_group(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(1)
    pods = stage.pods("p", 2)
    stage.wait_phase(pods)
    assert stage.api.items(POD_GROUPS, stage.namespace) == []
    assert [_group_of(stage, pod) for pod in pods] == [None, None]


def test_pods_of_a_deployment_share_a_group_that_goes_with_its_revision(
    stage: Stage, scheduler: KubeScheduler, controllers: Process
) -> None:
    stage.nodes(1)
    stage.api.create(DEPLOYMENTS, _workload(stage, "Deployment", "web", 3))
    wait_for(lambda: _running(stage, "web") == 3, what="three replicas running")
    (first,) = stage.api.items(REPLICA_SETS, stage.namespace)
    group = stage.wait_group(f"podgroup-{first['metadata']['uid']}", phase="Running", running=3)
    assert group["spec"]["minMember"] == 1
    assert len(stage.api.items(POD_GROUPS, stage.namespace)) == 1
    labels = {"spec": {"template": {"metadata": {"labels": {"app": "web", "revision": "2"}}}}}
    stage.api.patch(DEPLOYMENTS, "web", labels, stage.namespace)
    wait_for(lambda: _group_names(stage) == {_second(stage, first)}, what="the old revision's group gone")


def test_a_replicaset_may_ask_for_its_pods_to_start_together(
    stage: Stage, scheduler: KubeScheduler, controllers: Process
) -> None:
    stage.nodes(1, cpu="2")
    made = stage.api.create(REPLICA_SETS, _workload(stage, "ReplicaSet", "web", 3, min_member=3))
    name = f"podgroup-{made['metadata']['uid']}"
    stage.wait_group(name, phase="Pending")
    assert stage.wait_reason(name, "NeverFits", "NoRoom", "Fragmented")
    assert _running(stage, "web") == 0
    stage.nodes(1, prefix="more")
    group = stage.wait_group(name, phase="Running", running=3)
    assert group["spec"]["minMember"] == 3


def test_a_statefulset_whose_annotation_changes_changes_its_group(
    stage: Stage, scheduler: KubeScheduler, controllers: Process
) -> None:
    stage.nodes(1)
    body = _workload(stage, "StatefulSet", "db", 2, min_member=2)
    body["spec"] |= {"serviceName": "db", "podManagementPolicy": "Parallel"}
    made = stage.api.create(STATEFUL_SETS, body)
    name = f"podgroup-{made['metadata']['uid']}"
    stage.wait_group(name, phase="Running", running=2)
    changed = {"metadata": {"annotations": {MIN_MEMBER: "1"}}}
    stage.api.patch(STATEFUL_SETS, "db", changed, stage.namespace)
    wait_for(lambda: stage.pod_group(name)["spec"]["minMember"] == 1, what="minMember rewritten")


@pytest.mark.parametrize("asked", [{MIN_MEMBER: "2"}, {OUR_MIN_MEMBER: "2"}, {OUR_MIN_MEMBER: "all"}])
def test_a_rolling_update_of_a_gang_goes_through(
    stage: Stage, scheduler: KubeScheduler, controllers: Process, asked: dict[str, str]
) -> None:
    """A revision begins with one pod, and later has both."""
    stage.nodes(1, cpu="4")
    body = _workload(stage, "Deployment", "web", 2)
    body["metadata"]["annotations"] = asked
    body["spec"]["template"]["metadata"]["annotations"] = asked
    stage.api.create(DEPLOYMENTS, body)
    wait_for(lambda: _running(stage, "web") == 2, what="both replicas running")
    (first,) = stage.api.items(REPLICA_SETS, stage.namespace)
    assert stage.pod_group(f"podgroup-{first['metadata']['uid']}")["spec"]["minMember"] == 2
    labels = {"spec": {"template": {"metadata": {"labels": {"revision": "2"}}}}}
    stage.api.patch(DEPLOYMENTS, "web", labels, stage.namespace)
    wait_for(lambda: _running(stage, "web,revision=2") == 2, what="both replicas of the next revision")
    stage.wait_group(_second(stage, first), phase="Running", running=2)


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_pods_are_in_the_queue_that_only_their_owner_names(
    stage: Stage, scheduler: KubeScheduler, controllers: Process, kind: str
) -> None:
    stage.nodes(1, cpu="4")
    stage.queue("team")
    body = _workload(stage, kind, "work", 2)
    body["metadata"]["labels"] = {QUEUE_NAME: "team"}
    if kind == "Job":
        body["spec"] |= {"parallelism": 2, "completions": 2}
    stage.api.create(JOBS if kind == "Job" else DEPLOYMENTS, body)
    held = {"cpu": "2", "pods": "2"}
    wait_for(
        lambda: held.items() <= stage.api.get(QUEUES, "team").get("status", {}).get("allocated", {}).items(),
        what="the queue counts both pods",
    )
    assert _running(stage, "work") == 2


def test_a_gang_whose_pods_are_created_in_turn_says_that_it_cannot_start(
    stage: Stage, scheduler: KubeScheduler, controllers: Process
) -> None:
    stage.nodes(1)
    body = _workload(stage, "StatefulSet", "db", 3)
    body["metadata"]["annotations"] = {OUR_MIN_MEMBER: "all"}
    body["spec"] |= {"serviceName": "db", "podManagementPolicy": "OrderedReady"}
    name = f"podgroup-{stage.api.create(STATEFUL_SETS, body)['metadata']['uid']}"
    stage.wait_group(name, phase="Pending")
    assert stage.wait_reason(name, "InvalidSpec")
    (said,) = stage.pod_group(name)["status"]["conditions"]
    assert "Parallel" in said["message"]


def test_a_suspended_job_aborts_its_group(
    stage: Stage, scheduler: KubeScheduler, controllers: Process
) -> None:
    stage.nodes(1)
    body = _workload(stage, "Job", "work", 0, min_member=2)
    body["spec"] |= {"parallelism": 2, "completions": 2}
    made = stage.api.create(JOBS, body)
    name = f"podgroup-{made['metadata']['uid']}"
    stage.wait_group(name, phase="Running", running=2)
    stage.api.patch(JOBS, "work", {"spec": {"suspend": True}}, stage.namespace)
    stage.wait_reason(name, "Aborted")
    stage.api.patch(JOBS, "work", {"spec": {"suspend": False}}, stage.namespace)
    stage.wait_group(name, phase="Running", running=2)


@pytest.mark.muster_flags("--podgroups-for-plain-pods", "always")
def test_a_deleted_group_is_created_again(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(1)
    (pod,) = stage.pods("p", 1)
    name = stage.own_group(pod)
    before = stage.wait_group(name, phase="Running")["metadata"]["uid"]
    wait_for(lambda: _group_of(stage, pod) == name, what="the pod bears the name of its group")
    stage.api.delete(POD_GROUPS, name, stage.namespace)
    wait_for(
        lambda: stage.wait_group(name)["metadata"]["uid"] != before, what="another group of the same name"
    )
    stage.wait_group(name, phase="Running", running=1)


# ---- groups of other kinds


@pytest.fixture
def plugins(stage: Stage) -> Iterator[None]:
    """Install the PodGroup of scheduler-plugins, as released."""
    documents = list(yaml.safe_load_all((DATA / "scheduler-plugins-podgroups.yaml").read_text()))
    written = manifests.install(stage.api, documents)
    yield
    manifests.remove(stage.api, written)


def test_a_group_of_scheduler_plugins_starts_whole(
    stage: Stage, plugins: None, scheduler: KubeScheduler
) -> None:
    body = pod_group("a", namespace=stage.namespace, min_member=3)
    body |= {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "spec": {"minMember": 3}}
    stage.api.create(PLUGINS_POD_GROUPS, body)
    stage.nodes(1, cpu="2")
    gang = stage.pods("a", 3, labels={"scheduling.x-k8s.io/pod-group": "a"})
    stage.nodes(1, prefix="more", cpu="1")
    stage.wait_phase(gang)

    def recorded() -> bool:
        found = stage.api.get(PLUGINS_POD_GROUPS, "a", stage.namespace)
        assert "status" not in found
        record = found["metadata"].get("annotations", {}).get(STOOD_WHOLE)
        return bool(record == f"{found['spec']['minMember']}/{found['metadata']['uid']}")

    wait_for(recorded, what="the record that the group ran fully")
    assert stage.api.items(POD_GROUPS, stage.namespace) == []


# ---- words


def _workload(stage: Stage, kind: str, name: str, replicas: int, min_member: int = 0) -> Json:
    template = pod_of(name, namespace=stage.namespace)
    spec = {key: value for key, value in template["spec"].items() if key != "schedulingGates"}
    metadata: Json = {"name": name, "namespace": stage.namespace}
    if min_member:
        metadata["annotations"] = {MIN_MEMBER: str(min_member)}
    labels = {"app": name}
    made: Json = {"replicas": replicas, "selector": {"matchLabels": labels}}
    if kind == "Job":
        made = {}
        spec["restartPolicy"] = "Never"
    made["template"] = {"metadata": {"labels": labels}, "spec": spec}
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": made}


def _taken_in_by(group: Json) -> str:
    """Return the UID of the queue that is noted on a PodGroup."""
    queue, _, own = group["metadata"]["annotations"][QUEUE_UID].partition("/")
    assert own == group["metadata"]["uid"]
    return str(queue)


def _group_of(stage: Stage, pod: str) -> str | None:
    found: str | None = stage.pod(pod)["metadata"].get("annotations", {}).get(GROUP_NAME)
    return found


def _group_names(stage: Stage) -> set[str]:
    return {each["metadata"]["name"] for each in stage.api.items(POD_GROUPS, stage.namespace)}


def _second(stage: Stage, first: Json) -> str:
    """Return the group of the ReplicaSet that came after the first."""
    uids = {each["metadata"]["uid"] for each in stage.api.items(REPLICA_SETS, stage.namespace)}
    return f"podgroup-{next(iter(uids - {first['metadata']['uid']}), '')}"


def _running(stage: Stage, app: str) -> int:
    pods = stage.api.items(PODS, stage.namespace, labelSelector=f"app={app}")
    return sum(pod["status"]["phase"] == "Running" for pod in pods)
