"""Whether marks on PodGroups may be trusted: only while the API server lets only Muster write them.

A PodGroup has no status subresource, so a user who may change one may also write into it that it stood
whole, or which queue took it in. An admission policy (manifests/marks.yaml) prevents that. Muster checks at
intervals whether the policy is in force; without it, Muster relies only on what it has seen since it
started.
"""

import threading

from extender.domain.cache.ledger import Ledger
from extender.kube.calls import ApiClient
from extender.kube.errors import ApiError
from extender.kube.polling import Poller
from extender.telemetry.logs import logger

log = logger(__name__)

_KEPT = "protected by the API server: only Muster can write them"
_NOT_KEPT = "not protected, so they are not trusted: kubectl apply -f manifests/marks.yaml"
_NOT_KNOWN = "not known yet whether the API server protects them"
_PERIOD = 30.0  # seconds between two looks
_SOON = 2.0  # seconds after a look that failed
_PATIENCE = 1.0  # seconds that the start waits for the first look


class MarkTrust:
    """Until the first look has succeeded, marks do not count."""

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
        """One line for people."""
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
