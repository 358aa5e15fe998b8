"""What those share that act on Decisions: they read the ledger, and write while they lead."""

import time
from collections.abc import Callable

from extender.controllers.recording import Recorder
from extender.controllers.turns import Turns
from extender.domain.ledger import Ledger
from extender.kube.calls import Cluster
from extender.kube.writers import Writers


class Actor:
    """`leads` is asked before anything is written; what the writers' fence drops is due again after that."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        writers: Writers,
        leads: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._writers = writers
        self._leads = leads
        self._clock = clock
        self._turns = Turns()
        self.prepare()

    def prepare(self) -> None:
        """Set up what an actor remembers of its own."""


class Teller(Actor):
    """An actor that tells by events what it does."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        writers: Writers,
        leads: Callable[[], bool],
        recorder: Recorder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(ledger, cluster, writers, leads, clock)
        self._recorder = recorder
