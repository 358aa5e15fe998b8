"""How pods look in the scheduler's copy of the API: as they are, hidden, or shown with their node."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from extender.domain.model.records import Uid


class Appearance(NamedTuple):
    """An unbound pod that may start, as the scheduler sees it."""

    node: str = ""  # the nominated node; empty: as the API has it
    asks: bool = False  # carries the mark for which the scheduler asks filter


AS_IT_IS = Appearance()
Change = tuple[Uid, Appearance | None]  # None: the pod is taken back


class PodFacts(NamedTuple):
    """What a stream of pods needs to know of one."""

    uid: Uid
    namespace: str
    name: str
    scheduler: str  # spec.schedulerName
    node: str  # spec.nodeName; empty while it is unbound
    version: int  # metadata.resourceVersion
    ended: bool = False  # its phase is Succeeded or Failed: it takes no room on its node any more


class Appearances(Protocol):
    """Which pods appear, and how. Safe to use from any thread."""

    def of(self, uid: Uid) -> Appearance | None:
        """How an unbound pod of one of our schedulers appears; None: it does not, since it waits or is not
        known yet. A pod that is not ours appears as it is."""

    def in_flight(self, uid: Uid) -> bool:
        """Whether a bind call holds the pod or its binding was posted: then the scheduler has it."""

    def take_changes(self) -> Sequence[Change]:
        """What has changed since the last call, in order: a pod may have been taken back and shown again.
        Pods that were bound or are gone are not among them: the watch shows that."""

    def note_left(self, node: str) -> None:
        """A scheduler is told now that a bound pod has left this node: it may have refused others for it."""

    def note_fresh_start(self) -> None:
        """A scheduler has read all pods anew: nothing that it was doing with any of them goes on."""

    def note_status(self, namespace: str, name: str, unschedulable: str) -> Uid | None:
        """The scheduler patches a pod's status: it has given up an attempt. `unschedulable`: its words if it
        found no node, empty after errors. Returns the UID of an unbound pod of ours; None: it is not one."""
