"""How long groups waited until they started, by queue, for the metrics."""

import time
from collections.abc import Callable
from functools import partial

from extender.controllers.changed_groups import ChangedGroups
from extender.controllers.guard import Guard
from extender.domain.decisions.decisions import Decisions, GroupDecision
from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey
from extender.telemetry import metrics

_STARTED = (Verdict.STARTING, Verdict.RUNNING)


class QueueWaits:
    """Listens to the cycle. A group that waited before a restart counts from the restart on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed_groups = ChangedGroups()
        self._guard = Guard("queue-waits")
        self._since: dict[GroupKey, float] = {}

    def look(self, decisions: Decisions) -> None:
        for key in self._changed_groups.of(decisions):
            self._guard.run(key, partial(self._note, key, decisions.groups.get(key)))

    def _note(self, key: GroupKey, decision: GroupDecision | None) -> None:
        if decision is not None and decision.verdict is Verdict.WAITING:
            self._since.setdefault(key, self._clock())
            return
        since = self._since.pop(key, None)
        if since is not None and decision is not None and decision.verdict in _STARTED:
            metrics.queue_waited.labels(decision.queue).observe(self._clock() - since)
