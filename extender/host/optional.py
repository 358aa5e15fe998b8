"""Watches of kinds that a cluster may lack: each starts once the API server serves its kind.

Nothing waits long for them. If a kind is missing, or may not be read, Muster works without it. For some
kinds a component of the manifests grants the rights: they are not tried without the verb that is named. Of
several watches of one kind, the first that may be started is enough.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from extender.kube.calls import ApiClient
from extender.kube.errors import ApiError
from extender.kube.polling import Poller
from extender.kube.reflector import Reflector
from extender.telemetry.logs import logger

log = logger(__name__)

NOTHING: Mapping[Reflector[Any], str] = MappingProxyType({})
_AGAIN = 30.0  # seconds between two looks for missing kinds
_AT_FIRST = 10.0  # seconds for which the start waits for watches of kinds that are served


class OptionalWatches:
    def __init__(
        self,
        cluster: ApiClient,
        watches: Sequence[Reflector[Any]],
        clock: Callable[[], float] = time.monotonic,
        granted_apart: Mapping[Reflector[Any], str] = NOTHING,
    ) -> None:
        self._cluster = cluster
        self._granted_apart = granted_apart
        self._missing = list(watches)
        self._clock = clock
        self._poller = Poller("optional-watches", _AGAIN, self._poll)
        self._looked = False
        self._patience = 0.0
        self.started: list[Reflector[Any]] = []

    def start(self) -> None:
        self._patience = self._clock() + _AT_FIRST
        if self._missing:
            self._poller.start()
        else:
            self._looked = True

    def halt(self) -> None:
        self._poller.stop()

    @property
    def settled(self) -> bool:
        """Whether all served kinds have been read, or the wait for them is over."""
        read = self._looked and all(reflector.synced for reflector in self.started)
        return read or self._clock() >= self._patience

    @property
    def missing(self) -> list[Reflector[Any]]:
        """The watches of kinds that the cluster does not have."""
        return list(self._missing)

    def look(self) -> None:
        """Start the watches of kinds that are served now."""
        for reflector in list(self._missing):
            if self._is_read_already(reflector):
                self._missing.remove(reflector)
            elif self._is_served(reflector):
                self._missing.remove(reflector)
                self.started.append(reflector)
                reflector.start()
        self._looked = True

    def _is_read_already(self, reflector: Reflector[Any]) -> bool:
        """Whether another watch of its kind runs, which took more rights."""
        return reflector not in self._granted_apart and any(
            each.resource == reflector.resource for each in self.started
        )

    def _poll(self) -> None:
        first = not self._looked
        self.look()
        if not self._missing:
            self._poller.stop()
        elif first:
            kinds = sorted(reflector.resource.path() for reflector in self._missing)
            log.info("this cluster lacks some kinds, which are not watched", kinds=kinds)

    def _is_served(self, reflector: Reflector[Any]) -> bool:
        resource = reflector.resource
        try:
            served = self._cluster.serves(resource)
            verb = self._granted_apart.get(reflector)
            return served and (verb is None or self._cluster.may(verb, resource))
        except ApiError as fault:
            log.warning(
                "cannot check whether a kind exists", kind=reflector.resource.path(), error=str(fault)
            )
            return False
