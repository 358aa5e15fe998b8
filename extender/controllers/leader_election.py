"""Leadership follows the scheduler: the replica in the pod of the scheduler that holds the Lease leads.

Only that replica receives calls. The holder's identity begins with its host name, which a sidecar shares. If
the Lease has not changed for the renew deadline, no replica leads, whatever the clocks say.
"""

import time
from collections.abc import Callable

import msgspec

from extender.api.objects.cluster import LeaseSpec
from extender.kube.calls import ApiClient
from extender.kube.errors import ApiError, NotFound
from extender.kube.writers import Poller
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

_PERIOD = 2.0  # seconds between two looks
_RENEW_DEADLINE = 10.0  # seconds; kube-scheduler's default


class LeaderStatus(msgspec.Struct, frozen=True):
    """Status of the leadership, for users."""

    leads: bool  # whether this replica leads
    lease: str  # namespace/name; empty without an election
    holder: str = ""  # the identity of the Lease's holder; empty if there is none
    renewed: float | None = None  # seconds since the Lease was seen to change; None: it was not seen
    fault: str = ""  # why the last look failed; empty if it did not

    def text(self) -> str:
        """Return a status line."""
        if self.leads and not self.lease:
            return "leads, by --leader-elect=off"
        if self.fault and self.renewed is None:
            return f"does not lead; {self.lease}: {self.fault}"
        if not self.holder:
            return f"does not lead; {self.lease} has no holder"
        role = f"leads; {self.lease} is held by {self.holder}" if self.leads else f"follows {self.holder}"
        return f"{role}, renewed {self.renewed or 0:.0f} s ago" + (f" ({self.fault})" if self.fault else "")


class NoElection:
    """Leadership without other replicas: `--leader-elect=off`."""

    def leads(self) -> bool:
        return True

    def status(self) -> LeaderStatus:
        return LeaderStatus(leads=True, lease="")

    def start(self) -> None:
        metrics.leader.set(1)

    def stop(self) -> None:
        """Do nothing: no thread runs."""


class LeaderElection(Poller):
    """Leader election; `leads()` is checked before every write."""

    def __init__(
        self,
        cluster: ApiClient,
        namespace: str,
        name: str,
        host: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._prefix = f"{host}_"
        self._clock = clock
        self._seen: LeaseSpec | None = None
        self._renewed_at: float | None = None
        self._fault = ""
        self._until = clock()
        self._led = False
        super().__init__("leader-election", _PERIOD, self.read_lease)

    def leads(self) -> bool:
        return self._clock() < self._until and not self.stopping

    def status(self) -> LeaderStatus:
        """Return the state of the election for the status page."""
        return LeaderStatus(
            leads=self.leads(),
            lease=f"{self._namespace}/{self._name}",
            holder=(self._seen.holder_identity or "") if self._seen else "",
            renewed=None if self._renewed_at is None else self._clock() - self._renewed_at,
            fault=self._fault,
        )

    def read_lease(self) -> None:
        """Read the Lease once, and log it if the leadership changed."""
        asked_at, self._fault = self._clock(), ""
        try:
            lease = self._cluster.lease(self._namespace, self._name, timeout=_PERIOD).spec
            if not (lease.holder_identity or "").startswith(self._prefix):
                self._until = asked_at
            elif lease != self._seen:
                self._until = asked_at + _RENEW_DEADLINE
            if lease != self._seen:
                self._renewed_at = asked_at
            self._seen = lease
        except NotFound:
            self._until, self._seen, self._renewed_at = asked_at, None, None
        except ApiError as fault:
            self._fault = f"the Lease could not be read: {fault}"
            log.warning("the Lease could not be read", lease=self._name, error=str(fault))
        finally:
            status = self.status()
            metrics.leader.set(status.leads)
            metrics.lease_age.set(status.renewed or 0.0)
            if status.leads is not self._led:
                self._led = status.leads
                metrics.leader_turns.inc()
                log.info("leading" if self._led else "not leading", lease=status.lease, holder=status.holder)
