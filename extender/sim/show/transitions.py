"""What happened: transitions of gangs and other pods, found by comparing one state of the cluster with the
next."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from extender.sim.show.cluster_state import ClusterState
from extender.sim.show.gangs import Gang
from extender.sim.show.loose_pods import LoosePod
from extender.sim.show.sentences import listed, pods_sentence, state_sentence


class ShownTransition(NamedTuple):
    """`second` is since the beginning. `subject`: a gang's key, or the names of pods. `brief`: the text for
    where the reason is shown anyway."""

    second: float
    subject: str
    text: str
    brief: str


class GangTimes(NamedTuple):
    """The seconds at which a gang was first seen, ran and ended; None for what has not come."""

    seen: float
    waited: bool = False
    ran: float | None = None
    ended: float | None = None

    def wait(self, now: float) -> float:
        """Seconds from when it was first seen until it ran, or until now."""
        return (now if self.ran is None else self.ran) - self.seen


class TransitionLog:
    """All transitions so far, in order, and each gang's times by its key, NAMESPACE/NAME."""

    def __init__(self) -> None:
        self.transitions: list[ShownTransition] = []
        self.times: dict[str, GangTimes] = {}
        self._states: dict[str, tuple[str, str]] = {}
        self._titles: dict[str, str] = {}
        self._pods: dict[str, tuple[str, str]] = {}

    def observe(self, cluster: ClusterState, second: float) -> list[ShownTransition]:
        """Note what is new; returns it."""
        new = [*self._of_gangs(cluster, second), *self._of_pods(cluster.loose, second)]
        self.transitions += new
        return new

    def _of_gangs(self, cluster: ClusterState, second: float) -> Iterator[ShownTransition]:
        present = {gang.key: gang for gang in cluster.gangs}
        for key in self._states.keys() - present.keys():
            del self._states[key]
            title = self._titles.pop(key)
            yield ShownTransition(second, title, "was deleted", "was deleted")
        for key, gang in present.items():
            self._note_times(gang, second)
            state = (gang.state, gang.summary.reason if gang.waits or gang.left_out else "")
            if self._states.get(key) != state and gang.state != "pending":
                self._states[key], self._titles[key] = state, gang.title
                text = state_sentence(gang, cluster)
                brief = f"waits: {gang.summary.reason}" if gang.waits else text.partition(";")[0]
                yield ShownTransition(second, gang.title, text, brief)

    def _note_times(self, gang: Gang, second: float) -> None:
        times = self.times.get(gang.key, GangTimes(second))
        if gang.waits:
            times = times._replace(waited=True)
        elif gang.has_started and times.ran is None:
            times = times._replace(ran=second)
        if gang.state == "ended" and times.ended is None:
            times = times._replace(ended=second)
        self.times[gang.key] = times

    def _of_pods(self, pods: Sequence[LoosePod], second: float) -> Iterator[ShownTransition]:
        """Pods that do the same for the same reason are one transition."""
        turned = [pod for pod in pods if self._turns(pod)]
        for together in alike(turned):
            text = pods_sentence(together)
            brief = text.partition(".")[0] if together[0].state == "waits" else text
            yield ShownTransition(second, listed([pod.key for pod in together], 3), text, brief)

    def _turns(self, pod: LoosePod) -> bool:
        state = (pod.state, pod.why.reason)
        turns = pod.state != "pending" and self._pods.get(pod.key) != state
        if turns:
            self._pods[pod.key] = state
        return turns


def alike(pods: Sequence[LoosePod]) -> list[list[LoosePod]]:
    """Pods by what they do and why, in the order in which they came."""
    found: dict[tuple[object, ...], list[LoosePod]] = {}
    for pod in pods:
        found.setdefault((pod.namespace, pod.state, pod.missing_group, pod.why), []).append(pod)
    return list(found.values())
