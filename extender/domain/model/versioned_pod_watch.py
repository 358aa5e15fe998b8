"""Watch of pods for the scheduler: the events that the scheduler gets, and their resourceVersions.

The scheduler gets the events of the API server, except for unbound pods of Muster. An unbound pod is left out
until it may start. Then it appears with its node, and it disappears again if its plan is withdrawn. For the
scheduler, the result must look like a possible history of the API server. Five rules ensure this:

1. Versions never decrease. An event that is inserted between two events carries the highest version so far: a
   reflector keeps the version of every event, and with an older version it would read history again.
2. A bound pod never becomes unbound and never disappears. A watch that begins before the known history does
   not mention a pod until the watch reaches the event of the pod's last change.
3. Each stream records the pods that it has shown. A watch that continues from a version begins with the
   writes that bring these pods up to date.
4. A pod gets another appearance by DELETED and ADDED in one write, because an informer drops a change that
   does not change the version.
5. Until the initial events have ended, no event is inserted between them.
"""

from collections.abc import Mapping, Sequence
from sys import intern
from typing import NamedTuple, Protocol

from extender.api.keys import ENDED_PHASES
from extender.domain.model.records import Uid


class Appearance(NamedTuple):
    """Appearance of an unbound pod that may start, as the scheduler sees the pod."""

    node: str = ""  # the nominated node; empty: as in the API server
    has_marker: bool = False  # whether the pod has the marker resource, for which the scheduler calls filter


AS_STORED = Appearance()
Change = tuple[Uid, Appearance | None]  # None means that the pod is removed for the client


class PodFacts(NamedTuple):
    """Facts about one pod that a stream of pods uses."""

    uid: Uid
    namespace: str
    name: str
    scheduler: str  # spec.schedulerName
    node: str  # spec.nodeName; empty while the pod is unbound
    version: int  # metadata.resourceVersion
    has_ended: bool = False  # whether its phase is Succeeded or Failed, so that it holds no capacity


class Appearances(Protocol):
    """Appearances of pods for the scheduler. Any thread may use them."""

    def appearance_of(self, uid: Uid) -> Appearance | None:
        """Return the appearance of an unbound pod of one of Muster's schedulers.

        None hides the pod, because it waits or is not known yet. A pod of another scheduler appears as it is.
        """

    def is_in_flight(self, uid: Uid) -> bool:
        """Return whether the scheduler is binding the pod.

        Its bind call is held, or its binding was posted.
        """

    def take_changes(self) -> Sequence[Change]:
        """Return the changes since the last call, in order.

        A pod may have been removed and shown again. Pods that were bound or deleted are left out, because the
        watch shows these changes.
        """

    def record_departure(self, node: str) -> None:
        """Record that a scheduler learns from its watch that a bound pod has left this node.

        The scheduler may have refused other pods because of the pod that left.
        """

    def record_fresh_start(self) -> None:
        """Record that a scheduler has listed all pods again.

        None of its earlier attempts continues.
        """

    def record_status(self, namespace: str, name: str, unschedulable: str) -> Uid | None:
        """Record that the scheduler patches a pod's status, because it has given up an attempt.

        Args:
            namespace: The namespace of the pod.
            name: The name of the pod.
            unschedulable: The scheduler's message if it found no node; empty after errors.

        Returns:
            The UID of an unbound pod of Muster; None for any other pod.
        """


INITIAL_EVENTS_END = "k8s.io/initial-events-end"  # annotation of a bookmark, with the value "true"
MARK_NAME = "kube-muster"  # name of the init container with the marker resource


class PodEvent(NamedTuple):
    """Event of a watch of pods."""

    type: str  # ADDED, MODIFIED, DELETED, BOOKMARK, ERROR
    version: int  # metadata.resourceVersion; 0 without a version, as in ERROR
    facts: PodFacts | None  # None for BOOKMARK, ERROR, and unreadable pods
    ends_initial: bool  # whether this is the bookmark after the initial events
    pod: bytes  # the object alone, in the form that PodWriter accepts
    frame: bytes  # the whole event as received

    @property
    def is_unreadable(self) -> bool:
        """Return whether the pod cannot be read. The event is then passed on unchanged, and counted."""
        return self.facts is None and self.type not in ("BOOKMARK", "ERROR")


class ListedPod(NamedTuple):
    """Pod in a list."""

    facts: PodFacts | None  # None for an unreadable pod
    pod: bytes  # the object in the form that PodWriter accepts


class PodPage(NamedTuple):
    """Page of a list of pods, or a whole list."""

    version: int  # metadata.resourceVersion of the list, the same on all pages
    continue_token: str  # metadata.continue; empty on the last page
    metadata: bytes  # metadata as received, for PodCodec.list_writer
    pods: list[ListedPod]


class PodWriter(Protocol):
    """Writer of pods, the part of a codec that a stream uses. It accepts pods that have facts."""

    def write(self, type_: str, pod: bytes, version: int, appearance: Appearance) -> bytes:
        """Return an event with the pod as it appears at this version.

        Raises:
            UnwritablePod: The pod cannot be written with this appearance.
        """

    def deleted(self, facts: PodFacts, version: int) -> bytes:
        """Return an event that removes the pod. An informer needs only the names in it."""


class UnwritablePod(ValueError):
    """Error: a pod could be read but not changed. Real API servers do not write such pods."""


class PassOn(NamedTuple):
    """Write of an event that is passed on unchanged."""

    frame: bytes


class Show(NamedTuple):
    """Write of an event that shows a pod: the arguments of PodWriter.write."""

    type: str  # ADDED or MODIFIED
    pod: bytes
    version: int
    appearance: Appearance


class TakeAway(NamedTuple):
    """Write of an event that removes a pod: the arguments of PodWriter.deleted."""

    facts: PodFacts
    version: int


Writes = list[PassOn | Show | TakeAway]  # events that are sent together


class BrokenPods(ValueError):
    """Error: the bytes are no events or no list of pods. No bytes after them can be trusted."""


class PodEvents(Protocol):
    """Splitter of the bytes of a watch into events."""

    def feed(self, data: bytes) -> list[PodEvent]:
        """Return the events that these bytes complete.

        Raises:
            BrokenPods: The bytes cannot be read, so that the client has to watch again.
        """


class PodListWriter(Protocol):
    """Writer of a list of pods in pieces. All pieces together are the body of the response."""

    def start(self) -> bytes: ...

    def item(self, pod: bytes, appearance: Appearance) -> bytes:
        """Return a pod as an item of a list.

        Raises:
            UnwritablePod: The pod cannot be written with this appearance.
        """

    def end(self) -> bytes: ...


class PodCodec(PodWriter, Protocol):
    """Codec of pods in one content type."""

    content_type: str  # content type of lists
    stream_type: str  # content type of watches

    def events(self) -> PodEvents: ...

    def page(self, body: bytes) -> PodPage:
        """Return a page of a list.

        Raises:
            BrokenPods: The body is no page of a list of pods.
        """

    def list_metadata(self, version: int) -> bytes:
        """Return the metadata of a list that has only one page."""

    def list_writer(self, metadata: bytes) -> PodListWriter: ...


def pod_facts(
    uid: str, namespace: str, name: str, scheduler: str, node: str, version: int, phase: str
) -> PodFacts | None:
    """Return the facts about a pod; None without a UID, because such a pod is not stored in the API server.

    Texts that many pods share are stored once.
    """
    if not uid or not version:
        return None
    texts = intern(namespace), name, intern(scheduler), intern(node)
    return PodFacts(Uid(uid), *texts, version, phase in ENDED_PHASES)


def version_number(text: str) -> int:
    """Return a resourceVersion as a number; 0 for a text that is no number.

    Kubernetes 1.35 and later promise that versions are numbers.
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0


class WaitingPod(NamedTuple):
    """Unbound pod of Muster, as the API server sent it."""

    facts: PodFacts
    pod: bytes


class Trace(NamedTuple):
    """Versions of the events that were written about a pod."""

    appearance: Appearance | None  # the only appearance ever shown; None: several appearances, or unknown
    is_shown: bool  # whether the last write showed the pod, and did not remove it
    last_version: int  # clients that return with a later version got the last write


class WaitingPods:
    """Unbound member pods as one client knows them, and the events that were written about each of them.

    The client reads the same pods by one watch after another. The latest watch or list supersedes earlier
    watches and lists, whose end may be unnoticed. The history of the pods is known up to a version, without a
    gap. A watch that continues from this version, or from an earlier version, needs no further data.

    A reflector returns with the version of the last event that it got. If it returns with a version later
    than the version of an event, the client got the event. If it returns with the same or an earlier version,
    it is unknown whether the client got the event.
    """

    def __init__(self, schedulers: frozenset[str]) -> None:
        self._schedulers = schedulers  # values of spec.schedulerName that belong to Muster
        self.version = 0  # the history of these pods is known up to this version; 0: unknown
        self.first_version = 0  # clients that return with an earlier version come from another process
        self.reader: object = None  # the latest watch or list
        self.pods: dict[Uid, WaitingPod] = {}
        self.traces: dict[Uid, Trace] = {}  # traces of pods that were shown

    def is_unbound_member(self, facts: PodFacts) -> bool:
        """Return whether Muster decides the appearance of a pod.

        Muster decides the appearance of an unbound pod that names one of Muster's schedulers.
        """
        return not facts.node and facts.scheduler in self._schedulers

    def knows_version(self, version: int) -> bool:
        """Return whether a watch may continue from this version.

        If the watch may not continue, the caller has to call `store_all` first.
        """
        return version <= self.version

    def observe(self, event: PodEvent) -> None:
        """Process an event of a watch that began at a known version. The event may be a repetition."""
        if event.version <= self.version:
            return
        self.version = event.version
        if event.facts is not None:
            self.apply(event, event.facts, self.pods)
            if event.facts.uid not in self.pods:
                self.traces.pop(event.facts.uid, None)

    def apply(self, event: PodEvent, facts: PodFacts, pods: dict[Uid, WaitingPod]) -> None:
        """Apply an event about a pod to a set of waiting pods."""
        if event.type != "DELETED" and self.is_unbound_member(facts):
            pods[facts.uid] = WaitingPod(facts, event.pod)
        else:
            pods.pop(facts.uid, None)

    def record_write(self, uid: Uid, appearance: Appearance | None) -> None:
        """Record that a pod was shown (an appearance) or removed (None)."""
        if uid in self.pods:
            trace, only_appearance = self.traces.get(uid), appearance
            if trace is not None:
                only_appearance = trace.appearance if appearance in (None, trace.appearance) else None
            self.traces[uid] = Trace(only_appearance, appearance is not None, self.version)

    def record_listing(self, listing: "Listing", version: int) -> None:
        """Record that a client has received a listing of all pods at this version."""
        self.first_version = self.first_version or version
        self._replace(listing.pods, version)
        for uid in self.pods:
            if uid in self.traces or uid in listing.appearances:
                self.record_write(uid, listing.appearances.get(uid))

    def store_all(self, pods: Mapping[Uid, WaitingPod], version: int) -> None:
        """Store all pods as of this version. They were read for a client that comes from another process."""
        self.first_version = max(self.first_version, version + 1)
        self._replace(pods, version)

    def _replace(self, pods: Mapping[Uid, WaitingPod], version: int) -> None:
        """Replace all pods by the pods at a later version."""
        if version > self.version:
            self.version = version
            self.pods = dict(pods)
            self.traces = {uid: trace for uid, trace in self.traces.items() if uid in pods}


class Listing:
    """Listing of all pods for a client, by a LIST or by the initial events of a watch."""

    def __init__(self, waiting: WaitingPods, appearances: Appearances, version: int) -> None:
        """Begin a listing.

        Args:
            waiting: The waiting pods of the client.
            appearances: The appearances of pods.
            version: The version that the client has read before; 0 if it has read none.
        """
        self._waiting, self._appearances = waiting, appearances
        self._is_client_unknown = version > 0 and not 0 < waiting.first_version <= version
        self.pods: dict[Uid, WaitingPod] = {}
        self.appearances: dict[Uid, Appearance] = {}

    def appearance(self, uid: Uid) -> Appearance | None:
        """Return the appearance of a pod in the listing; None leaves the pod out.

        An informer does not notice that a pod of the same version has another appearance. Therefore, the
        listing leaves such a pod out, so that the informer removes the pod. After the listing, the pod is
        shown.
        """
        appearance = self._appearances.appearance_of(uid)
        if self._appearances.is_in_flight(uid):
            return appearance or AS_STORED  # otherwise the scheduler would count the pod's capacity as free
        trace = self._waiting.traces.get(uid)
        is_unnoticed = self._is_client_unknown or (trace is not None and trace.appearance != appearance)
        return None if is_unnoticed else appearance

    def observe(self, event: PodEvent) -> None:
        """Process an event. Other events may arrive between the initial events."""
        if event.facts is not None:
            self._waiting.apply(event, event.facts, self.pods)

    def record_write(self, uid: Uid, appearance: Appearance | None) -> None:
        """Record that a pod was shown (an appearance) or removed (None)."""
        if appearance is None:
            self.appearances.pop(uid, None)
        else:
            self.appearances[uid] = appearance


class PodList:
    """LIST of pods as the client sees it."""

    def __init__(self, waiting: WaitingPods, appearances: Appearances, version: int) -> None:
        """Begin a list.

        Args:
            waiting: The waiting pods of the client.
            appearances: The appearances of pods.
            version: The version that the client has read before; 0 if it has read none.
        """
        self._waiting = waiting
        self._listing = Listing(waiting, appearances, version)
        waiting.reader = self

    def appearance(self, item: ListedPod) -> Appearance | None:
        """Return how a listed pod looks to the scheduler; None leaves the pod out."""
        facts = item.facts
        if facts is None or not self._waiting.is_unbound_member(facts):
            return AS_STORED
        appearance = self._listing.appearance(facts.uid)
        self._listing.pods[facts.uid] = WaitingPod(facts, item.pod)
        self._listing.record_write(facts.uid, appearance)
        return appearance

    def end(self, version: int) -> None:
        """Record that the last item was written.

        Args:
            version: The version of the list.
        """
        if self._waiting.reader is self:
            self._waiting.record_listing(self._listing, version)


class PodWatch:
    """Watch of pods as the client sees it."""

    def __init__(self, waiting: WaitingPods, appearances: Appearances, version: int, reads_all: bool) -> None:
        """Begin a watch.

        Args:
            waiting: The waiting pods of the client.
            appearances: The appearances of pods.
            version: The version that the client has read before; 0 if it has read none.
            reads_all: Whether all pods are sent first.
        """
        self._waiting, self._appearances = waiting, appearances
        self._version = version
        self._highest_version = 0 if reads_all else version  # the highest version so far
        self._listing = Listing(waiting, appearances, version) if reads_all else None
        # Unbound member pods that the client may have; None means an unknown appearance.
        self._known_appearances: dict[Uid, Appearance | None] = {}

    def begin(self) -> Writes:
        """Return the writes before the first event, once the API server has accepted the watch."""
        self._waiting.reader = self
        if self._listing is not None:
            return []
        # The client may have read earlier, and may lack the last event of a doubtful pod.
        if self._version < self._waiting.first_version:
            self._known_appearances = dict.fromkeys(self._waiting.pods)
            return self._sync_all(doubtful_uids=set(self._known_appearances))
        traces = self._waiting.traces
        doubtful_uids = {uid for uid, trace in traces.items() if self._version <= trace.last_version}
        shown = ((uid, trace) for uid, trace in traces.items() if trace.is_shown or uid in doubtful_uids)
        self._known_appearances = {uid: trace.appearance for uid, trace in shown}
        return self._sync_all(doubtful_uids)

    def process(self, event: PodEvent) -> Writes:
        """Return the writes for an event.

        The event is passed on, or changed so that the scheduler sees only pods that may start.
        """
        if self.is_superseded:
            return []
        self._highest_version = max(self._highest_version, event.version)
        self._recorder.observe(event)
        facts = event.facts
        if facts is None:
            if self._listing is None or not event.ends_initial:
                return [PassOn(event.frame)]
            self._waiting.record_listing(self._listing, event.version)
            self._listing = None
            return [PassOn(event.frame), *self._sync_all(doubtful_uids=set())]
        if event.type == "DELETED" or not self._waiting.is_unbound_member(facts):
            self._known_appearances.pop(facts.uid, None)
            if facts.node and (facts.has_ended or event.type == "DELETED") and self._listing is None:
                self._appearances.record_departure(facts.node)
            return [PassOn(event.frame)]
        is_binding = self._is_binding(facts.uid)
        look_up = self._listing.appearance if self._listing else self._appearances.appearance_of
        appearance = look_up(facts.uid)
        if appearance is None:
            return [] if is_binding else self._take_away(facts, event.version)
        if is_binding or self._has_pod(facts.uid, appearance):
            self._recorder.record_write(facts.uid, appearance)
            return [Show("MODIFIED", event.pod, event.version, appearance)]
        return self._show(facts, event.pod, event.version, appearance)

    def change(self, changes: Sequence[Change]) -> Writes:
        """Return the writes, in order, for pods that may start now or may no longer start."""
        if self.is_superseded or self._listing is not None:
            return []
        return [write for uid, appearance in changes for write in self._sync_pod(uid, appearance)]

    @property
    def is_superseded(self) -> bool:
        """Return whether the client has begun another watch or list, and no longer reads this watch."""
        return self._waiting.reader is not self

    @property
    def _recorder(self) -> Listing | WaitingPods:
        """Return the object that records received events and writes.

        Until the listing has ended, the listing records them. From then on, the WaitingPods record them.
        """
        return self._listing if self._listing is not None else self._waiting

    def _sync_all(self, doubtful_uids: set[Uid]) -> Writes:
        """Return the writes that bring all waiting pods up to date for the client.

        Args:
            doubtful_uids: Pods that are shown again even if the client seems to have them.
        """
        writes: Writes = []
        for uid in self._waiting.pods:
            writes += self._sync_pod(uid, self._appearances.appearance_of(uid), uid in doubtful_uids)
        return writes

    def _sync_pod(self, uid: Uid, appearance: Appearance | None, is_doubtful: bool = False) -> Writes:
        """Return the writes that show the client the current appearance of a pod, between two events.

        Args:
            uid: The UID of the pod.
            appearance: The current appearance.
            is_doubtful: Whether the client may lack the pod even if it was shown before.
        """
        waiting_pod = self._waiting.pods.get(uid)
        if waiting_pod is None or waiting_pod.facts.version > self._highest_version or self._is_binding(uid):
            return []
        if appearance is None:
            return self._take_away(waiting_pod.facts, self._highest_version)
        if self._has_pod(uid, appearance) and not is_doubtful:
            return []
        return self._show(waiting_pod.facts, waiting_pod.pod, self._highest_version, appearance)

    def _is_binding(self, uid: Uid) -> bool:
        """Return whether the client is binding the pod.

        Inserted events about the pod wait until the binding ends.
        """
        return uid in self._known_appearances and self._appearances.is_in_flight(uid)

    def _has_pod(self, uid: Uid, appearance: Appearance) -> bool:
        """Return whether the client has the pod with this appearance."""
        return uid in self._known_appearances and self._known_appearances[uid] == appearance

    def _show(self, facts: PodFacts, pod: bytes, version: int, appearance: Appearance) -> Writes:
        """Return the writes that show a pod. A pod with a different appearance is removed first."""
        is_replaced = facts.uid in self._known_appearances and not self._has_pod(facts.uid, appearance)
        self._known_appearances[facts.uid] = appearance
        self._recorder.record_write(facts.uid, appearance)
        show = Show("ADDED", pod, version, appearance)
        return [TakeAway(facts, version), show] if is_replaced else [show]

    def _take_away(self, facts: PodFacts, version: int) -> Writes:
        """Return the writes that remove a pod for the client; none if the client does not have the pod."""
        if facts.uid not in self._known_appearances:
            return []
        del self._known_appearances[facts.uid]
        self._recorder.record_write(facts.uid, None)
        return [TakeAway(facts, version)]
