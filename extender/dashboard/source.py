"""Sources of the dashboard's content, and its viewers."""

from array import array
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple, Protocol

from extender.api.summaries import GroupDetails, Overview
from extender.kube.resources import Resource

HOUR, STEP = 3600, 60  # seconds of history of a queue; seconds between samples


class ClusterName(NamedTuple):
    """Name of the cluster, and of the kubeconfig's context; empty where not known."""

    cluster: str = ""
    context: str = ""


UNNAMED = ClusterName()


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
        """Return whether the API server grants a right; an empty namespace means all.

        Raises:
            RightsUnknown: The right cannot be checked now.
        """

    def namespaces_with_right(
        self, verb: str, group: str, resource: str, namespaces: Collection[str]
    ) -> frozenset[str]:
        """Return the namespaces in which the viewer has a right. They are checked at the same time.

        Raises:
            RightsUnknown: The right cannot be checked now.
        """

    def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        """Read an object with the viewer's own credentials. Raises ApiError."""

    def patch(self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        """Change an object with the viewer's own credentials. Raises ApiError."""

    def create(self, resource: Resource, namespace: str, obj: dict[str, Any]) -> None:
        """Create an object with the viewer's own credentials. Raises ApiError."""


class LastHour:
    """Samples of several numbers, one a minute, of the last hour. Safe in all threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._times = deque[float](maxlen=HOUR // STEP + 1)  # times of the samples
        self._numbers: dict[str, array[float]] = {}

    def is_due(self, now: float) -> bool:
        """Return whether a sample is due, also after the clock was put back."""
        return not self._times or not self._times[-1] <= now < self._times[-1] + STEP

    def record(self, numbers: Mapping[str, float], now: float) -> None:
        """Record the numbers by name, and forget missing names."""
        with self._lock:
            last = self._numbers
            if self._times and now < self._times[-1]:  # the clock was put back
                self._times.clear()
                last = {}
            self._times.append(now)
            self._numbers = {
                name: (last.get(name, array("d")) + array("d", (number,)))[-len(self._times) :]
                for name, number in numbers.items()
            }

    def of(self, name: str, now: float) -> Sequence[tuple[float, float]]:
        """Return timestamps and numbers, the oldest first."""
        with self._lock:
            numbers = self._numbers.get(name, array("d"))
            times = [*self._times][len(self._times) - len(numbers) :]
        return [(at, number) for at, number in zip(times, numbers, strict=True) if at >= now - HOUR]


class Source(Protocol):
    """Source of overviews and details, for all threads. Unchanged results are the same objects."""

    @property
    def hour(self) -> LastHour:
        """Return the part of its deserved share that each queue held, from the start of this process on."""

    @property
    def usage(self) -> LastHour:
        """Return the part of each resource of the cluster that was in use."""

    def overview(self) -> Overview:
        """Return the overview of all objects. The dashboard reduces it to the rights of each viewer."""

    def details(self, namespace: str, name: str) -> GroupDetails | None:
        """Return the details; None if no such group exists.

        They may cost more than a page: callers cache them.
        """
