"""The cluster of a campaign, and every wire between its parts, so that each can break.

Muster ──wire──► fault proxy ──► API server ◄──wire── scheduler ──wire──► Muster's verbs

With the proxy, the scheduler's wire leads to Muster instead of the API server.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.e2e.harness import manifests, volcano_jobs
from tests.e2e.harness.access import ADMIN
from tests.e2e.harness.client import Client
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.kubelet import Kubelet
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.objects import namespace, node
from tests.e2e.harness.observer import Observer
from tests.e2e.harness.process import Process
from tests.e2e.harness.resources import NAMESPACES, NODES, QUEUES
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.storm.calm import Calm
from tests.storm.clock import Clock
from tests.storm.plan import Mix
from tests.storm.sidecar import Sidecar
from tests.storm.view import View
from tests.storm.wishes import PRIORITIES, RACK, RACKS, REFUSED, ZONES
from tests.storm.witness import Witness

Json = dict[str, Any]
NAMESPACE = "storm"
HOSTS = ("first", "second")
NODE_COUNT, NODE_CPU = 24, "6"
GRACE = 4.0  # after an outage all objects are listed again
# In undisturbed seconds: a watch that was cut comes back within 5, and a binding that a wire holds up arrives
# as much as 10 after it was sent, whatever has happened on its node meanwhile.
SIGHT = 15.0
DEADLINE = 30.0  # several times --bind-deadline: first it is completed, then undone, and members go meanwhile


class Arena:
    """Everything that runs. What is done to it goes through `faults`."""

    def __init__(
        self,
        stage: Stage,
        view: View,
        witness: Witness,
        calm: Calm,
        restarts: list[float],
        mix: Mix,
    ) -> None:
        """Prepare the arena. `view` is the campaign's own."""
        self.stage = stage
        self.cluster = stage.cluster
        self.api: Client = stage.api
        self.namespace = stage.namespace
        self.view = view
        self.witness = witness
        self.calm = calm
        self.queues = mix.queues
        self.restarts = restarts  # when Muster was ready again, by time.monotonic
        self.changes = 0  # of the leader
        self.when_changed: Callable[[], object] = lambda: None
        self.down: set[str] = set()  # what is out of order now: one fault at a time for each part
        user = next(iter(manifests.service_accounts()), ADMIN)
        self.proxy = stage.start_fault_proxy(remember=1000)
        self.muster_wire = stage.start_wire(self.proxy.server)
        self.clock = Clock(stage.cluster.folder)
        self.through_muster = mix.view
        names = HOSTS if mix.replicas else ("",)
        self.sidecars = [
            Sidecar.start(stage, user, self.muster_wire.server, self.clock, name, mix.view, name == HOSTS[1])
            for name in names
        ]
        self.leading, self.is_led = self.sidecars[0], True  # as it was last seen

    @property
    def muster(self) -> Muster:
        return self.leading.muster

    @property
    def scheduler(self) -> KubeScheduler:
        return self.leading.scheduler

    def look(self) -> None:
        """Look up the present leader. One thread asks for all others: a frozen Muster takes its time."""
        leads = next((each for each in self.sidecars if each.leads()), None)
        self.is_led = leads is not None
        if leads is not None and leads is not self.leading:
            self.leading = leads
            self.changes += 1
            self.when_changed()
            self.restarts.append(time.monotonic())  # like one that has just started

    def part(self, name: str) -> str:
        """Return the present name of `muster`, `scheduler` or `apiserver` as a target of faults."""
        return name if name == "apiserver" else self.leading.part(name)

    def processes(self) -> dict[str, Process]:
        """Return the processes that are killed, by their names in `down`."""
        return {
            **{each.part("muster"): each.muster.process for each in self.sidecars},
            **{each.part("scheduler"): each.scheduler.process for each in self.sidecars},
            "apiserver": self.cluster.apiserver,
        }

    def is_ready(self, part: str) -> bool:
        """Return whether a part is ready; of two schedulers one never is: it waits for its Lease."""
        ready: dict[str, Callable[[], bool]] = {
            **{each.part("muster"): each.muster.ready for each in self.sidecars},
            **{each.part("scheduler"): self._scheduled for each in self.sidecars},
            "apiserver": self.cluster._ready,
        }
        return ready[part]()

    def _scheduled(self) -> bool:
        """Return whether the leading scheduler is ready: it may have died since."""
        return self.is_led and self.scheduler.process.alive() and self.scheduler._ready()

    def ready(self) -> bool:
        return self._scheduled() and self.muster.ready() and not self.down

    def give_back(self, parts: Iterable[str]) -> None:
        """Release parts that are in order again, or were never broken."""
        for part in parts:
            self.down.discard(part)
            self.calm.end(part)

    def tidy(self) -> None:
        """Restore nodes and queues, also where it is not known whether a change came through."""
        for number in range(NODE_COUNT):
            node = the_node(number)
            name, status = node["metadata"]["name"], node["status"]
            if self.api.find(NODES, name) is None:
                self.api.create(NODES, node)
            self.api.patch(NODES, name, {"spec": {"unschedulable": None, "taints": None}})
            self.api.patch(NODES, name, {"status": {"allocatable": status["allocatable"]}}, sub="status")
        for name in self.queues:
            self.api.patch(QUEUES, name, {"spec": {"state": "Open", **self.usual(name)}})

    def usual(self, queue: str) -> Json:
        """Return the specification that this queue has without faults."""
        return {"capability": None, **self.queues[queue]}


def the_node(number: int) -> dict[str, Any]:
    """Return the node of this number: every zone and every rack has as many, every fourth has GPUs."""
    gpus: dict[str, Any] = {"example.com/gpu": "4"} if number % 4 == 0 else {}
    labels = {"zone": ZONES[number % len(ZONES)], RACK: RACKS[number * len(RACKS) // NODE_COUNT]}
    return node(f"n{number}", cpu=NODE_CPU, memory="64Gi", labels=labels, **gpus)


@contextmanager
def arena(kubernetes: str, mix: Mix) -> Iterator[Arena]:
    """Yield a cluster with nodes, queues and the sidecar pair; its logs stay when it ends."""
    calm, restarts = Calm(GRACE), list[float]()
    users = manifests.service_accounts()
    with ControlPlane(
        kubernetes=kubernetes, users=users, keep_logs=True, older_etcd=mix.older_etcd
    ) as cluster:
        manifests.apply(cluster.admin, *manifests.INSTALLED, *volcano_jobs.FILES)
        cluster.admin.create(NAMESPACES, namespace(NAMESPACE))
        watching = Client(cluster.access(ADMIN))
        with (
            Observer(watching, DEADLINE, sight=SIGHT, calm=calm, restarts=restarts) as observer,
            View(watching) as view,
            Witness(watching) as witness,
            Kubelet(Client(cluster.access(ADMIN))) as kubelet,
        ):
            kubelet.refuse(lambda pod: REFUSED in pod["metadata"].get("annotations", {}))
            stage = Stage(cluster, NAMESPACE, kubelet, observer)
            with stage.started:
                _furnish(stage, mix.queues)
                yield Arena(stage, view, witness, calm, restarts, mix)


def _furnish(stage: Stage, queues: Mapping[str, Json]) -> None:
    stage.api.create_many(NODES, map(the_node, range(NODE_COUNT)))
    for name, spec in queues.items():
        stage.queue(name, **spec)
    for name, value in PRIORITIES.items():
        stage.priority(name, value)
    stage.start_controller_manager()
