"""Writes to LocalQueues whether they lead anywhere, how many groups they have, and what those hold.

The ledger says which of them something has happened to, so nothing is compared for the others. A condition
that changes is written at once; numbers share a budget, as those of queues do. A write is valid only for the
version that Muster has seen.
"""

from collections.abc import Iterator
from functools import partial

import msgspec

from extender.api.objects.base import Condition
from extender.api.objects.queues import LocalQueue
from extender.controllers.controller import ControllerContext, PacedController
from extender.controllers.objects import ObjectStore, dated
from extender.controllers.queue_status import Json, patched, written
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.resources import Resources
from extender.domain.queues.local_queues import Activity
from extender.domain.scheduling.results import ADMITTED, WAITING
from extender.domain.snapshot.decisions import Decisions

ACTIVE = "Active"  # the condition that says whether it leads to a queue
_PACE = 1.0  # seconds between two writes of one LocalQueue


class LocalQueueReport(msgspec.Struct, frozen=True):
    """What is to be told of one LocalQueue."""

    activity: Activity
    waiting: int  # groups
    admitted: int
    reserved: Resources  # what its groups hold


def local_queue_report(ledger: Ledger, key: str) -> LocalQueueReport | None:
    """None where there is no such LocalQueue."""
    activity = ledger.queues.local_queue_activity(key)
    if activity is None:
        return None
    waiting, admitted = (
        ledger.decisions.local_counts.get((key, column), 0) for column in (WAITING, ADMITTED)
    )
    return LocalQueueReport(activity, waiting, admitted, ledger.queues.local_queue_reserved(key))


def report_changes(local: LocalQueue, report: LocalQueueReport, *, numbers: bool = True) -> Json:
    """The fields of its status that have to change, as a merge patch. Without `numbers`, only conditions."""
    before, activity = local.status, report.activity
    conditions = {condition.type: condition for condition in before.conditions or ()}
    now = Condition(ACTIVE, str(activity.is_active), activity.reason, activity.message)
    conditions[ACTIVE] = dated(now, conditions.get(ACTIVE))  # those of other controllers stay as they are
    wanted: Json = {
        "waiting": report.waiting,
        "admitted": report.admitted,
        "reserved": written(report.reserved),
        "conditions": list(conditions.values()),
    }
    return {
        name: patched(getattr(before, name), value)
        for name, value in wanted.items()
        if getattr(before, name) != value and (numbers or name == "conditions")
    }


class LocalQueueStatusController(PacedController[str]):
    """Keys are `namespace/name`."""

    name = "local-queue-status"
    rate, burst = 2.0, 20

    def __init__(self, context: ControllerContext, copies: ObjectStore[str, LocalQueue]) -> None:
        super().__init__(context)
        self._copies = copies
        copies.listen(self._see)

    def prepare(self) -> None:
        super().prepare()
        self._knows_all = False  # whether all have been due since this replica leads
        self._seen = Decisions()
        self._next: dict[str, float] = {}  # when one may be written next

    def rest(self) -> None:
        super().rest()
        self._knows_all = False
        self._seen = Decisions()
        self._next.clear()
        self._ledger.queues.take_turned_local_queues()

    def _see(self, key: str) -> None:
        self._parked.pop(key, None)
        if self._copies.get(key) is None:
            self._queue.forget(key)
            self._next.pop(key, None)
        else:
            self._queue.add(key)

    def due(self, decisions: Decisions) -> Iterator[str]:
        before, self._seen = self._seen, decisions
        turned = set(self._ledger.queues.take_turned_local_queues())
        if not self._knows_all:
            self._knows_all = True
            turned = self._ledger.queues.local_queue_keys()
        for group in decisions.turned_since(before):
            for either in (before, decisions):
                if (decision := either.groups.get(group)) is not None and decision.life.local_queue:
                    turned.add(decision.life.local_queue)
        for key in turned:
            report = local_queue_report(self._ledger, key)
            if report is not None and not self._is_parked(key, report.activity):
                yield key

    def reconcile(self, key: str) -> None:
        copy, report = self._copies.get(key), local_queue_report(self._ledger, key)
        if copy is None or report is None or not report_changes(copy, report):
            return
        pause = self._next.get(key, 0.0) - self._clock()
        if pause > 0.0:
            self._queue.add(key, pause)
        elif report_changes(copy, report, numbers=False) or self._budget.take(self._clock()):
            self._next[key] = self._clock() + _PACE
            self.write(key, partial(self._write, key))
        else:
            self._park(key, report.activity, 0.0)

    def _write(self, key: str) -> None:
        """Write what is true now on the newest copy, whatever both were when the write was submitted."""
        copy, report = self._copies.get(key), local_queue_report(self._ledger, key)
        changes = report_changes(copy, report) if copy is not None and report is not None else {}
        if copy is not None and changes:
            meta = copy.metadata
            version = {"uid": meta.uid, "resourceVersion": meta.resource_version}
            self._cluster.patch_local_queue_status(
                meta.namespace, meta.name, {"metadata": version, "status": changes}
            )
