"""Clearing away the PodGroups of a queue that was deleted although it had some; their pods stay.

Our picture of the queues may be older than that of the groups, above all after a start. So before anything
is deleted the API server itself is asked which queues there are; a UID that is missing there never comes
back.
"""

from collections.abc import Set
from functools import partial

from extender.controllers.actor import Actor
from extender.domain.decisions.decisions import Decisions
from extender.domain.queues.orphans import Orphan
from extender.kube.errors import NotFound
from extender.telemetry import metrics
from extender.telemetry.logs import logger

log = logger(__name__)

_AGAIN = 5.0


class Clearer(Actor):
    def prepare(self) -> None:
        self._gone: set[str] = set()  # UIDs of queues that the API server does not have any more
        self._next: dict[str, float] = {}

    def look(self, decisions: Decisions) -> None:
        if not decisions.orphans or not self._leads():
            self._next.clear()
            return
        suspected = {orphan.queue_uid for orphan in decisions.orphans} - self._gone
        if suspected and self._is_due("queues"):
            self._writers.submit(("queues that are gone",), partial(self._confirm, suspected))
        for orphan in decisions.orphans:
            if orphan.queue_uid in self._gone and self._is_due(orphan.uid):
                self._writers.submit(("clear", orphan.uid), partial(self._delete, orphan))

    def _is_due(self, what: str) -> bool:
        if self._clock() < self._next.get(what, 0.0):
            return False
        self._next[what] = self._clock() + _AGAIN
        return True

    def _confirm(self, suspected: Set[str]) -> None:
        self._gone |= suspected - self._cluster.queue_uids()

    def _delete(self, orphan: Orphan) -> None:
        try:
            self._cluster.delete_group(orphan.namespace, orphan.name, orphan.uid)
        except NotFound:
            return
        metrics.groups_cleared.inc()
        log.warning(
            "a group is deleted, because its queue was",
            group=f"{orphan.namespace}/{orphan.name}",
            queue=orphan.queue,
        )
