"""Bench of the tests of controllers: a ledger's world, an API client, and the writer between them."""

from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

from extender.controllers.controller import ControllerContext
from extender.controllers.events import EventRecorder
from extender.kube.calls import ApiClient
from extender.kube.writers import Backoff, EndCallback, WriteJob, Writers
from tests.controllers.api import Api
from tests.domain.world import World

PATIENCE = 10.0  # seconds
RETRY_SECONDS = 30.0  # seconds before a failed write is repeated


class AtOnce(Writers):
    """Writer that writes at once, without threads."""

    def __init__(self) -> None:
        pass

    @property
    def pending_count(self) -> int:
        return 0

    def submit(
        self,
        key: Hashable,
        job: WriteJob,
        on_end: EndCallback = lambda fault: None,
        max_attempts: int | None = None,
        is_first: bool = False,
    ) -> None:
        job()


class Bench(World):
    """World with a writer thread. `leading`: whether this process leads.

    There is one writer thread, so `flush` returns after all submitted writes have been tried.
    """

    def __init__(self, *objects: Any, **settings: Any) -> None:
        """Create the world. `settings`: as for `World`."""
        super().__init__(*objects, **settings)
        self.api = Api()
        self.leading = True
        self.fence: deque[bool] = deque()
        self.writers = Writers(
            1,
            "test",
            may_write=lambda: self.fence.popleft() if self.fence else True,
            max_attempts=2,
            new_backoff=lambda: Backoff(first_delay=RETRY_SECONDS, random_share=lambda: 0.0),
            clock=lambda: self.now,
        )
        self.recorder = EventRecorder(self.api, self.writers, self.leads, clock=lambda: self.now)
        self.settle()

    def means(self, cluster: ApiClient | None = None) -> ControllerContext:
        """Return the context of a controller, with the API client of the bench or another one."""
        return ControllerContext(self.ledger, cluster or self.api, self.writers, self.leads, lambda: self.now)

    def leads(self) -> bool:
        return self.leading

    def flush(self) -> None:
        """Wait until all writes have been tried, also due retries, which the first pass submits."""
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
