"""The scheduler's own tests of who fits where, in the order in which the stock one names what fails.

Selectors, taints, requests and (anti-)affinity are judged by the functions that Muster's planner uses; what
differs is whose pods count: here all that are bound or assumed, and beside them those nominated to a node, if
they are at least as important.
"""

from collections.abc import Iterable
from typing import NamedTuple

from extender.domain.model.resources import PODS
from extender.domain.model.shapes import clashing
from extender.sim.scheduler.nodes import Nodes, PodInfo, used_by


class Rejection(NamedTuple):
    """What speaks against a node. `lasting`: it would even if others went."""

    reasons: tuple[str, ...] = ()
    lasting: bool = False


UNSUITABLE = Rejection(
    ("node(s) didn't match Pod's node affinity/selector or had untolerated taint(s)",), lasting=True
)
PORTS_TAKEN = Rejection(("node(s) didn't have free ports for the requested pod ports",))
ALONE = Rejection(("node(s) didn't match pod affinity rules",), lasting=True)
KEEPS_APART = Rejection(("node(s) didn't match pod anti-affinity rules",))
REPELLED = Rejection(("node(s) didn't satisfy existing pods anti-affinity rules",))


def feasible(nodes: Nodes, pod: PodInfo, among: Iterable[str]) -> tuple[list[str], dict[str, Rejection]]:
    """The nodes where a pod may go, and what speaks against each of the others."""
    judged = {name: rejection_of(nodes, pod, name) for name in among}
    fit = [name for name, fault in judged.items() if fault is None]
    return fit, {name: fault for name, fault in judged.items() if fault is not None}


def rejection_of(nodes: Nodes, pod: PodInfo, name: str) -> Rejection | None:
    if not nodes.admits(pod.shape, name):
        return UNSUITABLE
    beside = [*nodes.on(name), *nodes.guests(pod, name)]
    return (
        _ports_rejection(pod, beside)
        or _room_rejection(nodes, pod, name, beside)
        or _affinity_rejection(nodes, pod, name)
        or _anti_affinity_rejection(nodes, pod, name)
    )


def _ports_rejection(pod: PodInfo, beside: Iterable[PodInfo]) -> Rejection | None:
    taken = (port for other in beside for port in other.shape.constraints.ports)
    return PORTS_TAKEN if clashing(pod.shape.constraints.ports, taken) else None


def _room_rejection(nodes: Nodes, pod: PodInfo, name: str, beside: list[PodInfo]) -> Rejection | None:
    asked, used, room = pod.shape.requests, used_by([*beside, pod]), nodes.room(name)
    short = [each for each in asked if used[each] > room.get(each, 0)]
    if not short:
        return None
    reasons = tuple("Too many pods" if each == PODS else f"Insufficient {each}" for each in short)
    return Rejection(reasons, lasting=any(asked[each] > room.get(each, 0) for each in short))


def _affinity_rejection(nodes: Nodes, pod: PodInfo, name: str) -> Rejection | None:
    for term in pod.shape.constraints.affinity:
        domain = nodes.domain(term, name)
        first = term.matches(pod.namespace, pod.labels) and not any(nodes.selected(term))
        if not domain or not (first or any(nodes.selected(term, domain))):
            return ALONE
    return None


def _anti_affinity_rejection(nodes: Nodes, pod: PodInfo, name: str) -> Rejection | None:
    terms = pod.shape.constraints.anti_affinity
    if any(any(nodes.selected(term, nodes.domain(term, name))) for term in terms):
        return KEEPS_APART
    return REPELLED if _is_repelled(nodes, pod, name) else None


def _is_repelled(nodes: Nodes, pod: PodInfo, name: str) -> bool:
    """Whether somebody who stands does not want the pod near."""
    return any(
        node in nodes.domain(term, name) for node, other in nodes.everybody() for term in other.repels(pod)
    )
