"""What those share that act on Decisions: they read the ledger, and write while they lead."""

import time
from collections.abc import Callable
from typing import NamedTuple

from extender.controllers.recording import Recorder
from extender.controllers.turns import Turns
from extender.domain.cache.ledger import Ledger
from extender.kube.calls import Cluster
from extender.kube.writers import Writers


class Means(NamedTuple):
    """`leads` is asked before anything is written; what the writers' fence drops is due again after that."""

    ledger: Ledger
    cluster: Cluster
    writers: Writers
    leads: Callable[[], bool]
    clock: Callable[[], float] = time.monotonic


class Actor:
    def __init__(self, means: Means) -> None:
        self._ledger, self._cluster, self._writers, self._leads, self._clock = means
        self._turns = Turns()
        self.prepare()

    def prepare(self) -> None:
        """Set up what an actor remembers of its own."""


class Teller(Actor):
    """An actor that tells by events what it does."""

    def __init__(self, means: Means, recorder: Recorder) -> None:
        super().__init__(means)
        self._recorder = recorder
