"""Making room for a pod that fits nowhere: whom to evict, and what the extender says to that."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from extender.sim.apiserver.kinds import Json
from extender.sim.scheduler.extender import Extender, ExtenderError
from extender.sim.scheduler.nodes import Nodes, PodInfo, Rejection, fit_error, rejection_of

NOBODY = Rejection(("No preemption victims found for incoming pod",))

Victims = list[PodInfo]


class PostFilterResult(NamedTuple):
    node: str | None  # to clear of `victims`; empty: the nomination ends; None: it stays
    victims: Victims = []
    message: str = ""  # why so

    @classmethod
    def refused(cls, why: str, node: str | None = None) -> "PostFilterResult":
        return cls(node, message=f"no new claims to deallocate, preemption: {why}")  # which is asked before


class Preemption:
    """Its owner holds the lock of `nodes` around `candidates`, and not while the extender is asked."""

    def __init__(self, nodes: Nodes, extender: Extender) -> None:
        self._nodes = nodes
        self._extender = extender

    def ineligible(self, pod: Json, standing: PodInfo, rejections: Mapping[str, Rejection]) -> str:
        """Why a pod may not preempt at all; empty if it may."""
        if pod["spec"].get("preemptionPolicy") == "Never":
            return "not eligible due to preemptionPolicy=Never."
        node = pod["status"].get("nominatedNodeName", "")
        if not node or (node in rejections and rejections[node].lasting):
            return ""
        going = any(pod.leaving and pod.priority < standing.priority for pod in self._nodes.on(node))
        return "not eligible due to a terminating pod on the nominated node." if going else ""

    def candidates(
        self, pod: PodInfo, rejections: Mapping[str, Rejection]
    ) -> tuple[dict[str, Victims], dict[str, Rejection]]:
        """The victims on each node where preemption would help, and why it would not on others."""
        found: dict[str, Victims] = {}
        against: dict[str, Rejection] = {}
        for name in [node for node, fault in rejections.items() if not fault.lasting]:
            result = self._victims(pod, name)
            if isinstance(result, Rejection):
                against[name] = result
            else:
                found[name] = result
        return found, against

    def _victims(self, pod: PodInfo, name: str) -> Victims | Rejection:
        lesser = [other for other in self._nodes.on(name) if other.priority < pod.priority]
        if not lesser:
            return NOBODY
        try:
            for other in lesser:
                self._nodes.remove(other.uid)
            if without_them := rejection_of(self._nodes, pod, name):
                return without_them
            victims: Victims = []
            most_important_first = sorted(lesser, key=lambda other: (-other.priority, other.started))
            for other in most_important_first:  # who cannot stay is a victim
                self._nodes.put(other, name)
                if rejection_of(self._nodes, pod, name):
                    self._nodes.remove(other.uid)
                    victims.append(other)
            return victims or Rejection((f'expected at least one victim pod on node "{name}"',))
        finally:
            for other in lesser:
                self._nodes.put(other, name)

    def agreed(self, pod: Json, candidates: Mapping[str, Victims], asks: bool) -> Mapping[str, Victims]:
        """The candidates that the extender agrees to. Raises ExtenderError."""
        if not asks:
            return candidates
        given = {name: [victim.uid for victim in victims] for name, victims in candidates.items()}
        agreed: dict[str, Victims] = {}
        for name, uids in self._extender.preempt(pod, given).items():
            there = {standing.uid: standing for standing in self._nodes.on(name)}
            if not (victims := [there[uid] for uid in uids if uid in there]):
                raise ExtenderError(f'expected at least one victim pod on node "{name}"')
            agreed[name] = victims
        return agreed


def no_candidate(nodes: int, against: Mapping[str, Rejection]) -> PostFilterResult:
    counted = Counter(reason for fault in against.values() for reason in fault.reasons)
    counted["Preemption is not helpful for scheduling"] += nodes - len(against)
    return PostFilterResult.refused(fit_error(nodes, counted), node="")


def best(candidates: Mapping[str, Victims]) -> PostFilterResult:
    if not candidates:
        return PostFilterResult.refused("no candidate node for preemption")
    node = min(candidates, key=lambda name: _cost(candidates[name]))
    return PostFilterResult(node, candidates[node])


def _cost(victims: Victims) -> tuple[int, int, int, tuple[int, ...]]:
    """Victims of the lowest priority, then the fewest, then those that have run for the shortest time."""
    highest = max(pod.priority for pod in victims)
    earliest = min(pod.started for pod in victims if pod.priority == highest)
    latest_first = tuple(-ord(letter) for letter in earliest)
    return highest, sum(pod.priority + 2**31 for pod in victims), len(victims), latest_first
