"""Appearance of pods in the scheduler's copy of the API: as they are, hidden, or with their node."""

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
    """Facts of one pod that a stream of pods uses."""

    uid: Uid
    namespace: str
    name: str
    scheduler: str  # spec.schedulerName
    node: str  # spec.nodeName; empty while it is unbound
    version: int  # metadata.resourceVersion
    ended: bool = False  # its phase is Succeeded or Failed: it takes no room on its node any more


class Appearances(Protocol):
    """Appearances of pods for the scheduler. Safe to use from any thread."""

    def of(self, uid: Uid) -> Appearance | None:
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

    def note_left(self, node: str) -> None:
        """Record that a scheduler learns now that a bound pod left this node.

        The scheduler may have refused other pods because of it.
        """

    def note_fresh_start(self) -> None:
        """Record that a scheduler has listed all pods again: none of its earlier attempts goes on."""

    def note_status(self, namespace: str, name: str, unschedulable: str) -> Uid | None:
        """Record that the scheduler patches a pod's status: it has given up an attempt.

        Args:
            unschedulable: The scheduler's message if it found no node, empty after errors.

        Returns:
            The UID of an unbound pod of Muster; None for any other pod.
        """
