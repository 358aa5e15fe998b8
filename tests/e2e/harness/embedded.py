"""Stage of the end-to-end tests on the embedded cluster, with the same methods, kubelets and observer.

Only the API server and the scheduler differ from those of the other tests. If a scenario passes on a real
control plane and fails here, the embedded cluster differs from Kubernetes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from extender.apimachinery.service import Service
from extender.apimachinery.store import Store
from extender.sim.apiserver.server import ApiServer
from extender.sim.controllers.workloads import WorkloadControllers
from extender.sim.scheduler.extender import Extender
from extender.sim.scheduler.loop import Scheduler
from tests.e2e.harness.access import User, write_kubeconfig
from tests.e2e.harness.client import Access, Client
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.kubelet import Kubelet
from tests.e2e.harness.objects import namespace
from tests.e2e.harness.observer import GANG_DEADLINE, Observer
from tests.e2e.harness.resources import NAMESPACES
from tests.e2e.harness.scheduler import PLAIN, load
from tests.e2e.harness.stage import Stage

Json = dict[str, Any]
NAMESPACE = "test"
UNREACHABLE = "127.0.0.1:9"
STOCK = {"schedulerName": "default-scheduler"}


class EmbeddedControlPlane:
    """Embedded control plane, with the methods of ControlPlane that the stage needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.service = Service(Store(), Random(0), adds_gates=False)
        self._server = ApiServer(self.service)
        self.server = self._server.url
        self.admin = Client(Access(self.server, "", folder))

    def __enter__(self) -> "EmbeddedControlPlane":
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.admin.close()
        self._server.stop()

    def kubeconfig(self, user: User, server: str | None = None) -> Path:
        """Write a kubeconfig for a user, and return its path. Every user has all rights.

        `server` is the address of a proxy in front of the API server. By default, the requests have no proxy.
        """
        access = Access(server or self.server, "", self.folder)
        return write_kubeconfig(self.folder / f"kubeconfig-{access.server.rpartition(':')[2]}", user, access)


class EmbeddedScheduler(Scheduler):
    """Embedded scheduler, with the methods of KubeScheduler that scenarios need."""

    def kill(self) -> None:
        self.stop()


class EmbeddedStage(Stage):
    """Stage with embedded schedulers, which read the same configuration files as kube-scheduler."""

    def __init__(self, control_plane: EmbeddedControlPlane, kubelet: Kubelet, observer: Observer) -> None:
        cluster: Any = control_plane
        super().__init__(cluster, NAMESPACE, kubelet, observer)
        self._service = control_plane.service

    def start_scheduler(self, config: str | Json = PLAIN, **options: Any) -> Any:
        """Start an embedded scheduler. With extenders in its configuration, the scheduler calls Muster."""
        loaded_config = load(config) if isinstance(config, str) else config
        profiles = frozenset(profile["schedulerName"] for profile in loaded_config.get("profiles", [STOCK]))
        extender = Extender(options.get("muster", UNREACHABLE), bind_resource=_bind_resource(loaded_config))
        extended_profiles, plain_profiles = (
            (profiles, frozenset()) if loaded_config.get("extenders") else (frozenset(), profiles)
        )
        scheduler = EmbeddedScheduler(self._service, extender, Random(0), extended_profiles, plain_profiles)
        self.started.callback(scheduler.stop)
        scheduler.start()
        return scheduler

    def start_controller_manager(self, *flags: str) -> None:
        controllers = WorkloadControllers(self._service)
        self.started.callback(controllers.stop)
        controllers.start()

    def start_fault_proxy(self, remember: int | None = None) -> FaultProxy:
        return self.started.enter_context(FaultProxy(self.cluster.server, remember=remember))


def _bind_resource(config: Json) -> str:
    """Return the managed resource of the extender that binds pods, or "" if the extender has none."""
    binders = [entry for entry in config.get("extenders", []) if "bindVerb" in entry]
    return next((resource["name"] for entry in binders for resource in entry.get("managedResources", [])), "")


@contextmanager
def embedded_stage(folder: Path) -> Iterator[EmbeddedStage]:
    """Yield the stage of an empty embedded cluster. When the context ends, the observer checks all events."""
    with EmbeddedControlPlane(folder) as cluster:
        client = cluster.admin
        client.create(NAMESPACES, namespace(NAMESPACE))
        with Observer(client, GANG_DEADLINE) as observer, Kubelet(client) as kubelet:
            stage = EmbeddedStage(cluster, kubelet, observer)
            with stage.started:
                yield stage
            observer.assert_clean(namespace=NAMESPACE)
