"""Fixtures: an API server for each test, with a client, and one embedded cluster for each process."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from extender.apimachinery.kinds import KIND_BY_NAME, QUEUES, ResourceKind
from extender.apimachinery.service import Service
from extender.apimachinery.store import Key, Store, key_of
from extender.kube.calls import ApiClient
from extender.kube.connection import Connection
from extender.sim.apiserver.server import ApiServer
from extender.sim.controllers import workloads
from extender.sim.controllers.workloads import WorkloadControllers
from extender.sim.embedded import Embedded
from tests.clock import Clock
from tests.e2e.harness.waiting import wait_for
from tests.sim.kubectl import KUBECTLS, Kubectl


@pytest.fixture
def service() -> Service:
    return Service(Store(), Random(0))


@pytest.fixture
def clock() -> Clock:
    return Clock(0.5)


@pytest.fixture
def server(service: Service) -> Iterator[ApiServer]:
    server = ApiServer(service)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def controllers(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkloadControllers]:
    monkeypatch.setattr(workloads, "_PERIOD", 0.002)
    running = WorkloadControllers(service)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def connection(server: ApiServer, tmp_path: Path) -> Iterator[Connection]:
    server.write_kubeconfig(tmp_path / "kubeconfig")
    connection = Connection.load(str(tmp_path / "kubeconfig"))
    yield connection
    connection.close()


@pytest.fixture
def cluster(connection: Connection) -> ApiClient:
    return ApiClient(connection)


@pytest.fixture
def kubectl(server: ApiServer, tmp_path: Path) -> Kubectl:
    if not KUBECTLS:
        pytest.skip("no kubectl here: `make control-plane` builds one")
    server.write_kubeconfig(tmp_path / "kubeconfig")
    return Kubectl(tmp_path / "kubeconfig")


class SharedCluster(NamedTuple):
    """Running embedded cluster, with its initial objects."""

    cluster: Embedded
    initial: frozenset[tuple[ResourceKind, Key]]

    def clear(self) -> None:
        """Remove the objects of a test, and wait until Muster knows none of them."""
        wait_for(self._is_clear, what="an empty cluster")

    def _is_clear(self) -> bool:
        for kind, key in objects_of(self.cluster.store) - self.initial:
            with suppress(KeyError):  # a controller has deleted it
                self.cluster.store.remove(kind, key)
        idle = not (self.cluster.controllers.is_behind or self.cluster.kubelets.busy)
        return idle and not any(map(self.cluster.muster.debug_page, ("podgroups", "nodes")))


def objects_of(store: Store) -> set[tuple[ResourceKind, Key]]:
    """Return the keys of all objects."""
    return {(kind, key_of(obj)) for kind in KIND_BY_NAME.values() for obj in store.all(kind)}


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[SharedCluster]:
    """Yield one cluster for all tests of a process, since a start of `muster serve` costs 0.5 s of CPU."""
    with Embedded(speed=10, seed=1, serve_arguments=("--start-backoff", "1s")) as cluster:
        cluster.start()
        wait_for(lambda: cluster.store.get(QUEUES, "", "default"))
        yield SharedCluster(cluster, frozenset(objects_of(cluster.store)))


@pytest.fixture
def embedded(shared_cluster: SharedCluster) -> Iterator[Embedded]:
    """Yield the running embedded cluster, without nodes, workloads and queues other than `default`."""
    yield shared_cluster.cluster
    shared_cluster.clear()
