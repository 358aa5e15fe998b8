"""What those share that act on Decisions: they read the ledger, and write while they lead."""

import time
from collections.abc import Callable
from typing import NamedTuple

from extender.controllers.changed_groups import ChangedGroups
from extender.controllers.event_recorder import EventRecorder
from extender.domain.cache.ledger import Ledger
from extender.kube.calls import Cluster
from extender.kube.writers import Writers


class ControllerContext(NamedTuple):
    """`leads` is asked before anything is written; what the writers' fence drops is due again after that."""

    ledger: Ledger
    cluster: Cluster
    writers: Writers
    leads: Callable[[], bool]
    clock: Callable[[], float] = time.monotonic


class Controller:
    def __init__(self, context: ControllerContext) -> None:
        self._ledger, self._cluster, self._writers, self._leads, self._clock = context
        self._turns = ChangedGroups()
        self.prepare()

    def prepare(self) -> None:
        """Set up what an actor remembers of its own."""


class TellingController(Controller):
    """An actor that tells by events what it does."""

    def __init__(self, context: ControllerContext, recorder: EventRecorder) -> None:
        super().__init__(context)
        self._recorder = recorder
