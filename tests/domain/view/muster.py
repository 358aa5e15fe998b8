"""Model of Muster's process: its streams, and their positions in the API's history."""

from collections import deque

from msgspec import json

from extender.domain.model.versioned_pod_watch import (
    ListedPod,
    PodEvent,
    PodList,
    PodWatch,
    WaitingPod,
    WaitingPods,
    Writes,
)
from tests.domain.view.api import OURS, Api, Frame, appearance_frame, bookmark, frame_of, pod_event
from tests.domain.view.ledger import Ledger


class Connection:
    """Connection with a watch. Frames wait in `outbox` until the client reads them."""

    def __init__(self, stream: PodWatch, initial: list[PodEvent], version: int) -> None:
        self.stream = stream
        self.initial = deque(initial)
        self.version = version  # of the last event read after the initial events
        self.outbox: deque[Frame] = deque()
        self._fresh: list[Frame] = []

    def put(self, writes: Writes) -> None:
        frames = [frame_of(write) for write in writes]
        self.outbox.extend(frames)
        self._fresh.extend(frames)

    def fresh(self) -> list[Frame]:
        """Return the frames written since the last call."""
        frames, self._fresh = self._fresh, []
        return frames


class Muster:
    def __init__(self, api: Api) -> None:
        self._api = api
        self.ledger = Ledger(api)
        self.waiting = WaitingPods(frozenset({OURS}))
        self.connections: list[Connection] = []  # also broken ones, until Muster notices

    def watch(self, version: int, list_version: int) -> Connection:
        """Start a watch that continues from a version.

        `list_version`: the version of the list that is read if this process does not know the client's pods.
        """
        if not self.waiting.knows_version(version):
            pods = [pod for pod in self._api.pods_at(list_version).values() if pod.is_ours]
            self.waiting.store_all(
                {pod.facts.uid: WaitingPod(pod.facts, json.encode(pod)) for pod in pods}, list_version
            )
        connection = Connection(PodWatch(self.waiting, self.ledger, version, reads_all=False), [], version)
        connection.put(connection.stream.begin())
        self.connections.append(connection)
        return connection

    def watch_list(self, version_of_client: int, first: int, last: int) -> Connection:
        """Start a watch that sends all pods as of the first version, and then events up to the last."""
        events = [pod_event("ADDED", pod) for pod in self._api.pods_at(first).values()]
        events += [*self._api.events_between(first, last), bookmark(last, ends_initial=True)]
        connection = Connection(
            PodWatch(self.waiting, self.ledger, version_of_client, reads_all=True), events, last
        )
        connection.put(connection.stream.begin())
        self.connections.append(connection)
        return connection

    def list(self, version_of_client: int, version: int) -> list[Frame]:
        pod_list = PodList(self.waiting, self.ledger, version_of_client)
        frames = []
        for pod in self._api.pods_at(version).values():
            appearance = pod_list.appearance(ListedPod(pod.facts, json.encode(pod)))
            if appearance is not None:
                frames.append(appearance_frame("ADDED", pod, pod.version, appearance))
        pod_list.end(version)
        return frames

    def read(self, connection: Connection) -> bool:
        """Read one event from the API server; return False if there is none."""
        if connection.initial:
            event = connection.initial.popleft()
        else:
            new_events = self._api.events_between(connection.version, self._api.version)
            if not new_events:
                return False
            event = new_events[0]
            connection.version = event.version
        connection.put(connection.stream.process(event))
        return True

    def send_bookmark(self, connection: Connection) -> None:
        if not connection.initial and not self._api.events_between(connection.version, self._api.version):
            connection.version = self._api.version
            connection.put(connection.stream.process(bookmark(self._api.version, ends_initial=False)))

    def pass_changes_on(self) -> None:
        changes = self.ledger.take_changes()
        for connection in self.connections:
            connection.put(connection.stream.change(changes))
