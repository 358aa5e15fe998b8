"""Deletes the PodGroups of a queue that was deleted although it still had some; their pods stay.

The ledger's queues may be older than its groups, above all after a start. So before anything is deleted, the
queues are read from the API server; a UID that is missing there never comes back.
"""

from collections.abc import Iterator
from functools import partial

from extender.controllers.controller import Controller
from extender.domain.decisions.decisions import Decisions
from extender.domain.queues.orphans import Orphan
from extender.kube.errors import NotFound
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

_AGAIN = 5.0  # seconds after which a group that is still there is reconciled again


class OrphanedPodGroupsController(Controller[str]):
    """Its keys are the UIDs of groups."""

    name = "orphaned-podgroups"

    def prepare(self) -> None:
        self._orphans: dict[str, Orphan] = {}
        self._gone: frozenset[str] = frozenset()  # UIDs of their queues that the API server does not have

    def rest(self) -> None:
        self._orphans = {}

    def due(self, decisions: Decisions) -> Iterator[str]:
        if not decisions.orphans and not self._orphans:
            return
        before, self._orphans = self._orphans, {orphan.uid: orphan for orphan in decisions.orphans}
        self._gone &= {orphan.queue_uid for orphan in decisions.orphans}
        yield from self._orphans.keys() - before.keys()

    def reconcile(self, uid: str) -> None:
        orphan = self._orphans.get(uid)
        if orphan is None:
            return
        if orphan.queue_uid in self._gone:
            self.write(uid, partial(self._delete, orphan))
        else:
            self.write(uid, self._confirm, of="queues that are gone")
        self._queue.add(uid, _AGAIN)

    def _confirm(self) -> None:
        orphans = self._orphans
        there = self._cluster.queue_uids()
        self._gone |= {orphan.queue_uid for orphan in orphans.values()} - there
        for uid, orphan in orphans.items():
            if orphan.queue_uid in self._gone:
                self._queue.add(uid)

    def _delete(self, orphan: Orphan) -> None:
        try:
            self._cluster.delete_group(orphan.namespace, orphan.name, orphan.uid)
        except NotFound:
            return
        metrics.groups_cleared.inc()
        log.warning(
            "a group is deleted because its queue was deleted",
            group=f"{orphan.namespace}/{orphan.name}",
            queue=orphan.queue,
        )
