"""Failing starts, as of impossible objects or refused pods: their own group loses turns and no other."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import (
    POD_GROUPS,
    PODS,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
)
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.volumes import Provisioner
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError

pytestmark = pytest.mark.view

Json = dict[str, Any]
SOON = 8.0  # seconds, on a machine that does other work, too
NO_CLAIM: Json = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "mistyped"}}]}


def scheduled(stage: Stage, group: str) -> str:
    """Return the message in the condition of a PodGroup."""
    conditions = stage.pod_group(group).get("status", {}).get("conditions", [])
    return next((found["message"] for found in conditions if found["type"] == "Scheduled"), "")


@pytest.mark.usefixtures("job_rights")
def test_a_suspended_job_that_fits_nowhere_blocks_no_other_job(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    """It would fill the window, in which one pod waits for a volume that never comes."""
    stage.nodes(2, cpu="16")
    stage.queue("giants")
    volumes = Provisioner(stage)
    stage.pods("slow", 1, **volumes.late("never"))
    wait_for(lambda: volumes.is_awaited("never"), what="the slow pod has a node")
    job = stage.job("giant", parallelism=1000, suspend=True, queue="giants", cpu="1000")
    unit = f"podgroup-{job['metadata']['uid']}"
    wait_for(lambda: stage.api.find(POD_GROUPS, unit, stage.namespace), what="the unit of the job")
    stage.wait_reason(unit, "NeverFits")
    gangs = [pod for number in range(7) for pod in stage.gang(f"g{number}", 2)]
    stage.wait_phase(gangs, timeout=SOON)


@pytest.mark.parametrize("members", [8, 1000])
def test_a_gang_that_names_a_claim_that_does_not_exist_backs_off(
    stage: Stage, scheduler: KubeScheduler, members: int
) -> None:
    """Back off for any size of the gang, and start plain gangs next to it at once."""
    stage.nodes(4, cpu="300", pods="1000")
    stage.gang("mistyped", members, cpu="1", **NO_CLAIM)
    stage.wait_reason("mistyped", "BackingOff")
    assert 'persistentvolumeclaim "mistyped" not found' in scheduled(stage, "mistyped")
    for number in range(4):
        stage.wait_phase(stage.gang(f"g{number}", 8), timeout=SOON)


def test_a_node_selector_with_a_typo_is_named(stage: Stage, scheduler: KubeScheduler) -> None:
    stage.nodes(2, cpu="4", labels={"disk": "ssd"})
    stage.gang("mistyped", 2, nodeSelector={"disk": "sdd"})
    stage.wait_reason("mistyped", "NeverFits")
    assert "no node has the label disk=sdd that nodeSelector names" in scheduled(stage, "mistyped")


def test_anti_affinity_of_pods_of_other_schedulers_is_respected(
    stage: Stage, scheduler: KubeScheduler
) -> None:
    """They stand on two of three nodes, and Muster plans on the third from the beginning."""
    stage.nodes(3, cpu="4")
    stage.start_scheduler()
    apart = {"labelSelector": {"matchLabels": {"app": "ours"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    guards = [
        pod
        for n in range(2)
        for pod in stage.pods(
            "guard", 1, first=n, scheduler="default-scheduler", affinity=affinity, nodeName=f"n{n}"
        )
    ]
    stage.wait_phase(guards)
    stage.gang("large", 5, labels={"app": "ours"})
    stage.wait_reason("large", "Fragmented", "NoRoom", "NeverFits")
    gang = stage.gang("a", 2, labels={"app": "ours"})
    assert set(stage.wait_bound(gang, timeout=SOON).values()) == {"n2"}


@pytest.fixture
def site_policy(stage: Stage) -> Iterator[None]:
    """Apply an admission policy of the site: no pod whose name begins with `doomed` is bound."""
    name = stage.namespace
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    denied = f"request.namespace != '{name}' || !request.name.startsWith('doomed')"
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": denied, "message": "site policy"}],
    }
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    stage.api.create(VALIDATING_POLICIES, {**api, "kind": "ValidatingAdmissionPolicy", "spec": spec})
    bound = {"policyName": name, "validationActions": ["Deny"]}
    binding = {**api, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound}
    stage.api.create(VALIDATING_POLICY_BINDINGS, binding)
    try:
        wait_for(lambda: is_refused(stage, "doomed"), what="the policy in force")
        yield
    finally:
        stage.api.delete(VALIDATING_POLICY_BINDINGS, name)
        stage.api.delete(VALIDATING_POLICIES, name)


def is_refused(stage: Stage, pod: str) -> bool:
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"name": "n0"}}
    try:
        stage.api.request("POST", PODS.path(stage.namespace, pod, "binding") + "?dryRun=All", body)
    except ApiError as fault:
        return "site policy" in str(fault)
    return False


@pytest.mark.usefixtures("site_policy")
@pytest.mark.parametrize("doomed", ["doomed", "doomed-1"], ids=["all", "one"])
def test_a_gang_whose_bindings_a_policy_refuses_backs_off_in_its_words(
    stage: Stage, muster: Muster, scheduler: KubeScheduler, doomed: str
) -> None:
    """Another gang that waits for the same capacity starts; few bindings are tried (KAI-Scheduler#2075)."""
    name = "doomed" if doomed == "doomed" else "a"
    stage.nodes(1, cpu="4")
    gang = [*stage.pods(name, 1, group="g", cpu="2"), *stage.pods(doomed, 1, first=2, group="g", cpu="2")]
    stage.group("g", 2)
    wait_for(lambda: "refused: site policy" in scheduled(stage, "g"), what="its words")
    tried = muster.metric("muster_bindings_total", outcome="failed")
    assert tried <= 4, "the first start, and perhaps the second"
    stage.wait_phase(stage.gang("good", 2, cpu="2"))
    assert stage.bound(gang) == {}
