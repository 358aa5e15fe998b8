"""Newest queues, LocalQueues and namespaces of the API server, and rights to use a queue.

The watch may lag behind. A user who applies a queue and its groups from one file writes both within
milliseconds. Therefore, before an object is refused because of its queue, the queue is read from the API
server. Accepted objects cost no request.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import BoundedSemaphore, Lock
from typing import Generic, NamedTuple, TypeVar

from cachetools import TTLCache, cached

from extender.api.keys import ROOT_QUEUE
from extender.api.objects.cluster import Namespace
from extender.api.objects.queues import LocalQueue, Queue
from extender.domain.admission.access import Subject
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.queue_of_group import LocalQueueLabel
from extender.domain.queues.local_queues import LocalQueueRecord, local_queue_record
from extender.domain.queues.records import QueueRecord, allows_namespace, queue_record
from extender.domain.queues.tree import QueueInfo, Queues, QueueTree
from extender.kube.access import AdmissionApi
from extender.kube.errors import ApiError, NotFound
from extender.webhooks.reviews import NotKnown

REVIEW_TIMEOUT = 2.5  # seconds for all requests of a review; the API server waits at least 3
LOOKUP_PERIOD = 0.1  # seconds between two look-ups of the same name
MAX_LOOKUPS = 8  # limit of concurrent look-ups
MAX_WAITING_REVIEWS = 48  # limit of reviews that wait for look-ups; other threads answer from the ledger
_CACHE_SIZE = 4096  # limit of remembered look-ups, and of cached answers about rights
_CACHE_SECONDS = 5.0  # seconds for which answers about rights are cached

T = TypeVar("T")
# Returns whether RBAC grants a subject the verb `use` on a queue. The float is a timeout. Raises NotKnown.
MayUse = Callable[[Subject, str, float], bool]


class LookUps(Generic[T]):
    """Look-ups of objects of one kind by name, for any number of concurrent reviews.

    With a cached answer, a review would refuse a group whose queue was created just now. Each review
    therefore gets a look-up that began after the review. A tenant can write thousands of groups for a queue
    that does not exist, so there are three limits:

    - Reviews that look up the same name share a look-up that has not begun. A name has at most ten look-ups a
      second.
    - Only a few names are looked up at the same time.
    - Only a limited number of reviews wait for look-ups, so that other reviews continue.

    Attributes:
        waiting_slots: Limit of waiting reviews, which the look-ups of several kinds share.
        read: Returns an object by name, within a timeout; raises ApiError.
    """

    def __init__(
        self,
        read: Callable[[str, float], T],
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        waiting_slots: BoundedSemaphore | None = None,
    ) -> None:
        self._read = read
        self._waiting_slots = waiting_slots or BoundedSemaphore(MAX_WAITING_REVIEWS)
        self._clock = clock
        self._pause = pause
        self._pending_lookups: dict[str, Future[T | None]] = {}  # look-ups that have not begun
        self._start_times: TTLCache[str, float] = TTLCache(_CACHE_SIZE, LOOKUP_PERIOD, clock)  # by name
        self._slots = BoundedSemaphore(MAX_LOOKUPS)
        self._lock = Lock()

    def find(self, name: str, timeout: float) -> T | None:
        """Return an object from the API server; None if it does not exist.

        Raises:
            NotKnown: The API server did not answer in time.
        """
        if not self._waiting_slots.acquire(blocking=False):
            raise NotKnown("too many reviews wait for it")
        try:
            return self._find(name, timeout)
        finally:
            self._waiting_slots.release()

    def _find(self, name: str, timeout: float) -> T | None:
        """Return the result of a look-up of the name: a pending one that has not begun, or a new one."""
        with self._lock:
            pending_result = self._pending_lookups.get(name)
            result = self._pending_lookups[name] = pending_result or Future()
        if pending_result is None:
            self._look_up(name, result, self._clock() + timeout)
        try:
            return result.result(timeout)
        except TimeoutError as fault:
            raise NotKnown("it did not answer in time") from fault

    def _look_up(self, name: str, result: Future[T | None], deadline: float) -> None:
        """Look up a name once the limits allow, and set the result."""
        with self._lock:
            seconds = max(0.0, self._start_times.get(name, -LOOKUP_PERIOD) + LOOKUP_PERIOD - self._clock())
        self._pause(seconds)
        has_slot = self._slots.acquire(timeout=max(0.0, deadline - self._clock()))
        with self._lock:
            del self._pending_lookups[name]
            self._start_times[name] = self._clock()
        try:
            timeout = deadline - self._clock()
            if timeout <= 0:
                raise NotKnown("too many names are being looked up")
            result.set_result(self._read(name, timeout))
        except NotFound:
            result.set_result(None)
        except ApiError as fault:
            not_known = NotKnown(str(fault))
            not_known.__cause__ = fault
            result.set_exception(not_known)
        except Exception as fault:
            result.set_exception(fault)
        finally:
            if has_slot:
                self._slots.release()


class Sources(NamedTuple):
    """Look-ups by name within a timeout.

    A look-up returns None if the object does not exist. It raises NotKnown if the API server cannot tell.
    """

    queue: Callable[[str, float], Queue | None]
    local_queue: Callable[[str, float], LocalQueue | None]  # by namespace/name
    namespace: Callable[[str, float], Namespace | None]


class LatestQueues:
    """Queues of the ledger, some in a newer version.

    A queue is read from the API server at most once in a review. Methods raise NotKnown once the time limit
    of the review has passed.
    """

    def __init__(self, ledger: Ledger, sources: Sources, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._sources = sources
        self._clock = clock
        self._ends_at = clock() + REVIEW_TIMEOUT
        self._queues: dict[str, Queue | None] = {}  # queues that were read for this review
        self.queue_of_namespace = ledger.queues.queue_of_namespace
        self.queue_of_podgroup = ledger.queues.queue_of_podgroup
        self.queue_of_owner = ledger.queues.queue_of_owner

    def seconds_left(self) -> float:
        """Return the seconds that are left for this review.

        Raises:
            NotKnown: No time is left.
        """
        remaining = self._ends_at - self._clock()
        if remaining <= 0:
            raise NotKnown(f"it took longer than {REVIEW_TIMEOUT} s")
        return remaining

    def info(self, name: str) -> QueueInfo | None:
        """Return facts about the newest version of a queue."""
        new_queue, known = self._read(name), self._ledger.queues.info(name)
        if new_queue is None:
            return known
        queues = Queues()
        queues.put(queue_record(new_queue))
        return queues.info(name, known.group_count if known else 0, known.allocated if known else {}, {})

    def local_queue_named_by(self, namespace: str, label: LocalQueueLabel | None) -> LocalQueueRecord | None:
        """Return the LocalQueue that a label names.

        If the ledger does not have the LocalQueue, it is read from the API server.
        """
        known_record = self._ledger.queues.local_queue_named_by(namespace, label)
        if label is None or (known_record is not None and known_record.exists):
            return known_record
        new_queue = self._sources.local_queue(f"{namespace}/{label.name}", self.seconds_left())
        return local_queue_record(new_queue) if new_queue is not None else known_record

    def accepts_namespace(self, queue: str, namespace: str) -> bool:
        """Return whether the newest version of a queue accepts groups of a namespace."""
        info = self.info(queue)
        selector = info.record.namespace_selector if info is not None else None
        if selector is None:
            return True
        new_namespace = self._sources.namespace(namespace, self.seconds_left())
        labels = new_namespace.metadata.labels if new_namespace is not None else None
        return allows_namespace(selector, labels or {})

    def with_ancestry(self, tree: QueueTree, parent: str) -> QueueTree:
        """Return the tree with the newest versions of the queue `parent` and its ancestors."""
        ancestry: dict[str, QueueRecord] = {}
        while parent not in ("", ROOT_QUEUE, *ancestry):
            queue = self._read(parent)
            if queue is None:
                break
            ancestry[parent] = queue_record(queue)
            parent = queue.spec.parent
        return QueueTree({**tree.queues, **ancestry}, self.info) if ancestry else tree

    def _read(self, name: str) -> Queue | None:
        if name not in self._queues:
            self._queues[name] = self._sources.queue(name, self.seconds_left())
        return self._queues[name]


def access_reviews(api: AdmissionApi) -> MayUse:
    """Return a check of rights by the API server's authorizer. Answers are cached for some seconds."""

    @cached(
        TTLCache(_CACHE_SIZE, _CACHE_SECONDS),
        key=lambda subject, queue, timeout: (subject, queue),  # the key is independent of the timeout
        lock=Lock(),
    )
    def may_use(subject: Subject, queue: str, timeout: float) -> bool:
        try:
            return api.may_use(subject, queue, timeout)
        except ApiError as fault:
            raise NotKnown(str(fault)) from fault

    return may_use
