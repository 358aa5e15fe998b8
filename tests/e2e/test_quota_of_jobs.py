"""The example of Kube Queue's introduction, as it is written: a tree of quotas, two Jobs of its namespace.

Nothing in them names Muster, a queue or a scheduler: Muster stands beside the cluster's own one.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import KUBERNETES
from tests.e2e.harness import manifests
from tests.e2e.harness.access import User
from tests.e2e.harness.jobs import StagedJobs
from tests.e2e.harness.policy import WITHOUT_POLICIES
from tests.e2e.harness.resources import ELASTIC_QUOTA_TREES, JOBS, POD_GROUPS, PODS, QUEUES
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

pytestmark = pytest.mark.skipif(KUBERNETES in WITHOUT_POLICIES, reason="pods are marked by a policy there")

Json = dict[str, Any]
DATA = Path(__file__).parent / "data"
DEFAULT = "default"


@pytest.fixture
def tree(stage: Stage, muster_user: User, tls: Path) -> Iterator[None]:
    """With the whole default-scheduler install, its components for quotas and jobs among it."""
    files = ("quota/crd.yaml", "quota/rbac.yaml", "jobs/batch/rbac.yaml")
    written = manifests.apply(stage.api, *files)
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


def test_one_job_runs_and_the_other_waits_its_turn(stage: Stage, tree: None) -> None:
    stage.nodes(1, cpu="4")
    wait_for(lambda: stage.api.find(QUEUES, "child-1"), what="the queue of the namespace")
    jobs = StagedJobs(stage.api, DEFAULT, stage.kubelet)
    job: Json = yaml.safe_load((DATA / "queued-job.yaml").read_text())
    job["metadata"]["namespace"] = DEFAULT
    names = [stage.api.create(JOBS, job)["metadata"]["name"] for _ in range(2)]

    (first,) = wait_for(lambda: [name for name in names if jobs.pods(name, "Running")], what="one runs")
    (second,) = [name for name in names if name != first]
    unit = f"podgroup-{jobs.get(second)['metadata']['uid']}"
    wait_for(lambda: "QueueCeiling" in _said(stage, unit), what="the other waits, and says why")
    assert jobs.get(second)["spec"]["suspend"]
    assert jobs.pods(second) == []

    jobs.finish(first)
    jobs.wait_condition(first, "Complete")
    jobs.wait_pods(second, 1, "Running")
    jobs.finish(second)
    jobs.wait_condition(second, "Complete")


def _said(stage: Stage, unit: str) -> list[str]:
    found = stage.api.find(POD_GROUPS, unit, DEFAULT) or {}
    return [each["reason"] for each in found.get("status", {}).get("conditions", [])]
