"""What the two encodings of pods have in common. An unbound pod is written without `spec.schedulingGroup`: a
scheduler that schedules groups would wait for members that come later.
"""

from sys import intern
from typing import Protocol

from extender.api.keys import ENDED_PHASES
from extender.domain.model.appearance import Appearance, PodFacts
from extender.domain.model.records import Uid
from extender.domain.view.events import PodEvent, PodPage, PodWriter

# etcd takes requests of 1.5 MiB, and JSON may need six bytes for one of a pod's.
LONGEST_FRAME = 16 << 20
INITIAL_EVENTS_END = "k8s.io/initial-events-end"  # annotation of a bookmark: "true"
MARK_NAME = "kube-muster"  # of the init container that carries the mark


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
