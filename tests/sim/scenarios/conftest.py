"""The stage of tests/e2e, set up on the embedded cluster: same words, same kubelets, same observer.

Only the API server and the scheduler are ours here; what plays and what judges is the end-to-end tests' own,
so that a scenario that passes on a real control plane and not here tells what is not alike.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from extender.sim.apiserver.server import ApiServer
from extender.sim.apiserver.service import Service
from extender.sim.apiserver.store import Store
from extender.sim.scheduler.extender import Extender
from extender.sim.scheduler.loop import Scheduler
from tests.e2e.harness.access import ADMIN, User
from tests.e2e.harness.client import Access, Client
from tests.e2e.harness.kubelet import Kubelet
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.objects import namespace
from tests.e2e.harness.observer import GANG_DEADLINE, Observer
from tests.e2e.harness.resources import NAMESPACES
from tests.e2e.harness.stage import Stage

NAMESPACE = "test"


class EmbeddedControlPlane:
    """As much of a ControlPlane as the stage asks for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.service = Service(Store(), Random(0), gating=False)
        self._server = ApiServer(self.service)
        self.server = self._server.url
        self.admin = Client(Access(self.server, "", folder))

    def __enter__(self) -> "EmbeddedControlPlane":
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.admin.close()
        self._server.stop()

    def kubeconfig(self, _user: User, _server: str | None = None) -> Path:
        path = self.folder / "kubeconfig"
        self._server.write_kubeconfig(path)
        return path


@pytest.fixture
def control_plane(tmp_path: Path) -> Iterator[EmbeddedControlPlane]:
    with EmbeddedControlPlane(tmp_path) as started:
        yield started


@pytest.fixture
def stage(control_plane: EmbeddedControlPlane) -> Iterator[Stage]:
    client = control_plane.admin
    client.create(NAMESPACES, namespace(NAMESPACE))
    cluster: Any = control_plane
    with Observer(client, GANG_DEADLINE) as observer, Kubelet(client) as kubelet:
        made = Stage(cluster, NAMESPACE, kubelet, observer)
        with made.started:
            yield made
        observer.assert_clean(gaps_allowed=False)


@pytest.fixture
def muster_user() -> User:
    return ADMIN


@pytest.fixture
def muster(stage: Stage, muster_user: User) -> Muster:
    return stage.start_muster(user=muster_user)


@pytest.fixture
def scheduler(control_plane: EmbeddedControlPlane, muster: Muster) -> Iterator[Scheduler]:
    scheduler = Scheduler(control_plane.service, Extender(muster.address), Random(0))
    scheduler.start()
    yield scheduler
    scheduler.stop()


def pytest_configure(config: pytest.Config) -> None:
    for marker in ("gang_deadline", "gaps_allowed"):
        config.addinivalue_line("markers", f"{marker}: of the end-to-end tests")
