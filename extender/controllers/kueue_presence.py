"""Whether the cluster has Kueue's own LocalQueues: then a label of Kueue's that names none of ours is meant
for one of those."""

import threading

from extender.domain.cache.ledger import Ledger
from extender.kube.calls import ApiClient
from extender.kube.errors import ApiError
from extender.kube.polling import Poller
from extender.kube.resources import KUEUE_LOCAL_QUEUES
from extender.telemetry.logs import logger

log = logger(__name__)

_PERIOD = 30.0  # seconds between two looks
_SOON = 2.0  # seconds after a look that failed
_PATIENCE = 1.0  # seconds that the start waits for the first look


class KueuePresence:
    """Until the first look has succeeded, groups with such a label wait."""

    def __init__(self, ledger: Ledger, cluster: ApiClient) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._poller = Poller("kueue", _PERIOD, self._poll)
        self._looked = threading.Event()
        self.is_served: bool | None = None  # None: not known yet

    def start(self) -> None:
        self._poller.start()
        self._looked.wait(_PATIENCE)

    def stop(self) -> None:
        self._poller.stop()

    def look(self) -> None:
        try:
            served = any(self._cluster.serves(each, timeout=_PERIOD) for each in KUEUE_LOCAL_QUEUES)
        except ApiError as fault:
            log.warning("cannot check whether the cluster has Kueue", error=str(fault))
            return
        if served is not self.is_served and (served or self.is_served):
            log.info("labels of Kueue that name no LocalQueue of Muster", left_to_kueue=served)
        self.is_served = served
        self._ledger.note_kueue(served)

    def _poll(self) -> float | None:
        self.look()
        self._looked.set()
        return _SOON if self.is_served is None else None
