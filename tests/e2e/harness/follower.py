"""Thread that follows one kind of objects by a list and watches.

After a dropped watch, the next watch continues where the dropped watch ended.
"""

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
    """Follower of one kind. It passes each event with the resourceVersion of the event to a listener.

    When the API server has forgotten the versions since the last event (410), the follower lists the objects
    again. Then the listener gets the differences. `gaps` gets a record, since events may be missing. `known`
    has the current objects, keyed by UID.
    """

    def __init__(self, client: Client, resource: Resource, listener: Listener) -> None:
        super().__init__(name=f"follow-{resource.plural}", daemon=True)
        self.known: dict[str, Json] = {}
        self.gaps: list[str] = []
        self._client = client
        self._resource = resource
        self._listener = listener
        self._version = ""
        self._last_version = 0  # version of the last event, even if the API server has forgotten the version
        self._watch: Watch | None = None
        self._is_check_requested = threading.Event()
        self._has_ended = threading.Event()

    def start(self) -> None:
        """Start the thread, and return when the listener has received the first list."""
        super().start()
        wait_for(lambda: self._version, what=f"first list of {self._resource.plural}")

    def stop(self) -> None:
        """Stop the thread. The current watch is closed, so that the thread does not wait for events."""
        self._has_ended.set()
        while self.is_alive():
            if (watch := self._watch) is not None:
                watch.close()
            self.join(0.1)

    def run(self) -> None:
        while not self._has_ended.is_set():
            try:
                self._step()
            except WATCH_ERRORS as error:
                self._handle_error(error)
                self._has_ended.wait(0.1)

    def has_reached(self, version: int) -> bool:
        """Return whether the listener has received all events up to the resourceVersion of an object."""
        return self._last_version >= version

    def ask(self) -> None:
        """Request a check that all events until now have arrived. `is_settled` returns the result."""
        self._is_check_requested.set()

    def is_settled(self) -> bool:
        """Return whether all events that happened before `ask` have been received.

        A list cannot show this: objects may be created and deleted again while a watch is down.
        """
        watch = self._watch
        if self._is_check_requested.is_set() and watch is not None:
            watch.close()
        return not self._is_check_requested.is_set()

    def _step(self) -> None:
        """Take the next step: the first list, a requested check, or a watch."""
        if not self._version:
            self._list_objects()
        elif self._is_check_requested.is_set():
            self._run_short_watch()
        else:
            self._run_watch()

    def _run_short_watch(self) -> None:
        """Run a short watch. A watch that ends without an error has delivered all events before its start."""
        for kind, item in self._client.watch(self._resource, self._version, seconds=SHORTEST_WATCH):
            self._handle_event(kind, item)
        self._is_check_requested.clear()

    def _list_objects(self) -> None:
        """List the objects, pass the changes to the listener, and report missing objects as deleted.

        A deletion gets the earliest possible version, so that no scheduler is blamed without reason.
        """
        listing = self._client.listing(self._resource)
        version = listing["metadata"]["resourceVersion"]
        listed_items = {item["metadata"]["uid"]: item for item in listing["items"]}
        for uid in self.known.keys() - listed_items.keys():
            self._hand_over("DELETED", self.known[uid], self._last_version)
        for uid, item in listed_items.items():
            if self._has_changed(uid, item):
                self._hand_over("MODIFIED" if uid in self.known else "ADDED", item, _version(item))
        self._version, self._last_version = version, int(version)

    def _has_changed(self, uid: str, item: Json) -> bool:
        return uid not in self.known or _version(self.known[uid]) != _version(item)

    def _run_watch(self) -> None:
        """Run a watch from the last version on, until the watch ends."""
        self._watch = self._client.watch(self._resource, self._version)
        try:
            for kind, item in self._watch:
                self._handle_event(kind, item)
        finally:
            self._watch = None

    def _handle_event(self, kind: str, item: Json) -> None:
        if kind != "BOOKMARK":
            self._hand_over(kind, item, _version(item))
        self._version, self._last_version = item["metadata"]["resourceVersion"], _version(item)

    def _hand_over(self, kind: str, item: Json, version: int) -> None:
        """Pass an event to the listener, and update `known`."""
        self._listener(kind, item, version)
        if kind == "DELETED":
            self.known.pop(item["metadata"]["uid"], None)
        else:
            self.known[item["metadata"]["uid"]] = item

    def _handle_error(self, error: Exception) -> None:
        """Handle an error of a request, which is sent again. Only an expired version can mean lost events."""
        status = getattr(error, "status", 0)
        if status == GONE:
            self.gaps.append(f"{self._resource.plural} after version {self._version}: {error}")
            self._version = ""
        elif status == NOT_FOUND:  # The kind is not installed.
            self._version = "0"
            self._is_check_requested.clear()


def _version(item: Json) -> int:
    return int(item["metadata"]["resourceVersion"])


class Following:
    """Base of classes with followers, which run while the context is active."""

    _followers: Sequence[Follower]

    def __enter__(self) -> Self:
        for follower in self._followers:
            follower.start()
        return self

    def __exit__(self, *_: object) -> None:
        for follower in self._followers:
            follower.stop()
