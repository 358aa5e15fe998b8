"""Which pods may share a node or domain: host ports, and required (anti-)affinity by domains of nodes."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from extender.domain.model.records import PodRecord
from extender.domain.model.shapes import Shape, Term, clashing
from extender.domain.snapshot.nodes import Mask, NodeTable, Rows
from extender.domain.snapshot.snapshot import Occupancy


class AffinityCounts:
    """A working copy of an Occupancy. `counts`: how many pods of a shape each row has room for."""

    def __init__(self, occupancy: Occupancy, nodes: NodeTable, counts: Callable[[Shape], Rows]) -> None:
        self._nodes = nodes
        self._terms = occupancy.terms
        self._room_for = counts
        self._ports = {node: Counter(ports) for node, ports in occupancy.ports.items()}
        self._selected = {term: Counter(by_node) for term, by_node in occupancy.selected.items()}
        self._carried = {term: Counter(by_node) for term, by_node in occupancy.carried.items()}
        self._together: dict[Term, Counter[Shape]] = {}

    def occupancy(self) -> Occupancy:
        return Occupancy(self._ports, self._selected, self._carried, self._terms)

    @contextmanager
    def gathering(self, pods: Iterable[PodRecord]) -> Iterator[None]:
        """While `pods` are being placed: if they must share a domain, prefer domains with room for all."""
        for pod in pods:
            for term in pod.shape.constraints.affinity:
                self._together.setdefault(term, Counter())[pod.shape] += 1
        yield
        self._together = {}

    # ---- looking

    def is_particular(self, pod: PodRecord) -> bool:
        """Whether each placed pod of this kind changes where the next one may go."""
        if pod.shape.looks_at_others or not self._carried:
            return pod.shape.looks_at_others
        return any(term in self._carried for term in self._selecting(pod))

    def any_particular(self, pods: Iterable[PodRecord], shapes: Iterable[Shape]) -> bool:
        """Whether any of `pods`, which have these shapes, is particular."""
        if not self._carried:
            return any(shape.looks_at_others for shape in shapes)
        return any(self.is_particular(pod) for pod in pods)

    def minds(self, pod: PodRecord) -> bool:
        """Whether the pod's node has to be counted here: its constraints concern others, or theirs it."""
        return pod.shape.looks_at_others or bool(self._terms.selecting(pod.namespace, pod.labels))

    def _selecting(self, pod: PodRecord) -> list[Term]:
        return self._terms.selecting(pod.namespace, pod.labels)

    def admit(self, pod: PodRecord) -> Mask:
        """The rows where no pod on the node or in its domain keeps `pod` out, and affinity is met."""
        admitted = np.ones(len(self._nodes.nodes), dtype=np.bool_)
        ports = pod.shape.constraints.ports
        for node, taken in self._ports.items() if ports else ():
            row = self._nodes.row.get(node)
            if row is not None and clashing(ports, +taken):
                admitted[row] = False
        for term in pod.shape.constraints.anti_affinity:
            admitted &= ~self._domains_of(term, self._selected.get(term, {}))
        for term in self._selecting(pod):
            admitted &= ~self._domains_of(term, self._carried.get(term, {}))
        for term in pod.shape.constraints.affinity:
            admitted &= self._near_selected(term, pod)
        return admitted

    # ---- counting

    def count(self, pod: PodRecord, node: str, times: int) -> None:
        """Add `pod` to a node; with `times` -1, remove it."""
        for port in pod.shape.constraints.ports:
            self._ports.setdefault(node, Counter())[port] += times
        for term in self._selecting(pod):
            self._selected.setdefault(term, Counter())[node] += times
        for term in pod.shape.constraints.anti_affinity:
            self._carried.setdefault(term, Counter())[node] += times

    # ---- inside

    def _near_selected(self, term: Term, pod: PodRecord) -> Mask:
        """Rows of the domains that hold a selected pod. The first pod that selects its own kind may go to any
        domain."""
        by_node: Mapping[str, int] = self._selected.get(term, {})
        if not any(by_node.values()) and term.matches(pod.namespace, pod.labels):
            # Rows of the domains with room for all pods that must share one; of all domains if none has room.
            codes = self._nodes.domains(term.topology_key)
            labelled = codes >= 0
            roomy = labelled.copy()
            for shape, pods in self._together.get(term, {}).items():
                counts = np.minimum(self._room_for(shape)[labelled], pods)
                sums = np.bincount(codes[labelled], weights=counts)
                roomy[labelled] &= sums[codes[labelled]] >= pods
            return roomy if roomy.any() else labelled
        return self._domains_of(term, by_node)

    def _domains_of(self, term: Term, by_node: Mapping[str, int]) -> Mask:
        """All rows in the same domain as a node of `by_node` with a count above 0."""
        codes = self._nodes.domains(term.topology_key)
        rows = [self._nodes.row[node] for node, n in by_node.items() if n > 0 and node in self._nodes.row]
        inside = np.unique(codes[rows])
        return np.isin(codes, inside[inside >= 0])
