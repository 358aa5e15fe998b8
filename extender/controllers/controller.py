"""Controller: a work queue of object keys, which are reconciled one by one with the decisions.

`reconcile` may be called at any time, since it compares the current state with the desired one.

    decisions, watches ──► WorkQueue ──► reconcile(key) ──► Writers ──► written, or due again

When a write failed, its key is due again:

    not sent, another leads     at once, by the next leader
    a conflict                  once the watch shows the newer copy, which makes the object due, or after
                                a pause that grows with each failure in a row
    a transient failure         the writers try it a few times; after that as with a conflict
    a permanent refusal         as with a conflict, but with longer pauses: the right may still be granted
    the object is not there     as with a refusal, until the watch shows its deletion: it may be there, while
                                its kind is not served
"""

import time
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import ClassVar, Generic, NamedTuple, TypeVar

from extender.controllers.cycle import ChangedGroups, FaultGuard
from extender.controllers.events import EventRecorder
from extender.controllers.work_queue import LONGEST, WorkQueue
from extender.domain.ledger.ledger import Ledger
from extender.domain.snapshot.decisions import Decisions
from extender.kube.calls import ApiClient
from extender.kube.errors import ApiError, Conflict, Fenced
from extender.kube.writers import TokenBucket, WriteJob, Writers
from extender.telemetry import metrics

_LONGEST_REFUSED = 300.0  # seconds of pause at most, after a refusal
_BUSY = 16  # pending writes from which on no write of numbers is submitted
AT_ONCE = 100  # keys per look: most have nothing to write

K = TypeVar("K", bound=Hashable)


class ControllerContext(NamedTuple):
    ledger: Ledger  # with the newest decisions
    cluster: ApiClient  # the requests that are written
    writers: Writers  # the threads that write them
    leads: Callable[[], bool]  # checked before each reconciliation; fenced keys are due again
    clock: Callable[[], float] = time.monotonic  # seconds


class Controller(Generic[K]):
    """Base of the controllers. It follows each cycle; on a change of the leader, all keys are due again."""

    name: ClassVar[str]  # in logs and metrics
    lanes: ClassVar[int] = 1
    pause: ClassVar[float] = 0.5  # seconds after a first failure

    def __init__(self, context: ControllerContext) -> None:
        self._ledger, self._cluster, self._writers, self._leads, self._clock = context
        self._queue = WorkQueue[K](self._clock, self.lanes, self.pause)
        self._guard = FaultGuard(self.name)
        self._depth = metrics.work_queue_depth.labels(self.name)
        self._changed_groups = ChangedGroups()
        self._decisions = Decisions()
        self._submitted = False  # whether the current key has submitted a write
        self.prepare()

    def prepare(self) -> None:
        """Set up the controller's own state."""

    def on_decisions(self, decisions: Decisions) -> None:
        """Reconcile the due keys. An object that makes this raise affects only itself."""
        self._decisions = decisions
        if self._leads():
            self._guard.run("what is due", self._add_due)
            self._reconcile_due()
        else:
            self._queue.clear()
            self._changed_groups = ChangedGroups()
            self.on_stopped_leading()
        self._depth.set(len(self._queue))

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def due_keys(self, decisions: Decisions) -> Iterable[K]:
        """Return the keys that `decisions` make due: on the first call, also as leader, all keys."""
        raise NotImplementedError

    def reconcile(self, key: K) -> None:
        """Compare the object with its desired state, and submit the writes."""
        raise NotImplementedError

    def _add_due(self) -> None:
        for key in self.due_keys(self._decisions):
            self._queue.add(key)

    def on_stopped_leading(self) -> None:
        """Forget all that was remembered about objects: another replica leads."""

    def _reconcile_due(self, least_urgent: int | None = None) -> None:
        """Reconcile the due keys, except those that become due meanwhile."""
        for _ in range(len(self._queue)):
            key = self._queue.get(least_urgent)
            if key is None:
                return
            self._reconcile(key)

    def _reconcile(self, key: K) -> None:
        """Reconcile a key. An idle key is forgotten: its object may be gone."""
        self._submitted = False
        if not self._guard.run(key, partial(self.reconcile, key)):
            self._queue.retry(key)
        elif not self._submitted and key not in self._queue:
            self._queue.reset_backoff(key)

    def write(
        self,
        key: K,
        request: WriteJob,
        target: Hashable = None,
        undone: Callable[[], object] = lambda: None,
        attempts: int | None = None,
        first: bool = False,
    ) -> None:
        """Submit a write for `key`.

        A failed one calls `undone`, and the key is due again.

        Args:
            key: The key that is reconciled.
            request: Makes the request to the API server.
            target: The object, if one key has several; of pending writes to it, only the newest is made.
            undone: Called before the key is due again.
            attempts: Maximum number of attempts; None: the writers' default.
            first: Whether to write it before all pending writes.
        """
        self._submitted = True

        def guarded() -> None:
            try:
                request()
            except ApiError:
                raise
            except Exception as fault:
                self._guard.record((key, "write"))
                raise ApiError(f"{type(fault).__name__}: {fault}") from fault

        def ended(fault: ApiError | None) -> None:
            if fault is None:
                self._guard.forget((key, "write"))
                return self._queue.reset_backoff(key)
            undone()
            if isinstance(fault, Fenced):
                return self._queue.add(key)
            is_refused = not (fault.transient or isinstance(fault, Conflict))
            self._queue.retry(key, _LONGEST_REFUSED if is_refused else LONGEST)

        self._writers.submit((self.name, target or key), guarded, ended, attempts, first)


class RecordingController(Controller[K]):
    def __init__(self, context: ControllerContext, recorder: EventRecorder) -> None:
        super().__init__(context)
        self._recorder = recorder


class PacedController(Controller[K]):
    """Controller that writes numbers: changes of state are written at once, mere numbers share a budget.

    One other pod may change the numbers of ten thousand groups and of all queues. Lane 0 is for changes of
    state; keys in other lanes are taken while the budget has a token and the writers are not busy. A key
    whose numbers wait is parked: it is not processed before its turn, unless its state changes.
    """

    lanes = 2
    rate: ClassVar[float]  # writes of numbers per second
    burst: ClassVar[int]  # writes of numbers at once

    def prepare(self) -> None:
        self._budget = TokenBucket(self.rate, self.burst, self._clock())
        self._parked: dict[K, object] = {}  # keys that wait to write numbers, with their state at that time
        self._is_turn = False  # whether the current key comes from a lane of numbers

    def on_stopped_leading(self) -> None:
        self._parked.clear()

    def _is_parked(self, key: K, state: object) -> bool:
        """Return whether `key` waits to write numbers and its state is still `state`."""
        return key in self._parked and self._parked[key] == state

    def _park(self, key: K, state: object, after: float, lane: int = 1) -> None:
        self._parked[key] = state
        self._queue.move(key, after, lane)

    def _reconcile(self, key: K) -> None:
        self._parked.pop(key, None)
        super()._reconcile(key)

    def _reconcile_due(self, least_urgent: int | None = None) -> None:
        super()._reconcile_due(0)
        self._is_turn = True
        try:
            self._work_on_numbers()
        finally:
            self._is_turn = False

    def _work_on_numbers(self) -> None:
        for _ in range(AT_ONCE):
            if not self._may_begin_numbers() or (key := self._queue.get()) is None:
                return
            self._reconcile(key)

    def _take_turn(self) -> bool:
        """Return whether mere numbers may be written now.

        Numbers that already wait come first; otherwise frequent changes would use up all tokens.
        """
        return (self._is_turn or not self._parked) and self._budget.take(self._clock())

    def _may_begin_numbers(self) -> bool:
        return self._writers.depth < _BUSY and self._budget.available(self._clock()) >= 1
