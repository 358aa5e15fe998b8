"""One LIST of pods: what the client is shown of it."""

from extender.domain.view.appearance import AS_IT_IS, Appearance, Appearances
from extender.domain.view.events import ListedPod
from extender.domain.view.waiting_pods import Listing, WaitingPod, WaitingPods


class PodList:
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
