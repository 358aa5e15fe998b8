"""The embedded cluster: API server, controllers, kubelets, scheduler, and `muster serve`, a child."""

import random
import socket
import tempfile
import time
from pathlib import Path

from extender.api.keys import GPU, SCHEDULED
from extender.domain.model.reasons import Reason
from extender.sim.apiserver.discovery import GIT_VERSION
from extender.sim.apiserver.kinds import NODES, POD_GROUPS, Json
from extender.sim.apiserver.objects import find_stored_condition
from extender.sim.apiserver.server import ApiServer
from extender.sim.apiserver.service import Service
from extender.sim.apiserver.store import Store
from extender.sim.controllers.workloads import WorkloadControllers
from extender.sim.kubelets import Kubelets
from extender.sim.scheduler.extender import Extender
from extender.sim.scheduler.loop import Scheduler
from extender.sim.serve_process import ServeProcess

UNSETTLED = ("Starting", "BackingOff", "Reclaiming", "NotReady")
_QUIET = 2.0  # seconds: Muster decides within 50 ms, and writes the status of queues once a second


class Embedded:
    """`with Embedded() as cluster:`; what it started has ended when the block has."""

    def __init__(
        self,
        *,
        speed: float = 1.0,
        seed: int | None = None,
        listener: socket.socket | None = None,
        serve_arguments: tuple[str, ...] = (),
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="muster-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        self.kubeconfig = folder / "kubeconfig"
        self.store = Store()
        self.service = Service(self.store, random.Random(seed))
        self.server = ApiServer(self.service, listener)
        self.server.write_kubeconfig(self.kubeconfig)
        self.controllers = WorkloadControllers(self.service)
        self.kubelets = Kubelets(self.service, speed)
        self.muster = ServeProcess(self.kubeconfig, folder / "muster.log", serve_arguments)
        self._dice = random.Random(seed)
        self.scheduler: Scheduler | None = None

    def __enter__(self) -> "Embedded":
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Muster first, while there is still somebody to answer it."""
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
        """Begin to schedule and to run pods. Raises ServeFailed."""
        self.controllers.start()
        self.kubelets.start()
        self.muster.start()
        self.scheduler = Scheduler(self.service, Extender(self.muster.address), self._dice)
        self.scheduler.start()

    def make_nodes(self, count: int, cpu: str, memory: str, gpu: int = 0) -> None:
        for number in range(1, count + 1):
            self.service.create(NODES, "", node(f"node-{number}", cpu, memory, gpu))

    def settled(self) -> bool:
        """Whether nothing will change any more by itself."""
        if time.monotonic() - self.store.changed_at <= _QUIET:
            return False
        if self.kubelets.busy or self.controllers.behind or self.scheduler is None or self.scheduler.busy:
            return False  # a group without a reason is one that Muster has not looked at yet
        return not any(map(self._goes_on, self.store.all(POD_GROUPS)))

    def _goes_on(self, group: Json) -> bool:
        reason, meta = find_stored_condition(group, SCHEDULED).get("reason", ""), group["metadata"]
        if reason == Reason.BACKING_OFF:
            owners = [owner["uid"] for owner in meta.get("ownerReferences") or ()]
            return not any(self.controllers.tries_in_vain(uid, meta["namespace"]) for uid in owners)
        return reason in ("", *UNSETTLED)


def node(name: str, cpu: str, memory: str, gpu: int = 0) -> Json:
    """A node that is ready; without GPUs it has no such resource."""
    room = {"cpu": cpu, "memory": memory, "pods": "110", "ephemeral-storage": "100Gi"}
    room |= {GPU: str(gpu)} if gpu else {}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    info = {"kubeletVersion": GIT_VERSION}
    status = {"capacity": room, "allocatable": room, "conditions": [ready], "nodeInfo": info}
    return {"metadata": {"name": name}, "spec": {}, "status": status}
