"""The unbound pods of ours that a client of the view is not shown yet, and what was written about each.

Each belongs to one client, which asks for the same pods by one watch after another. Who reads last supersedes
those before, whose end nobody may have noticed. The history of the pods is known up to a version, without a
gap: a watch that goes on from there, or from an earlier version, needs nothing else.

A reflector comes back with the version of the last event that it got. If that is later than the version at
which something was written, it has it; with the same or an earlier one it may have it or not.
"""

from collections.abc import Mapping
from typing import NamedTuple

from extender.domain.model.appearance import AS_IT_IS, Appearance, Appearances, PodFacts
from extender.domain.model.records import Uid
from extender.domain.view.events import ListedPod, PodEvent


class WaitingPod(NamedTuple):
    facts: PodFacts
    pod: bytes


class Trace(NamedTuple):
    """What was written about a pod."""

    way: Appearance | None  # the only one in which it was ever shown; None: several, or not known
    shown: bool  # by the last writing; else it was taken away
    since: int  # whoever comes back with a later version has the last writing


class WaitingPods:
    def __init__(self, schedulers: frozenset[str]) -> None:
        self._schedulers = schedulers  # names in spec.schedulerName that are ours
        self.version = 0  # the history of these pods is known up to here; 0: nothing is known
        self.began = 0  # whoever comes back with an earlier version was served by another process
        self.reader: object = None  # the watch or list that was begun last
        self.pods: dict[Uid, WaitingPod] = {}
        self.traces: dict[Uid, Trace] = {}  # of some pods in `pods`; the others were never shown

    def are_those(self, facts: PodFacts) -> bool:
        """Whether a pod is an unbound one of ours, whose appearance is ours to decide."""
        return not facts.node and facts.scheduler in self._schedulers

    def know(self, version: int) -> bool:
        """Whether a watch may go on from this version; if not, a list has to be read first (`met`)."""
        return version <= self.version

    def observe(self, event: PodEvent) -> None:
        """An event of a watch that began at a version that is known. It may be a repetition."""
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
        """A pod was shown, or taken away."""
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
    """A reading of all pods, by LIST or by the initial events of a watch."""

    def __init__(self, waiting: WaitingPods, appearances: Appearances, version: int) -> None:
        """`version`: of what the client has read before; 0: nothing."""
        self._waiting, self._appearances = waiting, appearances
        self._unknown = version > 0 and not 0 < waiting.began <= version  # what the client has
        self.pods: dict[Uid, WaitingPod] = {}
        self.shown: dict[Uid, Appearance] = {}

    def appearance(self, uid: Uid) -> Appearance | None:
        """How a pod appears in the list. An informer that has it in another way, in the same version of the
        pod, would not notice: such a pod is left out, which ends it there, and shown after the list."""
        appearance = self._appearances.of(uid)
        if self._appearances.in_flight(uid):
            return appearance or AS_IT_IS  # to leave it out would free its room
        trace = self._waiting.traces.get(uid)
        unnoticed = self._unknown or (trace is not None and trace.way != appearance)
        return None if unnoticed else appearance

    def observe(self, event: PodEvent) -> None:
        """Events can be real ones here, too, until the last initial one has come."""
        if event.facts is not None:
            self._waiting.note(event, event.facts, self.pods)

    def wrote(self, uid: Uid, appearance: Appearance | None) -> None:
        if appearance is None:
            self.shown.pop(uid, None)
        else:
            self.shown[uid] = appearance


class PodList:
    """One LIST of pods: what the client is shown of it."""

    def __init__(self, waiting: WaitingPods, appearances: Appearances, version: int) -> None:
        """`version`: of what the client has read before; 0: nothing."""
        self._waiting = waiting
        self._listing = Listing(waiting, appearances, version)
        waiting.reader = self

    def appearance(self, item: ListedPod) -> Appearance | None:
        """How an item appears; None: it is left out."""
        facts = item.facts
        if facts is None or not self._waiting.are_those(facts):
            return AS_IT_IS
        appearance = self._listing.appearance(facts.uid)
        self._listing.pods[facts.uid] = WaitingPod(facts, item.pod)
        self._listing.wrote(facts.uid, appearance)
        return appearance

    def end(self, version: int) -> None:
        """The last item was written. `version`: of the list."""
        if self._waiting.reader is self:
            self._waiting.listed(self._listing, version)
