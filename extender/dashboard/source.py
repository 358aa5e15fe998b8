"""Interfaces of the dashboard: sources of its content, and its viewers."""

from array import array
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple, Protocol

from extender.api.summaries import GroupDetails, Overview
from extender.kube.resources import Resource

HOUR, STEP = 3600, 60  # seconds that charts cover; seconds between samples


class ClusterName(NamedTuple):
    """Name of the cluster and of the kubeconfig's context; empty if unknown."""

    cluster: str = ""
    context: str = ""


UNNAMED = ClusterName()


class RightsUnknown(Exception):
    """Error: a viewer's right cannot be checked now. The message says why."""


class Viewer(Protocol):
    """User of the dashboard, with own rights.

    Answers of the API server about rights are cached for seconds.
    """

    @property
    def name(self) -> str:
        """Return the user's name at the API server; empty if unknown."""

    @property
    def secret(self) -> str:
        """Return a secret that signs forms. Only Muster and the viewer's browser or proxy know it."""

    def may(self, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> bool:
        """Return whether the API server grants a right. An empty namespace means all namespaces.

        Raises:
            RightsUnknown: The right cannot be checked now.
        """

    def namespaces_with_right(
        self, verb: str, group: str, resource: str, namespaces: Collection[str]
    ) -> frozenset[str]:
        """Return the namespaces in which the viewer has a right. All of them are checked at the same time.

        Raises:
            RightsUnknown: The right cannot be checked now.
        """

    def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        """Read an object with the viewer's own credentials.

        Raises:
            ApiError: The request failed.
        """

    def patch(self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        """Change an object with the viewer's own credentials.

        Raises:
            ApiError: The request failed.
        """

    def create(self, resource: Resource, namespace: str, obj: dict[str, Any]) -> None:
        """Create an object with the viewer's own credentials.

        Raises:
            ApiError: The request failed.
        """


class LastHour:
    """Samples of several numbers in the last hour, one in each minute. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._times = deque[float](maxlen=HOUR // STEP + 1)  # timestamps of the samples
        self._samples: dict[str, array[float]] = {}

    def is_due(self, now: float) -> bool:
        """Return whether the next sample is due, also after the clock was set back."""
        return not self._times or not self._times[-1] <= now < self._times[-1] + STEP

    def record(self, numbers: Mapping[str, float], now: float) -> None:
        """Record a sample of each number by name. Names that are missing now are removed."""
        with self._lock:
            old_samples = self._samples
            if self._times and now < self._times[-1]:  # the clock was set back
                self._times.clear()
                old_samples = {}
            self._times.append(now)
            self._samples = {
                name: (old_samples.get(name, array("d")) + array("d", (number,)))[-len(self._times) :]
                for name, number in numbers.items()
            }

    def samples_of(self, name: str, now: float) -> Sequence[tuple[float, float]]:
        """Return the samples of a name as timestamps and numbers, the oldest first."""
        with self._lock:
            numbers = self._samples.get(name, array("d"))
            times = [*self._times][len(self._times) - len(numbers) :]
        return [(at, number) for at, number in zip(times, numbers, strict=True) if at >= now - HOUR]


class Source(Protocol):
    """Source of overviews and details. Thread-safe. Unchanged results are the same objects."""

    @property
    def shares(self) -> LastHour:
        """Return samples of each queue's usage divided by its deserved share, since this process started."""

    @property
    def usages(self) -> LastHour:
        """Return samples of the used part of each resource of the cluster."""

    def overview(self) -> Overview:
        """Return the overview of all objects. The dashboard removes what a viewer may not see."""

    def details(self, namespace: str, name: str) -> GroupDetails | None:
        """Return the details of a group; None if the group does not exist.

        They may cost more than a page, so callers cache them.
        """
