"""Whether Volcano's own scheduler is at work.

It is while one of its pods is on a node and has not ended, even if the pod is being deleted. It holds a Lease
only if it was configured to elect a leader, which its release does not do; if it runs outside of pods, that
Lease is the only sign. A Lease is alive while it changes; one seen for the first time is alive if it was
renewed recently.
"""

from collections.abc import Callable

from extender.api.keys import ENDED_PHASES
from extender.api.objects.cluster import LeaseSpec
from extender.api.objects.pods import Pod
from extender.domain.model.leases import age_of, duration_of
from extender.domain.model.records import Uid

LEASE = "volcano"
POD_LABEL = ("app", "volcano-scheduler")
_FRESH = 60.0  # the most seconds, by wall clock, since the renewal of a live Lease seen for the first time


class VolcanoScheduler:
    """`namespace` is that of Volcano's pods and Lease; `clock` is monotonic, in seconds."""

    def __init__(self, namespace: str, clock: Callable[[], float]) -> None:
        self.namespace = namespace
        self._clock = clock
        self._pods: dict[Uid, str] = {}
        self._lease: LeaseSpec | None = None
        self._until = 0.0

    @property
    def is_at_work(self) -> bool:
        return bool(self._pods) or self._clock() < self._until

    @property
    def name(self) -> str:
        """The name of its pod, or otherwise the holder of its Lease, as far as that is known."""
        holder = (self._lease.holder_identity if self._lease else None) or "not known yet"
        return next(iter(self._pods.values()), holder)

    def see_pod(self, pod: Pod) -> None:
        label, value = POD_LABEL
        meta = pod.metadata
        if meta.namespace != self.namespace or (meta.labels or {}).get(label) != value:
            return
        if works(pod):
            self._pods[Uid(meta.uid)] = meta.name
        else:
            self.forget_pod(Uid(meta.uid))

    def forget_pod(self, uid: Uid) -> None:
        self._pods.pop(uid, None)

    def see_lease(self, lease: LeaseSpec, asked: float, wall: float) -> None:
        """`asked`: when the request for it was sent. `wall`: the time now, in seconds since 1970."""
        if not lease.holder_identity:
            self._until = asked
        elif lease != self._lease and (self._lease is not None or _is_fresh(lease, wall)):
            self._until = asked + duration_of(lease)
        self._lease = lease

    def miss_lease(self, asked: float) -> None:
        """There is no Lease."""
        self._lease, self._until = None, asked


def works(pod: Pod) -> bool:
    """Whether a pod is on a node and has not ended."""
    return bool(pod.spec.node_name) and pod.status.phase not in ENDED_PHASES


def _is_fresh(lease: LeaseSpec, wall: float) -> bool:
    """Whether a Lease was renewed recently, or has no time of renewal."""
    age = age_of(lease, wall)
    return age is None or age < _FRESH
