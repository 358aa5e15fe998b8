"""The whole embedded cluster with the real `muster serve`: gangs start whole."""

from collections.abc import Iterator

import pytest

from extender.sim.apiserver.kinds import POD_GROUPS, PODS, QUEUES
from extender.sim.embedded import Embedded
from extender.sim.kubelets import RUN_SECONDS
from tests.e2e.harness import objects
from tests.e2e.harness.waiting import wait_for


@pytest.fixture
def cluster() -> Iterator[Embedded]:
    with Embedded(speed=10, seed=1) as cluster:
        cluster.make_nodes(3, "4", "16Gi")
        yield cluster


def gang(cluster: Embedded, name: str, size: int, queue: str = "default", **annotations: str) -> None:
    group = objects.pod_group(name, namespace="default", min_member=size, queue=queue)
    cluster.create([(POD_GROUPS, group)])
    for number in range(size):
        made = objects.pod(
            f"{name}-{number}", namespace="default", group=name, cpu="2", annotations=annotations
        )
        cluster.create([(PODS, made)])


def nodes_of(cluster: Embedded, name: str) -> list[str]:
    pods = [pod for pod in cluster.store.all(PODS) if pod["metadata"]["name"].startswith(f"{name}-")]
    return [pod["spec"]["nodeName"] for pod in pods if "nodeName" in pod["spec"]]


def reason(cluster: Embedded, name: str) -> str:
    conditions = cluster.service.get(POD_GROUPS, "default", name).get("status", {}).get("conditions", [])
    return next((each["reason"] for each in conditions if each["type"] == "Scheduled"), "")


def test_a_gang_waits_whole_and_starts_whole(cluster: Embedded) -> None:
    gang(cluster, "first", 4, **{RUN_SECONDS: "10"})
    cluster.start()
    wait_for(lambda: len(nodes_of(cluster, "first")) == 4)
    gang(cluster, "second", 4)
    wait_for(lambda: reason(cluster, "second") == "NoRoom")
    assert nodes_of(cluster, "second") == []
    wait_for(lambda: len(nodes_of(cluster, "second")) == 4)
    wait_for(cluster.settled)
    assert {pod["status"]["phase"] for pod in cluster.store.all(PODS)} == {"Succeeded", "Running"}


def test_it_settles_with_a_gang_that_can_never_start(cluster: Embedded) -> None:
    cluster.create([(QUEUES, objects.queue("q"))])
    gang(cluster, "too-large", 7, queue="q")
    cluster.start()
    wait_for(cluster.settled)
    assert reason(cluster, "too-large") == "NeverFits"
    assert nodes_of(cluster, "too-large") == []


def test_what_it_started_ends_with_it() -> None:
    with Embedded() as cluster:
        cluster.start()
        assert cluster.muster.alive()
    assert not cluster.muster.alive()
    assert not cluster.kubeconfig.exists()
