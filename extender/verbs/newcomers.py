"""Pods that the scheduler asks about before the watch has shown them.

They are judged from the request and remembered for a while. A pod that the watch never shows was deleted in
between; then it is forgotten again.
"""

import threading
from collections.abc import Callable

from cachetools import TTLCache

from extender.api.objects import Pod
from extender.api.quantities import BadQuantity
from extender.domain.cache.ledger import Ledger
from extender.domain.model.records import Uid
from extender.telemetry.logs import logger

log = logger(__name__)

_REMEMBERED = 60.0
_MOST = 10_000


class _Unseen(TTLCache[Uid, None]):
    """Keeps in `gone` whom it let go, whatever made it: a cache expires whenever it is touched."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(_MOST, _REMEMBERED, timer=clock)
        self.gone: list[Uid] = []

    def expire(self, time: float | None = None) -> list[tuple[Uid, None]]:
        expired = list(super().expire(time))
        self.gone += [uid for uid, _ in expired]
        return expired

    def popitem(self) -> tuple[Uid, None]:
        evicted = super().popitem()
        self.gone.append(evicted[0])
        return evicted


class Newcomers:
    def __init__(self, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._unseen = _Unseen(clock)

    def meet(self, pod: Pod) -> None:
        """Make a pod known that is not yet."""
        uid = Uid(pod.metadata.uid)
        if self._ledger.pod(uid) is not None:
            return
        with self._lock:
            self._unseen[uid] = None
        if self._ledger.pod(uid) is not None:  # the watch was faster, and may have said so before we listened
            self.seen(uid)
            return
        try:
            self._ledger.adopt_pod(pod)
        except BadQuantity as fault:
            log.warning("a pod cannot be read", pod=pod.metadata.name, error=str(fault))

    def seen(self, uid: Uid) -> None:
        """The watch has shown the pod, and the ledger has it."""
        with self._lock:
            self._unseen.pop(uid, None)

    def forget_ghosts(self) -> None:
        """Drop those that the watch did not show in time."""
        with self._lock:
            self._unseen.expire()
            gone, self._unseen.gone = self._unseen.gone, []
        for uid in gone:
            self._ledger.drop_pod(uid)
