"""Events and lists of pods, as a codec reads and writes them for a stream. Bytes are opaque here."""

from typing import NamedTuple, Protocol

from extender.domain.model.appearance import Appearance, PodFacts


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
