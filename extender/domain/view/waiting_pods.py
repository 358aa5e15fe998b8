"""The unbound pods of ours, kept so that they can be shown later, and what was written about each.

One of these belongs to all streams that ask for the same pods in the same encoding, one after another or at
the same time. It knows the history of those pods up to a version without a gap: a stream that goes on from
there or from an earlier one needs nothing else.

A client's reflector keeps the version of the last event that it got, and comes back with it. Whoever comes
back with a later version than the one at which something was written was there when it was, or was told when
it came back: it has it. Whoever comes back with the same or an earlier one may have it or not.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from extender.domain.model.records import Uid
from extender.domain.view.appearance import Appearance, PodFacts
from extender.domain.view.events import PodEvent


class WaitingPod(NamedTuple):
    facts: PodFacts
    pod: bytes


class Trace(NamedTuple):
    """What was written about a pod, to any stream."""

    way: Appearance | None  # the only one in which it was ever shown; None: several, or not known
    shown: bool  # by the last writing; else it was taken away
    since: int  # clients beyond this version have the last writing


class Memory(Protocol):
    """Where a stream notes what came and what it wrote."""

    def observe(self, event: PodEvent) -> None: ...

    def wrote(self, uid: Uid, appearance: Appearance | None) -> None: ...


class WaitingPods:
    def __init__(self, schedulers: frozenset[str]) -> None:
        self._schedulers = schedulers  # names in spec.schedulerName that are ours
        self.version = 0  # the history of these pods is known up to here; 0: nothing is known
        self.began = 0  # clients below may have been shown any of them by another process
        self.pods: dict[Uid, WaitingPod] = {}
        self.traces: dict[Uid, Trace] = {}  # of some pods in `pods`; the others were never shown

    def are_those(self, facts: PodFacts) -> bool:
        """Whether a pod is an unbound one of ours, whose appearance is ours to decide."""
        return not facts.node and facts.scheduler in self._schedulers

    def know(self, version: int) -> bool:
        """Whether a watch may go on from this version; if not, a list has to be read first (`met`)."""
        return version <= self.version

    def observe(self, event: PodEvent) -> None:
        """An event of a watch that began at a version that is known. What a slower stream brings is known."""
        if event.version <= self.version:
            return
        self.version = event.version
        if event.facts is not None:
            self.note(event, event.facts, self.pods)
            if event.facts.uid not in self.pods:
                self.traces.pop(event.facts.uid, None)

    def note(self, event: PodEvent, facts: PodFacts, pods: dict[Uid, WaitingPod]) -> None:
        """What an event of a pod does to a set of waiting ones."""
        if event.type != "DELETED" and self.are_those(facts):
            pods[facts.uid] = WaitingPod(facts, event.pod)
        else:
            pods.pop(facts.uid, None)

    def wrote(self, uid: Uid, appearance: Appearance | None) -> None:
        """A pod was shown to a stream, or taken away from it."""
        if uid in self.pods:
            before = self.traces.get(uid)
            way = appearance if appearance is not None else before and before.way
            if before and before.way != way:
                way = None
            self.traces[uid] = Trace(way, appearance is not None, self.version)

    def listed(self, listing: "Listing", version: int) -> None:
        """A client has read all pods at this version, and was shown what the listing says."""
        self.began = self.began or version
        self._replace(listing.pods, version)
        for uid in self.pods:
            if uid in self.traces or uid in listing.shown:
                self.wrote(uid, listing.shown.get(uid))

    def met(self, pods: Mapping[Uid, WaitingPod], version: int) -> None:
        """All pods at this version, read for a client that comes from another process."""
        self.began = max(self.began, version + 1)
        self._replace(pods, version)

    def _replace(self, pods: Mapping[Uid, WaitingPod], version: int) -> None:
        if version > self.version:
            self.version = version
            self.pods = dict(pods)
            self.traces = {uid: trace for uid, trace in self.traces.items() if uid in pods}


class Listing:
    """One client's reading of all pods, by LIST or by the initial events of a watch."""

    def __init__(self, waiting: WaitingPods) -> None:
        self._waiting = waiting
        self.pods: dict[Uid, WaitingPod] = {}
        self.shown: dict[Uid, Appearance] = {}

    def observe(self, event: PodEvent) -> None:
        """Events can be real ones here, too, until the last initial one has come."""
        if event.facts is not None:
            self._waiting.note(event, event.facts, self.pods)

    def wrote(self, uid: Uid, appearance: Appearance | None) -> None:
        if appearance is None:
            self.shown.pop(uid, None)
        else:
            self.shown[uid] = appearance
