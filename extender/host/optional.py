"""Watches of kinds that a cluster may lack: each starts when the API server is seen to serve its kind.

Nothing waits for them for long. Where a kind is missing, or may not be read, the rest goes on without it.
"""

import time
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Any

from extender.kube.calls import Cluster
from extender.kube.errors import ApiError
from extender.kube.reflector import Reflector
from extender.telemetry.logs import logger

log = logger(__name__)

_AGAIN = 30.0  # seconds between two looks for kinds that were missing
_AT_FIRST = 10.0  # seconds for which the start waits for those that are served


class OptionalWatches:
    def __init__(
        self,
        cluster: Cluster,
        watches: Sequence[Reflector[Any]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._missing = list(watches)
        self._clock = clock
        self._stopping = Event()
        self._looked = False
        self._patience = 0.0
        self.started: list[Reflector[Any]] = []

    def start(self) -> None:
        self._patience = self._clock() + _AT_FIRST
        if self._missing:
            Thread(target=self._run, name="optional-watches", daemon=True).start()
        else:
            self._looked = True

    def halt(self) -> None:
        self._stopping.set()

    @property
    def settled(self) -> bool:
        """Whether all that is served has been read, or was waited for long enough."""
        read = self._looked and all(reflector.synced for reflector in self.started)
        return read or self._clock() >= self._patience

    @property
    def missing(self) -> list[Reflector[Any]]:
        """Those whose kind the cluster does not have."""
        return list(self._missing)

    def look(self) -> None:
        """Start the watches of kinds that are served by now."""
        for reflector in list(self._missing):
            if self._is_served(reflector):
                self._missing.remove(reflector)
                self.started.append(reflector)
                reflector.start()
        self._looked = True

    def _run(self) -> None:
        self.look()
        if self._missing:
            kinds = sorted(reflector.resource.path() for reflector in self._missing)
            log.info("kinds that this cluster does not have", kinds=kinds)
        while self._missing and not self._stopping.wait(_AGAIN):
            self.look()

    def _is_served(self, reflector: Reflector[Any]) -> bool:
        try:
            return self._cluster.serves(reflector.resource)
        except ApiError as fault:
            log.warning("could not ask for a kind", kind=reflector.resource.path(), error=str(fault))
            return False
