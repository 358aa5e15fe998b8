"""Cluster of a campaign, with a proxy on every connection between its parts, so that each can be cut.

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
from tests.storm.clock import Clock
from tests.storm.event_recorder import EventRecorder
from tests.storm.gang_specs import PRIORITIES, RACK, RACKS, REFUSED, ZONES
from tests.storm.plan import Mix
from tests.storm.sidecar import Sidecar
from tests.storm.undisturbed_time import UndisturbedTime
from tests.storm.view import View

Json = dict[str, Any]
NAMESPACE = "storm"
HOSTS = ("first", "second")
NODE_COUNT, NODE_CPU = 24, "6"
GRACE = 4.0  # after an outage all objects are listed again
# In undisturbed seconds: 5 until a watch that was cut is open again, and 10 for a delayed binding.
SIGHT_SECONDS = 15.0  # seconds in which a scheduler may not have seen a change
DEADLINE = 30.0  # several times --bind-deadline: a partial start is first completed, then undone


class StormCluster:
    """All processes of a campaign, and their connections."""

    def __init__(
        self,
        stage: Stage,
        view: View,
        recorder: EventRecorder,
        undisturbed_time: UndisturbedTime,
        restarts: list[float],
        mix: Mix,
    ) -> None:
        """Start the pairs of Muster and scheduler. `view`: the campaign's watches."""
        self.stage = stage
        self.cluster = stage.cluster
        self.api: Client = stage.api
        self.namespace = stage.namespace
        self.view = view
        self.recorder = recorder
        self.undisturbed_time = undisturbed_time
        self.queues = mix.queues
        self.restarts = restarts  # when Muster was ready again, by time.monotonic
        self.leader_changes = 0
        self.on_leader_change: Callable[[], object] = lambda: None
        self.down: set[str] = set()  # broken parts; each has at most one fault
        user = next(iter(manifests.service_accounts()), ADMIN)
        self.proxy = stage.start_fault_proxy(remember=1000)
        self.muster_wire = stage.start_wire(self.proxy.server)
        self.clock = Clock(stage.cluster.folder)
        self.through_muster = mix.view
        names = HOSTS if mix.replicas else ("",)
        self.sidecars = [
            Sidecar.start(
                stage,
                user,
                self.muster_wire.server,
                self.clock,
                name,
                view=mix.view,
                standby=name == HOSTS[1],
            )
            for name in names
        ]
        self.leading, self.is_led = self.sidecars[0], True  # at the last lookup

    @property
    def muster(self) -> Muster:
        return self.leading.muster

    @property
    def scheduler(self) -> KubeScheduler:
        return self.leading.scheduler

    def update_leader(self) -> None:
        """Look up the current leader. One thread does the lookup for all: a frozen Muster answers late."""
        leader = next((sidecar for sidecar in self.sidecars if sidecar.leads()), None)
        self.is_led = leader is not None
        if leader is not None and leader is not self.leading:
            self.leading = leader
            self.leader_changes += 1
            self.on_leader_change()
            self.restarts.append(time.monotonic())  # a new leader knows as little as a restarted one

    def part(self, name: str) -> str:
        """Return the name in `down` for `apiserver`, or for `muster` or `scheduler` of the leading pair."""
        return name if name == "apiserver" else self.leading.part(name)

    def processes(self) -> dict[str, Process]:
        """Return all processes that faults may kill, by their names in `down`."""
        return {
            **{sidecar.part("muster"): sidecar.muster.process for sidecar in self.sidecars},
            **{sidecar.part("scheduler"): sidecar.scheduler.process for sidecar in self.sidecars},
            "apiserver": self.cluster.apiserver,
        }

    def is_ready(self, part: str) -> bool:
        """Return whether a part is ready. A scheduler counts as ready if the leading one is."""
        ready: dict[str, Callable[[], bool]] = {
            **{sidecar.part("muster"): sidecar.muster.ready for sidecar in self.sidecars},
            **{sidecar.part("scheduler"): self._leading_scheduler_is_ready for sidecar in self.sidecars},
            "apiserver": self.cluster._is_ready,
        }
        return ready[part]()

    def _leading_scheduler_is_ready(self) -> bool:
        """Return whether the leading scheduler is alive and ready."""
        return self.is_led and self.scheduler.process.alive() and self.scheduler._is_ready()

    def ready(self) -> bool:
        return self._leading_scheduler_is_ready() and self.muster.ready() and not self.down

    def mark_up(self, parts: Iterable[str]) -> None:
        """Mark parts as working again."""
        for part in parts:
            self.down.discard(part)
            self.undisturbed_time.end(part)

    def restore_objects(self) -> None:
        """Restore all nodes and queues, even if a fault may not have changed them."""
        for number in range(NODE_COUNT):
            node = new_node(number)
            name, status = node["metadata"]["name"], node["status"]
            if self.api.find(NODES, name) is None:
                self.api.create(NODES, node)
            self.api.patch(NODES, name, {"spec": {"unschedulable": None, "taints": None}})
            self.api.patch(NODES, name, {"status": {"allocatable": status["allocatable"]}}, sub="status")
        for name in self.queues:
            self.api.patch(QUEUES, name, {"spec": {"state": "Open", **self.spec_without_faults(name)}})

    def spec_without_faults(self, queue: str) -> Json:
        """Return the fields of a queue's spec without faults."""
        return {"capability": None, **self.queues[queue]}


def new_node(number: int) -> dict[str, Any]:
    """Return a node. Zones and racks have equal numbers of nodes; every fourth node has GPUs."""
    gpus: dict[str, Any] = {"example.com/gpu": "4"} if number % 4 == 0 else {}
    labels = {"zone": ZONES[number % len(ZONES)], RACK: RACKS[number * len(RACKS) // NODE_COUNT]}
    return node(f"n{number}", cpu=NODE_CPU, memory="64Gi", labels=labels, **gpus)


@contextmanager
def storm_cluster(kubernetes: str, mix: Mix) -> Iterator[StormCluster]:
    """Yield a cluster with nodes, queues and the sidecar pair; its logs stay when it ends."""
    undisturbed_time, restarts = UndisturbedTime(GRACE), list[float]()
    users = manifests.service_accounts()
    with ControlPlane(
        kubernetes=kubernetes, users=users, keep_logs=True, older_etcd=mix.older_etcd
    ) as cluster:
        manifests.apply(cluster.admin, *manifests.INSTALLED, *volcano_jobs.FILES)
        cluster.admin.create(NAMESPACES, namespace(NAMESPACE))
        watch_client = Client(cluster.access(ADMIN))
        with (
            Observer(
                watch_client,
                DEADLINE,
                sight=SIGHT_SECONDS,
                undisturbed_time=undisturbed_time,
                restarts=restarts,
            ) as observer,
            View(watch_client) as view,
            EventRecorder(watch_client) as recorder,
            Kubelet(Client(cluster.access(ADMIN))) as kubelet,
        ):
            kubelet.refuse(lambda pod: REFUSED in pod["metadata"].get("annotations", {}))
            stage = Stage(cluster, NAMESPACE, kubelet, observer)
            with stage.started:
                _create_objects(stage, mix.queues)
                yield StormCluster(stage, view, recorder, undisturbed_time, restarts, mix)


def _create_objects(stage: Stage, queues: Mapping[str, Json]) -> None:
    stage.api.create_many(NODES, map(new_node, range(NODE_COUNT)))
    for name, spec in queues.items():
        stage.queue(name, **spec)
    for name, value in PRIORITIES.items():
        stage.priority(name, value)
    stage.start_controller_manager()
