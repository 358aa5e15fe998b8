"""Whether what Muster notes on PodGroups may be believed: only while the API server keeps it to Muster.

A PodGroup has no status subresource, so a user who may change one may write into it that it stood whole, or
which queue took it in. An admission policy (manifests/marks.yaml) keeps that to Muster. Whether it is in
force is looked at now and then; without it, Muster goes by what it saw itself since it started.
"""

import threading

from extender.domain.cache.ledger import Ledger
from extender.kube.calls import ApiClient
from extender.kube.errors import ApiError
from extender.kube.polling import Poller
from extender.telemetry.logs import logger

log = logger(__name__)

_KEPT = "kept to Muster by the API server"
_NOT_KEPT = "not protected, so they are not trusted: kubectl apply -f manifests/marks.yaml"
_NOT_KNOWN = "whether the API server keeps them to Muster is not known yet"
_PERIOD = 30.0
_SOON = 2.0  # after a look that told nothing
_PATIENCE = 1.0  # seconds that the start waits for the first look


class MarkTrust:
    """Until the first look has succeeded, marks say nothing."""

    def __init__(self, ledger: Ledger, cluster: ApiClient) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._poller = Poller("marks", _PERIOD, self._poll)
        self._looked = threading.Event()
        self._kept: bool | None = None

    def start(self) -> None:
        self._poller.start()
        self._looked.wait(_PATIENCE)

    def stop(self) -> None:
        self._poller.stop()

    def text(self) -> str:
        """For people, in one line."""
        if self._kept is None:
            return _NOT_KNOWN
        return _KEPT if self._kept else _NOT_KEPT

    def look_at_policy(self) -> None:
        try:
            kept = self._cluster.keeps_marks(timeout=_PERIOD)
        except ApiError as fault:
            log.warning("cannot check whether marks are protected", error=str(fault))
            return
        if kept is not self._kept:
            self._kept = kept
            write = log.info if kept else log.warning
            write("protection of the marks on PodGroups", marks=self.text())
        self._ledger.trust_marks(kept)

    def _poll(self) -> float | None:
        self.look_at_policy()
        self._looked.set()
        return _SOON if self._kept is None else None
