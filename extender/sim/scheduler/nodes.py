"""What the scheduler knows of nodes and of the pods on them, and its own tests of who fits where.

Selectors, taints, requests and (anti-)affinity are judged by the functions that Muster's planner uses; what
differs is whose pods count: here all that are bound or assumed, and beside them those nominated to a node, if
they are at least as important.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from extender.api.objects import Node, Pod, Taint
from extender.domain.resources import CPU, MEMORY, PODS, add, offered
from extender.domain.shapes import Shape, Shapes, Term, clashing, node_taints
from extender.sim.apiserver.kinds import Json
from extender.sim.apiserver.typed import typed

TOO_MANY_PODS = "Too many pods"
UNSUITABLE = "node(s) didn't match Pod's node affinity/selector or had untolerated taint(s)"
PORTS_TAKEN = "node(s) didn't have free ports for the requested pod ports"
REPELLED = "node(s) didn't satisfy pod anti-affinity rules"
ALONE = "node(s) didn't match pod affinity rules"


class Standing(NamedTuple):
    """A pod as far as others care."""

    uid: str
    namespace: str
    labels: Mapping[str, str]
    shape: Shape
    priority: int

    def repels(self, other: "Standing") -> Iterator[Term]:
        terms = self.shape.constraints.anti_affinity
        return (term for term in terms if term.matches(other.namespace, other.labels))


class Nodes:
    """Not thread-safe: its owner holds a lock."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._taints: dict[str, tuple[Taint, ...]] = {}
        self._room: dict[str, dict[str, int]] = {}
        self._on: dict[str, dict[str, Standing]] = {}  # bound and assumed, by node and UID
        self._node_of: dict[str, str] = {}
        self._nominated: dict[str, tuple[str, Standing]] = {}
        self._shapes = Shapes()

    # ---- news

    def set_node(self, given: Json) -> None:
        node = typed(given, Node)
        name = node.metadata.name
        self._nodes[name] = node
        self._taints[name] = node_taints(node.spec.taints, node.spec.unschedulable)
        self._room[name] = offered(node.status.allocatable)

    def drop_node(self, name: str) -> None:
        for known in (self._nodes, self._taints, self._room):
            known.pop(name, None)

    def place(self, pod: Json, node: str) -> None:
        """It stands there, or is assumed to."""
        standing = self.standing(pod)
        self.remove(standing.uid)
        self._on.setdefault(node, {})[standing.uid] = standing
        self._node_of[standing.uid] = node

    def remove(self, uid: str) -> None:
        self._nominated.pop(uid, None)
        if node := self._node_of.pop(uid, None):
            del self._on[node][uid]

    def nominate(self, pod: Json) -> None:
        """Note where a pod without a node is planned to go, if anywhere."""
        node, standing = pod["status"].get("nominatedNodeName"), self.standing(pod)
        self._nominated.pop(standing.uid, None)
        if node and standing.uid not in self._node_of:
            self._nominated[standing.uid] = (node, standing)

    def standing(self, given: Json) -> Standing:
        pod = typed(given, Pod)
        meta = pod.metadata
        shape = self._shapes.of(pod.spec, meta.namespace)
        return Standing(meta.uid, meta.namespace, meta.labels or {}, shape, pod.spec.priority or 0)

    # ---- questions

    def names(self) -> list[str]:
        return list(self._nodes)

    @property
    def count(self) -> int:
        return len(self._nodes)

    def feasible(self, pod: Standing, among: Iterable[str]) -> tuple[list[str], dict[str, str]]:
        """The nodes where a pod may go, and what speaks against each of the others."""
        judged = {name: self._fault(pod, name) for name in among}
        fit = [name for name, fault in judged.items() if not fault]
        return fit, {name: fault for name, fault in judged.items() if fault}

    def load(self, pod: Standing, name: str) -> float:
        """How full a node would be with the pod: the mean over cpu and memory."""
        used = self._used([*self._on.get(name, {}).values(), pod])
        room = self._room[name]
        return sum(used.get(each, 0) / (room.get(each) or 1) for each in (CPU, MEMORY)) / 2

    # ---- the tests, in the order in which the stock scheduler names what fails

    def _fault(self, pod: Standing, name: str) -> str:
        node = self._nodes[name]
        if not pod.shape.suits(name, node.metadata.labels or {}, self._taints[name]):
            return UNSUITABLE
        beside = [*self._on.get(name, {}).values(), *self._guests(pod, name)]
        return (
            self._ports_fault(pod, beside)
            or self._room_fault(pod, name, beside)
            or self._company_fault(pod, name)
        )

    def _guests(self, pod: Standing, name: str) -> Iterator[Standing]:
        """Those nominated to a node whose room is theirs already, as this pod sees it."""
        for node, guest in self._nominated.values():
            if node == name and guest.uid != pod.uid and guest.priority >= pod.priority:
                yield guest

    def _ports_fault(self, pod: Standing, beside: list[Standing]) -> str:
        taken = (port for other in beside for port in other.shape.constraints.ports)
        return PORTS_TAKEN if clashing(pod.shape.constraints.ports, taken) else ""

    def _room_fault(self, pod: Standing, name: str, beside: list[Standing]) -> str:
        used, room = self._used([*beside, pod]), self._room[name]
        short = next((each for each in pod.shape.requests if used[each] > room.get(each, 0)), "")
        return TOO_MANY_PODS if short == PODS else f"Insufficient {short}" if short else ""

    def _company_fault(self, pod: Standing, name: str) -> str:
        for term in pod.shape.constraints.affinity:
            first = term.matches(pod.namespace, pod.labels) and not any(self._selected(term, self._nodes))
            if not self._domain(term, name) or not (
                first or any(self._selected(term, self._domain(term, name)))
            ):
                return ALONE
        repelled = any(
            any(self._selected(t, self._domain(t, name))) for t in pod.shape.constraints.anti_affinity
        )
        return REPELLED if repelled or self._is_repelled(pod, name) else ""

    def _is_repelled(self, pod: Standing, name: str) -> bool:
        """Whether somebody who stands does not want the pod near."""
        for node, there in self._on.items():
            for other in there.values():
                if any(node in self._domain(term, name) for term in other.repels(pod)):
                    return True
        return False

    def _selected(self, term: Term, among: Iterable[str]) -> Iterator[Standing]:
        for name in among:
            yield from (o for o in self._on.get(name, {}).values() if term.matches(o.namespace, o.labels))

    def _domain(self, term: Term, name: str) -> list[str]:
        """The nodes of the same domain as `name`; none where it lacks the label."""
        value = (self._nodes[name].metadata.labels or {}).get(term.topology_key)
        if value is None:
            return []
        labels = ((each, node.metadata.labels or {}) for each, node in self._nodes.items())
        return [each for each, found in labels if found.get(term.topology_key) == value]

    def _used(self, pods: Iterable[Standing]) -> dict[str, int]:
        used: dict[str, int] = {}
        for pod in pods:
            add(used, pod.shape.requests)
        return used
