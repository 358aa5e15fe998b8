"""Writes to LocalQueues whether they lead anywhere, how many groups they have, and what those hold.

The ledger says which of them something has happened to. A condition that changes is written at once; numbers
share a budget. A write is valid only for the version that Muster has seen.
"""

from collections.abc import Iterator
from functools import partial

import msgspec

from extender.api.objects.base import Condition
from extender.api.objects.queues import LocalQueue
from extender.controllers.queue_status import Json, QueueController, changes_from, written
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.resources import Resources
from extender.domain.queues.local_queues import Activity
from extender.domain.scheduling.results import ADMITTED, WAITING
from extender.domain.snapshot.decisions import Decisions

ACTIVE = "Active"  # the condition that says whether it leads to a queue


class LocalQueueReport(msgspec.Struct, frozen=True):
    activity: Activity
    waiting: int  # groups
    admitted: int
    reserved: Resources  # what its groups hold


def local_queue_report(ledger: Ledger, key: str) -> LocalQueueReport | None:
    activity = ledger.queues.local_queue_activity(key)
    if activity is None:
        return None
    counts, reserved = ledger.decisions.local_counts, ledger.queues.local_queue_reserved(key)
    return LocalQueueReport(activity, counts.get((key, WAITING), 0), counts.get((key, ADMITTED), 0), reserved)


def report_changes(local: LocalQueue, report: LocalQueueReport, *, numbers: bool = True) -> Json:
    """The fields of its status that have to change, as a merge patch. Without `numbers`, only conditions."""
    activity, reserved = report.activity, written(report.reserved)
    wanted: Json = {"waiting": report.waiting, "admitted": report.admitted, "reserved": reserved}
    now = Condition(ACTIVE, str(activity.is_active), activity.reason, activity.message)
    return changes_from(local.status, wanted, [now], numbers)


class LocalQueueStatusController(QueueController[LocalQueue]):
    """Keys are `namespace/name`."""

    name = "local-queue-status"

    def prepare(self) -> None:
        super().prepare()
        self._knows_all = False  # whether all have been due since this replica leads
        self._seen = Decisions()

    def rest(self) -> None:
        super().rest()
        self._knows_all = False
        self._seen = Decisions()
        self._ledger.queues.take_turned_local_queues()

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
        at_once = partial(report_changes, copy, report, numbers=False)
        self._write_in_turn(key, report.activity, partial(self._write, key), at_once=at_once)

    def _write(self, key: str) -> None:
        """Write what is true now on the newest copy, whatever both were when the write was submitted."""
        copy, report = self._copies.get(key), local_queue_report(self._ledger, key)
        changes = report_changes(copy, report) if copy is not None and report is not None else {}
        if copy is not None and changes:
            meta = copy.metadata
            version = {"uid": meta.uid, "resourceVersion": meta.resource_version}
            patch = {"metadata": version, "status": changes}
            self._cluster.patch_local_queue_status(meta.namespace, meta.name, patch)
