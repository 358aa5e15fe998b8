"""(Anti-)affinity terms and host ports in use, with the nodes concerned, counted incrementally."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.selectors import Labels
from extender.domain.model.shapes import HostPort, Pair, Term, TermIndex, conflicting_ports, required_pairs


class HostPorts:
    """Host ports of claims, counted by node. Few nodes have any."""

    def __init__(self) -> None:
        self._fixed: dict[str, Counter[HostPort]] = {}
        self._planned: dict[str, Counter[HostPort]] = {}

    def count(self, node: str, ports: Iterable[HostPort], fixed: bool, times: int) -> None:
        """Add the ports of a claim to a node, or remove them (`times` is -1)."""
        by_node = self._fixed if fixed else self._planned
        for port in ports:
            counts = by_node.setdefault(node, Counter())
            counts[port] += times
            if not counts[port]:
                del counts[port]
            if not counts:
                del by_node[node]

    def conflicts(self, node: str, wanted: tuple[HostPort, ...], own: tuple[HostPort, ...] = ()) -> bool:
        """Return whether a claim on the node uses any of the `wanted` ports.

        The ports `own` belong to the pod's own claim there, and do not count.
        """
        if not wanted:
            return False
        counts = self._fixed.get(node, Counter()) + self._planned.get(node, Counter())
        return conflicting_ports(wanted, counts - Counter(own))

    def fixed_ports(self) -> dict[str, dict[HostPort, int]]:
        """Return a copy of the host ports of fixed claims."""
        return {node: dict(counts) for node, counts in self._fixed.items()}


class PodsByLabels:
    """Numbers of pods on each node by namespace and labels, from which the pods of a new term are counted.

    Pods of one template share their labels, so there are far fewer sets of labels than pods. The sets are
    indexed by label pairs only in namespaces in which a term has already selected pods, because most
    namespaces never have a term.
    """

    def __init__(self) -> None:
        self._by_namespace: dict[str, _LabelSets] = {}

    def count(self, pod: PodRecord, node: str, times: int) -> None:
        """Add a pod to a node, or remove it (`times` is -1).

        Its labels must be the same object both times.
        """
        sets = self._by_namespace.get(pod.namespace)
        if sets is None:
            sets = self._by_namespace[pod.namespace] = _LabelSets()
        if not sets.count(pod.labels, node, times):
            del self._by_namespace[pod.namespace]

    def selected_by(self, term: Term) -> Counter[str]:
        """Return the number of pods on each node that a term selects."""
        selected: Counter[str] = Counter()
        all_names = self._by_namespace.keys()
        for namespace in all_names if term.namespaces is None else sorted(term.namespaces & all_names):
            for labels, by_node in self._by_namespace[namespace].selected_by(term):
                if term.matches(namespace, labels):
                    selected.update(by_node)
        return selected


class _LabelSets:
    """Sets of labels in one namespace, with the numbers of their pods by node.

    The sets are keyed by the identity of the labels object.
    """

    def __init__(self) -> None:
        self._sets: dict[int, tuple[Labels, dict[str, int]]] = {}
        self._sets_by_pair: dict[Pair, dict[int, None]] | None = None

    def count(self, labels: Labels, node: str, times: int) -> bool:
        """Count pods. Return whether any set of labels is left."""
        entry = self._sets.get(id(labels))
        if entry is None:
            entry = self._sets[id(labels)] = (labels, {})
            for pair in self._indexed(labels):
                self._index().setdefault(pair, {})[id(labels)] = None
        by_node = entry[1]
        if remaining := by_node.get(node, 0) + times:
            by_node[node] = remaining
            return True
        del by_node[node]
        if not by_node:
            del self._sets[id(labels)]
            for pair in self._indexed(labels):
                identities = self._index()[pair]
                del identities[id(labels)]
                if not identities:
                    del self._index()[pair]
        return bool(self._sets)

    def selected_by(self, term: Term) -> Iterable[tuple[Labels, dict[str, int]]]:
        """Return the sets of labels that `term` may select."""
        selector = term.label_selector
        if selector is None:
            return ()
        required = required_pairs(selector)
        if not required:
            return self._sets.values()
        sets_by_pair = self._index()
        fewest = min(required, key=lambda pairs: sum(len(sets_by_pair.get(pair, ())) for pair in pairs))
        return [self._sets[identity] for pair in fewest for identity in sets_by_pair.get(pair, ())]

    def _indexed(self, labels: Labels) -> Iterator[Pair]:
        """Return the label pairs to index; none as long as there is no index."""
        return iter(labels.items() if self._sets_by_pair is not None else ())

    def _index(self) -> dict[Pair, dict[int, None]]:
        """Return the sets that have each label pair, by the identity of the labels objects.

        The index is made on first use.
        """
        if self._sets_by_pair is None:
            self._sets_by_pair = {}
            for identity, (labels, _) in self._sets.items():
                for pair in labels.items():
                    self._sets_by_pair.setdefault(pair, {})[identity] = None
        return self._sets_by_pair


# Limit on the weight of a namespace's followed terms, and weight of a wide term, which is compared with the
# pods of all namespaces. With this limit, a gang of a thousand pods stays within its budget.
MAX_WEIGHT, WIDE_WEIGHT = 10_000, 200
ByNode = Mapping[Term, Mapping[str, int]]


class Terms:
    """Followed (anti-)affinity terms, with the nodes of pods that they select, and of pods that have them.

    Terms of other schedulers' pods are followed only if they select a member pod, because most of these terms
    only keep replicas of one workload apart. A term is dropped with the last pod that has it. The cost of an
    event does not grow with the number of terms, because an index by labels finds the terms.
    """

    def __init__(self) -> None:
        self._index = TermIndex()
        self._frozen: TermIndex | None = None
        self._pods = PodsByLabels()
        self._by_pod: dict[Uid, tuple[Term, ...]] = {}  # followed terms by pod
        self._users: dict[Term, int] = {}  # number of pods that have a followed term
        self._others = _ForeignTerms()
        self._first_namespace: dict[Term, str] = {}  # namespace of the first pod with a term
        self._weight: Counter[str] = Counter()  # weight of the terms that a namespace had first
        self._selected = _PodCounts()
        self._carried = _PodCounts()

    def is_within_limit(self, pod: PodRecord) -> bool:
        """Return whether the terms of a pod are within the limit of its namespace.

        The limit exists because terms make events expensive for all namespaces.
        """
        weight = sum(_weight(term, pod.namespace) for term in set(pod.shape.terms) - self._users.keys())
        return not weight or self._weight[pod.namespace] + weight <= MAX_WEIGHT

    def watch(self, pod: PodRecord) -> None:
        """Follow the terms of a member pod, in place of its earlier terms."""
        for term in self._others.record_member(pod):
            self._add_user(term)
        in_spec, before = pod.shape.terms, self._by_pod.get(pod.uid, ())
        terms = tuple(dict.fromkeys(in_spec))
        if terms == before:
            return
        for term in terms:
            if term not in self._users:
                self._first_namespace[term] = pod.namespace
                self._weight[pod.namespace] += _weight(term, pod.namespace)
            self._add_user(term)
        for term in before:
            self._remove_user(term)
        self._by_pod[pod.uid] = terms
        if not terms:
            del self._by_pod[pod.uid]

    def watch_other(self, pod: PodRecord) -> None:
        """Record that a pod of another scheduler is on a node."""
        for term in self._others.add(pod):
            self._add_user(term)

    def unwatch(self, uid: Uid) -> None:
        """Record that a pod of any scheduler is gone."""
        for term in (*self._by_pod.pop(uid, ()), *self._others.remove(uid)):
            self._remove_user(term)

    def count(self, pod: PodRecord, node: str, times: int) -> None:
        """Add a pod to the counts of a node, or remove it (`times` is -1)."""
        self._pods.count(pod, node, times)
        for term in self._index.terms_selecting(pod.namespace, pod.labels):
            self._selected.count(term, node, times)
        for term in pod.shape.constraints.anti_affinity:
            self._carried.count(term, node, times)

    def selected_counts(self) -> ByNode:
        """Return a copy of the nodes of the pods that each term selects."""
        return self._selected.counts_by_node(self._users)

    def anti_affinity_nodes(self) -> ByNode:
        """Return a copy of the nodes of the pods that have each term as an anti-affinity term."""
        return self._carried.counts_by_node(self._users)

    @property
    def namespace_count(self) -> int:
        """Return the number of namespaces whose member pods have terms."""
        return len(self._weight)

    def index(self) -> TermIndex:
        """Return a copy of the index. The copy is the same object until terms are added or removed."""
        if self._frozen is None:
            self._frozen = self._index.copy()
        return self._frozen

    def _add_user(self, term: Term) -> None:
        """Add a user of a term. The first user makes the term a followed term."""
        self._users[term] = self._users.get(term, 0) + 1
        if self._users[term] == 1:
            self._index.add(term)
            self._frozen = None
            self._selected.set(term, self._pods.selected_by(term))

    def _remove_user(self, term: Term) -> None:
        """Remove a user of a term. The term is forgotten with its last user."""
        self._users[term] -= 1
        if not self._users[term]:
            del self._users[term]
            self._index.remove(term)
            self._frozen = None
            self._selected.set(term, {})
            if (namespace := self._first_namespace.pop(term, None)) is not None:
                self._weight[namespace] -= _weight(term, namespace)
                if not self._weight[namespace]:
                    del self._weight[namespace]


def _weight(term: Term, namespace: str) -> int:
    """Return the weight of a term.

    The weight is 1 if the term requires labels and selects pods of its own namespace only. Otherwise it is
    higher.
    """
    is_local, selector = term.namespaces == frozenset({namespace}), term.label_selector
    return 1 if is_local and selector is not None and required_pairs(selector) else WIDE_WEIGHT


class _ForeignTerms:
    """Anti-affinity terms of other schedulers' pods. A term is followed once it has selected a member pod."""

    def __init__(self) -> None:
        self._index = TermIndex()
        self._by_pod: dict[Uid, tuple[Term, ...]] = {}
        self._users: dict[Term, int] = {}
        self._followed: set[Term] = set()
        self._members: dict[Uid, PodRecord] = {}
        self._member_labels: PodsByLabels | None = None  # made with the first term; many clusters have none

    def record_member(self, pod: PodRecord) -> list[Term]:
        """Record a member pod. Return the terms that are followed from now on."""
        before = self._members.get(pod.uid)
        if before is not None and before.namespace == pod.namespace and before.labels is pod.labels:
            return []
        if self._member_labels is not None:
            if before is not None:
                self._member_labels.count(before, "", times=-1)
            self._member_labels.count(pod, "", times=1)
        self._members[pod.uid] = pod
        selecting = self._index.terms_selecting(pod.namespace, pod.labels)
        new_terms = [term for term in selecting if term not in self._followed]
        self._followed.update(new_terms)
        return new_terms

    def add(self, pod: PodRecord) -> list[Term]:
        """Add a pod. Return the terms that are followed from now on. The terms of a pod never change."""
        terms = pod.shape.constraints.anti_affinity
        if not terms or pod.uid in self._by_pod:
            return []
        self._by_pod[pod.uid] = terms
        for term in terms:
            self._users[term] = self._users.get(term, 0) + 1
            if self._users[term] == 1:
                self._index.add(term)
        labels = self._labels_of_members()
        new_terms = [term for term in terms if term not in self._followed and labels.selected_by(term)]
        self._followed.update(new_terms)
        return new_terms

    def remove(self, uid: Uid) -> list[Term]:
        """Remove a pod of any scheduler. Return the terms that are no longer followed."""
        if (labels := self._members.pop(uid, None)) is not None and self._member_labels is not None:
            self._member_labels.count(labels, "", times=-1)
        terms = self._by_pod.pop(uid, ())
        for term in terms:
            self._users[term] -= 1
        unused = [term for term in terms if not self._users[term]]
        for term in unused:
            del self._users[term]
            self._index.remove(term)
        unfollowed = [term for term in unused if term in self._followed]
        self._followed.difference_update(unfollowed)
        return unfollowed

    def _labels_of_members(self) -> PodsByLabels:
        """Return the labels of all member pods, which are counted on first use."""
        if self._member_labels is None:
            self._member_labels = PodsByLabels()
            for pod in self._members.values():
                self._member_labels.count(pod, "", times=1)
        return self._member_labels


class _PodCounts:
    """Numbers of pods by term and node. Copies stay valid until a count of their term changes."""

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
        """Add `times` to the number of pods on a node that count for a term."""
        by_node = self._counts.setdefault(term, {})
        by_node[node] = by_node.get(node, 0) + times
        if not by_node[node]:
            del by_node[node]
        self._copies.pop(term, None)
        if not by_node:
            del self._counts[term]

    def counts_by_node(self, terms: Mapping[Term, int]) -> ByNode:
        """Return the number of pods by node for each of these terms, without zeros."""
        for term in terms.keys() - self._copies.keys():
            self._copies[term] = dict(self._counts.get(term, {}))
        if len(self._copies) > len(terms):
            self._copies = {term: self._copies[term] for term in terms}
        return {term: self._copies[term] for term in terms}
