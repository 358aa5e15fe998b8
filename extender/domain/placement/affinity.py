"""Which pods may share a node or domain: host ports, and required (anti-)affinity by domains of nodes."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf

import numpy as np

from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.selectors import Labels
from extender.domain.model.shapes import Shape, Term, clashing
from extender.domain.snapshot.nodes import Mask, NodeTable, Rows
from extender.domain.snapshot.snapshot import Occupancy

_NOWHERE: Mapping[str, int] = {}
_AT_ONCE = 32  # rows that are looked at together cost as much as one that is looked at by name


class TooDear(Exception):
    """What is being judged takes more work than it may cause."""


class Effort:
    """What the judging of a group may still cost, in looks at a node for a term: a count of work, not of
    time, so that of one snapshot the same is decided on any machine. Without a bound until `allow`."""

    def __init__(self) -> None:
        self._left = inf

    def allow(self, looks: float) -> float:
        """From now on so many; returns how many were left."""
        before, self._left = self._left, looks
        return before

    def spend(self, looks: float) -> None:
        """Raises TooDear once more was spent than allowed."""
        self._left -= looks
        if self._left < 0:
            raise TooDear


class _PodsByTerm:
    """How many pods by term and node: `known`, which is shared and never changed, and what was counted since.
    The domains of a term are looked up once, and what was counted since is added."""

    def __init__(self, known: Mapping[Term, Mapping[str, int]], nodes: NodeTable, effort: Effort) -> None:
        self._known, self._nodes, self._effort = known, nodes, effort
        self._more: dict[Term, Counter[str]] = {}
        self._domains: dict[Term, Mask] = {}  # of what is known, and of what was added

    def count(self, term: Term, node: str, times: int) -> None:
        self._more.setdefault(term, Counter())[node] += times
        if times < 0:
            self._domains.pop(term, None)
        elif term in self._domains and node in self._nodes.row:
            codes = self._nodes.domains(term.topology_key)
            code = codes[self._nodes.row[node]]
            self._domains[term] |= (codes == code) & (code >= 0)

    def by_node(self, term: Term) -> Mapping[str, int]:
        """Without zeros."""
        known, more = self._known.get(term, _NOWHERE), self._more.get(term)
        return known if not more else {node: n for node, n in (Counter(known) + more).items() if n}

    def any(self, term: Term) -> bool:
        """Whether there is any on nodes."""
        known, more = self._known.get(term), self._more.get(term)
        return bool(self.by_node(term)) if known and more else bool(known or (more and any(more.values())))

    def domains(self, term: Term) -> Mask:
        """All rows in the same domain as one of the pods. Raises TooDear."""
        self._effort.spend(1 + len(self._nodes.nodes) / _AT_ONCE)
        if term not in self._domains:
            self._effort.spend(len(self._known.get(term, _NOWHERE)) + len(self._more.get(term, _NOWHERE)))
            codes = self._nodes.domains(term.topology_key)
            rows = [row for row in map(self._nodes.row.get, self.by_node(term)) if row is not None]
            inside = np.zeros(len(codes) + 1, dtype=np.bool_)  # by code; the last one stands for -1
            inside[codes[rows]] = True
            inside[-1] = False
            self._domains[term] = inside[codes]
        return self._domains[term]

    def all(self) -> Mapping[Term, Mapping[str, int]]:
        return {**self._known, **{term: self.by_node(term) for term in self._more}}


class AffinityCounts:
    """A working copy of an Occupancy. `counts`: how many pods of a shape each row has room for."""

    def __init__(
        self,
        occupancy: Occupancy,
        nodes: NodeTable,
        counts: Callable[[Shape], Rows],
        effort: Effort | None = None,
    ) -> None:
        self.effort = effort or Effort()
        self._nodes = nodes
        self._terms = occupancy.terms
        self._room_for = counts
        self._ports = {node: Counter(ports) for node, ports in occupancy.ports.items()}
        self._selected = _PodsByTerm(occupancy.selected, nodes, self.effort)
        self._carried = _PodsByTerm(occupancy.carried, nodes, self.effort)
        self._is_any_carried = bool(occupancy.carried)
        self._terms_on: dict[
            tuple[str, int], tuple[Labels, list[Term]]
        ] = {}  # by namespace and labels object
        self._together: dict[Term, Counter[Shape]] = {}

    def occupancy(self) -> Occupancy:
        return Occupancy(self._ports, self._selected.all(), self._carried.all(), self._terms)

    @contextmanager
    def gathering(self, pods: Iterable[PodRecord]) -> Iterator[None]:
        """While `pods` are being placed: if they must share a domain, prefer domains with room for all."""
        for pod in pods:
            for term in pod.shape.constraints.affinity:
                self._together.setdefault(term, Counter())[pod.shape] += 1
        try:
            yield
        finally:
            self._together = {}

    # ---- looking

    def is_particular(self, pod: PodRecord) -> bool:
        """Whether each placed pod of this kind changes where the next one may go."""
        return pod.shape.looks_at_others or any(map(self._carried.any, self._selecting(pod)))

    def particular(self, pods: Collection[PodRecord]) -> set[Uid]:
        """Those of `pods` that are particular once some of them are placed."""
        shapes, found = {pod.shape for pod in pods}, set[Uid]()
        own = {term for shape in shapes for term in shape.constraints.anti_affinity}
        if not (own or self.any_particular(pods, shapes)):
            return found
        for pod in pods:
            if self.is_particular(pod) or not own.isdisjoint(self._selecting(pod)):
                found.add(pod.uid)
        return found

    def any_particular(self, pods: Iterable[PodRecord], shapes: Iterable[Shape]) -> bool:
        """Whether any of `pods`, which have these shapes, is particular."""
        if any(shape.looks_at_others for shape in shapes):
            return True
        if not self._is_any_carried:
            return False
        alike = {(pod.namespace, id(pod.labels)): pod for pod in pods}
        return any(map(self.is_particular, alike.values()))

    def minds(self, pod: PodRecord) -> bool:
        """Whether the pod's node has to be counted here: its constraints concern others, or theirs it."""
        return pod.shape.looks_at_others or bool(self._selecting(pod))

    def admit(self, pod: PodRecord) -> Mask:
        """The rows where no pod on the node or in its domain keeps `pod` out, and affinity is met. Raises
        TooDear."""
        self.effort.spend(1 + len(self._nodes.nodes) / _AT_ONCE)
        admitted = np.ones(len(self._nodes.nodes), dtype=np.bool_)
        ports = pod.shape.constraints.ports
        for node, taken in self._ports.items() if ports else ():
            row = self._nodes.row.get(node)
            if row is not None and clashing(ports, +taken):
                admitted[row] = False
        for term in pod.shape.constraints.anti_affinity:
            if self._selected.any(term):
                admitted &= ~self._selected.domains(term)
        for term in self._selecting(pod):
            if self._carried.any(term):
                admitted &= ~self._carried.domains(term)
        for term in pod.shape.constraints.affinity:
            admitted &= self._near_selected(term, pod)
        return admitted

    # ---- counting

    def count(self, pod: PodRecord, node: str, times: int) -> None:
        """Add `pod` to a node; with `times` -1, remove it."""
        for port in pod.shape.constraints.ports:
            self._ports.setdefault(node, Counter())[port] += times
        for term in self._selecting(pod):
            self._selected.count(term, node, times)
        for term in pod.shape.constraints.anti_affinity:
            self._carried.count(term, node, times)
            self._is_any_carried = True

    # ---- inside

    def _selecting(self, pod: PodRecord) -> list[Term]:
        """The terms in use that select a pod."""
        key = pod.namespace, id(pod.labels)
        if key not in self._terms_on:  # the labels are kept, so that no others get their identity
            self._terms_on[key] = pod.labels, self._terms.selecting(pod.namespace, pod.labels)
        return self._terms_on[key][1]

    def _near_selected(self, term: Term, pod: PodRecord) -> Mask:
        """Rows of the domains that hold a selected pod. The first pod that selects its own kind may go to any
        domain."""
        if not self._selected.any(term) and term.matches(pod.namespace, pod.labels):
            # Rows of the domains with room for all pods that must share one; of all domains if none has room.
            codes = self._nodes.domains(term.topology_key)
            labelled = codes >= 0
            roomy = labelled.copy()
            for shape, pods in self._together.get(term, {}).items():
                counts = np.minimum(self._room_for(shape)[labelled], pods)
                sums = np.bincount(codes[labelled], weights=counts)
                roomy[labelled] &= sums[codes[labelled]] >= pods
            return roomy if roomy.any() else labelled
        return self._selected.domains(term)
