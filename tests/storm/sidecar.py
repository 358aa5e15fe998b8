"""Pair of Muster and its scheduler, with the connections between them. A cluster has one or two pairs."""

from dataclasses import dataclass
from typing import Any

import urllib3

from tests.e2e.harness import loopback
from tests.e2e.harness.access import User
from tests.e2e.harness.muster import PROGRAM, SHORT_TIMEOUT, Muster
from tests.e2e.harness.scheduler import KubeScheduler
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.tcp_proxy import TcpProxy
from tests.storm.clock import Clock

TERM = 6  # seconds for which the Lease is held
LEASE = {"leaseDuration": f"{TERM}s", "renewDeadline": "4s", "retryPeriod": "1s"}
FLAGS = (
    *("--bind-deadline=8s", "--start-backoff=1s", "--start-backoff-max=5s"),
    *("--volcano-jobs=on", "--log-format=json"),
)


@dataclass(frozen=True)
class Sidecar:
    """Pair of Muster and scheduler. `name`: the host, empty if there is one pair only."""

    name: str
    muster: Muster
    verbs_wire: TcpProxy
    scheduler_wire: TcpProxy
    scheduler: KubeScheduler

    @classmethod
    def start(
        cls, stage: Stage, user: User, server: str, clock: Clock, name: str, *, view: bool, standby: bool
    ) -> "Sidecar":
        """Start the pair. With a name, Muster leads while its scheduler has the Lease.

        `server`: the address at which Muster reaches the API server.
        """
        options: dict[str, Any] = {"leader_elect": "follow", "host": name} if name else {}
        program = clock.wrapped([str(PROGRAM)])
        muster = stage.start_muster(*FLAGS, user=user, server=server, view=view, program=program, **options)
        verbs = stage.started.enter_context(TcpProxy(int(muster.address.rpartition(":")[2])))
        wire = stage.start_wire(f":{muster.view_port}" if view else None)
        connection: dict[str, Any] = (
            {"kubeconfig": muster.view_kubeconfig_through(wire.port)} if view else {"server": wire.server}
        )
        if name:
            connection |= {"leader_elect": True, "lease": LEASE, "host": name, "wait": not standby}
        address = loopback.at(verbs.port)
        scheduler = stage.start_sidecar(muster, muster=address, user=user, **connection)
        return cls(name, muster, verbs, wire, scheduler)

    def part(self, name: str) -> str:
        """Return the name of this pair's `muster` or `scheduler`."""
        return f"{name} of {self.name}" if self.name else name

    def leads(self) -> bool:
        """Return whether this pair leads: a single pair always does, a frozen one does not."""
        try:
            return not self.name or bool(self.muster.debug("/debug/leadership", SHORT_TIMEOUT)["leads"])
        except (urllib3.exceptions.HTTPError, AssertionError):
            return False
