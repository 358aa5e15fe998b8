"""What one watch of the scheduler is shown of pods.

Its events are the API's own, but for unbound pods of ours: they are left out until they may start, then they
appear with their node, and they disappear again if they may not after all. The scheduler must not be able to
tell this from a history that the API could have had. The rules that this takes:

1. Versions never go back. What is written between two events carries the highest version so far: a reflector
   keeps the version of every event, and with an older one it would read history again.
2. Nothing is unbound after it was bound, and nothing bound is taken away. A watch may begin behind what is
   known: it says nothing about a pod before it comes to the pod's last change, where it meets the pod anyway.
3. Each stream knows what it has shown. One that goes on from a version begins with the difference.
4. A pod is shown in another way by DELETED and ADDED in one write: an informer drops a change that does not
   change the version.
5. Until the initial events have ended nothing is written between them.
"""

from collections.abc import Sequence

from extender.domain.model.appearance import Appearance, Appearances, Change, PodFacts
from extender.domain.model.records import Uid
from extender.domain.view.events import PassOn, PodEvent, Show, TakeAway, Writes
from extender.domain.view.waiting_pods import Listing, WaitingPods


class PodStream:
    def __init__(self, waiting: WaitingPods, appearances: Appearances, version: int, reads_all: bool) -> None:
        """`version`: that the client has, 0 for none. `reads_all`: it is sent all pods first."""
        self._waiting, self._appearances = waiting, appearances
        self._version = version
        self._highest = 0 if reads_all else version
        self._listing = Listing(waiting, appearances, version) if reads_all else None
        # Unbound pods of ours that the client has or may have. None: in a way that is not known.
        self._shown: dict[Uid, Appearance | None] = {}

    def begin(self) -> Writes:
        """The API server has accepted the watch: what has to be written before its first event."""
        self._waiting.reader = self
        if self._listing is not None:
            return []
        # What the client has, which has been here before; of the doubtful ones that is not certain.
        if self._version < self._waiting.began:
            self._shown = dict.fromkeys(self._waiting.pods)
            return self._settle_all(set(self._shown))
        traces = self._waiting.traces
        doubtful = {uid for uid, trace in traces.items() if self._version <= trace.since}
        self._shown = {uid: trace.way for uid, trace in traces.items() if trace.shown or uid in doubtful}
        return self._settle_all(doubtful)

    def take(self, event: PodEvent) -> Writes:
        if self.superseded:
            return []
        self._highest = max(self._highest, event.version)
        self._memory.observe(event)
        facts = event.facts
        if facts is None:
            if self._listing is None or not event.ends_initial:
                return [PassOn(event.frame)]
            self._waiting.listed(self._listing, event.version)
            self._listing = None
            return [PassOn(event.frame), *self._settle_all(set())]
        if event.type == "DELETED" or not self._waiting.are_those(facts):
            self._shown.pop(facts.uid, None)
            if facts.node and (facts.ended or event.type == "DELETED") and self._listing is None:
                self._appearances.note_left(facts.node)
            return [PassOn(event.frame)]
        held = self._holds(facts.uid)
        appearance = (self._listing.appearance if self._listing else self._appearances.of)(facts.uid)
        if appearance is None:
            return [] if held else self._take_away(facts, event.version)
        if held or self._has(facts.uid, appearance):
            self._memory.wrote(facts.uid, appearance)
            return [Show("MODIFIED", event.pod, event.version, appearance)]
        return self._show(facts, event.pod, event.version, appearance)

    def change(self, changes: Sequence[Change]) -> Writes:
        """What may start now, or may not any more, in order."""
        if self.superseded or self._listing is not None:
            return []
        return [write for uid, appearance in changes for write in self._settle(uid, appearance)]

    @property
    def superseded(self) -> bool:
        """The client has begun anew, and reads this no more."""
        return self._waiting.reader is not self

    @property
    def _memory(self) -> Listing | WaitingPods:
        """Where it notes what came and what it wrote."""
        return self._listing if self._listing is not None else self._waiting

    def _settle_all(self, doubtful: set[Uid]) -> Writes:
        writes: Writes = []
        for uid in self._waiting.pods:
            writes += self._settle(uid, self._appearances.of(uid), again=uid in doubtful)
        return writes

    def _settle(self, uid: Uid, appearance: Appearance | None, again: bool = False) -> Writes:
        """Brings the client to how a pod appears, between two events. `again`: it may lack what was shown."""
        waiting = self._waiting.pods.get(uid)
        if waiting is None or waiting.facts.version > self._highest or self._holds(uid):
            return []
        if appearance is None:
            return self._take_away(waiting.facts, self._highest)
        if self._has(uid, appearance) and not again:
            return []
        return self._show(waiting.facts, waiting.pod, self._highest, appearance)

    def _holds(self, uid: Uid) -> bool:
        """Whether the client is binding the pod: then it needs to know nothing of it until that has ended."""
        return uid in self._shown and self._appearances.in_flight(uid)

    def _has(self, uid: Uid, appearance: Appearance) -> bool:
        return uid in self._shown and self._shown[uid] == appearance

    def _show(self, facts: PodFacts, pod: bytes, version: int, appearance: Appearance) -> Writes:
        otherwise = facts.uid in self._shown and not self._has(facts.uid, appearance)
        self._shown[facts.uid] = appearance
        self._memory.wrote(facts.uid, appearance)
        shown = Show("ADDED", pod, version, appearance)
        return [TakeAway(facts, version), shown] if otherwise else [shown]

    def _take_away(self, facts: PodFacts, version: int) -> Writes:
        if facts.uid not in self._shown:
            return []
        del self._shown[facts.uid]
        self._memory.wrote(facts.uid, None)
        return [TakeAway(facts, version)]
