"""Thread that follows one kind by a list and watches, and resumes where a dropped watch ended."""

import threading
from collections.abc import Callable, Sequence
from typing import Self

import urllib3

from tests.e2e.harness.client import Client
from tests.e2e.harness.resources import Resource
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError, Json, Watch

Listener = Callable[[str, Json, int], None]
WATCH_ERRORS = (urllib3.exceptions.HTTPError, OSError, ApiError, ValueError)
NOT_FOUND, GONE = 404, 410
SHORTEST_WATCH = 1  # second


class Follower(threading.Thread):
    """Follower that gives each event to a listener, with the resourceVersion of the event.

    When the API server no longer has the versions since the last event (410), the objects are listed again,
    the differences are handed over, and `gaps` gets a record, since events may have been missed.
    """

    def __init__(self, client: Client, resource: Resource, listener: Listener) -> None:
        super().__init__(name=f"follow-{resource.plural}", daemon=True)
        self.known: dict[str, Json] = {}
        self.gaps: list[str] = []
        self._client = client
        self._resource = resource
        self._listener = listener
        self._version = ""
        self._reached = 0  # version of the last event, even if the API server has forgotten it
        self._watch: Watch | None = None
        self._asked = threading.Event()
        self._ended = threading.Event()

    def start(self) -> None:
        """Start and return when the first list has been handed over."""
        super().start()
        wait_for(lambda: self._version, what=f"first list of {self._resource.plural}")

    def stop(self) -> None:
        self._ended.set()
        while self.is_alive():
            if (watch := self._watch) is not None:
                watch.close()
            self.join(0.1)

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                self._step()
            except WATCH_ERRORS as error:
                self._handle_error(error)
                self._ended.wait(0.1)

    def has_reached(self, version: int) -> bool:
        """Return whether all events up to the version of an object of this kind have been handed over."""
        return self._reached >= version

    def ask(self) -> None:
        """Request a check that all events until now have arrived; `is_settled` returns its result."""
        self._asked.set()

    def is_settled(self) -> bool:
        """Return whether all events until `ask` have been received.

        A list is not enough: it lacks objects that were created and deleted while a watch was down.
        """
        watch = self._watch
        if self._asked.is_set() and watch is not None:
            watch.close()
        return not self._asked.is_set()

    def _step(self) -> None:
        if not self._version:
            self._list()
        elif self._asked.is_set():
            self._settle()
        else:
            self._follow()

    def _settle(self) -> None:
        """Run a short watch: if it ends without an error, it has reported all events before its start."""
        for kind, item in self._client.watch(self._resource, self._version, seconds=SHORTEST_WATCH):
            self._handle_event(kind, item)
        self._asked.clear()

    def _list(self) -> None:
        """List the objects and report the absent ones as deleted.

        Their deletion gets the earliest possible version, so that no scheduler is accused without reason.
        """
        listing = self._client.listing(self._resource)
        version = listing["metadata"]["resourceVersion"]
        present = {item["metadata"]["uid"]: item for item in listing["items"]}
        for uid in self.known.keys() - present.keys():
            self._hand_over("DELETED", self.known[uid], self._reached)
        for uid, item in present.items():
            if self._has_changed(uid, item):
                self._hand_over("MODIFIED" if uid in self.known else "ADDED", item, _version(item))
        self._version, self._reached = version, int(version)

    def _has_changed(self, uid: str, item: Json) -> bool:
        return uid not in self.known or _version(self.known[uid]) != _version(item)

    def _follow(self) -> None:
        self._watch = self._client.watch(self._resource, self._version)
        try:
            for kind, item in self._watch:
                self._handle_event(kind, item)
        finally:
            self._watch = None

    def _handle_event(self, kind: str, item: Json) -> None:
        if kind != "BOOKMARK":
            self._hand_over(kind, item, _version(item))
        self._version, self._reached = item["metadata"]["resourceVersion"], _version(item)

    def _hand_over(self, kind: str, item: Json, version: int) -> None:
        self._listener(kind, item, version)
        if kind == "DELETED":
            self.known.pop(item["metadata"]["uid"], None)
        else:
            self.known[item["metadata"]["uid"]] = item

    def _handle_error(self, error: Exception) -> None:
        """Handle an error. Requests are repeated; only an expired version may mean lost events."""
        status = getattr(error, "status", 0)
        if status == GONE:
            self.gaps.append(f"{self._resource.plural} after version {self._version}: {error}")
            self._version = ""
        elif status == NOT_FOUND:  # the kind is not installed
            self._version = "0"
            self._asked.clear()


def _version(item: Json) -> int:
    return int(item["metadata"]["resourceVersion"])


class Following:
    """Base of classes with followers, which run while the context is entered."""

    _followers: Sequence[Follower]

    def __enter__(self) -> Self:
        for follower in self._followers:
            follower.start()
        return self

    def __exit__(self, *_: object) -> None:
        for follower in self._followers:
            follower.stop()
