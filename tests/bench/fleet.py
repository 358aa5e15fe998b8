"""Control plane with nodes but without kubelets, and the schedulers that the benchmarks compare on it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from extender.api import keys
from tests.bench.load import NewObject, create
from tests.bench.report import show
from tests.e2e.harness import manifests, objects
from tests.e2e.harness.access import ADMIN, SCHEDULER
from tests.e2e.harness.client import Access
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.process import Process
from tests.e2e.harness.resources import NAMESPACES, NODES, POD_GROUPS, PODS, Resource
from tests.e2e.harness.scheduler import KubeScheduler, load, sidecar_options
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
OURS, STOCK = "muster", "default-scheduler"
INSTALLED = ("crds/*.yaml", "namespace.yaml", "rbac.yaml", "sidecar/rbac-*.yaml")
CPU, MEMORY, PODS_OF_NODE = "32", "256Gi", 110
RACK = "example.com/rack"
_NODES_OF_RACK = 100


def stock_config(sampled: bool = True) -> Json:
    """Return the configuration of the stock scheduler, with the same client limits as with Muster.

    The default client limits allow only 50 bindings/s. Without `sampled`, the scheduler scores all nodes for
    each pod, as it must next to Muster.
    """
    config = load("sidecar-gates.yaml")
    del config["extenders"]
    profile = {} if sampled else config["profiles"][0]
    config["profiles"] = [{**profile, "schedulerName": STOCK}]
    return config


@dataclass(frozen=True)
class Side:
    """Side of a comparison: a stock scheduler, alone or next to Muster."""

    scheduler: KubeScheduler
    muster: Muster | None = None

    @property
    def processes(self) -> dict[str, Process]:
        muster = {"muster": self.muster.process} if self.muster else {}
        return {"scheduler": self.scheduler.process, **muster}


class Fleet:
    """Control plane with a number of equal, empty nodes: `with Fleet(1000) as fleet: ...`."""

    def __init__(self, nodes: int, cpu: str = CPU, pods: int = PODS_OF_NODE) -> None:
        self.cluster = ControlPlane(users=manifests.service_accounts())
        self.access: Access = self.cluster.access(ADMIN)
        self.size = nodes
        self._capacity: dict[str, Any] = {"cpu": cpu, "pods": pods}
        self._user = next(iter(manifests.service_accounts()))
        self._stack = ExitStack()
        self._numbers = count()

    def __enter__(self) -> "Fleet":
        show(f"a control plane with {self.size} nodes")
        with ExitStack() as stack:
            stack.enter_context(self.cluster)
            manifests.apply(self.cluster.admin, *INSTALLED)
            create(self.access, ((NODES, self._node(number)) for number in range(self.size)))
            self._stack = stack.pop_all()
        return self

    def _node(self, number: int) -> Json:
        labels = {RACK: f"r{number // _NODES_OF_RACK}"}
        return objects.node(f"n{number}", memory=MEMORY, labels=labels, **self._capacity)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def namespace(self) -> str:
        """Create a namespace, and return its name.

        With separate namespaces, several runs may use the same names for their pods.
        """
        name = f"bench-{next(self._numbers)}"
        self.cluster.admin.create(NAMESPACES, objects.namespace(name))
        return name

    def clear(self, namespace: str) -> None:
        """Delete the pods and groups of a namespace. No scheduler may run meanwhile."""
        for resource in (POD_GROUPS, PODS):
            wait_for(partial(self._delete_and_check_empty, resource, namespace), 300, "the namespace empty")

    def _delete_and_check_empty(self, resource: Resource, namespace: str) -> bool:
        """Delete all objects of a kind, and return whether no objects are left."""
        self.cluster.admin.delete_all(resource, namespace)
        return not self.cluster.admin.items(resource, namespace, limit="1")

    def muster(self, *arguments: str, view: bool = False) -> Muster:
        """Return a process of Muster. The process is not started yet."""
        return Muster(self.cluster, self.cluster.kubeconfig(self._user), arguments=arguments, view=view)

    def scheduler(self, muster: Muster | None = None, sampled: bool = True) -> KubeScheduler:
        """Return a process of a scheduler. The process is not started yet.

        Without `muster`, the scheduler is a stock scheduler. With `muster`, it is configured to call this
        Muster, and to use the scheduler proxy if Muster has one.
        """
        if muster is None:
            return KubeScheduler(self.cluster, stock_config(sampled), user=SCHEDULER)
        return KubeScheduler(self.cluster, user=self._user, **sidecar_options(muster))

    @contextmanager
    def with_muster(self, *arguments: str, view: bool = False) -> Iterator[Side]:
        """Run Muster and its scheduler until the context ends."""
        with self.muster(*arguments, view=view) as muster, self.scheduler(muster) as scheduler:
            yield Side(scheduler, muster)

    def fill(self, count: int) -> str:
        """Create small pods of the stock scheduler that are bound to all nodes in turn.

        Return their namespace.
        """
        namespace = self.namespace()
        show(f"{count} bound pods")
        pods = (
            objects.pod(
                f"work-{n}", namespace=namespace, scheduler=STOCK, cpu="0.1", nodeName=f"n{n % self.size}"
            )
            for n in range(count)
        )
        create(self.access, ((PODS, pod) for pod in pods))
        return namespace

    @contextmanager
    def stock(self, sampled: bool = True) -> Iterator[Side]:
        """Run a stock scheduler without Muster until the context ends."""
        with self.scheduler(sampled=sampled) as scheduler:
            yield Side(scheduler)


def gang(namespace: str, name: str, size: int, in_rack: bool = False, **pod: Any) -> Iterator[NewObject]:
    """Yield a group and its pods `name-0`, `name-1`, ...

    With `in_rack`, all pods must be in the same rack.
    """
    annotations = {keys.REQUIRED_TOPOLOGY: RACK} if in_rack else {}
    yield POD_GROUPS, objects.pod_group(name, namespace=namespace, min_member=size, annotations=annotations)
    yield from pods(namespace, name, size, group=name, **pod)


def pods(namespace: str, name: str, size: int, **pod: Any) -> Iterator[NewObject]:
    """Return pods `name-0`, `name-1`, ..., for `create`. `pod` has arguments for `objects.pod`."""
    names = (f"{name}-{number}" for number in range(size))
    return ((PODS, objects.pod(name, namespace=namespace, **pod)) for name in names)
