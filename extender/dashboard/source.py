"""Sources of the dashboard's content, and its viewers."""

from array import array
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from threading import Lock
from typing import Any, Protocol

from extender.api.summaries import GroupDetails, Overview

HOUR, STEP = 3600, 60  # seconds of history of a queue; seconds between samples


class RightsUnknown(Exception):
    """Error: a right of a viewer cannot be checked now. The message says why."""


class Viewer(Protocol):
    """Viewer, with rights of their own. Answers of the API server are cached for seconds."""

    @property
    def name(self) -> str:
        """Return the name in the API server; empty where that is not known."""

    @property
    def secret(self) -> str:
        """Return the viewer's secret, known to Muster and the browser or its proxy; it signs forms."""

    def may(self, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> bool:
        """Return whether the API server grants it; an empty namespace means all.

        Raises:
            RightsUnknown: The right cannot be checked now.
        """

    def where(self, verb: str, group: str, resource: str, namespaces: Collection[str]) -> frozenset[str]:
        """Return the namespaces in which they have the right, asked for all at once.

        Raises:
            RightsUnknown: The right cannot be checked now.
        """

    def patch(self, resource: str, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        """Change `queues` or `podgroups` with the viewer's own credentials. Raises ApiError."""


class LastHour:
    """Last hour: the part of its deserved share that each queue held, by a sample a minute.

    Safe in all threads.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._instants = deque[float](maxlen=HOUR // STEP + 1)  # times of samples, each with its shares
        self._shares: dict[str, array[float]] = {}

    def is_due(self, now: float) -> bool:
        """Return whether a sample is due, also after the clock was put back."""
        return not self._instants or not self._instants[-1] <= now < self._instants[-1] + STEP

    def record(self, shares: Mapping[str, float], now: float) -> None:
        """Record the shares by queue, and forget removed queues."""
        with self._lock:
            known = self._shares
            if self._instants and now < self._instants[-1]:
                self._instants.clear()
                known = {}
            self._instants.append(now)
            self._shares = {
                name: (known.get(name, array("d")) + array("d", (share,)))[-len(self._instants) :]
                for name, share in shares.items()
            }

    def of(self, queue: str, now: float) -> Sequence[tuple[float, float]]:
        """Return timestamps and shares, the oldest first."""
        with self._lock:
            shares = self._shares.get(queue, array("d"))
            instants = [*self._instants][len(self._instants) - len(shares) :]
        return [(at, share) for at, share in zip(instants, shares, strict=True) if at >= now - HOUR]


class Source(Protocol):
    """Source of overviews and details, for all threads. Unchanged results are the same objects."""

    @property
    def hour(self) -> LastHour:
        """Return the last hour of each queue, from the start of this process."""

    def overview(self) -> Overview:
        """Return the overview of all objects. The dashboard reduces it to the rights of each viewer."""

    def details(self, namespace: str, name: str) -> GroupDetails | None:
        """Return the details; None if no such group exists.

        They may cost more than a page: callers cache them.
        """
