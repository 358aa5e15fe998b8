"""Leadership that follows the scheduler: a replica leads if the scheduler in its pod holds the Lease.

The scheduler calls only the replica in its own pod. The identity in the Lease begins with the host name of
the pod, and Muster as a sidecar in this pod has the same host name. If the Lease has not changed for as long
as the renew deadline, no replica leads, whatever times the Lease contains.
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

_READ_PERIOD = 2.0  # seconds between two reads of the Lease
_RENEW_DEADLINE = 10.0  # seconds; kube-scheduler's default


class LeaderStatus(msgspec.Struct, frozen=True):
    """Status of the leadership, for users."""

    leads: bool  # whether this replica leads
    lease: str  # namespace/name of the Lease; empty without an election
    holder: str = ""  # identity of the Lease's holder; empty without a holder
    renewed: float | None = None  # seconds since the last known change of the Lease; None if unknown
    fault: str = ""  # why the last read failed; empty after a success

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
    """Leadership of the only replica, for `--leader-elect=off`."""

    def leads(self) -> bool:
        return True

    def status(self) -> LeaderStatus:
        return LeaderStatus(leads=True, lease="")

    def start(self) -> None:
        metrics.leader.set(1)

    def stop(self) -> None:
        """Do nothing, since no thread runs."""


class LeaderElection(Poller):
    """Thread that reads the Lease of the scheduler. `leads()` is checked before every write."""

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
        self._identity_prefix = f"{host}_"
        self._clock = clock
        self._lease: LeaseSpec | None = None
        self._renewed_at: float | None = None
        self._fault = ""
        self._leads_until = clock()
        self._led = False
        super().__init__("leader-election", _READ_PERIOD, self.read_lease)

    def leads(self) -> bool:
        return self._clock() < self._leads_until and not self.is_stopping

    def status(self) -> LeaderStatus:
        """Return the state of the election for the status page."""
        return LeaderStatus(
            leads=self.leads(),
            lease=f"{self._namespace}/{self._name}",
            holder=(self._lease.holder_identity or "") if self._lease else "",
            renewed=None if self._renewed_at is None else self._clock() - self._renewed_at,
            fault=self._fault,
        )

    def read_lease(self) -> None:
        """Read the Lease once, and log a change of the leadership."""
        asked_at, self._fault = self._clock(), ""
        try:
            lease = self._cluster.lease(self._namespace, self._name, timeout=_READ_PERIOD).spec
            if not (lease.holder_identity or "").startswith(self._identity_prefix):
                self._leads_until = asked_at
            elif lease != self._lease:
                self._leads_until = asked_at + _RENEW_DEADLINE
            if lease != self._lease:
                self._renewed_at = asked_at
            self._lease = lease
        except NotFound:
            self._leads_until, self._lease, self._renewed_at = asked_at, None, None
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
