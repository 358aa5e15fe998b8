"""Embedded cluster: API server, controllers, kubelets, scheduler, and `muster serve` as a child process.

A session creates objects, and shows the state of the cluster until the cluster has settled.
"""

import http.client
import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

from extender.api.keys import SCHEDULED
from extender.api.workloads.shape import value_at
from extender.apimachinery.kinds import NODES, POD_GROUPS, TOPOLOGIES, VOLCANO_JOBS, Json
from extender.apimachinery.objects import find_stored_condition
from extender.apimachinery.service import Service
from extender.apimachinery.store import Store
from extender.domain.model.reasons import Reason, Verdict
from extender.files.creation import Creation, sort_by_arrival
from extender.files.manifests import InvalidManifests, Manifest
from extender.files.unmanaged_objects import QueuesOfJobs, UnmanagedObject, plan_of_quotas, unmanaged_objects
from extender.sim.apiserver.server import ApiServer
from extender.sim.controllers.workloads import WorkloadControllers
from extender.sim.kubelets import Kubelets, devices_of, node
from extender.sim.scheduler.extender import Extender
from extender.sim.scheduler.loop import EXTENDED_PROFILES, Scheduler
from extender.sim.show.cluster_state import ClusterState, ShownObjects, observe
from extender.sim.show.frames import Picture, View
from extender.sim.show.sentences import TransitionLog

_UNSETTLED = ("Starting", "BackingOff", "Reclaiming", "NotReady")
_TOPOLOGY_LEVELS = ("topology.kubernetes.io/block", "topology.kubernetes.io/rack")
_QUIET_SECONDS = 2.0  # seconds without a change; Muster writes statuses of queues once a second


class Embedded:
    """Cluster for a `with` block. At the end of the block, all its processes are stopped."""

    def __init__(
        self,
        *,
        speed: float = 1.0,
        seed: int | None = None,
        listener: socket.socket | None = None,
        serve_arguments: tuple[str, ...] = (),
    ) -> None:
        self.speed = speed
        self._folder = tempfile.TemporaryDirectory(prefix="muster-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        self.kubeconfig = folder / "kubeconfig"
        # Larger than all versions of an earlier cluster at this address, so that its watchers list again.
        self.store = Store(time.time_ns() // 1000)
        self.service = Service(self.store, random.Random(seed))
        self.server = ApiServer(self.service, listener)
        self.server.write_kubeconfig(self.kubeconfig)
        self.controllers = WorkloadControllers(self.service)
        self.kubelets = Kubelets(self.service, speed)
        show_all_groups = ("--podgroups-for-plain-pods", "always")  # the view shows PodGroups
        arguments = ("--volcano-jobs", "on", *show_all_groups, *serve_arguments)
        self.muster = ServeProcess(self.kubeconfig, folder / "muster.log", arguments)
        self._rng = random.Random(seed)
        self.scheduler: Scheduler | None = None

    def __enter__(self) -> "Embedded":
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all parts. Muster stops first, while the API server still answers its requests."""
        try:
            self.muster.stop()
        finally:
            if self.scheduler:
                self.scheduler.stop()
            self.controllers.stop()
            self.kubelets.stop()
            self.server.stop()
            self._folder.cleanup()

    def start(self) -> None:
        """Begin to schedule and to run pods.

        Raises:
            ServeFailed: Muster does not start.
        """
        self.controllers.start()
        self.kubelets.start()
        self.muster.start()
        self.scheduler = Scheduler(self.service, Extender(self.muster.address), self._rng)
        self.scheduler.start()

    def make_nodes(self, count: int, cpu: str, memory: str, gpu: int = 0) -> None:
        for number in range(1, count + 1):
            self.service.create(NODES, "", node(f"node-{number}", cpu, memory, gpu))

    def make_devices(self, name: str, number: int) -> None:
        """Give each node `number` devices of a DeviceClass."""
        nodes = [node["metadata"]["name"] for node in self.store.all(NODES)]
        for kind, obj in devices_of(nodes, name, number):
            self.service.create(kind, "", obj)

    def make_racks(self, sizes: Sequence[int], cpu: str, memory: str, gpu: int = 0) -> None:
        """Make nodes in racks, and a Topology.

        `sizes` has the number of blocks (optional), of racks in each block, and of nodes in each rack.
        """
        levels = _TOPOLOGY_LEVELS[1 - len(sizes) :]
        for node_position in product(*(range(1, size + 1) for size in sizes)):
            new_node = node(f"node-{'-'.join(map(str, node_position))}", cpu, memory, gpu)
            numbers = zip(levels, node_position, strict=False)
            labels = {level: f"{level.rpartition('/')[2]}-{number}" for level, number in numbers}
            new_node["metadata"]["labels"] = labels
            self.service.create(NODES, "", new_node)
        spec = {"levels": [{"nodeLabel": level} for level in levels]}
        self.service.create(TOPOLOGIES, "", {"metadata": {"name": "racks"}, "spec": spec})

    def has_settled(self) -> bool:
        """Return whether the cluster has settled: no part has work left, and no status is about to change."""
        if time.monotonic() - self.store.changed_at <= _QUIET_SECONDS:
            return False
        if self.kubelets.busy or self.controllers.is_behind or not self.scheduler or self.scheduler.busy:
            return False  # a part of the cluster still has work
        return not any(map(self._is_changing, self.store.all(POD_GROUPS)))

    def _is_changing(self, group: Json) -> bool:
        """Return whether the status of a group will change even without another event."""
        reason, meta = find_stored_condition(group, SCHEDULED).get("reason", ""), group["metadata"]
        if reason == Reason.BACKING_OFF:
            owners = [owner["uid"] for owner in meta.get("ownerReferences") or ()]
            return not any(self.controllers.was_refused_lately(uid, meta["namespace"]) for uid in owners)
        return reason in ("", *_UNSETTLED)


_PERIOD = 0.2  # seconds between two observations of a session
_REASON_TIMEOUT = 15.0  # seconds without a change, after which no reason will appear


class Session:
    """Run of the embedded cluster.

    The run ends when the cluster has settled. With `stays_open`, the run ends only when it is interrupted.
    """

    def __init__(self, cluster: Embedded, view: View, stays_open: bool) -> None:
        self._cluster = cluster
        self._view = view
        self._stays_open = stays_open
        self._pause = threading.Event()
        self.log = TransitionLog()
        self.state: ClusterState | None = None
        self.unmanaged_objects: list[UnmanagedObject] = []
        self._creation = Creation(cluster.service)
        self._arrivals: list[tuple[float, Manifest]] = []  # creation time in seconds, and object

    def create(self, manifests: Sequence[Manifest]) -> None:
        """Create objects, and record the objects that Muster is not asked to start.

        Raises:
            InvalidManifests: The API server refuses an object.
        """
        try:
            arrivals = sort_by_arrival(manifests)
        except ValueError as fault:
            raise InvalidManifests(str(fault)) from fault
        self._arrivals = [(seconds, manifest) for seconds, manifest in arrivals if seconds > 0]
        self._create([manifest for seconds, manifest in arrivals if seconds == 0])
        self._creation.check(manifest for _, manifest in self._arrivals)
        self._raise_faults()

    def _create(self, manifests: Sequence[Manifest]) -> None:
        creation = self._creation
        creation.create(manifests)
        self._raise_faults()
        queues = QueuesOfJobs(creation.objects, plan_of_quotas(creation.objects).namespaces)
        self.unmanaged_objects = [*unmanaged_objects(creation.objects, queues)]

    def _raise_faults(self) -> None:
        if self._creation.faults:
            raise InvalidManifests("\n".join(self._creation.faults))

    def _create_due(self, second: float) -> None:
        """Create the objects whose creation time has come.

        These times pass `speed` times as fast as real time.
        """
        due_manifests = [manifest for at, manifest in self._arrivals if at <= second * self._cluster.speed]
        if due_manifests:
            self._create(due_manifests)
            del self._arrivals[: len(due_manifests)]

    def run(self, head: Sequence[str]) -> ClusterState:
        """Run the cluster, and return its last state.

        Raises:
            ServeFailed: Muster ended before the cluster settled.
        """
        self._view.begin(head)
        self._cluster.start()
        began_at = time.monotonic()
        while True:
            if not self._cluster.muster.is_alive():
                raise ServeFailed(self._cluster.muster.last_lines())
            second = time.monotonic() - began_at
            with self._cluster.controllers.creation_lock:  # else both would make a job's pods
                self._creation.retry_refused()
                self._create_due(second)
            has_settled = not self._arrivals and self._is_settled()  # must precede the read of the last state
            objects = ShownObjects.in_store(self._cluster.store)
            state = self.state = observe(objects, self._cluster.muster.debug_page)
            transitions = self.log.observe(state, second)
            self._view.show(Picture(state, self.log, second, has_settled), transitions)
            if has_settled and not self._stays_open:
                return self.state
            self._pause.wait(_PERIOD)

    def refusals(self) -> list[tuple[Json, str]]:
        """Return the workloads and pods that quotas refuse wholly or in part, each with a sentence."""
        workloads = ((refusal.workload, str(refusal)) for refusal in self._cluster.controllers.refusals())
        objects = ((created.object, f"{created.where}: {why}") for created, why in self._creation.refusals)
        return [*workloads, *objects]

    @property
    def everything_started(self) -> bool:
        """Return whether Muster had an object to start, and no object waits, is refused or is suspended."""
        state = self.state
        has_held_back_objects = self.refusals() or any(obj.suspended for obj in self.unmanaged_objects)
        if state is None or not state.everything_started or has_held_back_objects:
            return False
        return bool(state.gangs) or any(pod.scheduler in EXTENDED_PROFILES for pod in state.single_pods)

    def _is_settled(self) -> bool:
        """Return whether the cluster and all its groups, other pods and Volcano Jobs have settled.

        A pending pod without a group has settled when it has a reason. A Volcano Job has settled when it has
        a phase.
        """
        if self.state is None or not self._cluster.has_settled():
            return False
        pods = self.state.single_pods
        undecided = any(pod.state is Verdict.UNKNOWN or pod.wait_reason.reason in _UNSETTLED for pod in pods)
        jobs = self._cluster.store.all(VOLCANO_JOBS)
        undecided |= not all(value_at(job, ("status", "state", "phase")) for job in jobs)
        return not undecided or time.monotonic() - self._cluster.store.changed_at > _REASON_TIMEOUT


# ---- `muster serve` as it is, on free ports of loopback; it ends with this process

WATCHDOG = Path(__file__).with_name("parent_watchdog.py")
_START_TIMEOUT = 30.0  # seconds within which Muster must be ready


class ServeFailed(Exception):
    """Error: `muster serve` did not start, or it ended. The message has its last log lines."""


class ServeProcess:
    """Process of `muster serve`. `log` is the path of its log file, `arguments` are further flags."""

    def __init__(self, kubeconfig: Path, log: Path, arguments: tuple[str, ...] = ()) -> None:
        self._kubeconfig = kubeconfig
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.address, self.health, self.debug = (f"127.0.0.1:{port}" for port in free_ports(3))
        self.log = log

    def start(self) -> None:
        """Start Muster, and wait until it is ready.

        Raises:
            ServeFailed: Muster ended before it was ready, or was not ready in time.
        """
        for _ in range(3):  # another process may take a port before the child does
            listen = ["--listen", self.address, "--health-listen", self.health, "--debug-listen", self.debug]
            flags = ["--kubeconfig", str(self._kubeconfig), "--leader-elect", "off"]  # the only replica
            program = "from extender.cli import main; main(prog_name='muster')"
            serve = [sys.executable, "-c", program, "serve", *listen, *flags, *self._arguments]
            command = [sys.executable, "-I", "-S", str(WATCHDOG), *serve]
            self.stop()  # also closes the input of a child that lost its port
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
                )
            deadline = time.monotonic() + _START_TIMEOUT
            while self.is_alive():
                if _fetch(self.health, "/readyz") is not None:
                    return
                if time.monotonic() > deadline:
                    self.stop()
                    remedy = "try again when the machine is less busy; it said last:"
                    raise ServeFailed(self.last_lines(f"was not ready within {_START_TIMEOUT:g} s; {remedy}"))
                time.sleep(0.02)
            self.address, self.health, self.debug = (f"127.0.0.1:{port}" for port in free_ports(3))
        raise ServeFailed(self.last_lines())

    def stop(self) -> None:
        """Stop Muster and its child processes within two seconds."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(1.8)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """Return the process ID of the started process, which has child processes."""
        assert self._process is not None
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def debug_page(self, page: str) -> Any:
        """Return the JSON of a page below /debug/; None if there is no answer within a second."""
        answer = _fetch(self.debug, f"/debug/{page}")
        return json.loads(answer) if answer is not None else None

    def last_lines(self, event: str = "ended:") -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join([f"muster serve {event}", *lines[-5:]])


def _fetch(address: str, path: str) -> bytes | None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{address}{path}", timeout=1) as answer:
            return bytes(answer.read())
    except (OSError, http.client.HTTPException):  # any status except 200 raises HTTPError, an OSError
        return None


def free_ports(count: int) -> list[int]:
    """Return different ports of loopback that are free at this moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in sockets]
