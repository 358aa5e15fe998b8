"""The example of Kube Queue's introduction, as it is written: a tree of quotas, two Jobs of its namespace.

Nothing in them names Muster, a queue or a scheduler: Muster runs next to the cluster's own one.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import KUBERNETES
from tests.e2e.harness import manifests, objects
from tests.e2e.harness.access import User
from tests.e2e.harness.jobs import StagedJobs
from tests.e2e.harness.policy import WITHOUT_POLICIES
from tests.e2e.harness.resources import (
    ELASTIC_QUOTA_TREES,
    ELASTIC_QUOTAS,
    JOBS,
    MUTATING_POLICIES,
    POD_GROUPS,
    PODS,
    QUEUES,
)
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

pytestmark = pytest.mark.skipif(KUBERNETES in WITHOUT_POLICIES, reason="pods are marked by a policy there")

Json = dict[str, Any]
DATA = Path(__file__).parent / "data"
DEFAULT = "default"


@pytest.fixture
def tree(stage: Stage, job_rights: None, muster_user: User, tls: Path) -> Iterator[None]:
    """Apply the whole default-scheduler install, including the components for quotas and jobs."""
    written = manifests.apply(stage.api, "quota/crd.yaml", "quota/rbac.yaml")
    made: Json = yaml.safe_load((DATA / "elastic-quota-tree.yaml").read_text())
    try:
        with stage.policy("default-scheduler/admission-policy.yaml"):
            names = ("default-scheduler", "muster")
            muster = stage.start_muster(
                f"--tls-folder={tls / 'muster'}", user=muster_user, scheduler_names=names
            )
            stage.start_scheduler("default-scheduler.yaml", muster=muster.address, tls=tls / "scheduler")
            stage.start_controller_manager()
            stage.api.create(ELASTIC_QUOTA_TREES, made)
            yield
    finally:
        for kind in (JOBS, PODS, POD_GROUPS):
            stage.api.delete_all(kind, DEFAULT)
        stage.api.delete_all(ELASTIC_QUOTA_TREES, "kube-system")
        manifests.remove(stage.api, written)


def test_jobs_of_a_quota_queue_run_one_after_the_other(stage: Stage, tree: None) -> None:
    stage.nodes(1, cpu="4")
    wait_for(lambda: stage.api.find(QUEUES, "child-1"), what="the queue of the namespace")
    jobs = StagedJobs(stage.api, DEFAULT, stage.kubelet)
    job: Json = yaml.safe_load((DATA / "queued-job.yaml").read_text())
    job["metadata"]["namespace"] = DEFAULT
    names = [stage.api.create(JOBS, job)["metadata"]["name"] for _ in range(2)]

    (first,) = wait_for(lambda: [name for name in names if jobs.pods(name, "Running")], what="one runs")
    (second,) = [name for name in names if name != first]
    unit = f"podgroup-{jobs.get(second)['metadata']['uid']}"
    wait_for(lambda: "QueueCeiling" in _messages(stage, unit), what="the other waits, and says why")
    assert jobs.get(second)["spec"]["suspend"]
    assert jobs.pods(second) == []

    jobs.finish(first)
    jobs.wait_condition(first, "Complete")
    jobs.wait_pods(second, 1, "Running")
    jobs.finish(second)
    jobs.wait_condition(second, "Complete")


def _messages(stage: Stage, unit: str) -> list[str]:
    found = stage.api.find(POD_GROUPS, unit, DEFAULT) or {}
    return [each["reason"] for each in found.get("status", {}).get("conditions", [])]


def test_pods_that_name_nothing_enter_the_queue_of_their_namespaces_quota(stage: Stage, tree: None) -> None:
    """Mark pods by the component; the kind ElasticQuota, which it reads as well, is not installed."""
    written = manifests.apply(stage.api, "quota-marks/admission-policy.yaml")
    try:
        stage.nodes(1, cpu="4")
        wait_for(lambda: is_flagged(stage, DEFAULT), what="the policy in force")
        wait_for(lambda: stage.api.find(QUEUES, "child-1"), what="the queue of the namespace")
        for name in ("first", "second"):
            stage.api.create(PODS, objects.pod(name, namespace=DEFAULT, scheduler="default-scheduler"))
        wait_for(lambda: _running(stage) == 1, what="one runs")

        def says_why() -> bool:
            units = [each["metadata"]["name"] for each in stage.api.items(POD_GROUPS, DEFAULT)]
            return any("QueueCeiling" in _messages(stage, unit) for unit in units)

        wait_for(says_why, what="the other waits")
        assert _running(stage) == 1
    finally:
        manifests.remove(stage.api, written)


def _running(stage: Stage) -> int:
    return sum(each["status"].get("phase") == "Running" for each in stage.api.items(PODS, DEFAULT))


@pytest.fixture
def marking(stage: Stage) -> Iterator[None]:
    """Install the kinds of quotas and the policies that read them, and no other policy."""
    elastic = list(yaml.safe_load_all((DATA / "elastic-quotas.yaml").read_text()))
    kinds = [*manifests.apply(stage.api, "quota/crd.yaml"), *manifests.install(stage.api, elastic)]
    written = manifests.apply(stage.api, "quota-marks/admission-policy.yaml")
    yield
    manifests.remove(stage.api, [*kinds, *written])


def is_flagged(stage: Stage, namespace: str) -> bool:
    """Return whether a pod that names nothing would be born with the gate and the marks."""
    shown = objects.pod("sample", namespace=namespace, scheduler="default-scheduler")
    made = stage.api.request("POST", f"{PODS.path(namespace)}?dryRun=All", shown)
    asked = made["spec"]["containers"][0]["resources"]["requests"]
    gated = {"name": objects.GATE} in made["spec"].get("schedulingGates", [])
    assert gated is ("kube-muster.io/place" in asked)
    return gated


def test_pods_of_namespaces_with_a_quota_get_marker_resources(stage: Stage, marking: None) -> None:
    """At any level of the tree, as soon as the quota is there and as long."""
    deep: Json = {"name": "deep", "namespaces": [stage.namespace]}
    for level in range(4):
        deep = {"name": f"level-{level}", "children": [{"name": f"side-{level}"}, deep]}
    made: Json = yaml.safe_load((DATA / "elastic-quota-tree.yaml").read_text())
    made["spec"]["root"]["children"].append(deep)
    assert not is_flagged(stage, stage.namespace)
    stage.api.create(ELASTIC_QUOTA_TREES, made)
    wait_for(lambda: is_flagged(stage, stage.namespace), what="marked by the tree")
    assert is_flagged(stage, DEFAULT)
    assert not is_flagged(stage, "kube-public")
    stage.api.delete_all(ELASTIC_QUOTA_TREES, "kube-system")
    wait_for(lambda: not is_flagged(stage, stage.namespace), what="marked no more")

    head = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "ElasticQuota"}
    meta = {"name": "q", "namespace": stage.namespace}
    stage.api.create(ELASTIC_QUOTAS, {**head, "metadata": meta, "spec": {"max": {"cpu": 1}}})
    wait_for(lambda: is_flagged(stage, stage.namespace), what="marked by the ElasticQuota")
    assert not is_flagged(stage, DEFAULT)
    for each in stage.api.items(MUTATING_POLICIES):
        checked = each.get("status", {}).get("typeChecking", {})
        assert not checked.get("expressionWarnings"), checked


def test_without_the_kinds_of_quotas_pods_are_let_through(stage: Stage) -> None:
    written = manifests.apply(stage.api, "quota-marks/admission-policy.yaml")
    try:
        wait_for(lambda: not is_flagged(stage, stage.namespace), what="pods are admitted")
    finally:
        manifests.remove(stage.api, written)
