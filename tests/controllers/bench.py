"""A world, an API server, and the writers between them; the test decides whether this replica leads."""

from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

from extender.controllers.controller import ControllerContext
from extender.controllers.events import EventRecorder
from extender.kube.calls import ApiClient
from extender.kube.writers import Backoff, Ended, WriteJob, Writers
from tests.controllers.api import Api
from tests.domain.world import World

PATIENCE = 10.0
PAUSE = 30.0  # before a write that failed for a passing reason comes again


class AtOnce(Writers):
    """Writers without threads."""

    def __init__(self) -> None:
        pass

    @property
    def depth(self) -> int:
        return 0

    def submit(
        self,
        key: Hashable,
        job: WriteJob,
        ended: Ended = lambda fault: None,
        attempts: int | None = None,
        first: bool = False,
    ) -> None:
        job()


class Bench(World):
    """World with a writer thread.

    One thread writes, so everything submitted before `flush` has been tried when it returns. `fence` is
    called before each write; it returns the value that the test set, and then True.
    """

    def __init__(self, *objects: Any, **settings: Any) -> None:
        """Create the world. `settings`: as `World` takes them."""
        super().__init__(*objects, **settings)
        self.api = Api()
        self.leading = True
        self.fence: deque[bool] = deque()
        self.writers = Writers(
            1,
            "test",
            fence=lambda: self.fence.popleft() if self.fence else True,
            attempts=2,
            backoff=lambda: Backoff(first=PAUSE, jitter=lambda: 0.0),
            clock=lambda: self.now,
        )
        self.recorder = EventRecorder(self.api, self.writers, self.leads, clock=lambda: self.now)
        self.settle()

    def means(self, cluster: ApiClient | None = None) -> ControllerContext:
        """Return the context of a controller, on the API server of the bench or another one."""
        return ControllerContext(self.ledger, cluster or self.api, self.writers, self.leads, lambda: self.now)

    def leads(self) -> bool:
        return self.leading

    def flush(self) -> None:
        """Flush twice: the first pass submits due retries, which queue behind it."""
        for _ in range(2):
            flushed = Event()
            self.writers.submit(flushed, flushed.set)
            assert flushed.wait(PATIENCE)

    @contextmanager
    def writing(self) -> Iterator[None]:
        self.writers.start()
        try:
            yield
        finally:
            self.writers.stop()
