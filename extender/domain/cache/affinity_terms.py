"""Where (anti-)affinity terms take hold, counted incrementally.

Only the terms of pods that are ours are followed; what those of others forbid, the scheduler tells us. A term
is forgotten with the last pod that has it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.shapes import Term

Standing = tuple[PodRecord, str]  # a pod and its node
ByNode = Mapping[Term, Mapping[str, int]]


class Terms:
    """`selected`: where pods stand that a term selects. `carried`: where pods stand that repel by it."""

    def __init__(self) -> None:
        self._selected: dict[Term, Counter[str]] = {}
        self._carried: dict[Term, Counter[str]] = {}
        self._users: dict[Term, set[Uid]] = {}

    def watch(self, pod: PodRecord, standing: Iterable[Standing]) -> None:
        """Follow the terms of `pod`; `standing` is gone through only when one of them is new."""
        new = [term for term in pod.shape.terms if term not in self._users]
        there = list(standing) if new else []
        for term in new:
            self._selected[term] = Counter(node for each, node in there if _selects(term, each))
            self._carried[term] = Counter(node for each, node in there if _repels_by(term, each))
        for term in pod.shape.terms:
            self._users.setdefault(term, set()).add(pod.uid)

    def unwatch(self, pod: PodRecord) -> None:
        for term in pod.shape.terms:
            users = self._users.get(term, set())
            users.discard(pod.uid)
            if term in self._users and not users:
                del self._users[term], self._selected[term], self._carried[term]

    def count(self, pod: PodRecord, node: str, times: int) -> None:
        for term, by_node in self._selected.items():
            if _selects(term, pod):
                by_node[node] += times
        for term in pod.shape.constraints.anti_affinity:
            if term in self._carried:
                self._carried[term][node] += times

    def copies(self) -> tuple[ByNode, ByNode]:
        """`selected` and `carried` as they stand, without zeros."""
        return _positive(self._selected), _positive(self._carried)


def _selects(term: Term, pod: PodRecord) -> bool:
    return term.matches(pod.namespace, pod.labels)


def _repels_by(term: Term, pod: PodRecord) -> bool:
    return term in pod.shape.constraints.anti_affinity


def _positive(counts: Mapping[Term, Counter[str]]) -> ByNode:
    return {term: dict(+by_node) for term, by_node in counts.items()}
