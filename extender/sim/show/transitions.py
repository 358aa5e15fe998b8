"""What happened: the transitions of every gang, found by comparing one state of the cluster with the next."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from extender.domain.model.reasons import REFUSAL_PREFIX, Reason, refusal
from extender.sim.show.cluster_state import ClusterState, Gang


class ShownTransition(NamedTuple):
    """`second` is since the beginning; `brief` is for where the reason is shown anyway."""

    second: float
    gang: str
    text: str
    brief: str


class GangTimes(NamedTuple):
    """The seconds at which a gang was first seen, ran and ended; None for what has not come."""

    seen: float
    waited: bool = False
    ran: float | None = None
    ended: float | None = None


class TransitionLog:
    """All transitions so far, in order, and each gang's times by its key, NAMESPACE/NAME."""

    def __init__(self) -> None:
        self.transitions: list[ShownTransition] = []
        self.times: dict[str, GangTimes] = {}
        self._states: dict[str, tuple[str, str]] = {}

    def observe(self, cluster: ClusterState, second: float) -> list[ShownTransition]:
        """Note what is new; returns it."""
        new = list(self._new(cluster, second))
        self.transitions += new
        return new

    def _new(self, cluster: ClusterState, second: float) -> Iterator[ShownTransition]:
        present = {gang.key: gang for gang in cluster.gangs}
        for key in self._states.keys() - present.keys():
            del self._states[key]
            yield ShownTransition(second, key, "was deleted", "was deleted")
        for key, gang in present.items():
            state = (state_of(gang), gang.summary.reason)
            if self._states.get(key) != state and state != ("waits", ""):
                self._states[key] = state
                self._note_times(gang, second)
                brief = f"waits: {gang.summary.reason}" if gang.waits else state_sentence(gang, cluster)
                yield ShownTransition(second, key, state_sentence(gang, cluster), brief)

    def _note_times(self, gang: Gang, second: float) -> None:
        times = self.times.get(gang.key, GangTimes(second))
        if gang.waits:
            times = times._replace(waited=True)
        elif gang.runs or gang.done:
            times = times._replace(ran=second if times.ran is None else times.ran)
        if gang.done:
            times = times._replace(ended=second)
        self.times[gang.key] = times


def state_of(gang: Gang) -> str:
    if gang.done:
        return "ended"
    return "runs" if gang.runs else "starts" if gang.starts else "waits"


def state_sentence(gang: Gang, cluster: ClusterState) -> str:
    """A gang's state in a sentence."""
    if gang.done:
        return f"has ended: {_ends(gang)}"
    if gang.runs:
        return f"runs: {gang.running} of {gang.pods} pods on {', '.join(gang.nodes)}"
    if gang.starts:
        return f"starts: all {gang.pods} pods were admitted together"
    return f"waits. {waiting_for(gang)}{ahead(gang, cluster)}"


def _ends(gang: Gang) -> str:
    if not gang.failed:
        return f"all {gang.pods} pods succeeded"
    return f"{gang.failed} of {gang.pods} pods failed"


def waiting_for(gang: Gang) -> str:
    """The reason of a gang that waits, with the numbers that its PodGroup's condition gives."""
    if not gang.summary.reason:
        return "Muster has not looked at it yet."
    sentence = _sentence(gang.summary.reason)
    return f"{sentence} ({gang.detail})." if gang.detail else f"{sentence}."


def _sentence(reason: str) -> str:
    known = reason in [str(each) for each in Reason]
    return refusal(Reason(reason)).removeprefix(REFUSAL_PREFIX) if known else reason


def ahead(gang: Gang, cluster: ClusterState) -> str:
    """The gangs that hold what a gang waits for, by what their status says. Empty where only the gang itself
    could change it, or where the numbers of its own condition name the gang it waits for."""
    holds = _IN_THE_WAY.get(gang.summary.reason)
    others = [each for each in cluster.gangs if holds and each.key != gang.key and holds(each, gang)]
    names = [each.summary.name for each in others]
    return f" Ahead of it: {listed(names)}." if names else ""


def _on_nodes(other: Gang, _gang: Gang) -> bool:
    return other.runs or other.starts


def _on_nodes_of_its_queue(other: Gang, gang: Gang) -> bool:
    return other.summary.queue == gang.summary.queue and (other.runs or other.starts)


_IN_THE_WAY: Mapping[str, Callable[[Gang, Gang], bool]] = {
    **dict.fromkeys((Reason.NO_ROOM, Reason.FRAGMENTED, Reason.RESERVED, Reason.RECLAIMING), _on_nodes),
    **dict.fromkeys((Reason.QUEUE_CEILING, Reason.QUEUE_SHARE), _on_nodes_of_its_queue),
    Reason.WINDOW_FULL: lambda other, _gang: other.starts,
}


def listed(names: list[str], most: int = 5) -> str:
    """Names for a sentence: a few, and how many more."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"
