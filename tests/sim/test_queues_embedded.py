"""Muster's commands for queues against the embedded cluster, whose queues Muster keeps the status of."""

from collections.abc import Callable

import pytest
from click.testing import CliRunner

from extender.apimachinery.kinds import NODES, POD_GROUPS, PODS, QUEUES, RESOURCE_FLAVORS, Json
from extender.cli import main
from extender.sim.embedded import Embedded
from tests.e2e.harness import objects
from tests.e2e.harness.waiting import wait_for
from tests.sim.test_embedded import gang

Muster = Callable[..., str]


@pytest.fixture
def cluster(embedded: Embedded) -> Embedded:
    embedded.make_nodes(2, "4", "16Gi")
    for name in ("busy", "idle", "waiting"):
        embedded.service.create(QUEUES, "", objects.queue(name))
    return embedded


@pytest.fixture
def muster(cluster: Embedded) -> Muster:
    def run(*arguments: str) -> str:
        done = CliRunner().invoke(main, [*arguments, "--kubeconfig", str(cluster.kubeconfig)])
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


def status(cluster: Embedded, name: str) -> Json:
    found: Json = cluster.service.get(QUEUES, "", name).get("status") or {}
    return found


def test_the_status_of_queues_is_written(cluster: Embedded, muster: Muster) -> None:
    gang(cluster, "runs", 2, "busy", cpu="2")
    gang(cluster, "too-large", 4, "busy", cpu="4")
    wait_for(
        lambda: (status(cluster, "busy").get("running"), status(cluster, "busy").get("pending")) == (1, 1)
    )
    wait_for(lambda: status(cluster, "busy").get("allocated", {}).get("cpu") == "4")
    wait_for(lambda: status(cluster, "default").get("state") == "Open")
    head, *rows = (line.split() for line in muster("queue", "list").splitlines())
    (row,) = (dict(zip(head, row, strict=False)) for row in rows if row[0] == "busy")
    assert row["STATE"] == "Open"
    assert "Open" in muster("why", "queue/busy")


def test_a_queue_is_closed_waited_for_and_deleted(cluster: Embedded, muster: Muster) -> None:
    wait_for(lambda: status(cluster, "idle").get("state") == "Open")
    muster("queue", "close", "idle", "--wait", "--timeout", "60s")
    assert status(cluster, "idle")["state"] == "Closed"
    muster("queue", "delete", "idle", "--timeout", "60s")
    assert cluster.store.get(QUEUES, "", "idle") is None


def test_a_queue_is_deleted_with_all_its_groups(cluster: Embedded, muster: Muster) -> None:
    gang(cluster, "waits", 4, "waiting", cpu="4")
    wait_for(lambda: status(cluster, "waiting").get("pending") == 1)
    muster("queue", "delete", "waiting", "--cascade", "--timeout", "60s")
    assert cluster.store.get(QUEUES, "", "waiting") is None
    assert all(group["spec"]["queue"] != "waiting" for group in cluster.store.all(POD_GROUPS))


def test_a_queue_waits_for_the_resource_flavor_that_it_names(cluster: Embedded, muster: Muster) -> None:
    """Its nodes are those with the flavor's labels, of which there is one."""
    fast = objects.node("fast-1", cpu="4", labels={"kind": "fast"})
    cluster.service.create(NODES, "", fast)
    cluster.service.create(
        QUEUES, "", objects.queue("gpu", flavors=[{"name": "f", "resourceFlavor": "fast"}])
    )
    gang(cluster, "flies", 2, "gpu", cpu="1")
    wait_for(lambda: "FlavorNotFound" in str(status(cluster, "gpu").get("conditions")))
    reported = " ".join(muster("why", "queue/gpu").split())
    assert "But nothing starts on ResourceFlavors that do not exist: fast." in reported
    wait_for(lambda: "ResourceFlavor fast does not exist" in " ".join(muster("why", "flies").split()))
    meta = {"name": "fast"}
    head = {"apiVersion": RESOURCE_FLAVORS.api_version, "kind": RESOURCE_FLAVORS.name}
    cluster.service.create(
        RESOURCE_FLAVORS, "", {**head, "metadata": meta, "spec": {"nodeLabels": {"kind": "fast"}}}
    )

    def nodes() -> set[str]:
        pods = (cluster.service.get(PODS, "default", f"flies-{number}") for number in range(2))
        return {pod["spec"].get("nodeName", "") for pod in pods}

    wait_for(lambda: nodes() == {"fast-1"})
    lacks = ("FlavorNotFound", "False")
    wait_for(
        lambda: (
            lacks
            in [
                (condition["type"], condition["status"]) for condition in status(cluster, "gpu")["conditions"]
            ]
        )
    )
