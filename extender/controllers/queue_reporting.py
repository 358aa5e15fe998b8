"""Telling Queues what was decided: state, what they hold and deserve, and how many of their groups do what.

A queue is written when that changed, and at most once a second.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from extender.domain.decisions import Decisions, QueueDecision
from extender.domain.ledger import Ledger
from extender.domain.reasons import Verdict
from extender.domain.resources import quantities
from extender.kube.calls import Cluster
from extender.kube.errors import ApiError
from extender.kube.writers import Writers

_COUNTED = {"pending": Verdict.WAITING, "inqueue": Verdict.STARTING, "running": Verdict.RUNNING}
_PACE = 1.0

Status = dict[str, Any]


class QueueReporter:
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
        self._written: dict[str, Status] = {}
        self._next: dict[str, float] = {}

    def look(self, decisions: Decisions) -> None:
        if not self._leads():
            return
        counts = Counter((each.queue, each.verdict) for each in decisions.groups.values())
        existing = self._ledger.queue_names()
        self._written = {name: status for name, status in self._written.items() if name in existing}
        for name in existing & decisions.queues.keys():
            self._report(name, self._status(decisions.queues[name], counts))

    def _status(self, queue: QueueDecision, counts: Mapping[tuple[str, Verdict], int]) -> Status:
        """Amounts are merged into what is there: one that is gone is written as zero."""
        status, before = status_of(queue, counts), self._written.get(queue.name, {})
        for field in ("allocated", "deserved"):
            status[field] = dict.fromkeys(before.get(field, {}), "0") | status[field]
        return status

    def _report(self, name: str, status: Status) -> None:
        if status == self._written.get(name) or self._clock() < self._next.get(name, 0.0):
            return
        self._next[name] = self._clock() + _PACE
        self._written[name] = status
        self._writers.submit(("queue", name), partial(self._write, name, status))

    def _write(self, name: str, status: Status) -> None:
        """A write that failed is due again."""
        try:
            self._cluster.patch_queue_status(name, {"status": status})
        except ApiError:
            self._written.pop(name, None)
            raise


def status_of(queue: QueueDecision, counts: Mapping[tuple[str, Verdict], int]) -> Status:
    return {
        "state": queue.state,
        "allocated": quantities(queue.allocated),
        "deserved": quantities(queue.deserved),
        "share": round(queue.share, 3),
        **{field: counts.get((queue.name, verdict), 0) for field, verdict in _COUNTED.items()},
    }
