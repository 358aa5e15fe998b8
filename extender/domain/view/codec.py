"""Events and lists of pods, as a codec reads and writes them for a stream. Bytes are opaque here.

An unbound pod is written without `spec.schedulingGroup`: a scheduler that schedules groups would wait for
members that come later.
"""

from sys import intern
from typing import NamedTuple, Protocol

from extender.api.keys import ENDED_PHASES
from extender.domain.model.appearance import Appearance, PodFacts
from extender.domain.model.records import Uid

INITIAL_EVENTS_END = "k8s.io/initial-events-end"  # annotation of a bookmark: "true"
MARK_NAME = "kube-muster"  # of the init container that carries the mark


class PodEvent(NamedTuple):
    type: str  # ADDED, MODIFIED, DELETED, BOOKMARK, ERROR
    version: int  # metadata.resourceVersion; 0 where there is none, as in ERROR
    facts: PodFacts | None  # None: BOOKMARK, ERROR, and pods that cannot be read
    ends_initial: bool  # the bookmark after the last initial event of sendInitialEvents
    pod: bytes  # the object alone, in the form that PodWriter takes
    frame: bytes  # the whole event as it came

    @property
    def unreadable(self) -> bool:
        """A pod that nobody can be told about: it is passed on as it is, and counted."""
        return self.facts is None and self.type not in ("BOOKMARK", "ERROR")


class ListedPod(NamedTuple):
    facts: PodFacts | None  # None: it cannot be read
    pod: bytes  # in the form that PodWriter takes


class PodPage(NamedTuple):
    """A list of pods, or a page of one."""

    version: int  # metadata.resourceVersion of the list, the same for all its pages
    more: str  # metadata.continue; empty on the last page
    metadata: bytes  # as it came, for PodCodec.list_writer
    pods: list[ListedPod]


class PodWriter(Protocol):
    """What a stream needs of a codec. Takes pods that have facts."""

    def write(self, type_: str, pod: bytes, version: int, appearance: Appearance) -> bytes:
        """A frame with the pod as it appears at this version. Raises UnwritablePod."""

    def deleted(self, facts: PodFacts, version: int) -> bytes:
        """A frame that takes the pod away. An informer needs no more of it than its names."""


class UnwritablePod(ValueError):
    """A pod could be read but not changed. Real API servers do not write such pods."""


class PassOn(NamedTuple):
    """An event as it came."""

    frame: bytes


class Show(NamedTuple):
    """The arguments of PodWriter.write."""

    type: str  # ADDED or MODIFIED
    pod: bytes
    version: int
    appearance: Appearance


class TakeAway(NamedTuple):
    """The arguments of PodWriter.deleted."""

    facts: PodFacts
    version: int


Writes = list[PassOn | Show | TakeAway]  # all in one write


class BrokenPods(ValueError):
    """These bytes are no events or no list of pods. Nothing after them can be trusted."""


class PodEvents(Protocol):
    """Cuts the bytes of one watch into events."""

    def feed(self, data: bytes) -> list[PodEvent]:
        """The events that these bytes complete. Raises BrokenPods: then the client has to watch anew."""


class PodListWriter(Protocol):
    """One list of pods, written piece by piece. The pieces put together are the body."""

    def start(self) -> bytes: ...

    def item(self, pod: bytes, appearance: Appearance) -> bytes:
        """Raises UnwritablePod if the pod does not appear as it is."""

    def end(self) -> bytes: ...


class PodCodec(PodWriter, Protocol):
    content_type: str  # of lists
    stream_type: str  # of watches

    def events(self) -> PodEvents: ...

    def page(self, body: bytes) -> PodPage:
        """A page of a list. Raises BrokenPods."""

    def list_metadata(self, version: int) -> bytes:
        """The metadata of a list that has only one page."""

    def list_writer(self, metadata: bytes) -> PodListWriter: ...


def pod_facts(
    uid: str, namespace: str, name: str, scheduler: str, node: str, version: int, phase: str
) -> PodFacts | None:
    """None without a UID: then it is no stored pod. Texts that many pods share are kept once."""
    if not uid or not version:
        return None
    shared = intern(namespace), name, intern(scheduler), intern(node)
    return PodFacts(Uid(uid), *shared, version, phase in ENDED_PHASES)


def version_number(text: str) -> int:
    """Kubernetes 1.35 made it a promise that versions are numbers; etcd's have always been. 0: it is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
