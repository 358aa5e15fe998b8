"""On which nodes (anti-)affinity terms apply, counted incrementally.

Only the terms of pods that are ours are followed; what other pods' terms forbid, the scheduler reports. A
term is forgotten with the last pod that has it. The cost of an event does not grow with the number of terms,
since they are found by the labels that they require.
"""

from collections.abc import Mapping

from extender.domain.cache.pods_by_labels import PodsByLabels
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.shapes import Term
from extender.domain.model.term_index import TermIndex

ByNode = Mapping[Term, Mapping[str, int]]


class Terms:
    """The terms that are followed, and where the pods are that they select and that have them."""

    def __init__(self) -> None:
        self._index = TermIndex()
        self._frozen: TermIndex | None = None
        self._pods = PodsByLabels()
        self._of: dict[Uid, tuple[Term, ...]] = {}  # the terms of each pod whose terms are followed
        self._users: dict[Term, int] = {}  # how many pods have a term
        self._selected = _Places()
        self._carried = _Places()

    def watch(self, pod: PodRecord) -> None:
        """Follow the terms of `pod`, and no longer those it had before."""
        terms, before = tuple(dict.fromkeys(pod.shape.terms)), self._of.get(pod.uid, ())
        if terms == before:
            return
        for term in terms:
            self._use(term)
        for term in before:
            self._disuse(term)
        self._of[pod.uid] = terms
        if not terms:
            del self._of[pod.uid]

    def unwatch(self, uid: Uid) -> None:
        for term in self._of.pop(uid, ()):
            self._disuse(term)

    def count(self, pod: PodRecord, node: str, times: int) -> None:
        """Add a pod to a node; with `times` -1, remove it."""
        self._pods.count(pod, node, times)
        for term in self._index.selecting(pod.namespace, pod.labels):
            self._selected.count(term, node, times)
        for term in pod.shape.constraints.anti_affinity:
            self._carried.count(term, node, times)

    def selected(self) -> ByNode:
        """The nodes of the pods that each term selects: a copy."""
        return self._selected.of(self._users)

    def carried(self) -> ByNode:
        """The nodes of the pods that have each term as an anti-affinity term: a copy."""
        return self._carried.of(self._users)

    def index(self) -> TermIndex:
        """A copy; the same object until terms come or go."""
        if self._frozen is None:
            self._frozen = self._index.copy()
        return self._frozen

    # ---- inside

    def _use(self, term: Term) -> None:
        self._users[term] = self._users.get(term, 0) + 1
        if self._users[term] == 1:
            self._index.add(term)
            self._frozen = None
            self._selected.set(term, self._pods.selected_by(term))

    def _disuse(self, term: Term) -> None:
        self._users[term] -= 1
        if not self._users[term]:
            del self._users[term]
            self._index.remove(term)
            self._frozen = None
            self._selected.set(term, {})


class _Places:
    """Numbers of pods by term and node. Copies are kept until something about their term changes."""

    def __init__(self) -> None:
        self._counts: dict[Term, dict[str, int]] = {}
        self._copies: dict[Term, dict[str, int]] = {}

    def set(self, term: Term, by_node: Mapping[str, int]) -> None:
        self._copies.pop(term, None)
        if by_node:
            self._counts[term] = dict(by_node)
        else:
            self._counts.pop(term, None)

    def count(self, term: Term, node: str, times: int) -> None:
        by_node = self._counts.setdefault(term, {})
        by_node[node] = by_node.get(node, 0) + times
        if not by_node[node]:
            del by_node[node]
        self._copies.pop(term, None)
        if not by_node:
            del self._counts[term]

    def of(self, terms: Mapping[Term, int]) -> ByNode:
        """For each of `terms` the number of its pods by node, without zeros."""
        for term in terms.keys() - self._copies.keys():
            self._copies[term] = dict(self._counts.get(term, {}))
        if len(self._copies) > len(terms):
            self._copies = {term: self._copies[term] for term in terms}
        return {term: self._copies[term] for term in terms}
