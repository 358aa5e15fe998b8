"""Telling Queues what was decided: state, what they hold and deserve, and how many of their groups do what.

A queue is written when that changed, and at most once a second.
"""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from extender.controllers.actor import Actor
from extender.domain.decisions import Decisions, QueueDecision
from extender.domain.reasons import Verdict
from extender.domain.resources import quantities
from extender.kube.errors import ApiError

_COUNTED = {"pending": Verdict.WAITING, "inqueue": Verdict.STARTING, "running": Verdict.RUNNING}
_PACE = 1.0

Status = dict[str, Any]


class QueueReporter(Actor):
    def prepare(self) -> None:
        self._written: dict[str, Status] = {}
        self._sure: set[str] = set()  # queues whose newest status is written, or on its way
        self._next: dict[str, float] = {}

    def look(self, decisions: Decisions) -> None:
        if not self._leads():
            self._sure.clear()  # whoever leads now writes them
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
        told = name in self._sure and status == self._written.get(name)
        if told or self._clock() < self._next.get(name, 0.0):
            return
        self._next[name] = self._clock() + _PACE
        self._written[name] = status
        self._sure.add(name)
        write = partial(self._cluster.patch_queue_status, name, {"status": status})
        self._writers.submit(("queue", name), write, partial(self._ended, name))

    def _ended(self, name: str, fault: ApiError | None) -> None:
        """What was not written is due again."""
        if fault is not None:
            self._sure.discard(name)


def status_of(queue: QueueDecision, counts: Mapping[tuple[str, Verdict], int]) -> Status:
    return {
        "state": queue.state,
        "allocated": quantities(queue.allocated),
        "deserved": quantities(queue.deserved),
        "share": round(queue.share, 3),
        **{field: counts.get((queue.name, verdict), 0) for field, verdict in _COUNTED.items()},
    }
