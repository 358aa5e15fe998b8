"""The queues that every cluster has: `root`, and `default` for whoever names none. Made when they are
missing.
"""

from functools import partial
from typing import Any

from extender.api.keys import DEFAULT_QUEUE, ROOT_QUEUE
from extender.controllers.actor import Actor
from extender.domain.decisions.decisions import Decisions
from extender.kube.errors import Conflict
from extender.telemetry.logs import logger

log = logger(__name__)

_SPECS: dict[str, dict[str, Any]] = {
    ROOT_QUEUE: {"weight": 1, "reclaimable": False},
    DEFAULT_QUEUE: {"weight": 1, "reclaimable": True, "parent": ROOT_QUEUE},
}
_AGAIN = 5.0


class Founder(Actor):
    def prepare(self) -> None:
        self._next = 0.0

    def look(self, decisions: Decisions) -> None:
        """Before the first decision nobody knows which queues there are."""
        if decisions.version < 0 or self._clock() < self._next or not self._leads():
            return
        for name in _SPECS.keys() - self._ledger.queue_names():
            self._next = self._clock() + _AGAIN
            self._writers.submit(("found", name), partial(self._create, name))

    def _create(self, name: str) -> None:
        """That somebody else was faster is as well."""
        try:
            self._cluster.create_queue(name, _SPECS[name])
        except Conflict:
            return
        log.info("a queue was missing and is made", queue=name)
