"""(Anti-)affinity terms and host ports in use, with the nodes concerned, counted incrementally."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.selectors import Labels
from extender.domain.model.shapes import HostPort, Pair, Term, TermIndex, is_any_port_used, required_pairs


class HostPorts:
    """Host ports of claims, counted by node. Few nodes have any."""

    def __init__(self) -> None:
        self._fixed_ports: dict[str, Counter[HostPort]] = {}
        self._planned_ports: dict[str, Counter[HostPort]] = {}

    def add(self, node: str, ports: Iterable[HostPort], is_fixed: bool, sign: int) -> None:
        """Add the ports of a claim to a node, or remove them (`sign` is -1)."""
        by_node = self._fixed_ports if is_fixed else self._planned_ports
        for port in ports:
            counts = by_node.setdefault(node, Counter())
            counts[port] += sign
            if not counts[port]:
                del counts[port]
            if not counts:
                del by_node[node]

    def conflicts(self, node: str, ports: tuple[HostPort, ...], own_ports: tuple[HostPort, ...] = ()) -> bool:
        """Return whether another claim on the node uses any of these ports.

        Args:
            node: The node.
            ports: The ports.
            own_ports: The ports of the pod's own claim on the node, which do not count.
        """
        if not ports:
            return False
        counts = self._fixed_ports.get(node, Counter()) + self._planned_ports.get(node, Counter())
        return is_any_port_used(ports, counts - Counter(own_ports))

    def fixed_ports(self) -> dict[str, dict[HostPort, int]]:
        """Return a copy of the host ports of fixed claims."""
        return {node: dict(counts) for node, counts in self._fixed_ports.items()}


class PodsByLabels:
    """Numbers of pods on each node by namespace and labels, from which the pods of a new term are counted.

    Pods of one template share their labels, so there are far fewer sets of labels than pods. The sets are
    indexed by label pairs only in namespaces in which a term has already selected pods, because most
    namespaces never have a term.
    """

    def __init__(self) -> None:
        self._sets_by_namespace: dict[str, _LabelSets] = {}

    def add(self, pod: PodRecord, node: str, sign: int) -> None:
        """Add a pod to a node, or remove it (`sign` is -1).

        Its labels must be the same object both times.
        """
        label_sets = self._sets_by_namespace.get(pod.namespace)
        if label_sets is None:
            label_sets = self._sets_by_namespace[pod.namespace] = _LabelSets()
        if not label_sets.add(pod.labels, node, sign):
            del self._sets_by_namespace[pod.namespace]

    def counts_of(self, term: Term) -> Counter[str]:
        """Return the number of pods on each node that a term selects."""
        counts: Counter[str] = Counter()
        all_names = self._sets_by_namespace.keys()
        for namespace in all_names if term.namespaces is None else sorted(term.namespaces & all_names):
            for labels, count_by_node in self._sets_by_namespace[namespace].candidate_sets(term):
                if term.matches(namespace, labels):
                    counts.update(count_by_node)
        return counts


class _LabelSets:
    """Sets of labels in one namespace, with the numbers of their pods by node.

    The sets are keyed by the identity of the labels object.
    """

    def __init__(self) -> None:
        self._sets: dict[int, tuple[Labels, dict[str, int]]] = {}
        self._sets_by_pair: dict[Pair, dict[int, None]] | None = None

    def add(self, labels: Labels, node: str, sign: int) -> bool:
        """Add a pod to the counts of its labels, or remove it. Return whether any set of labels is left."""
        entry = self._sets.get(id(labels))
        if entry is None:
            entry = self._sets[id(labels)] = (labels, {})
            for pair in self._pairs_to_index(labels):
                self._pair_index().setdefault(pair, {})[id(labels)] = None
        by_node = entry[1]
        if remaining := by_node.get(node, 0) + sign:
            by_node[node] = remaining
            return True
        del by_node[node]
        if not by_node:
            del self._sets[id(labels)]
            for pair in self._pairs_to_index(labels):
                identities = self._pair_index()[pair]
                del identities[id(labels)]
                if not identities:
                    del self._pair_index()[pair]
        return bool(self._sets)

    def candidate_sets(self, term: Term) -> Iterable[tuple[Labels, dict[str, int]]]:
        """Return the sets of labels that `term` may select, with the numbers of their pods by node."""
        selector = term.label_selector
        if selector is None:
            return ()
        alternatives = required_pairs(selector)
        if not alternatives:
            return self._sets.values()
        sets_by_pair = self._pair_index()
        pairs_to_use = min(alternatives, key=lambda pairs: sum(len(sets_by_pair.get(p, ())) for p in pairs))
        return [self._sets[identity] for pair in pairs_to_use for identity in sets_by_pair.get(pair, ())]

    def _pairs_to_index(self, labels: Labels) -> Iterator[Pair]:
        """Return the label pairs to index; none as long as there is no index."""
        return iter(labels.items() if self._sets_by_pair is not None else ())

    def _pair_index(self) -> dict[Pair, dict[int, None]]:
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
CountsByNode = Mapping[Term, Mapping[str, int]]


class Terms:
    """Followed (anti-)affinity terms, with the nodes of pods that they select, and of pods that have them.

    Terms of other schedulers' pods are followed only if they select a member pod, because most of these terms
    only keep replicas of one workload apart. A term is dropped with the last pod that has it. The cost of an
    event does not grow with the number of terms, because an index by labels finds the terms.
    """

    def __init__(self) -> None:
        self._index = TermIndex()
        self._index_copy: TermIndex | None = None
        self._pods = PodsByLabels()
        self._terms_by_pod: dict[Uid, tuple[Term, ...]] = {}  # followed terms by pod
        self._pod_counts: dict[Term, int] = {}  # number of pods that have a followed term
        self._foreign_terms = _ForeignTerms()
        self._first_namespace: dict[Term, str] = {}  # namespace of the first pod with a term
        self._weights: Counter[str] = Counter()  # total weight of terms by their first namespace
        self._selected_counts = _PodCounts()
        self._carrier_counts = _PodCounts()

    def is_within_limit(self, pod: PodRecord) -> bool:
        """Return whether the terms of a pod are within the limit of its namespace.

        The limit exists because terms make events expensive for all namespaces.
        """
        weight = sum(_weight_of(t, pod.namespace) for t in set(pod.shape.terms) - self._pod_counts.keys())
        return not weight or self._weights[pod.namespace] + weight <= MAX_WEIGHT

    def follow(self, pod: PodRecord) -> None:
        """Follow the terms of a member pod, in place of its earlier terms."""
        for term in self._foreign_terms.record_member(pod):
            self._add_user(term)
        spec_terms, old_terms = pod.shape.terms, self._terms_by_pod.get(pod.uid, ())
        terms = tuple(dict.fromkeys(spec_terms))
        if terms == old_terms:
            return
        for term in terms:
            if term not in self._pod_counts:
                self._first_namespace[term] = pod.namespace
                self._weights[pod.namespace] += _weight_of(term, pod.namespace)
            self._add_user(term)
        for term in old_terms:
            self._remove_user(term)
        self._terms_by_pod[pod.uid] = terms
        if not terms:
            del self._terms_by_pod[pod.uid]

    def follow_other(self, pod: PodRecord) -> None:
        """Record the terms of a pod of another scheduler, which is on a node."""
        for term in self._foreign_terms.add(pod):
            self._add_user(term)

    def unfollow(self, uid: Uid) -> None:
        """Unfollow the terms of a pod of any scheduler, because the pod is gone."""
        for term in (*self._terms_by_pod.pop(uid, ()), *self._foreign_terms.remove(uid)):
            self._remove_user(term)

    def add(self, pod: PodRecord, node: str, sign: int) -> None:
        """Add a pod to the counts of a node, or remove it (`sign` is -1)."""
        self._pods.add(pod, node, sign)
        for term in self._index.terms_selecting(pod.namespace, pod.labels):
            self._selected_counts.add(term, node, sign)
        for term in pod.shape.constraints.anti_affinity:
            self._carrier_counts.add(term, node, sign)

    def selected_counts(self) -> CountsByNode:
        """Return a copy of the nodes of the pods that each term selects."""
        return self._selected_counts.counts_by_node(self._pod_counts)

    def anti_affinity_nodes(self) -> CountsByNode:
        """Return a copy of the nodes of the pods that have each term as an anti-affinity term."""
        return self._carrier_counts.counts_by_node(self._pod_counts)

    @property
    def namespace_count(self) -> int:
        """Return the number of namespaces whose member pods have terms."""
        return len(self._weights)

    def index(self) -> TermIndex:
        """Return a copy of the index. The copy is the same object until terms are added or removed."""
        if self._index_copy is None:
            self._index_copy = self._index.copy()
        return self._index_copy

    def _add_user(self, term: Term) -> None:
        """Add a user of a term. The first user makes the term a followed term."""
        self._pod_counts[term] = self._pod_counts.get(term, 0) + 1
        if self._pod_counts[term] == 1:
            self._index.add(term)
            self._index_copy = None
            self._selected_counts.put(term, self._pods.counts_of(term))

    def _remove_user(self, term: Term) -> None:
        """Remove a user of a term. The term is forgotten with its last user."""
        self._pod_counts[term] -= 1
        if not self._pod_counts[term]:
            del self._pod_counts[term]
            self._index.remove(term)
            self._index_copy = None
            self._selected_counts.put(term, {})
            if (namespace := self._first_namespace.pop(term, None)) is not None:
                self._weights[namespace] -= _weight_of(term, namespace)
                if not self._weights[namespace]:
                    del self._weights[namespace]


def _weight_of(term: Term, namespace: str) -> int:
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
        self._terms_by_pod: dict[Uid, tuple[Term, ...]] = {}
        self._pod_counts: dict[Term, int] = {}
        self._followed_terms: set[Term] = set()
        self._members: dict[Uid, PodRecord] = {}
        self._member_labels: PodsByLabels | None = None  # made with the first term; many clusters have none

    def record_member(self, pod: PodRecord) -> list[Term]:
        """Record a member pod. Return the terms that are followed from now on."""
        old_pod = self._members.get(pod.uid)
        if old_pod is not None and old_pod.namespace == pod.namespace and old_pod.labels is pod.labels:
            return []
        if self._member_labels is not None:
            if old_pod is not None:
                self._member_labels.add(old_pod, "", sign=-1)
            self._member_labels.add(pod, "", sign=1)
        self._members[pod.uid] = pod
        selecting = self._index.terms_selecting(pod.namespace, pod.labels)
        new_terms = [term for term in selecting if term not in self._followed_terms]
        self._followed_terms.update(new_terms)
        return new_terms

    def add(self, pod: PodRecord) -> list[Term]:
        """Add a pod. Return the terms that are followed from now on. The terms of a pod never change."""
        terms = pod.shape.constraints.anti_affinity
        if not terms or pod.uid in self._terms_by_pod:
            return []
        self._terms_by_pod[pod.uid] = terms
        for term in terms:
            self._pod_counts[term] = self._pod_counts.get(term, 0) + 1
            if self._pod_counts[term] == 1:
                self._index.add(term)
        labels = self._labels_of_members()
        new_terms = [term for term in terms if term not in self._followed_terms and labels.counts_of(term)]
        self._followed_terms.update(new_terms)
        return new_terms

    def remove(self, uid: Uid) -> list[Term]:
        """Remove a pod of any scheduler. Return the terms that are no longer followed."""
        if (member := self._members.pop(uid, None)) is not None and self._member_labels is not None:
            self._member_labels.add(member, "", sign=-1)
        terms = self._terms_by_pod.pop(uid, ())
        for term in terms:
            self._pod_counts[term] -= 1
        unused_terms = [term for term in terms if not self._pod_counts[term]]
        for term in unused_terms:
            del self._pod_counts[term]
            self._index.remove(term)
        terms_to_forget = [term for term in unused_terms if term in self._followed_terms]
        self._followed_terms.difference_update(terms_to_forget)
        return terms_to_forget

    def _labels_of_members(self) -> PodsByLabels:
        """Return the labels of all member pods, which are counted on first use."""
        if self._member_labels is None:
            self._member_labels = PodsByLabels()
            for pod in self._members.values():
                self._member_labels.add(pod, "", sign=1)
        return self._member_labels


class _PodCounts:
    """Numbers of pods by term and node. Copies stay valid until a count of their term changes."""

    def __init__(self) -> None:
        self._counts: dict[Term, dict[str, int]] = {}
        self._copies: dict[Term, dict[str, int]] = {}

    def put(self, term: Term, count_by_node: Mapping[str, int]) -> None:
        self._copies.pop(term, None)
        if count_by_node:
            self._counts[term] = dict(count_by_node)
        else:
            self._counts.pop(term, None)

    def add(self, term: Term, node: str, sign: int) -> None:
        """Add a pod to the number of pods on a node that count for a term, or remove it (`sign` is -1)."""
        count_by_node = self._counts.setdefault(term, {})
        count_by_node[node] = count_by_node.get(node, 0) + sign
        if not count_by_node[node]:
            del count_by_node[node]
        self._copies.pop(term, None)
        if not count_by_node:
            del self._counts[term]

    def counts_by_node(self, terms: Mapping[Term, int]) -> CountsByNode:
        """Return the number of pods by node for each of these terms, without zeros."""
        for term in terms.keys() - self._copies.keys():
            self._copies[term] = dict(self._counts.get(term, {}))
        if len(self._copies) > len(terms):
            self._copies = {term: self._copies[term] for term in terms}
        return {term: self._copies[term] for term in terms}
