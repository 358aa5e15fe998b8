"""Quotas become queues: made, changed, protected and deleted with the object that asks for them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.harness import manifests, objects
from tests.e2e.harness.access import ADMIN, User
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import (
    ELASTIC_QUOTA_TREES,
    ELASTIC_QUOTAS,
    EVENTS,
    POD_GROUPS,
    QUEUES,
    RESOURCE_QUOTAS,
)
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.shell import Shell
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError
from tests.e2e.harness.webhooks import Port, configured, wait_in_force

Json = dict[str, Any]
DATA = Path(__file__).parent / "data"
KINDS = "quota/crd.yaml"
SYSTEM = "kube-system"
SOURCE = "kube-muster.io/quota-source"
TREE = "ElasticQuotaTree/kube-system/elasticquotatree"
TREE_NAME = "elasticquotatree"


@pytest.fixture(scope="module", autouse=True)
def kinds(cluster: ControlPlane) -> Iterator[None]:
    """Install the kinds before Muster, which looks for them every 30 s."""
    elastic = list(yaml.safe_load_all((DATA / "elastic-quotas.yaml").read_text()))
    written = [*manifests.apply(cluster.admin, KINDS), *manifests.install(cluster.admin, elastic)]
    yield
    manifests.remove(cluster.admin, written)


@pytest.fixture
def rights(stage: Stage) -> Iterator[None]:
    """Grant the rights before Muster looks for them; delete quotas before the queues."""
    with manifests.applied(stage.api, "quota/rbac.yaml"):
        yield
        for kind, namespace in ((ELASTIC_QUOTA_TREES, SYSTEM), (ELASTIC_QUOTAS, stage.namespace)):
            stage.api.delete_all(kind, namespace)
        stage.api.delete_all(RESOURCE_QUOTAS, stage.namespace)


@pytest.fixture
def policy(stage: Stage) -> Iterator[None]:
    """Apply the policy; the API server takes some time to notice it, and to forget it."""

    def refuses() -> bool:
        forged = {"metadata": {"name": "sample", "annotations": {SOURCE: TREE}}, "spec": {"weight": 1}}
        body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", **forged}
        return not stage.admits(QUEUES, body)

    with manifests.applied(stage.api, "quota/policy.yaml"):
        wait_for(refuses, what="the policy in force")
        yield
    wait_for(lambda: not refuses(), what="the policy out of force")


def seed(*namespaces: str) -> Json:
    """Return the tree of the article; these namespaces enter its leaf."""
    tree: Json = yaml.safe_load((DATA / "elastic-quota-tree.yaml").read_text())
    tree["spec"]["root"]["children"][0]["namespaces"] = list(namespaces)
    return tree


def edit(stage: Stage, root: Json) -> None:
    stage.api.patch(ELASTIC_QUOTA_TREES, TREE_NAME, {"spec": {"root": root}}, SYSTEM)


def node(name: str, cpu: Any = None, least: Any = None, **more: Any) -> Json:
    amounts = {"max": None if cpu is None else {"cpu": cpu}, "min": None if least is None else {"cpu": least}}
    return {"name": name, **{key: value for key, value in amounts.items() if value}, **more}


def wait_queue(stage: Stage, name: str) -> Json:
    found = wait_for(lambda: stage.api.find(QUEUES, name), what=f"queue {name}")
    assert found is not None
    return found


def wait_gone(stage: Stage, *names: str) -> None:
    for name in names:
        wait_for(lambda: stage.api.find(QUEUES, name) is None, what=f"queue {name} is deleted")  # noqa: B023


def wait_capability(stage: Stage, name: str, **wanted: Any) -> None:
    def has() -> bool:
        found: Json = stage.api.find(QUEUES, name) or {}
        return bool(found.get("spec", {}).get("capability") == wanted)

    wait_for(has, what=f"queue {name} has {wanted}")


def refusal(stage: Stage, patch: Json, name: str = "child-1") -> str:
    with pytest.raises(ApiError) as refused:
        stage.api.patch(QUEUES, name, patch)
    return str(refused.value)


@pytest.mark.usefixtures("rights")
def test_the_tree_of_the_article_makes_the_queues_and_its_namespace_enters_the_leaf(
    stage: Stage, muster: Muster, scheduler: KubeScheduler
) -> None:
    stage.nodes(2, cpu="4")
    stage.api.create(ELASTIC_QUOTA_TREES, seed("default", stage.namespace))
    leaf = wait_queue(stage, "child-1")
    assert leaf["spec"]["parent"] == "root-quota"
    assert leaf["spec"]["capability"] == {"cpu": 1, "memory": "1Gi"}
    assert leaf["metadata"]["annotations"][SOURCE] == TREE
    assert stage.api.get(QUEUES, "root-quota")["spec"]["capability"] == {"cpu": 1, "memory": "1Gi"}
    assert muster.debug("/debug/quotas")["namespaces"] == {"default": "child-1", stage.namespace: "child-1"}
    first = stage.pods("first", 1, cpu="1")
    stage.wait_phase(first)
    (second,) = stage.pods("second", 1, cpu="1")
    stage.wait_group(stage.own_group(second))
    stage.wait_reason(stage.own_group(second), "QueueCeiling")
    stage.finish(first)
    stage.wait_phase([second])
    edit(stage, {**seed(stage.namespace)["spec"]["root"], "max": {"cpu": 2}, "min": {"cpu": 2}})
    wait_capability(stage, "root-quota", cpu=2, memory="1Gi")
    stage.delete_pods([*first, second])


def test_check_reports_faults_of_quotas(stage: Stage, muster: Muster, request: pytest.FixtureRequest) -> None:
    """Report that without the component quotas have no effect."""

    def finding() -> str:
        """Return state and message of each finding."""
        found = json.loads(Shell(stage.cluster, ADMIN, "kube-muster")("check", "-o", "json").stdout)
        return "; ".join(
            f"{each['state']} {each['message']}" for each in found if each["subject"] == "quotas"
        )

    assert finding().startswith("ok ")
    stage.api.create(ELASTIC_QUOTA_TREES, seed(stage.namespace))
    assert re.search("^wrong .*: list elasticquotatrees, watch elasticquotatrees", finding())
    request.getfixturevalue("rights")
    wait_for(lambda: finding().startswith("ok 2 queues"), timeout=120, what="they are made")
    stage.api.create(ELASTIC_QUOTA_TREES, {**seed(), "metadata": {"name": "mine", "namespace": "default"}})
    assert "ElasticQuotaTree/default/mine, metadata.namespace: " in finding()
    stage.api.delete_all(ELASTIC_QUOTA_TREES, "default")


@pytest.mark.usefixtures("rights")
def test_an_edit_of_a_user_is_undone_and_a_queue_that_a_user_deletes_is_made_again(
    stage: Stage, muster: Muster
) -> None:
    stage.api.create(ELASTIC_QUOTA_TREES, seed())
    before = wait_queue(stage, "child-1")
    changed = {"capability": {"cpu": 64, "nvidia.com/gpu": 8}, "parent": "root", "weight": 7}
    stage.api.patch(QUEUES, "child-1", {"spec": changed})
    wait_capability(stage, "child-1", cpu=1, memory="1Gi")
    after = wait_queue(stage, "child-1")
    assert (after["spec"]["parent"], after["spec"]["weight"]) == ("root-quota", 7)
    stage.api.delete(QUEUES, "child-1")
    again = wait_queue(stage, "child-1")
    assert again["metadata"]["uid"] != before["metadata"]["uid"]


@pytest.mark.usefixtures("rights", "policy")
def test_the_policy_refuses_edits_around_the_quota_and_names_it(stage: Stage, muster: Muster) -> None:
    stage.api.create(ELASTIC_QUOTA_TREES, seed())
    wait_queue(stage, "child-1")
    message = refusal(stage, {"spec": {"capability": {"cpu": 64}}})
    assert f"spec.capability: queue child-1 is made from {TREE}" in message
    assert "spec.parent" in refusal(stage, {"spec": {"parent": "root"}})
    assert SOURCE in refusal(stage, {"metadata": {"annotations": {SOURCE: None}}})
    stage.api.patch(QUEUES, "child-1", {"spec": {"weight": 3}})
    with pytest.raises(ApiError, match=f"is made from {TREE}: remove it there"):
        stage.api.delete(QUEUES, "child-1")
    edit(stage, {**seed()["spec"]["root"], "children": [node("child-1", cpu="500m")]})
    wait_capability(stage, "child-1", cpu="500m")
    stage.api.delete(ELASTIC_QUOTA_TREES, TREE_NAME, SYSTEM)
    wait_gone(stage, "child-1", "root-quota")


@pytest.mark.usefixtures("rights")
def test_a_whole_tree_grows_shrinks_and_goes_while_webhooks_review_it(
    stage: Stage, muster_user: User
) -> None:
    """Accept the changes under webhooks that review each queue with those around it.

    A new group gets the queue of its namespace's quota.
    """
    port = Port()
    with configured(stage.api, port):
        stage.start_muster(*port.flags("self-signed"), user=muster_user)
        wait_in_force(stage.api)
        stage.api.create(ELASTIC_QUOTA_TREES, sized(1, stage.namespace))
        wait_capability(stage, "child-1", cpu=1)
        stage.api.create(POD_GROUPS, objects.pod_group("g", namespace=stage.namespace, min_member=1))
        wait_for(lambda: stage.pod_group("g")["spec"].get("queue") == "child-1", what="the group's queue")
        for cpu in (8, 2):
            edit(stage, sized(cpu, stage.namespace)["spec"]["root"])
            wait_capability(stage, "child-1", cpu=cpu)
            wait_capability(stage, "root-quota", cpu=cpu)
        stage.api.delete(POD_GROUPS, "g", stage.namespace)
        stage.api.delete(ELASTIC_QUOTA_TREES, TREE_NAME, SYSTEM)
        wait_gone(stage, "child-1", "root-quota")


def sized(cpu: int, namespace: str) -> Json:
    """Return the tree of the article, with so much in all places."""
    amounts = {"max": {"cpu": cpu}, "min": {"cpu": cpu}}
    leaf = {"name": "child-1", "namespaces": [namespace], **amounts}
    return {**seed(), "spec": {"root": {"name": "root", **amounts, "children": [leaf]}}}


@pytest.mark.usefixtures("rights")
def test_the_queues_go_with_the_tree_once_they_are_empty_and_come_back_open(
    stage: Stage, muster: Muster
) -> None:
    stage.api.create(ELASTIC_QUOTA_TREES, seed())
    wait_queue(stage, "child-1")
    stage.group("train", 1, queue="child-1")
    wait_for(lambda: stage.reason("train"), what="the group is evaluated")
    stage.api.delete(ELASTIC_QUOTA_TREES, TREE_NAME, SYSTEM)
    closing = ("child-1", "root-quota")
    for name in closing:
        wait_for(
            lambda: stage.api.get(QUEUES, name)["spec"].get("state") == "Closed",  # noqa: B023
            what=f"{name} is closed",
        )
    wait_for(lambda: stage.api.get(QUEUES, "child-1")["status"]["state"] == "Closing", what="groups are left")
    muster.restart(hard=True)
    stage.api.create(ELASTIC_QUOTA_TREES, seed())
    wait_for(lambda: stage.api.get(QUEUES, "child-1")["status"]["state"] == "Open", what="it is open again")
    stage.api.delete(ELASTIC_QUOTA_TREES, TREE_NAME, SYSTEM)
    wait_for(lambda: stage.api.get(QUEUES, "child-1")["status"]["state"] == "Closing", what="closing again")
    stage.api.delete_all(POD_GROUPS, stage.namespace)
    wait_gone(stage, *closing)


@pytest.mark.usefixtures("rights")
def test_a_hostile_tree_costs_itself_only(stage: Stage, muster: Muster) -> None:
    """Its good nodes are made, the others are named, and queues of others are left alone."""
    stage.queue("taken", weight=5)
    children = [
        node("twin", cpu=1, namespaces=["a"]),
        node("twin", cpu=2),
        node("thief", cpu=1, namespaces=["a", "b"]),
        node("negative", cpu=-1),
        node("upside-down", cpu=1, least=2),
        node("too-wide", cpu=100),
        node("taken", cpu=1),
        *(node(f"c{number}", cpu="1", namespaces=[f"n{number}"]) for number in range(1000)),
    ]
    root = {"name": "root", "max": {"cpu": 10}, "min": {"cpu": 10}, "children": children}
    tree = {**seed(), "spec": {"root": root}}
    stage.api.create(ELASTIC_QUOTA_TREES, tree)
    elsewhere = {**seed(), "metadata": {"name": "mine", "namespace": stage.namespace}}
    stage.api.create(ELASTIC_QUOTA_TREES, elsewhere)
    stage.queue("ordinary")
    wait_for(
        lambda: (stage.api.find(QUEUES, "ordinary") or {}).get("status", {}).get("state") == "Open",
        what="other queues are cared for",
    )
    good = {"twin", "thief", *(f"c{number}" for number in range(1000))}
    wait_for(lambda: good <= queue_names(stage), what="the queues of the good nodes")  # in any order
    made = {each["metadata"]["name"]: each for each in stage.api.items(QUEUES)}
    assert made["twin"]["spec"]["capability"] == {"cpu": 1}
    assert not {"negative", "upside-down", "too-wide"} & made.keys()
    assert made["taken"]["spec"]["weight"] == 5
    assert SOURCE not in made["taken"]["metadata"].get("annotations", {})
    shown = muster.debug("/debug/quotas")
    assert {shown["namespaces"][each] for each in ("a", "b", "n0")} == {"twin", "thief", "c0"}
    named = ("'twin'", "namespace 'a'", "'negative'", "'upside-down'", "'too-wide'", "'taken'", SYSTEM)
    wait_for(lambda: all(each in faults_of(muster) for each in named), what="all faults are named")
    namespaces = (SYSTEM, stage.namespace)
    wait_for(
        lambda: all(is_recorded(stage, namespace) for namespace in namespaces), what="events on both trees"
    )
    stage.api.delete(ELASTIC_QUOTA_TREES, "mine", stage.namespace)


def queue_names(stage: Stage) -> set[str]:
    return {each["metadata"]["name"] for each in stage.api.items(QUEUES)}


def faults_of(muster: Muster) -> str:
    shown = muster.debug("/debug/quotas")
    return "\n".join(f"{each['where']}: {each['why']}" for each in shown["faults"])


def is_recorded(stage: Stage, namespace: str) -> bool:
    events = stage.api.items(EVENTS, namespace)
    return any(event["reason"] == "QuotaNotApplied" for event in events)


@pytest.mark.usefixtures("rights")
@pytest.mark.muster_flags("--quota-sources", "elasticquota,resourcequota")
def test_quotas_of_a_namespace_make_one_queue_for_it(stage: Stage, muster: Muster) -> None:
    hard = {"requests.cpu": "3", "limits.cpu": "9", "requests.nvidia.com/gpu": "2", "count/jobs.batch": "5"}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "compute", "namespace": stage.namespace},
        "spec": {"hard": hard},
    }
    stage.api.create(RESOURCE_QUOTAS, quota)
    made = wait_queue(stage, stage.namespace)
    assert made["spec"]["capability"] == {"cpu": "3", "nvidia.com/gpu": "2"}
    elastic = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "elastic", "namespace": stage.namespace},
        "spec": {"max": {"cpu": "4"}, "min": {"cpu": "2"}},
    }
    stage.api.create(ELASTIC_QUOTAS, elastic)
    wait_capability(stage, stage.namespace, cpu="4")
    after = wait_queue(stage, stage.namespace)
    assert after["spec"]["guarantee"] == {"resource": {"cpu": "2"}}
    assert after["metadata"]["annotations"][SOURCE] == f"ElasticQuota/{stage.namespace}/elastic"
    stage.api.delete(ELASTIC_QUOTAS, "elastic", stage.namespace)
    stage.api.delete(RESOURCE_QUOTAS, "compute", stage.namespace)
    wait_gone(stage, stage.namespace)


def test_without_the_rights_no_quota_is_read(stage: Stage, muster: Muster) -> None:
    stage.api.create(ELASTIC_QUOTA_TREES, seed())
    watches = muster.debug("/debug/watches")
    assert not watches["/apis/scheduling.sigs.k8s.io/v1beta1/elasticquotatrees"]["known"]
    assert muster.debug("/debug/quotas") == {"queues": {}, "namespaces": {}, "faults": []}
    stage.api.delete(ELASTIC_QUOTA_TREES, TREE_NAME, SYSTEM)
