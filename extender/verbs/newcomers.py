"""Pods that the scheduler asks about before the watch has shown them.

They are judged from the request and remembered for a while. A pod that the watch never shows was deleted in
between; then it is forgotten again.
"""

import threading
from collections.abc import Callable

from cachetools import TTLCache

from extender.api.objects import Pod
from extender.api.quantities import BadQuantity
from extender.domain.ledger import Ledger
from extender.domain.records import Uid
from extender.telemetry.logs import logger

log = logger(__name__)

_REMEMBERED = 60.0
_MOST = 10_000


class Newcomers:
    def __init__(self, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._unseen: TTLCache[Uid, None] = TTLCache(_MOST, _REMEMBERED, timer=clock)

    def meet(self, pod: Pod) -> None:
        """Make a pod known that is not yet."""
        uid = Uid(pod.metadata.uid)
        if self._ledger.pod(uid) is not None:
            return
        try:
            self._ledger.set_pod(pod)
        except BadQuantity as fault:
            log.warning("a pod cannot be read", pod=pod.metadata.name, error=str(fault))
        with self._lock:
            self._unseen[uid] = None

    def seen(self, uid: Uid) -> None:
        """The watch has shown the pod."""
        if self._unseen:
            with self._lock:
                self._unseen.pop(uid, None)

    def forget_ghosts(self) -> None:
        """Drop those that the watch did not show in time."""
        with self._lock:
            gone = self._unseen.expire()
        for uid, _ in gone:
            self._ledger.drop_pod(uid)
