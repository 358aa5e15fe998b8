"""Muster's commands for queues against the embedded cluster, whose queues Muster keeps the status of."""

import subprocess
from collections.abc import Callable, Iterator

import pytest

from extender.sim.apiserver.kinds import POD_GROUPS, PODS, QUEUES, Json
from extender.sim.embedded import Embedded
from tests.e2e.harness import objects
from tests.e2e.harness.muster import PROGRAM
from tests.e2e.harness.waiting import wait_for

Muster = Callable[..., str]


@pytest.fixture
def cluster() -> Iterator[Embedded]:
    with Embedded(speed=10, seed=1) as cluster:
        cluster.make_nodes(2, "4", "16Gi")
        cluster.create([(QUEUES, objects.queue("q"))])
        cluster.start()
        yield cluster


@pytest.fixture
def muster(cluster: Embedded) -> Muster:
    def run(*arguments: str) -> str:
        command = [str(PROGRAM), *arguments, "--kubeconfig", str(cluster.kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def gang(cluster: Embedded, name: str, size: int, cpu: str) -> None:
    cluster.create([(POD_GROUPS, objects.pod_group(name, namespace="default", min_member=size, queue="q"))])
    for number in range(size):
        made = objects.pod(f"{name}-{number}", namespace="default", group=name, cpu=cpu)
        cluster.create([(PODS, made)])


def status(cluster: Embedded, name: str = "q") -> Json:
    found: Json = cluster.service.get(QUEUES, "", name).get("status") or {}
    return found


def test_the_status_of_queues_is_written(cluster: Embedded, muster: Muster) -> None:
    gang(cluster, "runs", 2, "2")
    gang(cluster, "waits", 4, "4")
    wait_for(lambda: (status(cluster).get("running"), status(cluster).get("pending")) == (1, 1))
    wait_for(lambda: status(cluster).get("allocated", {}).get("cpu") == "4")
    wait_for(lambda: status(cluster, "default").get("state") == "Open")
    head, *rows = (line.split() for line in muster("queue", "list").splitlines())
    (row,) = (dict(zip(head, row, strict=False)) for row in rows if row[0] == "q")
    assert row["STATE"] == "Open"
    assert "Open" in muster("why", "queue/q")


def test_a_queue_is_closed_waited_for_and_deleted(cluster: Embedded, muster: Muster) -> None:
    wait_for(lambda: status(cluster).get("state") == "Open")
    muster("queue", "close", "q", "--wait", "--timeout", "60s")
    assert status(cluster)["state"] == "Closed"
    muster("queue", "delete", "q", "--timeout", "60s")
    assert cluster.store.get(QUEUES, "", "q") is None


def test_a_queue_is_deleted_with_all_its_groups(cluster: Embedded, muster: Muster) -> None:
    gang(cluster, "waits", 4, "4")
    wait_for(lambda: status(cluster).get("pending") == 1)
    muster("queue", "delete", "q", "--cascade", "--timeout", "60s")
    assert cluster.store.get(QUEUES, "", "q") is None
    assert cluster.store.all(POD_GROUPS) == []
