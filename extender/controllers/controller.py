"""Controller: a work queue of object keys, whose objects are reconciled one by one with the decisions.

`reconcile` may be called at any time, since it compares the current state with the desired state.

    decisions, watches ──► WorkQueue ──► reconcile(key) ──► Writers ──► written, or due again

After a failed write, the key of the object is due again:

    not sent, another leads     The next leader reconciles the key at once.
    conflict                    The key is due when the watch shows the newer copy, or after a pause that
                                grows with each failure in a row.
    transient failure           The writers try the write a few times; then as after a conflict.
    permanent refusal           As after a conflict, but with longer pauses: the right may still be granted.
    object not found            As after a refusal, until the watch shows the deletion: the object may exist
                                while the API server does not serve its kind.
"""

import time
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import ClassVar, Generic, NamedTuple, TypeVar

from extender.controllers.cycle import ChangedGroups, FaultGuard
from extender.controllers.events import EventRecorder
from extender.controllers.work_queue import MAX_PAUSE, WorkQueue
from extender.domain.ledger.ledger import Ledger
from extender.domain.snapshot.decisions import Decisions
from extender.kube.calls import ApiClient
from extender.kube.errors import ApiError, Conflict, Fenced
from extender.kube.writers import TokenBucket, WriteJob, Writers
from extender.telemetry import metrics

_MAX_REFUSAL_PAUSE = 300.0  # longest pause after a refusal, in seconds
_MAX_PENDING = 16  # while so many writes are pending, no writes of numbers are submitted
MAX_KEYS_PER_CYCLE = 100  # most keys that one cycle reconciles for numbers; few have to be written

K = TypeVar("K", bound=Hashable)


class ControllerContext(NamedTuple):
    ledger: Ledger  # with the newest decisions
    cluster: ApiClient  # client that makes the requests
    writers: Writers  # threads that send the requests
    leads: Callable[[], bool]  # whether this replica leads
    clock: Callable[[], float] = time.monotonic  # seconds


class Controller(Generic[K]):
    """Base class of the controllers, which reconcile their due keys after each scheduling cycle.

    When another replica becomes the leader, its controllers begin with all keys.
    """

    name: ClassVar[str]  # the controller's name in logs and metrics
    lanes: ClassVar[int] = 1
    pause: ClassVar[float] = 0.5  # seconds after a first failure

    def __init__(self, context: ControllerContext) -> None:
        self._ledger, self._cluster, self._writers, self._leads, self._clock = context
        self._queue = WorkQueue[K](self._clock, self.lanes, self.pause)
        self._guard = FaultGuard(self.name)
        self._depth_gauge = metrics.work_queue_depth.labels(self.name)
        self._changed_groups = ChangedGroups()
        self._decisions = Decisions()
        self._has_submitted = False  # whether the current key has submitted a write
        self.prepare()

    def prepare(self) -> None:
        """Set up the state of a subclass, once `Controller` is initialized."""

    def on_decisions(self, decisions: Decisions) -> None:
        """Reconcile the due keys if this replica leads.

        An object that raises an exception does not keep other objects from being reconciled.
        """
        self._decisions = decisions
        if self._leads():
            self._guard.run("what is due", self._add_due_keys)
            self._reconcile_due()
        else:
            self._queue.clear()
            self._changed_groups = ChangedGroups()
            self.on_stopped_leading()
        self._depth_gauge.set(len(self._queue))

    @property
    def waiting_count(self) -> int:
        return len(self._queue)

    def due_keys(self, decisions: Decisions) -> Iterable[K]:
        """Return the keys that `decisions` make due.

        The first call after the start, and the first call as the leader, return all keys.
        """
        raise NotImplementedError

    def reconcile(self, key: K) -> None:
        """Compare the object with its desired state, and submit the writes."""
        raise NotImplementedError

    def _add_due_keys(self) -> None:
        for key in self.due_keys(self._decisions):
            self._queue.add(key)

    def on_stopped_leading(self) -> None:
        """Forget all facts about objects, since another replica leads."""

    def _reconcile_due(self, last_lane: int | None = None) -> None:
        """Reconcile the keys that are due at the start of the call.

        Keys that become due during the call have to wait for the next call.
        """
        for _ in range(len(self._queue)):
            key = self._queue.get(last_lane)
            if key is None:
                return
            self._reconcile(key)

    def _reconcile(self, key: K) -> None:
        """Reconcile a key. After an error the key is due again, after a pause that grows.

        If there was nothing to write, the count of the key's failures is reset.
        """
        self._has_submitted = False
        if not self._guard.run(key, partial(self.reconcile, key)):
            self._queue.retry(key)
        elif not self._has_submitted and key not in self._queue:
            self._queue.reset_backoff(key)

    def write(
        self,
        key: K,
        request: WriteJob,
        target: Hashable = None,
        on_failure: Callable[[], object] = lambda: None,
        attempts: int | None = None,
        is_urgent: bool = False,
    ) -> None:
        """Submit a write for the object of `key`.

        If the write fails, `on_failure` is called and the key is due again.

        Args:
            key: The key that is being reconciled.
            request: Function that makes the request to the API server.
            target: The object to write, if a key has several objects. Only the newest pending write to an
                object is sent.
            on_failure: Function that is called after a failure, before the key is due again.
            attempts: Maximum number of attempts; None means the default of the writers.
            is_urgent: Whether the write precedes all pending writes.
        """
        self._has_submitted = True

        def make_request() -> None:
            try:
                request()
            except ApiError:
                raise
            except Exception as fault:
                self._guard.record((key, "write"))
                raise ApiError(f"{type(fault).__name__}: {fault}") from fault

        def on_end(fault: ApiError | None) -> None:
            if fault is None:
                self._guard.forget((key, "write"))
                return self._queue.reset_backoff(key)
            on_failure()
            if isinstance(fault, Fenced):
                return self._queue.add(key)
            is_refused = not (fault.is_transient or isinstance(fault, Conflict))
            self._queue.retry(key, _MAX_REFUSAL_PAUSE if is_refused else MAX_PAUSE)

        self._writers.submit((self.name, target or key), make_request, on_end, attempts, is_urgent)


class RecordingController(Controller[K]):
    def __init__(self, context: ControllerContext, recorder: EventRecorder) -> None:
        super().__init__(context)
        self._recorder = recorder


class PacedController(Controller[K]):
    """Controller that writes changes of state at once, but limits writes that only change numbers.

    One other pod may change the numbers of ten thousand groups and of all queues, so writes of numbers share
    a budget.

    - Lane 0 of the work queue is for changes of state.
    - Keys in other lanes are reconciled while the budget has a token and few writes are pending.
    - A key whose numbers wait is parked: it is not reconciled before its time in the lane, unless its state
      changes.
    """

    lanes = 2
    rate: ClassVar[float]  # writes of numbers per second
    burst: ClassVar[int]  # writes of numbers at once

    def prepare(self) -> None:
        self._budget = TokenBucket(self.rate, self.burst, self._clock())
        self._parked: dict[K, object] = {}  # keys that wait to write numbers, with their state at that time
        self._is_turn_of_numbers = False  # whether the current key comes from a lane for numbers

    def on_stopped_leading(self) -> None:
        self._parked.clear()

    def _is_parked(self, key: K, state: object) -> bool:
        """Return whether `key` waits to write numbers, and its state is still `state`."""
        return key in self._parked and self._parked[key] == state

    def _park(self, key: K, state: object, delay: float, lane: int = 1) -> None:
        """Let `key` wait for `delay` seconds until its numbers may be written, and remember its state."""
        self._parked[key] = state
        self._queue.move(key, delay, lane)

    def _reconcile(self, key: K) -> None:
        self._parked.pop(key, None)
        super()._reconcile(key)

    def _reconcile_due(self, last_lane: int | None = None) -> None:
        """Reconcile the keys of lane 0, and then keys of which only numbers have changed."""
        super()._reconcile_due(0)
        self._is_turn_of_numbers = True
        try:
            self._work_on_numbers()
        finally:
            self._is_turn_of_numbers = False

    def _work_on_numbers(self) -> None:
        """Reconcile keys from the lanes for numbers, as far as the budget and the writers allow."""
        for _ in range(MAX_KEYS_PER_CYCLE):
            if not self._may_begin_numbers() or (key := self._queue.get()) is None:
                return
            self._reconcile(key)

    def _take_turn(self) -> bool:
        """Return whether a write of mere numbers is allowed now; if so, use a token of the budget.

        Numbers that already wait come first. Otherwise numbers that change often would use all tokens.
        """
        return (self._is_turn_of_numbers or not self._parked) and self._budget.take(self._clock())

    def _may_begin_numbers(self) -> bool:
        """Return whether the budget has a token, and few writes are pending."""
        return self._writers.pending_count < _MAX_PENDING and self._budget.tokens_at(self._clock()) >= 1
