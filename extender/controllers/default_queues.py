"""The queues that every cluster has: `root`, and `default` for work that names no queue. They are created if
they are missing.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from extender.api.keys import DEFAULT_QUEUE, ROOT_QUEUE
from extender.controllers.controller import Controller
from extender.domain.decisions.decisions import Decisions
from extender.kube.errors import Conflict
from extender.telemetry.logs import logger

log = logger(__name__)

_SPECS: dict[str, dict[str, Any]] = {
    ROOT_QUEUE: {"weight": 1, "reclaimable": False},
    DEFAULT_QUEUE: {"weight": 1, "reclaimable": True, "parent": ROOT_QUEUE},
}
_AGAIN = 5.0  # seconds after which a queue that is still missing is created again


class DefaultQueuesController(Controller[str]):
    name = "default-queues"

    def due(self, decisions: Decisions) -> Iterable[str]:
        """The missing queues; none before the first decision, when it is not known which queues exist."""
        missing = _SPECS.keys() - self._ledger.queue_names() if decisions.version >= 0 else ()
        return (name for name in missing if name not in self._queue)

    def reconcile(self, name: str) -> None:
        if name not in self._ledger.queue_names():
            self._queue.add(name, _AGAIN)
            self.write(name, partial(self._create, name))

    def _create(self, name: str) -> None:
        """If another replica or user was faster, all is well."""
        try:
            self._cluster.create_queue(name, _SPECS[name])
        except Conflict:
            return
        log.info("a missing queue was created", queue=name)
