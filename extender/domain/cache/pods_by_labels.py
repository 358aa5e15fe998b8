"""Pods on nodes by namespace and labels: how many of them are on each node.

This tells which pods a new (anti-)affinity term selects. Pods of one template share their labels, so there
are far fewer sets of labels than pods. Sets are indexed by label pairs only in namespaces in which a term
has selected pods before, because most namespaces never see a term.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from extender.domain.model.records import PodRecord
from extender.domain.model.selectors import Labels
from extender.domain.model.shapes import Term
from extender.domain.model.term_index import Pair, required_pairs


class PodsByLabels:
    def __init__(self) -> None:
        self._in: dict[str, _LabelSets] = {}

    def count(self, pod: PodRecord, node: str, times: int) -> None:
        """Add a pod to a node; with `times` -1, remove it. Meanwhile its labels must stay the same object."""
        sets = self._in.get(pod.namespace) or self._in.setdefault(pod.namespace, _LabelSets())
        sets.count(pod.labels, node, times)
        if not sets:
            del self._in[pod.namespace]

    def selected_by(self, term: Term) -> Counter[str]:
        """How many of the pods that a term selects are on each node."""
        selected: Counter[str] = Counter()
        for namespace in self._in if term.namespaces is None else sorted(term.namespaces & self._in.keys()):
            for labels, by_node in self._in[namespace].selected_by(term):
                if term.matches(namespace, labels):
                    selected.update(by_node)
        return selected


class _LabelSets:
    """The sets of labels of one namespace by the identity of the labels object, with their pods by node."""

    def __init__(self) -> None:
        self._sets: dict[int, tuple[Labels, dict[str, int]]] = {}
        self._having: dict[Pair, dict[int, None]] | None = None

    def __bool__(self) -> bool:
        return bool(self._sets)

    def count(self, labels: Labels, node: str, times: int) -> None:
        known = self._sets.get(id(labels)) or self._learn(labels)
        by_node = known[1]
        by_node[node] = by_node.get(node, 0) + times
        if not by_node[node]:
            del by_node[node]
        if not by_node:
            self._forget(labels)

    def selected_by(self, term: Term) -> Iterable[tuple[Labels, dict[str, int]]]:
        """The sets of labels that `term` may select."""
        selector = term.label_selector
        if selector is None:
            return ()
        required = required_pairs(selector)
        if not required:
            return self._sets.values()
        having = self._index()
        fewest = min(required, key=lambda pairs: sum(len(having.get(pair, ())) for pair in pairs))
        return [self._sets[each] for pair in fewest for each in having.get(pair, ())]

    def _learn(self, labels: Labels) -> tuple[Labels, dict[str, int]]:
        known = self._sets[id(labels)] = (labels, {})
        for pair in self._indexed(labels):
            self._index().setdefault(pair, {})[id(labels)] = None
        return known

    def _forget(self, labels: Labels) -> None:
        del self._sets[id(labels)]
        for pair in self._indexed(labels):
            having = self._index()[pair]
            del having[id(labels)]
            if not having:
                del self._index()[pair]

    def _indexed(self, labels: Labels) -> Iterator[Pair]:
        return iter(labels.items() if self._having is not None else ())

    def _index(self) -> dict[Pair, dict[int, None]]:
        if self._having is None:
            self._having = {}
            for identity, (labels, _) in self._sets.items():
                for pair in labels.items():
                    self._having.setdefault(pair, {})[identity] = None
        return self._having
