"""(Anti-)affinity terms by the labels that they require, so that a pod is compared only with the few terms
that may select it.

In each namespace that it covers, a term is filed under one label pair that its selector requires: the pair
with the fewest terms so far, since a label that all jobs have does not narrow the search. Terms that require
no label pair are filed under a label's name, or all together if they require none.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from extender.api.objects.selectors import LabelSelector
from extender.domain.model.selectors import Labels
from extender.domain.model.shapes import Term

Pair = tuple[str, str]
_Place = tuple[str, str, str | None]  # namespace, label, value; "" and None stand for any
_ANYWHERE = ""


class TermIndex:
    def __init__(self) -> None:
        self._filed: defaultdict[_Place, dict[Term, None]] = defaultdict(dict)
        self._places: dict[Term, tuple[_Place, ...]] = {}

    def __contains__(self, term: Term) -> bool:
        return term in self._places

    def __len__(self) -> int:
        return len(self._places)

    def add(self, term: Term) -> None:
        self._places[term] = tuple(self._places_for(term))
        for place in self._places[term]:
            self._filed[place][term] = None

    def remove(self, term: Term) -> None:
        for place in self._places.pop(term):
            del self._filed[place][term]
            if not self._filed[place]:
                del self._filed[place]

    def selecting(self, namespace: str, labels: Labels) -> list[Term]:
        """The terms that select a pod."""
        if not self._places:
            return []
        filed = self._filed
        places = (place for place in _places_of(namespace, labels) if place in filed)
        return [term for place in places for term in filed[place] if term.matches(namespace, labels)]

    def copy(self) -> "TermIndex":
        """An index that later changes to this one do not affect. Terms are shared."""
        copied = TermIndex()
        copied._filed = defaultdict(dict, {place: dict(terms) for place, terms in self._filed.items()})
        copied._places = dict(self._places)
        return copied

    def _places_for(self, term: Term) -> Iterator[_Place]:
        selector = term.label_selector
        if selector is None:  # it selects no pod
            return
        for namespace in (_ANYWHERE,) if term.namespaces is None else sorted(term.namespaces):
            yield from self._places_in(namespace, selector)

    def _places_in(self, namespace: str, selector: LabelSelector) -> Iterable[_Place]:
        choices = [[(namespace, *pair) for pair in pairs] for pairs in required_pairs(selector)]
        if choices:
            return min(choices, key=lambda places: sum(len(self._filed.get(each, ())) for each in places))
        return [(namespace, next(iter(_required_labels(selector)), ""), None)]


def required_pairs(selector: LabelSelector) -> list[list[Pair]]:
    """Lists of label pairs; every pod that the selector selects has one pair of each list."""
    pairs = [[pair] for pair in (selector.match_labels or {}).items()]
    chosen = [each for each in selector.match_expressions or () if each.operator == "In"]
    return pairs + [[(each.key, value) for value in dict.fromkeys(each.values or ())] for each in chosen]


def _required_labels(selector: LabelSelector) -> Iterator[str]:
    return (each.key for each in selector.match_expressions or () if each.operator == "Exists")


def _places_of(namespace: str, labels: Labels) -> Iterator[_Place]:
    """The places where a term that selects such a pod may be filed."""
    for where in (namespace, _ANYWHERE):
        yield (where, "", None)
        for key, value in labels.items():
            yield (where, key, value)
            yield (where, key, None)
