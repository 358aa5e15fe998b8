"""Which pods may share a node or domain: host ports, and required (anti-)affinity by domains of nodes."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from math import inf
from typing import TypeVar

import numpy as np

from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.shapes import Shape, Term, clashing
from extender.domain.placement.term_sets import PodsByTerms, TermSets, on_rows
from extender.domain.snapshot.nodes import Mask, NodeTable, Rows
from extender.domain.snapshot.snapshot import Occupancy

# What costs as much as so many looks at a node: finding nodes for pods of one kind, and those near others.
_PLACING, _NEAR = 500, 80
T = TypeVar("T")


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

    def at_most(self, looks: float, work: Callable[[], T]) -> T | None:
        """What the work returns; None where it takes more looks than that."""
        before = self.allow(0.0)
        allowed = min(before, looks)
        self.allow(allowed)
        try:
            return work()
        except TooDear:
            return None
        finally:
            self.allow(before - (allowed - self._left))

    def spend(self, looks: float) -> None:
        """To be called before the work. Raises TooDear where more would be spent than allowed: then it is
        not done, and all that was left is gone."""
        if looks > self._left:
            self._left = 0.0
            raise TooDear
        self._left -= looks


class AffinityCounts:
    """A working copy of an Occupancy. `counts`: how many pods of a shape each row has room for."""

    def __init__(
        self,
        occupancy: Occupancy,
        nodes: NodeTable,
        counts: Callable[[Shape], Rows],
        like: "AffinityCounts | None" = None,
    ) -> None:
        """`like`: a working copy with the same terms, to save work, and whose effort is shared."""
        self.effort: Effort = like.effort if like else Effort()
        self._like, self._occupancy, self._nodes = like, occupancy, nodes
        self._room_for = counts
        self._ports = {node: Counter(ports) for node, ports in occupancy.ports.items()}
        self._has_terms = len(occupancy.terms) > 0
        self._together: dict[Term, dict[Shape, list[PodRecord]]] = {}

    @cached_property
    def sets(self) -> TermSets:
        return self._like.sets if self._like else TermSets(self._occupancy.terms, self.effort.spend)

    @cached_property
    def _selected(self) -> PodsByTerms:
        return PodsByTerms(self._occupancy.selected, self._nodes, self.effort.spend)

    @cached_property
    def _carried(self) -> PodsByTerms:
        return PodsByTerms(self._occupancy.carried, self._nodes, self.effort.spend)

    def clone(self, counts: Callable[[Shape], Rows]) -> "AffinityCounts":
        clone = AffinityCounts(self._occupancy, self._nodes, counts, self)
        clone._ports = {node: ports.copy() for node, ports in self._ports.items()}
        if self._has_terms:
            clone._selected, clone._carried = self._selected.clone(), self._carried.clone()
        return clone

    @contextmanager
    def gathering(self, pods: Iterable[PodRecord]) -> Iterator[None]:
        """While `pods` are being placed: if they must share a domain, prefer domains with room for all."""
        for pod in pods:
            for term in pod.shape.constraints.affinity:
                self._together.setdefault(term, {}).setdefault(pod.shape, []).append(pod)
        try:
            yield
        finally:
            self._together = {}

    # ---- looking

    def is_particular(self, pod: PodRecord) -> bool:
        """Whether each placed pod of this kind changes where the next one may go. Raises TooDear."""
        return pod.shape.looks_at_others or (self._has_terms and self._carried.any(self.sets.selecting(pod)))

    def particular(self, pods: Collection[PodRecord]) -> set[Uid]:
        """Those of `pods` that are particular once some of them are placed. Raises TooDear."""
        shapes, found = {pod.shape for pod in pods}, set[Uid]()
        own = {self.sets.kept_away(shape) for shape in shapes if shape.constraints.anti_affinity}
        if not (own or self.any_particular(pods, shapes)):
            return found
        for pod in pods:
            if self.is_particular(pod) or not own.isdisjoint(self.sets.selecting(pod).common):
                found.add(pod.uid)
        return found

    def any_particular(self, pods: Iterable[PodRecord], shapes: Iterable[Shape]) -> bool:
        """Whether any of `pods`, which have these shapes, is particular."""
        if any(shape.looks_at_others for shape in shapes):
            return True
        if not self._has_terms:
            return False
        alike = {(pod.namespace, id(pod.labels)): pod for pod in pods}
        return any(map(self.is_particular, alike.values()))

    def minds(self, pod: PodRecord) -> bool:
        """Whether the pod's node has to be counted here: its constraints concern others, or theirs it."""
        return pod.shape.looks_at_others or (self._has_terms and bool(self.sets.selecting(pod).terms))

    def admit(self, pod: PodRecord) -> Mask:
        """The rows where no pod on the node or in its domain keeps `pod` out, and affinity is met. Raises
        TooDear."""
        admitted = self._let_in(pod)
        for term in pod.shape.constraints.affinity:
            admitted &= self._near_selected(term, pod)
        return admitted

    def apart(self, pod: PodRecord, rows: Rows, counts: Rows) -> Rows:
        """Which of `rows`, which admit `pod`, still admit one of its kind after the ones before them: their
        places among these, each as often as that is so, up to `counts`. Raises TooDear."""
        is_alone = bool(pod.shape.constraints.ports)
        keys = self.sets.selecting(pod).common.get(self.sets.kept_away(pod.shape), set())
        if not keys and not is_alone:
            return np.repeat(np.arange(len(rows)), counts)
        self.effort.spend(len(rows) * len(keys))
        codes = [rows, *(self._nodes.domains(key)[rows] for key in sorted(keys))]
        found: list[int] = []
        taken: set[tuple[int, int]] = set()
        for at, of_row in enumerate(zip(*(each.tolist() for each in codes), strict=True)):
            domains = [(number, code) for number, code in enumerate(of_row) if code >= 0][not is_alone :]
            if taken.isdisjoint(domains):
                taken.update(domains)
                found += [at] * (1 if domains else int(counts[at]))
        return np.array(found, dtype=np.int64)

    # ---- counting

    def count(self, pod: PodRecord, node: str, times: int) -> None:
        """Add `pod` to a node; with `times` -1, remove it. Raises TooDear, but not to undo what was done."""
        if self._has_terms:
            selecting, kept_away = self.sets.selecting(pod), self.sets.kept_away(pod.shape)
            self._selected.count(selecting, node, times)
            self._carried.count(kept_away, node, times)
        for port in pod.shape.constraints.ports:
            self._ports.setdefault(node, Counter())[port] += times

    # ---- inside

    def _let_in(self, pod: PodRecord) -> Mask:
        """The rows where no pod keeps `pod` out."""
        self.effort.spend(_PLACING + len(self._nodes.nodes) / 3)
        free = np.ones(len(self._nodes.nodes), dtype=np.bool_)
        ports = pod.shape.constraints.ports
        for node, taken in self._ports.items() if ports else ():
            row = self._nodes.row.get(node)
            if row is not None and clashing(ports, +taken):
                free[row] = False
        for pods, terms in (
            (self._selected, self.sets.kept_away(pod.shape)),
            (self._carried, self.sets.selecting(pod)),
        ):
            if pods.any(terms):
                free &= ~pods.domains(terms)
        return free

    def _near_selected(self, term: Term, pod: PodRecord) -> Mask:
        """Rows of the domains that hold a selected pod. The first pod that selects its own kind may go to any
        domain."""
        self.effort.spend(on_rows(self._nodes, _NEAR))
        terms = self.sets.of((term,))
        if not self._selected.any(terms) and term.matches(pod.namespace, pod.labels):
            # Rows of the domains with room for all pods that must share one; of all domains if none has room.
            codes = self._nodes.domains(term.topology_key)
            labelled = codes >= 0
            roomy = labelled.copy()
            for shape, pods in self._together.get(term, {}).items():
                counts = np.minimum(self._room_for(shape), len(pods))
                rows = np.flatnonzero(labelled & (counts > 0) & self._let_in(pods[0]))
                places = self.apart(pods[0], rows, counts[rows])
                sums = np.bincount(codes[rows[places]], minlength=len(codes))
                roomy[labelled] &= sums[codes[labelled]] >= len(pods)
            return roomy if roomy.any() else labelled
        return self._selected.domains(terms)
