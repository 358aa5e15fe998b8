"""An API server of one's own for each test, and Muster's client of it."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from extender.kube.calls import ApiClient
from extender.kube.connection import Connection
from extender.sim.apiserver.server import ApiServer
from extender.sim.apiserver.service import Service
from extender.sim.apiserver.store import Store
from extender.sim.controllers.workloads import WorkloadControllers
from tests.sim.clock import Clock
from tests.sim.kubectl import Kubectl


@pytest.fixture
def service() -> Service:
    return Service(Store(), Random(0))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(service: Service) -> Iterator[ApiServer]:
    server = ApiServer(service)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def controllers(service: Service) -> Iterator[WorkloadControllers]:
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
    server.write_kubeconfig(tmp_path / "kubeconfig")
    return Kubectl(tmp_path / "kubeconfig")
