"""Latest queues, LocalQueues and namespaces of the API server, and rights to use a queue.

The watch may lag behind: a user who applies a queue and its groups from one file writes both within
milliseconds. So before an object is refused because of its queue, that queue is read. Accepted objects cost
no request.
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

BUDGET = 2.5  # seconds for all requests of one review: the API server waits at least 3
PACE = 0.1  # seconds between two look-ups of one name
AT_ONCE = 8  # look-ups at the same time
MOST_WAITING = 48  # reviews that wait for look-ups at the same time: other threads answer from the ledger
_MOST = 4096  # remembered look-ups, and cached answers about rights
_REMEMBERED = 5.0  # seconds for which answers about rights are cached

T = TypeVar("T")
# Returns whether RBAC grants a subject the verb `use` on a queue, within seconds; raises NotKnown.
MayUse = Callable[[Subject, str, float], bool]


class LookUps(Generic[T]):
    """Look-ups of objects of one kind by name, for any number of concurrent reviews.

    A cached answer would refuse a group whose queue was created just now, so each review gets a
    look-up that began after its request. But a tenant may write thousands of groups for a queue that does
    not exist: reviews share a look-up that has not begun yet, one name is looked up at most ten times a
    second, and only a few names at the same time. The number of reviews that wait for look-ups is limited,
    so that others continue.

    Attributes:
        waiting: Limit of waiting reviews, shared by the look-ups of several kinds.
        read: Returns one object by name, within seconds; raises ApiError.
    """

    def __init__(
        self,
        read: Callable[[str, float], T],
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        waiting: BoundedSemaphore | None = None,
    ) -> None:
        self._read = read
        self._waiting = waiting or BoundedSemaphore(MOST_WAITING)
        self._clock = clock
        self._pause = pause
        self._due: dict[str, Future[T | None]] = {}  # look-ups that have not begun
        self._begun: TTLCache[str, float] = TTLCache(_MOST, PACE, clock)  # time of the last look-up
        self._slots = BoundedSemaphore(AT_ONCE)
        self._lock = Lock()

    def find(self, name: str, timeout: float) -> T | None:
        """Return an object as the API server has it now; None if it does not exist.

        Raises:
            NotKnown: The API server did not answer in time.
        """
        if not self._waiting.acquire(blocking=False):
            raise NotKnown("too many reviews wait for it")
        try:
            return self._find(name, timeout)
        finally:
            self._waiting.release()

    def _find(self, name: str, timeout: float) -> T | None:
        with self._lock:
            shared = self._due.get(name)
            result = self._due[name] = shared or Future()
        if shared is None:
            self._look_up(name, result, self._clock() + timeout)
        try:
            return result.result(timeout)
        except TimeoutError as fault:
            raise NotKnown("it did not answer in time") from fault

    def _look_up(self, name: str, result: Future[T | None], deadline: float) -> None:
        with self._lock:
            seconds = max(0.0, self._begun.get(name, -PACE) + PACE - self._clock())
        self._pause(seconds)
        has_slot = self._slots.acquire(timeout=max(0.0, deadline - self._clock()))
        with self._lock:
            del self._due[name]
            self._begun[name] = self._clock()
        try:
            timeout = deadline - self._clock()
            if timeout <= 0:
                raise NotKnown("too many names are being looked up")
            result.set_result(self._read(name, timeout))
        except NotFound:
            result.set_result(None)
        except ApiError as fault:
            unknown = NotKnown(str(fault))
            unknown.__cause__ = fault
            result.set_exception(unknown)
        except Exception as fault:
            result.set_exception(fault)
        finally:
            if has_slot:
                self._slots.release()


class Sources(NamedTuple):
    """Look-ups by name, within seconds; None: there is no such object. Each raises NotKnown."""

    queue: Callable[[str, float], Queue | None]
    local_queue: Callable[[str, float], LocalQueue | None]  # by namespace/name
    namespace: Callable[[str, float], Namespace | None]


class Latest:
    """Queues of the ledger, each read again at most once for one review. Raises NotKnown after the budget."""

    def __init__(self, ledger: Ledger, sources: Sources, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._sources = sources
        self._clock = clock
        self._ends = clock() + BUDGET
        self._queues: dict[str, Queue | None] = {}  # as read for this review
        self.of_namespace = ledger.queues.of_namespace
        self.of_podgroup = ledger.queues.of_podgroup
        self.of_owner = ledger.queues.of_owner

    def seconds_left(self) -> float:
        """Return the seconds left for this review."""
        remaining = self._ends - self._clock()
        if remaining <= 0:
            raise NotKnown(f"it took longer than {BUDGET} s")
        return remaining

    def info(self, name: str) -> QueueInfo | None:
        newest, known = self._read(name), self._ledger.queues.info(name)
        if newest is None:
            return known
        queues = Queues()
        queues.put(queue_record(newest))
        return queues.info(name, known.groups if known else 0, known.allocated if known else {}, {})

    def local_queue_named_by(self, namespace: str, label: LocalQueueLabel | None) -> LocalQueueRecord | None:
        """Return the LocalQueue that a label names, from the API server if the ledger does not have it."""
        known = self._ledger.queues.local_queue_named_by(namespace, label)
        if label is None or (known is not None and known.exists):
            return known
        newest = self._sources.local_queue(f"{namespace}/{label.name}", self.seconds_left())
        return local_queue_record(newest) if newest is not None else known

    def takes_namespace(self, queue: str, namespace: str) -> bool:
        info = self.info(queue)
        selector = info.record.namespace_selector if info is not None else None
        if selector is None:
            return True
        newest = self._sources.namespace(namespace, self.seconds_left())
        labels = newest.metadata.labels if newest is not None else None
        return allows_namespace(selector, labels or {})

    def with_ancestry(self, tree: QueueTree, parent: str) -> QueueTree:
        """Return the tree with the queues from `parent` upwards as they are now."""
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
    """Return a check of rights by the API server's authorizer, whose answers are cached for seconds."""

    @cached(
        TTLCache(_MOST, _REMEMBERED),
        key=lambda subject, queue, timeout: (subject, queue),  # independent of the timeout
        lock=Lock(),
    )
    def may_use(subject: Subject, queue: str, timeout: float) -> bool:
        try:
            return api.may_use(subject, queue, timeout)
        except ApiError as fault:
            raise NotKnown(str(fault)) from fault

    return may_use
