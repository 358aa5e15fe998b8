"""A controller has keys of objects that are due, and brings one after the other in line with what was
decided. `reconcile` may be called at any time, since it compares the current state with the wanted one.

    decisions, watches ──► WorkQueue ──► reconcile(key) ──► Writers ──► written, or due again
"""

import time
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import ClassVar, Generic, NamedTuple, TypeVar

from extender.controllers.changed_groups import ChangedGroups
from extender.controllers.event_recorder import EventRecorder
from extender.controllers.guard import Guard
from extender.controllers.work_queue import WorkQueue
from extender.controllers.write_retries import schedule_retry
from extender.domain.cache.ledger import Ledger
from extender.domain.decisions.decisions import Decisions
from extender.kube.calls import ApiClient
from extender.kube.errors import ApiError
from extender.kube.writers import WriteJob, Writers
from extender.telemetry import metrics

K = TypeVar("K", bound=Hashable)


class ControllerContext(NamedTuple):
    """What each controller works with."""

    ledger: Ledger  # with the newest decisions
    cluster: ApiClient  # the requests that are written
    writers: Writers  # the threads that write them
    leads: Callable[[], bool]  # checked before every look; keys whose writes the fence drops are due again
    clock: Callable[[], float] = time.monotonic  # seconds


class Controller(Generic[K]):
    """Listens to the cycle. While another replica leads it remembers nothing; once this one leads, everything
    is due."""

    name: ClassVar[str]  # in logs and metrics
    lanes: ClassVar[int] = 1
    pause: ClassVar[float] = 0.5  # seconds after a first failure

    def __init__(self, context: ControllerContext) -> None:
        self._ledger, self._cluster, self._writers, self._leads, self._clock = context
        self._queue = WorkQueue[K](self._clock, self.lanes, self.pause)
        self._guard = Guard(self.name)
        self._depth = metrics.work_queue_depth.labels(self.name)
        self._changed_groups = ChangedGroups()
        self._decisions = Decisions()
        self._submitted = False  # whether the key that is attended to has a write
        self.prepare()

    def prepare(self) -> None:
        """Set up the controller's own state."""

    def look(self, decisions: Decisions) -> None:
        """Reconcile what is due. An object that makes this raise costs only its own turn."""
        self._decisions = decisions
        if self._leads():
            self._guard.run("what is due", self._add_due)
            self._work()
        else:
            self._stand_by()
        self._depth.set(len(self._queue))

    @property
    def waiting(self) -> int:
        """How many keys are due now or later."""
        return len(self._queue)

    def due(self, decisions: Decisions) -> Iterable[K]:
        """The keys that `decisions` make due: those of all objects on the first call, and on the first call
        after another replica has led."""
        raise NotImplementedError

    def reconcile(self, key: K) -> None:
        """Submit a write of what differs."""
        raise NotImplementedError

    def _add_due(self) -> None:
        for key in self.due(self._decisions):
            self._queue.add(key)

    def rest(self) -> None:
        """Another replica leads now: forget what was remembered of objects."""

    def _stand_by(self) -> None:
        self._queue.clear()
        self._changed_groups = ChangedGroups()
        self.rest()

    def _work(self, least_urgent: int | None = None) -> None:
        """Reconcile the keys that are due; those that become due meanwhile wait for the next look."""
        for _ in range(len(self._queue)):
            key = self._queue.take(least_urgent)
            if key is None:
                return
            self._attend(key)

    def _attend(self, key: K) -> None:
        """A key that neither writes nor waits is at rest: nothing is remembered of it, whose object may be
        gone."""
        self._submitted = False
        if not self._guard.run(key, partial(self.reconcile, key)):
            self._queue.retry(key)
        elif not self._submitted and key not in self._queue:
            self._queue.settle(key)

    def write(
        self,
        key: K,
        job: WriteJob,
        of: Hashable = None,
        undone: Callable[[], None] = lambda: None,
        attempts: int | None = None,
        first: bool = False,
    ) -> None:
        """Have `job` write something for `key`, which is due again if that fails. `of`: what is written, if
        one key has several objects; of several writes to the same, only the newest is made. `undone` is
        called if it was not written. `attempts`: how often the writers try it, if not their default. `first`:
        before all that wait to be written."""
        self._submitted = True
        ended = partial(self._ended, key, undone)
        self._writers.submit((self.name, of or key), partial(self._guarded, key, job), ended, attempts, first)

    def _ended(self, key: K, undone: Callable[[], None], fault: ApiError | None) -> None:
        if fault is None:
            self._guard.forget((key, "write"))
        else:
            undone()
        schedule_retry(self._queue, key, fault)

    def _guarded(self, key: K, job: WriteJob) -> None:
        try:
            job()
        except ApiError:
            raise
        except Exception as fault:
            self._guard.note((key, "write"))
            raise ApiError(f"{type(fault).__name__}: {fault}") from fault


class RecordingController(Controller[K]):
    """A controller that records Events about what it does."""

    def __init__(self, context: ControllerContext, recorder: EventRecorder) -> None:
        super().__init__(context)
        self._recorder = recorder
