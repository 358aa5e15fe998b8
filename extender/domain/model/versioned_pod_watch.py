"""Watch of pods for the scheduler: the events that it gets, and their resourceVersions.

The events are the API's own, except those of unbound pods of Muster: such a pod is left out until it may
start, appears with its node then, and disappears again if its plan is withdrawn. For the scheduler, the
result must look like a possible history of the API. This takes five rules:

1. Versions never go back. What is written between two events carries the highest version so far: a reflector
   keeps the version of every event, and with an older one it would read history again.
2. A bound pod never becomes unbound or disappears. A watch that begins before the known history does not
   mention a pod until it reaches the event of the pod's last change.
3. Each stream records the pods that it has shown. A watch from a version on begins with the difference.
4. A pod gets another appearance by DELETED and ADDED in one write: an informer drops a change that does not
   change the version.
5. Until the initial events have ended nothing is written between them.
"""

from collections.abc import Mapping, Sequence
from sys import intern
from typing import NamedTuple, Protocol

from extender.api.keys import ENDED_PHASES
from extender.domain.model.records import Uid


class Appearance(NamedTuple):
    """An unbound pod that may start, as the scheduler sees it."""

    node: str = ""  # the nominated node; empty: as the API has it
    asks: bool = False  # whether it has the marker resource that makes the scheduler call filter


AS_IT_IS = Appearance()
Change = tuple[Uid, Appearance | None]  # None: the pod is taken back


class PodFacts(NamedTuple):
    """Facts of one pod that a stream of pods uses."""

    uid: Uid
    namespace: str
    name: str
    scheduler: str  # spec.schedulerName
    node: str  # spec.nodeName; empty while it is unbound
    version: int  # metadata.resourceVersion
    ended: bool = False  # its phase is Succeeded or Failed: it takes no capacity on its node any more


class Appearances(Protocol):
    """Appearances of pods for the scheduler. Safe to use from any thread."""

    def appearance_of(self, uid: Uid) -> Appearance | None:
        """Return how an unbound pod of one of Muster's schedulers appears.

        None hides the pod: it waits or is not known yet. A pod of another scheduler appears as it is.
        """

    def in_flight(self, uid: Uid) -> bool:
        """Return whether the scheduler has the pod: a bind call holds it or its binding was posted."""

    def take_changes(self) -> Sequence[Change]:
        """Return the changes since the last call, in order.

        A pod may have been taken back and shown again. Pods that were bound or are gone are left out:
        the watch shows them.
        """

    def record_left(self, node: str) -> None:
        """Record that a scheduler learns now that a bound pod left this node.

        The scheduler may have refused other pods because of it.
        """

    def record_fresh_start(self) -> None:
        """Record that a scheduler has listed all pods again: none of its earlier attempts goes on."""

    def record_status(self, namespace: str, name: str, unschedulable: str) -> Uid | None:
        """Record that the scheduler patches a pod's status: it has given up an attempt.

        Args:
            namespace: The namespace of the pod.
            name: The name of the pod.
            unschedulable: The scheduler's message if it found no node, empty after errors.

        Returns:
            The UID of an unbound pod of Muster; None for any other pod.
        """


INITIAL_EVENTS_END = "k8s.io/initial-events-end"  # annotation of a bookmark: "true"
MARK_NAME = "kube-muster"  # name of the init container with the marker resource


class PodEvent(NamedTuple):
    type: str  # ADDED, MODIFIED, DELETED, BOOKMARK, ERROR
    version: int  # metadata.resourceVersion; 0 where there is none, as in ERROR
    facts: PodFacts | None  # None: BOOKMARK, ERROR, and pods that cannot be read
    ends_initial: bool  # the bookmark after the last initial event of sendInitialEvents
    pod: bytes  # the object alone, in the form that PodWriter takes
    frame: bytes  # the whole event as it came

    @property
    def unreadable(self) -> bool:
        """Return whether the pod cannot be read: it is passed on unchanged, and counted."""
        return self.facts is None and self.type not in ("BOOKMARK", "ERROR")


class ListedPod(NamedTuple):
    facts: PodFacts | None  # None: it cannot be read
    pod: bytes  # in the form that PodWriter takes


class PodPage(NamedTuple):
    """List of pods, or a page of one."""

    version: int  # metadata.resourceVersion of the list, the same for all its pages
    more: str  # metadata.continue; empty on the last page
    metadata: bytes  # as received, for PodCodec.list_writer
    pods: list[ListedPod]


class PodWriter(Protocol):
    """Writer of pods: the part of a codec that a stream uses. Takes pods that have facts."""

    def write(self, type_: str, pod: bytes, version: int, appearance: Appearance) -> bytes:
        """Return a frame with the pod as it appears at this version.

        Raises:
            UnwritablePod: The pod cannot be written so.
        """

    def deleted(self, facts: PodFacts, version: int) -> bytes:
        """Return a frame that removes the pod. An informer needs only its names."""


class UnwritablePod(ValueError):
    """Error: a pod could be read but not changed. Real API servers do not write such pods."""


class PassOn(NamedTuple):
    """Event that is passed on unchanged."""

    frame: bytes


class Show(NamedTuple):
    """Arguments of PodWriter.write."""

    type: str  # ADDED or MODIFIED
    pod: bytes
    version: int
    appearance: Appearance


class TakeAway(NamedTuple):
    """Arguments of PodWriter.deleted."""

    facts: PodFacts
    version: int


Writes = list[PassOn | Show | TakeAway]  # events that are sent in one write


class BrokenPods(ValueError):
    """Error: these bytes are no events or no list of pods. Nothing after them can be trusted."""


class PodEvents(Protocol):
    """Splitter of the bytes of a watch into events."""

    def feed(self, data: bytes) -> list[PodEvent]:
        """Return the events that these bytes complete.

        Raises:
            BrokenPods: The client has to watch again.
        """


class PodListWriter(Protocol):
    """Writer of a list of pods, piece by piece. The pieces together are the body."""

    def start(self) -> bytes: ...

    def item(self, pod: bytes, appearance: Appearance) -> bytes:
        """Return a pod as an item of a list.

        Raises:
            UnwritablePod: The pod does not appear as it is.
        """

    def end(self) -> bytes: ...


class PodCodec(PodWriter, Protocol):
    content_type: str  # of lists
    stream_type: str  # of watches

    def events(self) -> PodEvents: ...

    def page(self, body: bytes) -> PodPage:
        """Return a page of a list.

        Raises:
            BrokenPods: The body is no such page.
        """

    def list_metadata(self, version: int) -> bytes:
        """Return the metadata of a list that has only one page."""

    def list_writer(self, metadata: bytes) -> PodListWriter: ...


def pod_facts(
    uid: str, namespace: str, name: str, scheduler: str, node: str, version: int, phase: str
) -> PodFacts | None:
    """Return the facts of a pod; None without a UID: it is no stored pod.

    Texts that many pods share are stored once.
    """
    if not uid or not version:
        return None
    shared = intern(namespace), name, intern(scheduler), intern(node)
    return PodFacts(Uid(uid), *shared, version, phase in ENDED_PHASES)


def version_number(text: str) -> int:
    """Return a resourceVersion as a number, which Kubernetes 1.35 and later promise; 0: it is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0


class WaitingPod(NamedTuple):
    facts: PodFacts
    pod: bytes


class Trace(NamedTuple):
    """Versions of the events that were written about a pod."""

    appearance: Appearance | None  # the only appearance that was ever shown; None: several, or unknown
    shown: bool  # whether the last write showed the pod, or removed it
    since: int  # clients that return with a later version have the last write


class WaitingPods:
    """Unbound member pods that a client is not shown yet, and the events that were written about each.

    Each belongs to one client, which asks for the same pods by one watch after another. The last reader
    supersedes those before, whose end may be unnoticed. The history of the pods is known up to a version,
    without a gap: a watch that continues from there, or from an earlier version, needs nothing else.

    A reflector returns with the version of the last event that it got. If that is later than the version of
    an event, the client has the event; with the same or an earlier version it may have it or not.
    """

    def __init__(self, schedulers: frozenset[str]) -> None:
        self._schedulers = schedulers  # Muster's values of spec.schedulerName
        self.version = 0  # the history of these pods is known up to here; 0: nothing is known
        self.began = 0  # clients that return with an earlier version were served by another process
        self.reader: object = None  # the watch or list that was begun last
        self.pods: dict[Uid, WaitingPod] = {}
        self.traces: dict[Uid, Trace] = {}  # traces of the pods that were shown

    def is_unbound_member(self, facts: PodFacts) -> bool:
        """Return whether Muster decides the appearance of a pod: an unbound pod of Muster's schedulers."""
        return not facts.node and facts.scheduler in self._schedulers

    def knows_version(self, version: int) -> bool:
        """Return whether a watch may continue from this version; if not, `store_all` has to come first."""
        return version <= self.version

    def observe(self, event: PodEvent) -> None:
        """Process an event, perhaps a repeated one, of a watch that began at a known version."""
        if event.version <= self.version:
            return
        self.version = event.version
        if event.facts is not None:
            self.record(event, event.facts, self.pods)
            if event.facts.uid not in self.pods:
                self.traces.pop(event.facts.uid, None)

    def record(self, event: PodEvent, facts: PodFacts, pods: dict[Uid, WaitingPod]) -> None:
        """Apply an event of a pod to a set of waiting ones."""
        if event.type != "DELETED" and self.is_unbound_member(facts):
            pods[facts.uid] = WaitingPod(facts, event.pod)
        else:
            pods.pop(facts.uid, None)

    def record_write(self, uid: Uid, appearance: Appearance | None) -> None:
        """Record that a pod was shown, or removed."""
        if uid in self.pods:
            before, only = self.traces.get(uid), appearance
            if before is not None:
                only = before.appearance if appearance in (None, before.appearance) else None
            self.traces[uid] = Trace(only, appearance is not None, self.version)

    def listed(self, listing: "Listing", version: int) -> None:
        """Record that a client has read all pods at this version, as the listing shows them."""
        self.began = self.began or version
        self._replace(listing.pods, version)
        for uid in self.pods:
            if uid in self.traces or uid in listing.shown:
                self.record_write(uid, listing.shown.get(uid))

    def store_all(self, pods: Mapping[Uid, WaitingPod], version: int) -> None:
        """Store all pods at this version, read for a client that comes from another process."""
        self.began = max(self.began, version + 1)
        self._replace(pods, version)

    def _replace(self, pods: Mapping[Uid, WaitingPod], version: int) -> None:
        """Replace all pods by those of a later version."""
        if version > self.version:
            self.version = version
            self.pods = dict(pods)
            self.traces = {uid: trace for uid, trace in self.traces.items() if uid in pods}


class Listing:
    """Reading of all pods, by LIST or by the initial events of a watch."""

    def __init__(self, waiting: WaitingPods, appearances: Appearances, version: int) -> None:
        """Begin a list. `version`: what the client has read before; 0: nothing."""
        self._waiting, self._appearances = waiting, appearances
        self._is_client_unknown = version > 0 and not 0 < waiting.began <= version
        self.pods: dict[Uid, WaitingPod] = {}
        self.shown: dict[Uid, Appearance] = {}

    def appearance(self, uid: Uid) -> Appearance | None:
        """Return how a pod appears in the list.

        An informer would not notice another appearance of a pod in the same version. Such a pod is left
        out, so that the informer removes it, and shown after the list.
        """
        appearance = self._appearances.appearance_of(uid)
        if self._appearances.in_flight(uid):
            return appearance or AS_IT_IS  # without it, the scheduler would count its capacity as free
        trace = self._waiting.traces.get(uid)
        unnoticed = self._is_client_unknown or (trace is not None and trace.appearance != appearance)
        return None if unnoticed else appearance

    def observe(self, event: PodEvent) -> None:
        """Process an event. Real events can come between the initial ones."""
        if event.facts is not None:
            self._waiting.record(event, event.facts, self.pods)

    def record_write(self, uid: Uid, appearance: Appearance | None) -> None:
        if appearance is None:
            self.shown.pop(uid, None)
        else:
            self.shown[uid] = appearance


class PodList:
    """LIST of pods, as the client is shown it."""

    def __init__(self, waiting: WaitingPods, appearances: Appearances, version: int) -> None:
        """Begin a list. `version`: what the client has read before; 0: nothing."""
        self._waiting = waiting
        self._listing = Listing(waiting, appearances, version)
        waiting.reader = self

    def appearance(self, item: ListedPod) -> Appearance | None:
        """Return how an item appears; None: it is left out."""
        facts = item.facts
        if facts is None or not self._waiting.is_unbound_member(facts):
            return AS_IT_IS
        appearance = self._listing.appearance(facts.uid)
        self._listing.pods[facts.uid] = WaitingPod(facts, item.pod)
        self._listing.record_write(facts.uid, appearance)
        return appearance

    def end(self, version: int) -> None:
        """Record that the last item was written. `version`: of the list."""
        if self._waiting.reader is self:
            self._waiting.listed(self._listing, version)


class PodWatch:
    def __init__(self, waiting: WaitingPods, appearances: Appearances, version: int, reads_all: bool) -> None:
        """Begin a watch.

        `version`: what the client has read before; 0: nothing. `reads_all`: all pods are sent first.
        """
        self._waiting, self._appearances = waiting, appearances
        self._version = version
        self._highest = 0 if reads_all else version  # the highest so far
        self._listing = Listing(waiting, appearances, version) if reads_all else None
        # Unbound member pods that the client may have; None: in an unknown appearance.
        self._shown: dict[Uid, Appearance | None] = {}

    def begin(self) -> Writes:
        """Return the frames before the first event, now that the API server has accepted the watch."""
        self._waiting.reader = self
        if self._listing is not None:
            return []
        # The client may have read before, and may lack the last event of a doubtful pod.
        if self._version < self._waiting.began:
            self._shown = dict.fromkeys(self._waiting.pods)
            return self._sync_all(doubtful=set(self._shown))
        traces = self._waiting.traces
        doubtful = {uid for uid, trace in traces.items() if self._version <= trace.since}
        shown = ((uid, trace) for uid, trace in traces.items() if trace.shown or uid in doubtful)
        self._shown = {uid: trace.appearance for uid, trace in shown}
        return self._sync_all(doubtful)

    def process(self, event: PodEvent) -> Writes:
        """Return the frames for an event: it is passed on, or changed to what the scheduler may see."""
        if self.is_superseded:
            return []
        self._highest = max(self._highest, event.version)
        self._memory.observe(event)
        facts = event.facts
        if facts is None:
            if self._listing is None or not event.ends_initial:
                return [PassOn(event.frame)]
            self._waiting.listed(self._listing, event.version)
            self._listing = None
            return [PassOn(event.frame), *self._sync_all(doubtful=set())]
        if event.type == "DELETED" or not self._waiting.is_unbound_member(facts):
            self._shown.pop(facts.uid, None)
            if facts.node and (facts.ended or event.type == "DELETED") and self._listing is None:
                self._appearances.record_left(facts.node)
            return [PassOn(event.frame)]
        is_binding = self._is_binding(facts.uid)
        look_up = self._listing.appearance if self._listing else self._appearances.appearance_of
        appearance = look_up(facts.uid)
        if appearance is None:
            return [] if is_binding else self._take_away(facts, event.version)
        if is_binding or self._has(facts.uid, appearance):
            self._memory.record_write(facts.uid, appearance)
            return [Show("MODIFIED", event.pod, event.version, appearance)]
        return self._show(facts, event.pod, event.version, appearance)

    def change(self, changes: Sequence[Change]) -> Writes:
        """Return the frames for pods that may start now, or may not any more, in order."""
        if self.is_superseded or self._listing is not None:
            return []
        return [write for uid, appearance in changes for write in self._sync_pod(uid, appearance)]

    @property
    def is_superseded(self) -> bool:
        """Return whether the client has begun again, and reads this watch no more."""
        return self._waiting.reader is not self

    @property
    def _memory(self) -> Listing | WaitingPods:
        """Return the WaitingPods that record the received events and the writes."""
        return self._listing if self._listing is not None else self._waiting

    def _sync_all(self, doubtful: set[Uid]) -> Writes:
        """Return the writes for all waiting pods. `doubtful`: pods that are shown again in any case."""
        writes: Writes = []
        for uid in self._waiting.pods:
            writes += self._sync_pod(uid, self._appearances.appearance_of(uid), again=uid in doubtful)
        return writes

    def _sync_pod(self, uid: Uid, appearance: Appearance | None, again: bool = False) -> Writes:
        """Return the events that show the client the current appearance of a pod, between two events.

        `again`: the client may lack a pod that was shown before.
        """
        waiting = self._waiting.pods.get(uid)
        if waiting is None or waiting.facts.version > self._highest or self._is_binding(uid):
            return []
        if appearance is None:
            return self._take_away(waiting.facts, self._highest)
        if self._has(uid, appearance) and not again:
            return []
        return self._show(waiting.facts, waiting.pod, self._highest, appearance)

    def _is_binding(self, uid: Uid) -> bool:
        """Return whether the client is binding the pod: events of it can wait until that has ended."""
        return uid in self._shown and self._appearances.in_flight(uid)

    def _has(self, uid: Uid, appearance: Appearance) -> bool:
        """Return whether the client has the pod with this appearance."""
        return uid in self._shown and self._shown[uid] == appearance

    def _show(self, facts: PodFacts, pod: bytes, version: int, appearance: Appearance) -> Writes:
        """Return the writes that show a pod; a pod that looked different is taken away first."""
        is_replaced = facts.uid in self._shown and not self._has(facts.uid, appearance)
        self._shown[facts.uid] = appearance
        self._memory.record_write(facts.uid, appearance)
        shown = Show("ADDED", pod, version, appearance)
        return [TakeAway(facts, version), shown] if is_replaced else [shown]

    def _take_away(self, facts: PodFacts, version: int) -> Writes:
        if facts.uid not in self._shown:
            return []
        del self._shown[facts.uid]
        self._memory.record_write(facts.uid, None)
        return [TakeAway(facts, version)]
