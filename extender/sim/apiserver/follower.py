"""Following the store in a thread of one's own, as informers follow an API server."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence

from extender.sim.apiserver.status_errors import StatusError
from extender.sim.apiserver.store import Change, Store

LONGEST_WAIT = 1.0  # seconds


class StoreFollower(ABC):
    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._stopping = threading.Event()
        self._version = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    @property
    def behind(self) -> bool:
        """Whether something is not looked at yet."""
        return self._version < self._store.version

    @abstractmethod
    def _begin(self) -> int:
        """Look at all that is there, at first and when more has happened than the log keeps; returns its
        version."""

    @abstractmethod
    def _take(self, changes: Sequence[Change]) -> None:
        """Some changes, or none within `_patience`."""

    def _patience(self) -> float:
        """Seconds to wait for a change."""
        return LONGEST_WAIT

    def _run(self) -> None:
        self._version = self._begin()
        while not self._stopping.is_set():
            try:
                changes = self._store.wait(self._version, self._patience())
            except StatusError:
                self._version = self._begin()
                continue
            self._take(changes)
            if changes:
                self._version = changes[-1].version
