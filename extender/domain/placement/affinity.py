"""Rules on which pods may share a node or a domain: host ports, required (anti-)affinity and pod sets.

All terms of a pod form one set, and pods with equal sets are counted together. Therefore, the cost of
counting a pod does not depend on the number of terms that concern the pod. Counts can be undone.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from math import inf
from typing import TypeVar

import numpy as np

from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.selectors import Labels
from extender.domain.model.shapes import MAX_SELECTORS, LabelPairs, Shape, Term, TermIndex, is_any_port_used
from extender.domain.model.topology import TopologySet
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.nodes import Mask, NodeTable, Rows
from extender.domain.snapshot.snapshot import Occupancy
from extender.domain.snapshot.wholeness import Missing

_NO_NODES: Mapping[str, int] = {}
_FREE_COUNT = 32  # number of rows that cost as much to read together as one node by name
# Costs in looks of comparing a term with the labels of a pod, and of comparing two sets of terms.
_MATCH_COST, _RELATE_COST = 5, 3
_PARSE_COST = 24  # cost of comparing a term whose parsed selector is not cached


Spend = Callable[[float], None]  # spends looks at a node for a term; raises OverBudget at the limit


def spend_beyond_free(spend: Spend, count: int, looks: float = 1) -> None:
    """Spend effort for `count` things. Up to `_FREE_COUNT` things cost nothing; most pods have no more.

    Args:
        spend: Spends the effort.
        count: The number of things.
        looks: The cost of each thing.
    """
    if count > _FREE_COUNT:
        spend(count * looks)


def cost_on_rows(nodes: NodeTable, named_count: int = 1) -> float:
    """Return the cost of reading all nodes together, and `named_count` nodes by name."""
    return named_count + len(nodes.nodes) / _FREE_COUNT


class TermSet:
    """Set of (anti-)affinity terms, compared by identity.

    A set has one of two sorts: a pod carries the terms of its anti-affinity, and terms in use select a pod.

    Attributes:
        keys_by_set: For each set of the other sort with common terms, the topology keys of these terms.
    """

    __slots__ = ("keys_by_set", "terms")

    def __init__(self, terms: Iterable[Term]) -> None:
        self.terms = dict.fromkeys(terms)
        self.keys_by_set: dict[TermSet, set[str]] = {}


NO_TERMS = TermSet(())


class _TermSetIndex:
    """Index of the term sets of one sort: `sets` by all their terms, `by_term` by each of their terms."""

    def __init__(self) -> None:
        self.sets: dict[tuple[Term, ...], TermSet] = {}
        self.by_term: defaultdict[Term, list[TermSet]] = defaultdict(list)


class TermSets:
    """Both sorts of term sets: the sets that pods carry and the sets that select pods.

    The sets remain valid during a scheduling cycle, because they do not depend on the nodes of pods.
    """

    def __init__(self, index: TermIndex, spend: Spend) -> None:
        self._spend = spend
        self._index = index
        self._carried, self._selecting = _TermSetIndex(), _TermSetIndex()
        self._anti_affinity: dict[Shape, TermSet] = {}
        self._by_labels: dict[tuple[str, int], tuple[Labels, TermSet]] = {}  # by namespace and id(labels)
        self._set_by_mentioned: dict[tuple[str, LabelPairs], TermSet] = {}  # by namespace, mentioned labels

    def set_of(self, terms: tuple[Term, ...]) -> TermSet:
        """Return the set of these terms, which a pod carries.

        Raises:
            OverBudget: The evaluation is over budget.
        """
        return self._unique_set(self._carried, self._selecting, terms)

    def anti_affinity_of(self, shape: Shape) -> TermSet:
        """Return the set of the anti-affinity terms of a shape.

        Raises:
            OverBudget: The evaluation is over budget.
        """
        if shape not in self._anti_affinity:
            self._anti_affinity[shape] = self.set_of(shape.constraints.anti_affinity)
        return self._anti_affinity[shape]

    def terms_for(self, pod: PodRecord) -> TermSet:
        """Return the set of all terms in use that select a pod.

        Raises:
            OverBudget: The evaluation is over budget.
        """
        key = pod.namespace, id(pod.labels)
        if key not in self._by_labels:  # the cache refers to the labels, so that their id stays unique
            similar_key = pod.namespace, self._index.mentioned_labels(pod.labels)
            if similar_key not in self._set_by_mentioned:
                candidates = self._index.candidates(pod.namespace, pod.labels)
                looks = _MATCH_COST if len(self._index) <= MAX_SELECTORS else _PARSE_COST
                spend_beyond_free(self._spend, sum(map(len, candidates)), looks)
                terms = tuple(self._index.terms_selecting(pod.namespace, pod.labels))
                self._set_by_mentioned[similar_key] = self._unique_set(self._selecting, self._carried, terms)
            self._by_labels[key] = pod.labels, self._set_by_mentioned[similar_key]
        return self._by_labels[key][1]

    def _unique_set(self, own_sets: _TermSetIndex, peers: _TermSetIndex, terms: tuple[Term, ...]) -> TermSet:
        """Return the one TermSet object for these terms.

        A new object is related to the sets with common terms.

        Args:
            own_sets: The existing sets of the same sort.
            peers: The existing sets of the other sort, which may have terms in common.
            terms: The terms of the set.
        """
        if not terms:
            return NO_TERMS
        if terms not in own_sets.sets:
            new_set = TermSet(terms)
            related_sets = [(term, sets) for term in new_set.terms if (sets := peers.by_term.get(term))]
            pair_count = sum(len(sets) for _, sets in related_sets)
            spend_beyond_free(self._spend, len(new_set.terms) + pair_count, _RELATE_COST)
            for term, sets in related_sets:
                for other_set in sets:
                    new_set.keys_by_set.setdefault(other_set, set()).add(term.topology_key)
                    other_set.keys_by_set.setdefault(new_set, set()).add(term.topology_key)
            for term in new_set.terms:
                own_sets.by_term[term].append(new_set)
            own_sets.sets[terms] = new_set
        return own_sets.sets[terms]


class _PodChanges:
    """Number of pods by node that were counted or removed since the snapshot.

    Attributes:
        by_node: The number of pods by node, without zeros. A number is negative if pods of the snapshot were
            removed.
        added_nodes: The nodes of the pods counted since the last removal, in order.
        removals: The number of removals.
    """

    __slots__ = ("added_nodes", "by_node", "removals")

    def __init__(self) -> None:
        self.by_node: dict[str, int] = {}
        self.added_nodes: list[str] = []
        self.removals = 0

    def add(self, node: str, times: int) -> int:
        """Add pods to the count of a node, or remove them if `times` is negative.

        Return 1 if the count becomes negative, -1 if it is no longer negative, and else 0. A negative count
        means that more pods of the snapshot were removed than other pods added.
        """
        old_count = self.by_node.pop(node, 0)
        if new_count := old_count + times:
            self.by_node[node] = new_count
        if times > 0:
            self.added_nodes.append(node)
        else:
            self.added_nodes, self.removals = [], self.removals + 1
        return (new_count < 0) - (old_count < 0)

    def copy(self) -> "_PodChanges":
        copy_of_changes = _PodChanges()
        copy_of_changes.by_node = dict(self.by_node)
        return copy_of_changes


class _CachedAnswers:
    """Cached answers for a set of terms.

    Attributes:
        has_any: The answer of `PodsByTerms.has_any`, valid at the version `has_any_version`.
        mask: The answer of `PodsByTerms.domains`, valid at the version `mask_version`.
        progress: For each set of the other sort, how many removals and added pods `mask` accounts for.
    """

    __slots__ = ("has_any", "has_any_version", "mask", "mask_version", "progress")

    def __init__(self) -> None:
        self.has_any, self.has_any_version, self.mask_version = False, -1, -1
        self.mask: Mask | None = None
        self.progress: dict[TermSet, tuple[int, int]] = {}


class PodsByTerms:
    """Pods on nodes, counted by the term sets of one sort.

    The counts of the snapshot, by term and node, are shared between clones and never change. Pods that are
    counted after the snapshot have counts of their own. The methods `has_any` and `domains` take sets of the
    other sort.
    """

    def __init__(self, base_counts: Mapping[Term, Mapping[str, int]], nodes: NodeTable, spend: Spend) -> None:
        self._snapshot_counts, self._nodes, self._spend = base_counts, nodes, spend
        self._changes: dict[TermSet, _PodChanges] = {}
        self._version = self._removals = 0
        self._answers_by_set: dict[TermSet, _CachedAnswers] = {}
        self._has_pods: dict[TermSet, bool] = {}  # whether a pod of the snapshot has a term of the set
        self._at_start: dict[TermSet, Mask] = {}  # domains with a matching pod of the snapshot

    def clone(self) -> "PodsByTerms":
        clone = PodsByTerms(self._snapshot_counts, self._nodes, self._spend)
        clone._changes = {each: changes.copy() for each, changes in self._changes.items() if changes.by_node}
        clone._removals = self._removals
        clone._has_pods, clone._at_start = self._has_pods, self._at_start
        return clone

    def add(self, terms: TermSet, node: str, times: int) -> None:
        """Count pods that carry, or are selected by, these terms on a node; with `times` -1, remove one."""
        if terms.terms:
            self._removals += self._changes.setdefault(terms, _PodChanges()).add(node, times)
            self._version += 1

    def has_any(self, terms: TermSet) -> bool:
        """Return whether any pod on a node counts for one of these terms.

        Raises:
            OverBudget: The evaluation is over budget.
        """
        answers = self._answers_by_set.get(terms) or self._answers_by_set.setdefault(terms, _CachedAnswers())
        if answers.has_any_version != self._version:
            if terms not in self._has_pods:
                spend_beyond_free(self._spend, len(terms.terms))
                self._has_pods[terms] = any(map(self._snapshot_counts.get, terms.terms))
            spend_beyond_free(self._spend, len(terms.keys_by_set))
            if self._is_any_removed(terms):
                answers.has_any = any(any(self._by_node(term, terms).values()) for term in terms.terms)
            else:
                node_counts = (changes.by_node for _, changes in self._peers_of(terms))
                answers.has_any = self._has_pods[terms] or any(node_counts)
            answers.has_any_version = self._version
        return answers.has_any

    def domains(self, terms: TermSet) -> Mask:
        """Return the rows that share a domain with a pod that has one of these terms.

        The caller must not change the mask.

        Raises:
            OverBudget: The evaluation is over budget.
        """
        answers = self._answers_by_set.get(terms) or self._answers_by_set.setdefault(terms, _CachedAnswers())
        if answers.mask is None or answers.mask_version != self._version:
            spend_beyond_free(self._spend, len(terms.keys_by_set))
            is_extensible = answers.mask is not None and all(
                changes.removals == answers.progress.get(peer, (0, 0))[0]
                for peer, changes in self._peers_of(terms)
            )
            answers.mask = self._extend_mask(terms, answers) if is_extensible else self._compute_mask(terms)
            answers.progress = {
                peer: (changes.removals, len(changes.added_nodes)) for peer, changes in self._peers_of(terms)
            }
            answers.mask_version = self._version
        return answers.mask

    def _peers_of(self, terms: TermSet) -> Iterator[tuple[TermSet, _PodChanges]]:
        """Yield the sets with common terms that have pods counted since the snapshot, with these counts."""
        changes_by_set = self._changes
        return ((peer, changes_by_set[peer]) for peer in terms.keys_by_set if peer in changes_by_set)

    def _extend_mask(self, terms: TermSet, answers: _CachedAnswers) -> Mask:
        """Return the cached mask extended by the domains of pods that were added after it was computed."""
        new_nodes: defaultdict[str, list[str]] = defaultdict(list)
        for other_set, changes in self._peers_of(terms):
            if added_nodes := changes.added_nodes[answers.progress.get(other_set, (0, 0))[1] :]:
                for key in terms.keys_by_set[other_set]:
                    new_nodes[key] += added_nodes
        assert answers.mask is not None
        return self._with_domains(new_nodes, answers.mask) if new_nodes else answers.mask

    def _compute_mask(self, terms: TermSet) -> Mask:
        """Return the domains of matching pods of the snapshot, and of matching pods counted since.

        If a matching pod of the snapshot was removed, all pods are counted again.
        """
        if self._is_any_removed(terms):
            nodes_by_key: defaultdict[str, set[str]] = defaultdict(set)
            for term in terms.terms:
                nodes_by_key[term.topology_key].update(+Counter(self._by_node(term, terms)))
            return self._with_domains(nodes_by_key, np.zeros(len(self._nodes.nodes), np.bool_))
        if terms not in self._at_start:
            base_nodes: defaultdict[str, set[str]] = defaultdict(set)
            for term in terms.terms:
                if by_node := self._snapshot_counts.get(term):
                    self._spend(len(by_node))
                    base_nodes[term.topology_key].update(by_node)
            self._spend(len(terms.terms))
            self._at_start[terms] = self._with_domains(base_nodes, np.zeros(len(self._nodes.nodes), np.bool_))
        added_nodes: defaultdict[str, set[str]] = defaultdict(set)
        for other_set, changes in self._peers_of(terms):
            for key in terms.keys_by_set[other_set]:
                added_nodes[key].update(changes.by_node)
        return self._with_domains(added_nodes, self._at_start[terms])

    def _is_any_removed(self, terms: TermSet) -> bool:
        """Return whether a pod of the snapshot that matches one of these terms was removed."""
        return self._removals > 0 and any(
            min(changes.by_node.values(), default=0) < 0 for _, changes in self._peers_of(terms)
        )

    def _by_node(self, term: Term, terms: TermSet) -> Mapping[str, int]:
        """Return the present number of pods by node that match `term`, which is one of `terms`."""
        by_node = Counter(self._snapshot_counts.get(term, _NO_NODES))
        self._spend(len(by_node) + len(terms.keys_by_set))
        for other_set, changes in self._peers_of(terms):
            if term in other_set.terms:
                for node, count in changes.by_node.items():
                    by_node[node] += count
        return by_node

    def _with_domains(self, nodes_by_key: Mapping[str, Iterable[str]], mask: Mask) -> Mask:
        """Return a copy of `mask` that also has all rows in the domains of the given nodes.

        `nodes_by_key` has the names of nodes by topology key.
        """
        mask = mask.copy()
        for key, names in nodes_by_key.items():
            rows = [row for row in map(self._nodes.row_of.get, names) if row is not None]
            self._spend(cost_on_rows(self._nodes, len(rows)))
            codes = self._nodes.domains(key)
            is_inside = np.zeros(len(codes) + 1, dtype=np.bool_)  # by domain code; the last entry is for -1
            is_inside[codes[rows]] = True
            is_inside[-1] = False
            mask |= is_inside[codes]
        return mask


# Costs in looks of finding nodes for pods of one kind, and of finding nodes near other pods.
_PLACE_COST, _NEAR_COST = 500, 80
T = TypeVar("T")


class OverBudget(Exception):
    """Error: the evaluation of a group takes more work than the group may cause."""


class Effort:
    """Budget of effort for the evaluation of a group. Its unit is a look: to check one node for one term.

    The budget counts work, not time, so that a snapshot leads to the same decision on any machine. The effort
    is unlimited until `allow` is called.
    """

    def __init__(self) -> None:
        self._remaining_looks = inf

    def allow(self, looks: float) -> float:
        """Set the remaining effort. Return the effort that remained before."""
        outer_looks, self._remaining_looks = self._remaining_looks, looks
        return outer_looks

    def within(self, looks: float, evaluate: Callable[[], T]) -> T | None:
        """Return the result of `evaluate`, which may spend up to `looks`; None if it would spend more.

        The effort counts against the outer budget, too.
        """
        outer_looks = self.allow(0.0)
        allowed_looks = min(outer_looks, looks)
        self.allow(allowed_looks)
        try:
            return evaluate()
        except OverBudget:
            return None
        finally:
            self.allow(outer_looks - (allowed_looks - self._remaining_looks))

    def spend(self, looks: float) -> None:
        """Spend effort before the work is done.

        Raises:
            OverBudget: More would be spent than allowed. The caller must not do the work, and no effort
                remains.
        """
        if looks > self._remaining_looks:
            self._remaining_looks = 0.0
            raise OverBudget
        self._remaining_looks -= looks


SetCount = tuple[tuple[TopologySet, ...], str, int]  # pod sets, a node, and the number of members there
PodsByShape = Mapping[Shape, list[PodRecord]]  # pods that must share a domain, keyed by shape


def _nodes_of_sets(group: GroupInfo) -> Mapping[TopologySet, Counter[str]]:
    """Return for each pod set of a group the number of its members with capacity by node."""
    counts_by_set: defaultdict[TopologySet, Counter[str]] = defaultdict(Counter)
    placed_pods = [(pod, pod.node) for pod in group.placed_pods if pod.holds_capacity]
    member_counts = Counter((pod.pod_sets, node) for pod, node in (*placed_pods, *group.assumed_pods))
    for (pod_sets, node), count in member_counts.items():
        for pod_set in pod_sets:
            counts_by_set[pod_set][node] += count
    return counts_by_set


class AffinityCounts:
    """Working copy of an Occupancy: counts pods on nodes by terms, host ports and pod sets."""

    def __init__(
        self,
        occupancy: Occupancy,
        nodes: NodeTable,
        counts: Callable[[Shape], Rows],
        like: "AffinityCounts | None" = None,
        groups: Mapping[GroupKey, GroupInfo] | None = None,
    ) -> None:
        """Copy an occupancy.

        Args:
            occupancy: The pods on nodes that terms and host ports concern.
            nodes: The nodes.
            counts: Returns for a shape how many of its pods each row has capacity for.
            like: Other counts with the same terms. Their results and effort are shared.
            groups: The groups with members on these nodes.
        """
        self.effort: Effort = like.effort if like else Effort()
        self._like, self._occupancy, self._nodes = like, occupancy, nodes
        self._count_fitting = counts
        self._ports = {node: Counter(ports) for node, ports in occupancy.port_counts.items()}
        self._has_terms = len(occupancy.terms) > 0
        self._sharing_pods: dict[Term, dict[Shape, list[PodRecord]]] = {}
        self._groups = groups or {}
        self._nodes_of_sets: dict[TopologySet, Counter[str]] = {}  # numbers of members by node

    @cached_property
    def sets(self) -> TermSets:
        return self._like.sets if self._like else TermSets(self._occupancy.terms, self.effort.spend)

    @cached_property
    def _selected_pods(self) -> PodsByTerms:
        return PodsByTerms(self._occupancy.selected_counts, self._nodes, self.effort.spend)

    @cached_property
    def _carriers(self) -> PodsByTerms:
        return PodsByTerms(self._occupancy.carrier_counts, self._nodes, self.effort.spend)

    def clone(self, counts: Callable[[Shape], Rows]) -> "AffinityCounts":
        """Return a copy that changes independently, for another planner.

        `counts` returns how many pods of a shape each row of that planner has capacity for.
        """
        clone = AffinityCounts(self._occupancy, self._nodes, counts, self, self._groups)
        clone._nodes_of_sets = {pod_set: nodes.copy() for pod_set, nodes in self._nodes_of_sets.items()}
        clone._ports = {node: ports.copy() for node, ports in self._ports.items()}
        if self._has_terms:
            clone._selected_pods, clone._carriers = self._selected_pods.clone(), self._carriers.clone()
        return clone

    @contextmanager
    def gathering(self, pods: Iterable[PodRecord]) -> Iterator[None]:
        """Prefer domains with capacity for all `pods` during the block, if the pods must share a domain."""
        for pod in pods:
            for term in pod.shape.constraints.affinity:
                self._sharing_pods.setdefault(term, {}).setdefault(pod.shape, []).append(pod)
        try:
            yield
        finally:
            self._sharing_pods = {}

    def is_interdependent(self, pod: PodRecord) -> bool:
        """Return whether each placed pod of this kind restricts the nodes of the next pod.

        Raises:
            OverBudget: The evaluation is over budget.
        """
        return pod.shape.looks_at_others or (
            self._has_terms and self._carriers.has_any(self.sets.terms_for(pod))
        )

    def dependent_uids(self, pods: Collection[PodRecord]) -> set[Uid]:
        """Return the pods that are interdependent now, or that become so once others of `pods` are placed.

        Raises:
            OverBudget: The evaluation is over budget.
        """
        shapes, found_uids = {pod.shape for pod in pods}, set[Uid]()
        exclusive = {self.sets.anti_affinity_of(shape) for shape in shapes if shape.constraints.anti_affinity}
        if not (exclusive or self._is_any_related(pods, shapes)):
            return found_uids
        for pod in pods:
            if self.is_interdependent(pod) or not exclusive.isdisjoint(self.sets.terms_for(pod).keys_by_set):
                found_uids.add(pod.uid)
        return found_uids

    def is_any_interdependent(self, need: Missing) -> bool:
        """Return whether the node of a member depends on other pods, or on placed members of its pod sets."""
        if any(map(self.has_members, need.pod_sets)):
            return True
        return self._is_any_related(need.members, need.shapes)

    def _is_any_related(self, pods: Iterable[PodRecord], shapes: Iterable[Shape]) -> bool:
        """Return whether any of `pods` is interdependent. `shapes` are the shapes of these pods."""
        if any(shape.looks_at_others for shape in shapes):
            return True
        if not self._has_terms:
            return False
        pod_by_labels = {(pod.namespace, id(pod.labels)): pod for pod in pods}
        return any(map(self.is_interdependent, pod_by_labels.values()))

    def is_counted(self, pod: PodRecord) -> bool:
        """Return whether the pod must be counted on its node, because of its pod sets or of constraints."""
        return bool(pod.pod_sets) or self.is_related(pod)

    def is_related(self, pod: PodRecord) -> bool:
        """Return whether the pod has constraints on other pods, or constraints of other pods select it.

        Pod sets do not matter here.
        """
        return pod.shape.looks_at_others or (self._has_terms and bool(self.sets.terms_for(pod).terms))

    def rows_for(self, pod: PodRecord) -> Mask:
        """Return the rows where no other pod excludes `pod`, and where the affinity of `pod` is met.

        Raises:
            OverBudget: The evaluation is over budget.
        """
        allowed_rows = self._admitting_rows(pod)
        for term in pod.shape.constraints.affinity:
            allowed_rows &= self._rows_of_term(term, pod)
        return allowed_rows

    def positions(self, pod: PodRecord, rows: Rows, counts: Rows) -> Rows:
        """Return the positions in `rows` on which equal pods may be placed at the same time.

        Each row admits one of these pods. A position is repeated if its row admits several of them, up to
        `counts`.

        Raises:
            OverBudget: The evaluation is over budget.
        """
        has_ports = bool(pod.shape.constraints.ports)  # two of these pods never fit on one node
        keys_apart = self.sets.terms_for(pod).keys_by_set.get(self.sets.anti_affinity_of(pod.shape), set())
        if not keys_apart and not has_ports:
            return np.repeat(np.arange(len(rows)), counts)
        self.effort.spend(len(rows) * len(keys_apart))
        columns = [rows] if has_ports else []
        columns += [self._nodes.domains(key)[rows] for key in sorted(keys_apart)]
        found_positions: list[int] = []
        used_domains: set[tuple[int, int]] = set()
        for position, codes in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            domains = [(number, code) for number, code in enumerate(codes) if code >= 0]
            if used_domains.isdisjoint(domains):
                used_domains.update(domains)
                found_positions += [position] * (1 if domains else int(counts[position]))
        return np.array(found_positions, dtype=np.int64)

    def add(self, pod: PodRecord, node: str, times: int) -> None:
        """Add `pod` to a node; with `times` -1, remove it. Only adding a pod raises OverBudget."""
        if self._has_terms:
            selecting_terms, anti_affinity = self.sets.terms_for(pod), self.sets.anti_affinity_of(pod.shape)
            self._selected_pods.add(selecting_terms, node, times)
            self._carriers.add(anti_affinity, node, times)
        for port in pod.shape.constraints.ports:
            self._ports.setdefault(node, Counter())[port] += times
        self.add_to_sets([(pod.pod_sets, node, 1)], times)

    def are_together(self, pods: Iterable[SetCount]) -> bool:
        """Return whether members on these nodes share the domains that their pod sets require."""
        nodes: dict[TopologySet, list[str]] = {}
        for pod_sets, node, _ in pods:
            for pod_set in pod_sets:
                if pod_set.is_required:
                    nodes.setdefault(pod_set, []).append(node)
        for pod_set, names in nodes.items():
            rows = [self._nodes.row_of.get(name, -1) for name in names]
            codes, set_rows = self._nodes.domains_of_level(pod_set.level)[rows], self.rows_of_set(pod_set)
            is_one_domain = set_rows[rows].all() if set_rows is not None else (codes == codes[0]).all()
            if min(rows) < 0 or codes.min() < 0 or not is_one_domain:
                return False
        return True

    def add_to_sets(self, pods: Iterable[SetCount], times: int = 1) -> None:
        """Add members to their pod sets; with `times` -1, remove them."""
        for pod_sets, node, count in pods:
            for pod_set in pod_sets:
                self._nodes_of_set(pod_set)[node] += count * times

    def has_members(self, pod_set: TopologySet) -> bool:
        """Return whether any member of a pod set has a node."""
        return any(self._nodes_of_set(pod_set).values())

    def rows_of_set(self, pod_set: TopologySet) -> Mask | None:
        """Return the rows of the domains that hold members of a pod set; None if it has no members."""
        nodes = [node for node, members in self._nodes_of_set(pod_set).items() if members > 0]
        if not nodes:
            return None
        codes = self._nodes.domains_of_level(pod_set.level)
        occupied_codes = {int(codes[row]) for row in map(self._nodes.row_of.get, nodes) if row is not None}
        return np.isin(codes, [code for code in occupied_codes if code >= 0])

    def rows_of_sets(self, pod: PodRecord) -> Mask | None:
        """Return the rows to which placed members bind the pod sets of a pod. None means all rows."""
        required_rows = (self.rows_of_set(pod_set) for pod_set in pod.pod_sets if pod_set.is_required)
        masks = [mask for mask in required_rows if mask is not None]
        return np.logical_and.reduce(masks) if masks else None

    def _admitting_rows(self, pod: PodRecord) -> Mask:
        """Return the rows where no pod excludes `pod` by a host port or by anti-affinity."""
        self.effort.spend(_PLACE_COST + len(self._nodes.nodes) / 3)
        free_rows = np.ones(len(self._nodes.nodes), dtype=np.bool_)
        ports = pod.shape.constraints.ports
        for node, used_ports in self._ports.items() if ports else ():
            row = self._nodes.row_of.get(node)
            if row is not None and is_any_port_used(ports, +used_ports):
                free_rows[row] = False
        for pods, terms in (
            (self._selected_pods, self.sets.anti_affinity_of(pod.shape)),
            (self._carriers, self.sets.terms_for(pod)),
        ):
            if pods.has_any(terms):
                free_rows &= ~pods.domains(terms)
        return free_rows

    def _rows_of_term(self, term: Term, pod: PodRecord) -> Mask:
        """Return the rows of the domains that hold a pod that `term` selects.

        If no node has such a pod yet and the term selects `pod` itself, it may go to any domain.
        """
        self.effort.spend(cost_on_rows(self._nodes, _NEAR_COST))
        terms = self.sets.set_of((term,))
        if not self._selected_pods.has_any(terms) and term.matches(pod.namespace, pod.labels):
            return self._domains_with_capacity(term.topology_key, self._sharing_pods.get(term, {}))
        return self._selected_pods.domains(terms)

    def _nodes_of_set(self, pod_set: TopologySet) -> Counter[str]:
        """Return the number of members of a pod set by node. The caller may change it."""
        if pod_set not in self._nodes_of_sets:
            info = self._groups.get(GroupKey(pod_set.group))
            nodes_by_set = info.compute(_nodes_of_sets) if info is not None else {}
            self._nodes_of_sets[pod_set] = Counter(nodes_by_set.get(pod_set, ()))
        return self._nodes_of_sets[pod_set]

    def _domains_with_capacity(self, key: str, sharing_pods: PodsByShape) -> Mask:
        """Return the rows of the domains with capacity for all pods that must share a domain.

        If no domain has that capacity, return the rows of all domains.
        """
        codes = self._nodes.domains(key)
        labelled_rows = codes >= 0
        suitable_rows = labelled_rows.copy()
        for shape, pods in sharing_pods.items():
            counts = np.minimum(self._count_fitting(shape), len(pods))
            rows = np.flatnonzero(labelled_rows & (counts > 0) & self._admitting_rows(pods[0]))
            row_positions = self.positions(pods[0], rows, counts[rows])
            sums = np.bincount(codes[rows[row_positions]], minlength=len(codes))
            suitable_rows[labelled_rows] &= sums[codes[labelled_rows]] >= len(pods)
        return suitable_rows if suitable_rows.any() else labelled_rows
