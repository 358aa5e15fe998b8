"""Quotas in the cluster of `muster run`: Muster makes queues of them, and their namespaces enter those."""

from typing import Any

import pytest

from extender.apimachinery.kinds import ELASTIC_QUOTA_TREES, ELASTIC_QUOTAS, NAMESPACES, PODS, QUEUES, Json
from extender.sim.embedded import Embedded
from extender.sim.kubelets import RUN_SECONDS
from extender.sim.show.cluster_state import ShownObjects, observe
from tests.e2e.harness.objects import namespace, pod
from tests.e2e.harness.waiting import wait_for


@pytest.fixture
def cluster(embedded: Embedded) -> Embedded:
    embedded.make_nodes(1, "4", "16Gi")
    return embedded


def tree() -> Json:
    leaf = {"name": "vision", "max": {"cpu": 1}, "namespaces": ["team"]}
    root = {"name": "root", "max": {"cpu": 4}, "min": {"cpu": 2}, "children": [leaf]}
    meta = {"name": "tree", "namespace": "kube-system"}
    head = {"apiVersion": ELASTIC_QUOTA_TREES.api_version, "kind": ELASTIC_QUOTA_TREES.name}
    return {**head, "metadata": meta, "spec": {"root": root}}


def elastic_quota() -> Json:
    head = {"apiVersion": ELASTIC_QUOTAS.api_version, "kind": ELASTIC_QUOTAS.name}
    return {**head, "metadata": {"name": "quota", "namespace": "team"}, "spec": {"max": {"cpu": 1}}}


@pytest.mark.parametrize(
    ("kind", "quota", "name"),
    [(ELASTIC_QUOTA_TREES, tree(), "vision"), (ELASTIC_QUOTAS, elastic_quota(), "team")],
)
def test_a_quota_makes_queues_that_its_namespace_enters(
    cluster: Embedded, kind: Any, quota: Json, name: str
) -> None:
    cluster.service.create(NAMESPACES, "", namespace("team"))
    cluster.service.create(kind, "", quota)
    wait_for(lambda: cluster.store.get(QUEUES, "", name), what="the queue")
    assert cluster.service.get(QUEUES, "", name)["spec"]["capability"] == {"cpu": 1}
    notes = {RUN_SECONDS: "20"}
    for each in ("a", "b"):
        cluster.service.create(PODS, "", pod(each, namespace="team", annotations=notes))
    wait_for(
        lambda: {gang.reason for gang in shown_groups(cluster)} == {"", "QueueCeiling"}, what="one waits"
    )
    assert {gang.queue for gang in shown_groups(cluster)} == {name}
    cluster.service.delete(kind, quota["metadata"]["namespace"], quota["metadata"]["name"], {})
    wait_for(lambda: closed(cluster, name), what="the queue is closed")


def closed(cluster: Embedded, name: str) -> bool:
    return bool(cluster.service.get(QUEUES, "", name)["spec"].get("state") == "Closed")


def shown_groups(cluster: Embedded) -> list[Any]:
    return observe(ShownObjects.in_store(cluster.store), cluster.muster.debug_page).report.pod_groups
