"""The whole embedded cluster with the real `muster serve`: gangs start whole."""

import json

import pytest

from extender import __version__
from extender.apimachinery.errors import StatusError
from extender.apimachinery.kinds import JOBS, KIND_BY_NAME, NODES, POD_GROUPS, PODS, QUEUES, TOPOLOGIES, Json
from extender.apimachinery.objects import find_stored_condition
from extender.sim.embedded import Embedded
from extender.sim.kubelets import RUN_SECONDS
from tests.e2e.harness import jobs, jobset, objects
from tests.e2e.harness.waiting import wait_for


@pytest.fixture
def cluster(embedded: Embedded) -> Embedded:
    embedded.make_nodes(3, "4", "16Gi")
    return embedded


def gang(
    cluster: Embedded, name: str, size: int, queue: str = "default", cpu: str = "2", **annotations: str
) -> None:
    group = objects.pod_group(name, namespace="default", min_member=size, queue=queue)
    cluster.service.create(POD_GROUPS, "", group)
    for number in range(size):
        member = f"{name}-{number}"
        new_pod = objects.pod(member, namespace="default", group=name, cpu=cpu, annotations=annotations)
        cluster.service.create(PODS, "", new_pod)


def nodes_of(cluster: Embedded, name: str) -> list[str]:
    pods = [pod for pod in cluster.store.all(PODS) if pod["metadata"]["name"].startswith(f"{name}-")]
    return [pod["spec"]["nodeName"] for pod in pods if "nodeName" in pod["spec"]]


def reason(cluster: Embedded, name: str) -> str:
    """Return the reason of a group, empty before there is such a group, or it has a reason."""
    found = cluster.store.get(POD_GROUPS, "default", name) or {}
    return str(find_stored_condition(found, "Scheduled").get("reason", ""))


def test_racks_of_blocks_have_a_topology(embedded: Embedded) -> None:
    embedded.make_racks((2, 2, 1), "4", "16Gi")
    (topology,) = embedded.store.all(TOPOLOGIES)
    levels = [level["nodeLabel"] for level in topology["spec"]["levels"]]
    assert levels == ["topology.kubernetes.io/block", "topology.kubernetes.io/rack"]
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in embedded.store.all(NODES)}
    assert [labels[f"node-{block}-2-1"][level] for block in (1, 2) for level in levels] == [
        *("block-1", "rack-2"),
        *("block-2", "rack-2"),
    ]


def test_a_gang_waits_whole_and_starts_whole(cluster: Embedded) -> None:
    gang(cluster, "first", 4, **{RUN_SECONDS: "10"})
    wait_for(lambda: len(nodes_of(cluster, "first")) == 4)
    gang(cluster, "second", 4)
    wait_for(lambda: reason(cluster, "second") == "NoRoom")
    assert nodes_of(cluster, "second") == []
    wait_for(lambda: len(nodes_of(cluster, "second")) == 4)
    wait_for(cluster.has_settled)
    assert {pod["status"]["phase"] for pod in cluster.store.all(PODS)} == {"Succeeded", "Running"}


def test_the_log_begins_with_versions_and_settings(cluster: Embedded) -> None:
    first = json.loads(cluster.muster.log.read_text().partition("\n")[0])
    assert first["message"] == "Muster starts"
    assert first["version"] == __version__
    assert first["kubernetes"].startswith("v1.")
    assert first["settings"]["leader_elect"] == "off"
    assert "binders" not in first["settings"], "it is the default"


def test_a_cluster_settles_with_a_gang_that_can_never_start(cluster: Embedded) -> None:
    cluster.service.create(QUEUES, "", objects.queue("q"))
    gang(cluster, "too-large", 7, queue="q")
    wait_for(cluster.has_settled)
    assert reason(cluster, "too-large") == "NeverFits"
    assert nodes_of(cluster, "too-large") == []


def test_suspended_jobs_are_resumed_when_they_fit(cluster: Embedded) -> None:
    """Run a Job, then a JobSet; the nodes fit one at a time."""
    options: Json = {"namespace": "default", "parallelism": 4, "cpu": "2", "suspend": True}
    in_queue = {objects.QUEUE_NAME: "default", RUN_SECONDS: "20"}
    first = jobs.job("first", completions=8, annotations=in_queue, **options)
    second = jobset.job_set("second", annotations=in_queue, **options)
    job_sets = KIND_BY_NAME[second["apiVersion"], second["kind"]]
    cluster.service.create(JOBS, "", first)
    wait_for(lambda: len(nodes_of(cluster, "first")) == 4)
    uid = cluster.service.create(job_sets, "", second)["metadata"]["uid"]
    wait_for(lambda: reason(cluster, f"podgroup-{uid}") == "NoRoom")
    assert nodes_of(cluster, "second") == []
    wait_for(lambda: len(nodes_of(cluster, "second")) == 4)
    wait_for(lambda: ended(cluster.service.get(job_sets, "default", "second"), "Completed"))
    wait_for(lambda: ended(cluster.service.get(JOBS, "default", "first"), "Complete"))
    assert len(nodes_of(cluster, "first")) == 8


def ended(job: Json, as_: str) -> bool:
    return find_stored_condition(job, as_).get("status") == "True"


def test_existing_gangs_start_and_the_cluster_ends_with_its_processes() -> None:
    with Embedded() as cluster:
        cluster.make_nodes(1, "4", "16Gi")
        gang(cluster, "first", 2)
        cluster.start()
        wait_for(lambda: len(nodes_of(cluster, "first")) == 2)
        assert cluster.muster.is_alive()
    assert not cluster.muster.is_alive()
    assert not cluster.kubeconfig.exists()


def test_a_watch_of_an_earlier_cluster_at_the_same_address_has_to_list_again() -> None:
    """List again, as an open dashboard does next to a second `muster run --listen ADDRESS`."""
    with Embedded() as first:
        first.make_nodes(9, "4", "16Gi")
        seen = first.store.version
    with Embedded() as second, pytest.raises(StatusError, match="too old resource version"):
        second.store.wait(seen, 0.0)
