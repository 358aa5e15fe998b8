"""Jobs wait as jobs, with the job controller of kube-controller-manager."""

from collections.abc import Iterator

import pytest

from tests.e2e.harness import manifests
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import POD_GROUPS, PODS
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for

pytestmark = pytest.mark.view


@pytest.fixture(scope="module", autouse=True)
def component(cluster: ControlPlane) -> Iterator[None]:
    """The rights, before Muster looks for them."""
    name = {"name": "kube-muster-jobs"}
    api = "rbac.authorization.k8s.io"
    verbs = ["get", "list", "watch", "patch"]
    role = {"kind": "ClusterRole", "rules": [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": verbs}]}
    subjects = [{"kind": "ServiceAccount", "name": "muster", "namespace": "kube-muster"}]
    reference = {"apiGroup": api, "kind": "ClusterRole", **name}
    binding = {"kind": "ClusterRoleBinding", "subjects": subjects, "roleRef": reference}
    head = {"apiVersion": f"{api}/v1", "metadata": name}
    written = manifests.install(cluster.admin, [head | role, head | binding])
    yield
    manifests.remove(cluster.admin, written)


@pytest.fixture
def jobs(stage: Stage, muster: Muster, scheduler: KubeScheduler) -> Stage:
    stage.start_controller_manager()
    stage.nodes(2, cpu="2")
    return stage


def unit(stage: Stage, job: str) -> str:
    return f"podgroup-{stage.jobs.get(job)['metadata']['uid']}"


def wait_unit(stage: Stage, job: str, *reasons: str) -> str:
    name = unit(stage, job)
    wait_for(lambda: stage.api.find(POD_GROUPS, name, stage.namespace), what=f"the unit of {job}")
    return stage.wait_reason(name, *reasons)


def test_jobs_wait_without_pods_and_start_whole(jobs: Stage) -> None:
    jobs.job("first", parallelism=4, suspend=True, queue="default")
    jobs.jobs.wait_pods("first", 4, "Running")
    jobs.job("second", parallelism=3, suspend=True, queue="default")
    assert wait_unit(jobs, "second", "NoRoom", "Fragmented")
    assert jobs.jobs.pods("second") == []
    jobs.jobs.finish("first")
    jobs.jobs.wait_condition("first", "Complete")
    jobs.jobs.wait_pods("second", 3, "Running")
    jobs.wait_group(unit(jobs, "second"), phase="Running")
    names = {
        each["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
        for each in jobs.api.items(PODS, jobs.namespace)
    }
    assert unit(jobs, "second") in names
