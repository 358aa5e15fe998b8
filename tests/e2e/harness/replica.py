"""One of several replicas. A replica is Muster and a scheduler with one host name and one proxy.

Muster and the scheduler reach the API server through this proxy.
"""

from tests.e2e.harness.access import User
from tests.e2e.harness.fault_proxy import Call
from tests.e2e.harness.scheduler import QUICK_LEASE
from tests.e2e.harness.stage import Json, Stage

# First bytes of a body in protobuf. kube-scheduler writes protobuf to the core API, and Muster writes JSON.
PROTOBUF = b"k8s\x00"


class Replica:
    """Replica whose scheduler waits for the Lease.

    `proxy` records the requests of Muster and the scheduler.
    """

    def __init__(
        self,
        stage: Stage,
        user: User,
        host: str,
        *,
        standby: bool = False,
        view: bool = False,
        lease: Json = QUICK_LEASE,
    ) -> None:
        """Start a replica. With `standby`, do not wait until its scheduler is ready."""
        self.host = host
        self.proxy = stage.start_fault_proxy()
        self.wire = stage.start_wire(self.proxy.server)
        server = self.wire.server
        self.muster = stage.start_muster(
            user=user, server=server, leader_elect="follow", host=host, view=view
        )
        self.scheduler = stage.start_sidecar(
            self.muster,
            wait=not standby,
            user=user,
            server=server,
            leader_elect=True,
            lease=lease,
            host=host,
        )

    def leads(self) -> bool:
        """Return whether Muster's debug page says that this replica leads. The page may be a little late."""
        return bool(self.muster.debug("/debug/leadership")["leads"])

    def kill(self) -> None:
        """Kill Muster and the scheduler, as when their machine fails."""
        self.muster.kill()
        self.scheduler.kill()

    def writes(self) -> list[Call]:
        """Return the writes of Muster, without the scheduler's Lease, Events and pod conditions."""
        return [call for call in self.proxy.writes() if not _is_from_scheduler(call)]


def _is_from_scheduler(call: Call) -> bool:
    """Return whether the scheduler sent a call.

    Muster writes neither protobuf nor Leases nor events.k8s.io. In the status of a pod, Muster writes only
    the nominated node, and in another format than client-go.
    """
    if call.body.startswith(PROTOBUF) or "/leases" in call.path:
        return True
    if call.path.startswith("/apis/events.k8s.io/"):
        return True
    if "/pods/" not in call.path or not call.path.endswith("/status"):
        return False
    return b"$setElementOrder" in call.body or b"nominatedNodeName" not in call.body
