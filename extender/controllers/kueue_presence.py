"""Whether the cluster has Kueue's own LocalQueues: then a label of Kueue's that names none of ours is meant
for one of those."""

from extender.controllers.polled_fact import PERIOD, PolledFact
from extender.domain.cache.ledger import Ledger
from extender.kube.calls import ApiClient
from extender.kube.resources import KUEUE_LOCAL_QUEUES
from extender.telemetry.logs import logger

log = logger(__name__)


class KueuePresence(PolledFact):
    """Until the first look has succeeded, groups with such a label wait."""

    name = "kueue"
    unknown = "cannot check whether the cluster has Kueue"

    def __init__(self, ledger: Ledger, cluster: ApiClient) -> None:
        super().__init__()
        self._ledger = ledger
        self._cluster = cluster

    def ask(self) -> bool:
        return any(self._cluster.serves(each, timeout=PERIOD) for each in KUEUE_LOCAL_QUEUES)

    def learn(self, before: bool | None) -> None:
        served = bool(self.holds)
        if served is not bool(before):
            log.info("labels of Kueue that name no LocalQueue of Muster", left_to_kueue=served)
        self._ledger.note_kueue(served)
