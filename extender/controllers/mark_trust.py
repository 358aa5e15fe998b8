"""Whether marks on PodGroups may be trusted: only while the API server lets only Muster write them.

A PodGroup has no status subresource, so a user who may change one may also write into it that it stood
whole, or which queue took it in. An admission policy (manifests/marks.yaml) prevents that. Muster checks at
intervals whether the policy is in force; without it, Muster relies only on what it has seen since it
started.
"""

from extender.controllers.polled_fact import PERIOD, PolledFact
from extender.domain.cache.ledger import Ledger
from extender.kube.calls import ApiClient
from extender.telemetry.logs import logger

log = logger(__name__)

_KEPT = "protected by the API server: only Muster can write them"
_NOT_KEPT = "not protected, so they are not trusted: kubectl apply -f manifests/marks.yaml"
_NOT_KNOWN = "not known yet whether the API server protects them"


class MarkTrust(PolledFact):
    """Until the first look has succeeded, marks do not count."""

    name = "marks"
    unknown = "cannot check whether marks are protected"

    def __init__(self, ledger: Ledger, cluster: ApiClient) -> None:
        super().__init__()
        self._ledger = ledger
        self._cluster = cluster

    def ask(self) -> bool:
        return self._cluster.keeps_marks(timeout=PERIOD)

    def learn(self, before: bool | None) -> None:
        kept = bool(self.holds)
        if kept is not before:
            write = log.info if kept else log.warning
            write("protection of the marks on PodGroups", marks=self.text())
        self._ledger.trust_marks(kept)

    def text(self) -> str:
        """One line for people."""
        if self.holds is None:
            return _NOT_KNOWN
        return _KEPT if self.holds else _NOT_KEPT
