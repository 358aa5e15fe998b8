"""Queues, LocalQueues and namespaces as the API server has them at this moment, because the watch may lag
behind it.

A user who applies a queue and its groups from one file writes both within milliseconds. So before an object
is refused because of its queue, that queue is read from the API server. Objects that pass cost no request.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from extender.api.keys import ROOT_QUEUE
from extender.api.objects.base import Meta
from extender.api.objects.cluster import Namespace
from extender.api.objects.queues import LocalQueue, Queue
from extender.domain.cache.ledger import Ledger
from extender.domain.model.local_queue_label import local_queue_label
from extender.domain.queues.local_queue_records import LocalQueueRecord, local_queue_record
from extender.domain.queues.namespace_selectors import allows_namespace
from extender.domain.queues.queue_records import QueueRecord, queue_record
from extender.domain.queues.queue_tree import QueueTree
from extender.domain.queues.queue_view import QueueView
from extender.domain.queues.queues import Queues
from extender.webhooks.reviews import NotKnown

BUDGET = 2.5  # seconds for all requests of one review: the API server waits at least 3


class Sources(NamedTuple):
    """Look-ups by name, within seconds; None: there is no such object. Each raises NotKnown."""

    queue: Callable[[str, float], Queue | None]
    local_queue: Callable[[str, float], LocalQueue | None]  # by namespace/name
    namespace: Callable[[str, float], Namespace | None]


class Latest:
    """The ledger's queues, read again for one review: each at most once, and all within its budget.

    Raises NotKnown if the API server does not answer in time.
    """

    def __init__(self, ledger: Ledger, sources: Sources, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._sources = sources
        self._clock = clock
        self._ends = clock() + BUDGET
        self._found: dict[str, Queue | None] = {}
        self.namespace_queue = ledger.namespace_queue
        self.group_queue = ledger.group_queue

    def left(self) -> float:
        """The seconds left for this review."""
        left = self._ends - self._clock()
        if left <= 0:
            raise NotKnown(f"it took longer than {BUDGET} s")
        return left

    def queue_view(self, name: str) -> QueueView | None:
        found, known = self._read(name), self._ledger.queue_view(name)
        if found is None:
            return known
        queues = Queues()
        queues.put(queue_record(found))
        return queues.view(name, known.groups if known else 0, known.allocated if known else {}, {})

    def named_local_queue(self, namespace: str, meta: Meta) -> LocalQueueRecord | None:
        """Read again where the ledger does not have it."""
        known, label = self._ledger.named_local_queue(namespace, meta), local_queue_label(meta)
        if label is None or (known is not None and known.exists):
            return known
        found = self._sources.local_queue(f"{namespace}/{label.name}", self.left())
        return local_queue_record(found) if found is not None else known

    def takes_namespace(self, queue: str, namespace: str) -> bool:
        view = self.queue_view(queue)
        selector = view.record.namespace_selector if view is not None else None
        if selector is None:
            return True
        found = self._sources.namespace(namespace, self.left())
        return allows_namespace(selector, (found.metadata.labels if found is not None else None) or {})

    def with_ancestry(self, tree: QueueTree, parent: str) -> QueueTree:
        """The tree, with the queues from `parent` upwards as they are now."""
        ancestry: dict[str, QueueRecord] = {}
        while parent not in ("", ROOT_QUEUE, *ancestry) and (found := self._read(parent)):
            ancestry[parent] = queue_record(found)
            parent = found.spec.parent
        return QueueTree({**tree.queues, **ancestry}, self.queue_view) if ancestry else tree

    def _read(self, name: str) -> Queue | None:
        if name not in self._found:
            self._found[name] = self._sources.queue(name, self.left())
        return self._found[name]
