"""Placement of pod sets in domains of a topology: restricts the rows of the planner, set by set.

A set is tried in the domains with capacity for all its pods, the tightest domain first. Sets inside the set
are placed on the rows of that domain. If a preferred set fits in no domain of its own level, it is
tried in larger domains, level by level. There, it occupies as few domains of its own level as possible.
Slices of equal pods are placed all at once.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain, combinations, groupby, islice
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.shapes import Shape
from extender.domain.model.topology import TopologySet
from extender.domain.placement.affinity import AffinityCounts, cost_on_rows
from extender.domain.snapshot.nodes import Mask, NodeTable, Rows

Plan = dict[Uid, str]
Part = tuple[TopologySet | None, list[PodRecord]]  # a set with its pods; None for pods outside further sets
_MAX_SEARCHED_SETS = 12  # the domains of up to this number of sets are searched together
_MAX_TRIES = 200  # number of domains that are tried in vain for one gang
_TRY_COST = 500  # cost in looks of each try after the first `_MAX_SEARCHED_SETS`
_MAX_JOINT_SETS, _MAX_JOINT_PODS = 8, 64  # limits for placing all sets of a gang together
_MAX_CHOICES = 32  # number of combinations of domains that are tried
_MAX_CLEARED_DOMAINS = 16  # number of domains in which victims are searched
_index_of, _shape_of, _sets_of = attrgetter("index"), attrgetter("shape"), attrgetter("pod_sets")


class DomainCapacity(NamedTuple):
    """Capacity of each domain of a level for some pods.

    Attributes:
        codes: The domain of each row; -1 means no domain.
        counts: How many of the pods fit in each domain, where each shape is counted without the other shapes.
        capped: The same number for each domain, limited for each shape to its number of pods.
        is_enough: Whether each domain has capacity for all pods of each shape.
    """

    codes: Rows
    counts: Rows
    capped: Rows
    is_enough: Mask


class Tools(NamedTuple):
    """Functions of the planner that the search needs. Placed pods stay allocated until `roll_back`."""

    count_fitting: Callable[[Shape], Rows]
    place: Callable[[Sequence[PodRecord], Mask], Plan | None]
    place_together: Callable[[Sequence[PodRecord], Mapping[int, Mask]], Plan | None]
    allocate: Callable[[Sequence[tuple[PodRecord, int]]], Plan]
    checkpoint: Callable[[], int]
    roll_back: Callable[[int], None]


class DomainSearch:
    """Search for nodes of one gang by domains. With `is_spread`, the emptiest domains come first."""

    def __init__(
        self,
        nodes: NodeTable,
        affinity: AffinityCounts,
        tools: Tools,
        is_spread: bool = False,
        gang_pods: Sequence[PodRecord] = (),
    ) -> None:
        self._nodes, self._affinity, self._tools, self._is_spread = nodes, affinity, tools, is_spread
        self._gang_pods = gang_pods  # all members, including members that may join later
        self._tries_left, self._try_count = _MAX_TRIES, 0
        self._full_codes: dict[object, set[int]] | None = None  # domains found full, by level and pods

    def place(self, pods: Sequence[PodRecord], rows: Mask | None) -> Plan | None:
        """Return nodes for all pods, and allocate their capacity. None means that nothing is allocated.

        `rows` are the rows that the pods may use. None allows all rows.
        """
        checkpoint = self._tools.checkpoint()
        plan = self._place_inside(pods, 0, self._all_rows if rows is None else rows)
        if plan is None:
            self._tools.roll_back(checkpoint)
            plan = self._place_together(pods, self._all_rows if rows is None else rows)
        return plan

    def rows_for_most(self, pods: Sequence[PodRecord]) -> Mask:
        """Return the rows of the domains with capacity for the most of `pods`, which have equal sets.

        Sets that need not share a domain do not restrict the rows.
        """
        rows = self._all_rows
        for depth, pod_set in enumerate(pods[0].pod_sets):
            set_rows = self._affinity.rows_of_set(pod_set)
            if set_rows is None and pod_set.is_required:
                capacity = self._capacity(pods, depth + 1, rows, pod_set.level)
                best_code = int(np.argmax(capacity.counts)) if capacity.counts.any() else -2  # no row has -2
                set_rows = capacity.codes == best_code
            rows = rows & set_rows if set_rows is not None and pod_set.is_required else rows
        return rows

    def domains_to_clear(self, pods: Sequence[PodRecord]) -> list[Mask]:
        """Return the rows of each domain that all pods may share.

        The domain with the most free capacity comes first. An empty list means that the pods need not share a
        domain.
        """
        shared_sets = set.intersection(*({item for item in pod.pod_sets if item.is_required} for pod in pods))
        pod_set = next((item for item in reversed(pods[0].pod_sets) if item in shared_sets), None)
        if pod_set is None:
            return []
        bound_rows = (self._affinity.rows_of_set(item) for item in shared_sets)
        rows = np.logical_and.reduce([self._all_rows, *(mask for mask in bound_rows if mask is not None)])
        if self._affinity.has_members(pod_set):
            return [rows]
        capacity = self._capacity(pods, len(pods[0].pod_sets), rows, pod_set.level)
        codes = np.argsort(-capacity.capped, kind="stable")[:_MAX_CLEARED_DOMAINS]
        return [rows & (capacity.codes == code) for code in codes.tolist()]

    @cached_property
    def _members_of_sets(self) -> Mapping[TopologySet, Sequence[PodRecord]]:
        """Return the members of each set, including members that may join later."""
        members_by_set = defaultdict[TopologySet, list[PodRecord]](list)
        for equal_pods in _grouped_by_sets(self._gang_pods):
            for pod_set in equal_pods[0].pod_sets:
                members_by_set[pod_set] += equal_pods
        return members_by_set

    @property
    def _all_rows(self) -> Mask:
        """Return a mask of all rows."""
        return np.ones(len(self._nodes.nodes), np.bool_)

    def largest_domain(self, pod_set: TopologySet, pods: Sequence[PodRecord]) -> tuple[str, int, bool] | None:
        """Return the domain with the most capacity for the pods of a set.

        Returns:
            The domain's name, the number of pods that fit there, and whether members of the set bind the
            other members to it. None means that no node has a domain of this level.
        """
        mask = self._affinity.rows_of_set(pod_set)
        rows = self._all_rows if mask is None else mask
        domains = self._capacity(pods, pods[0].pod_sets.index(pod_set) + 1, rows, pod_set.level)
        labelled_rows = np.flatnonzero(rows & (domains.codes >= 0))
        if not len(labelled_rows):
            return None
        code = domains.codes[labelled_rows][np.argmax(domains.capped[domains.codes[labelled_rows]])]
        node = self._nodes.nodes[int(np.argmax(domains.codes == code))]
        return node.labels.get(pod_set.level, "") if node else "", int(domains.capped[code]), mask is not None

    def _place_inside(self, pods: Sequence[PodRecord], depth: int, rows: Mask) -> Plan | None:
        """Place pods that have their first `depth` sets in common on some rows.

        The pods of each further set become a part of their own.
        """
        parts: dict[TopologySet | None, list[PodRecord]] = {}
        for equal_pods in _grouped_by_sets(pods):
            pod_set = equal_pods[0].pod_sets[depth] if len(equal_pods[0].pod_sets) > depth else None
            parts.setdefault(pod_set, []).extend(equal_pods)
        if parts.keys() == {None}:
            return self._tools.place(pods, rows)
        plan: Plan = {}
        if slices := self._equal_slices(parts):
            inner_plan = self._place_slices(slices, rows)
            if inner_plan is None:
                return None
            plan = inner_plan
            parts = {pod_set: of_set for pod_set, of_set in parts.items() if pod_set not in slices}
        inner_plan = self._place_parts(sorted(parts.items(), key=self._rank), depth, rows)
        return None if inner_plan is None else plan | inner_plan

    def _place_parts(self, parts: Sequence[Part], depth: int, rows: Mask) -> Plan | None:
        """Place all parts.

        The domains of up to `_MAX_SEARCHED_SETS` parts are searched together. If there are more parts, the
        parts are placed one after the other.
        """
        batch_size = _MAX_SEARCHED_SETS if len(parts) <= _MAX_SEARCHED_SETS else 1
        outer_codes, self._full_codes = self._full_codes, {} if batch_size == 1 else None
        plan: Plan = {}
        batch_plan: Plan | None = plan
        for start in range(0, len(parts), batch_size):
            batch_plan = self._place_by_search(parts[start : start + batch_size], depth, rows)
            if batch_plan is None:
                break
            plan |= batch_plan
        self._full_codes = outer_codes
        return None if batch_plan is None else plan

    def _place_together(self, pods: Sequence[PodRecord], rows: Mask) -> Plan | None:
        """Place a small gang with several sets: choose a domain for each set, then nodes for all pods."""
        pods_of_set: dict[TopologySet, list[PodRecord]] = {}
        for pod in pods:
            for pod_set in pod.pod_sets:
                if pod_set.is_required:
                    pods_of_set.setdefault(pod_set, []).append(pod)
        if not 1 < len(pods_of_set) <= _MAX_JOINT_SETS or len(pods) > _MAX_JOINT_PODS:
            return None
        self._tries_left = _MAX_TRIES
        pods_by_sets = {id(members[0].pod_sets): members for members in _grouped_by_sets(pods)}
        return self._choose(list(pods_of_set.items()), pods, dict.fromkeys(pods_by_sets, rows))

    def _choose(
        self,
        sets: Sequence[tuple[TopologySet, list[PodRecord]]],
        pods: Sequence[PodRecord],
        rows: dict[int, Mask],
    ) -> Plan | None:
        """Choose domains for these sets by depth-first search, and place all `pods` in them.

        `rows` has the rows that the pods may use, keyed by the id of their sets.
        """
        if not sets:
            self._tries_left -= 1
            self._affinity.effort.spend(cost_on_rows(self._nodes, len(pods)))
            return self._tools.place_together(pods, rows)
        (pod_set, of_set), *other_sets = sets
        common = np.logical_and.reduce([rows[key] for key in {id(pod.pod_sets) for pod in of_set}])
        used = self._affinity.rows_of_set(pod_set)
        depth = len(of_set[0].pod_sets)
        choices = [used] if used is not None else self._domains(of_set, depth, common, pod_set, pod_set.level)
        for domain in choices:
            narrowed_rows = {key: rows[key] & domain for key in {id(pod.pod_sets) for pod in of_set}}
            if (plan := self._choose(other_sets, pods, {**rows, **narrowed_rows})) is not None:
                return plan
            if self._tries_left <= 0:
                return None
        return None

    def _rank(self, part: Part) -> tuple[bool, bool, int]:
        """Return the sort key of a part.

        Sets with members on nodes come first, then the largest sets. Pods without a set come last.
        """
        pod_set, pods = part
        is_bound = pod_set is not None and self._affinity.has_members(pod_set)
        return pod_set is None, not is_bound, -len(pods)

    def _place_by_search(self, parts: Sequence[Part], depth: int, rows: Mask) -> Plan | None:
        """Place parts by depth-first search over the domains of each part."""
        if not parts:
            return {}
        (pod_set, pods), *other_parts = parts
        checkpoint = self._tools.checkpoint()
        for place in self._choices(pod_set, pods, depth, rows):
            self._try_count += 1
            if self._try_count > _MAX_SEARCHED_SETS:
                self._affinity.effort.spend(cost_on_rows(self._nodes, _TRY_COST))
            plan = place()
            others_plan = None if plan is None else self._place_by_search(other_parts, depth, rows)
            if plan is not None and others_plan is not None:
                return plan | others_plan
            self._tools.roll_back(checkpoint)
            self._tries_left -= 1
            if self._tries_left <= 0:
                return None
        return None

    def _choices(
        self, pod_set: TopologySet | None, pods: list[PodRecord], depth: int, rows: Mask
    ) -> Iterator[Callable[[], Plan | None]]:
        """Yield functions that try to place the pods of a set, in order of preference."""
        if pod_set is None:
            yield partial(self._tools.place, pods, rows)
            return
        set_rows = self._affinity.rows_of_set(pod_set)
        if set_rows is not None:
            yield partial(self._place_inside, pods, depth + 1, rows & set_rows)
        if pod_set.is_required:
            if set_rows is None:
                for domain in self._domains(pods, depth + 1, rows, pod_set, pod_set.level):
                    yield partial(self._place_inside, pods, depth + 1, domain)
            return
        level, *larger_levels = self._nodes.topologies.levels_down_to(pod_set.level)[::-1] or (pod_set.level,)
        for domain in self._domains(pods, depth + 1, rows, pod_set, level):
            yield partial(self._place_inside, pods, depth + 1, domain)
        for larger_level in larger_levels:
            for domain in self._domains(pods, depth + 1, rows, pod_set, larger_level):
                yield partial(self._place_in_fewest, pods, depth + 1, domain, level)
        yield partial(self._place_in_fewest, pods, depth + 1, rows, level)
        yield partial(self._place_inside, pods, depth + 1, rows)

    def _domains(
        self, pods: Sequence[PodRecord], depth: int, rows: Mask, pod_set: TopologySet, level: str
    ) -> Iterator[Mask]:
        """Yield the rows of each domain with capacity for all pods of a set, the tightest domain first.

        Domains with capacity for members that may join later come before the other domains.
        """
        capacity = self._capacity(pods, depth, rows, level)
        codes = np.flatnonzero(capacity.is_enough)
        free_counts = -capacity.counts[codes] if self._is_spread else capacity.counts[codes]
        is_too_small = np.zeros(len(codes), np.bool_)
        all_members = self._members_of_sets.get(pod_set, ())
        if len(all_members) > len(pods):
            is_too_small = ~self._capacity(all_members, depth, rows, level).is_enough[codes]
        full_codes = self._full_domains(pods, level)
        for code in codes[np.lexsort((free_counts, is_too_small))].tolist():
            if code not in full_codes:
                yield rows & (capacity.codes == code)
                full_codes.add(code)  # the caller asks for another domain if the pods do not fit here

    def _full_domains(self, pods: Sequence[PodRecord], level: str) -> set[int]:
        """Return the domains of a level in which pods like these did not fit when they were tried.

        The caller may add domains. For pods that differ in their sets or depend on other pods, the result is
        an empty set, which is not cached.
        """
        if self._full_codes is None or len(_grouped_by_sets(pods)) > 1 or self._affinity.dependent_uids(pods):
            return set()
        return self._full_codes.setdefault((level, frozenset(Counter(map(_shape_of, pods)).items())), set())

    def _capacity(self, pods: Sequence[PodRecord], depth: int, rows: Mask, level: str) -> DomainCapacity:
        """Return the capacity of the domains of a level on some rows.

        The first `depth` sets of the pods are already placed; their further sets are placed inside each
        domain.
        """
        codes = self._nodes.domains_of_level(level)
        inner_rows = np.flatnonzero(rows & (codes >= 0))
        domain_count = int(codes.max(initial=-1)) + 1
        free_counts, capped_counts = np.zeros(domain_count, np.int64), np.zeros(domain_count, np.int64)
        are_enough = np.ones(domain_count, np.bool_)
        shapes = Counter(map(_shape_of, pods))
        slices = _slice_level_and_size(pods, depth) if len(shapes) == 1 else None
        for shape, members in shapes.items():
            counts = self._tools.count_fitting(shape)[inner_rows]
            sums = self._count_by_domain(slices, level, inner_rows, counts, domain_count)
            free_counts += sums
            capped_counts += np.minimum(sums, members)
            are_enough &= sums >= members
        return DomainCapacity(codes, free_counts, capped_counts, are_enough)

    def _count_by_domain(
        self, slices: tuple[str, int] | None, level: str, inner_rows: Rows, counts: Rows, domain_count: int
    ) -> Rows:
        """Return how many pods of a shape fit in each domain.

        If the pods form slices, only whole slices count.
        """
        codes = self._nodes.domains_of_level(level)
        if slices is None:
            return np.bincount(codes[inner_rows], weights=counts, minlength=domain_count).astype(np.int64)
        slice_level, size = slices
        outer_domains, slice_domains = self._nodes.nested_domains(level, slice_level)
        is_labelled = slice_domains[inner_rows] >= 0
        labelled_domains = slice_domains[inner_rows[is_labelled]]
        sums = np.bincount(labelled_domains, weights=counts[is_labelled], minlength=len(outer_domains))
        in_whole_slices = sums.astype(np.int64) // size * size
        return np.bincount(outer_domains, weights=in_whole_slices, minlength=domain_count).astype(np.int64)

    def _place_in_fewest(self, pods: list[PodRecord], depth: int, rows: Mask, level: str) -> Plan | None:
        """Place pods in as few domains of a level as possible.

        The largest domains are chosen, except for the last one: it is the tightest domain in which the
        remaining pods fit. If the pods do not fit there, a bounded number of other combinations of domains is
        tried, with more and more domains.
        """
        capacity = self._capacity(pods, depth, rows, level)
        codes = np.argsort(-capacity.capped, kind="stable")
        capacity_so_far = np.cumsum(capacity.capped[codes])
        min_count = int(np.searchsorted(capacity_so_far, len(pods))) + 1
        if min_count > len(codes):
            return None
        rest_count = len(pods) - (int(capacity_so_far[min_count - 2]) if min_count > 1 else 0)
        last = [code for code in codes[min_count - 1 :].tolist() if capacity.capped[code] >= rest_count][-1]
        chosen_codes = [*codes[: min_count - 1].tolist(), last]
        checkpoint = self._tools.checkpoint()
        if (plan := self._place_evenly(pods, depth, rows, capacity, chosen_codes)) is not None:
            return plan
        self._tools.roll_back(checkpoint)
        for size in range(min_count, len(codes) + 1):
            choices = (chosen_codes,) if size == min_count else ()
            for combination in islice(chain(choices, combinations(codes.tolist(), size)), _MAX_CHOICES):
                if capacity.capped[list(combination)].sum() < len(pods):
                    continue
                plan = self._place_inside(pods, depth, rows & np.isin(capacity.codes, combination))
                self._tries_left -= plan is None
                if plan is not None or self._tries_left <= 0:
                    return plan
                self._tools.roll_back(checkpoint)
        return None

    def _place_evenly(
        self, pods: list[PodRecord], depth: int, rows: Mask, capacity: DomainCapacity, codes: Sequence[int]
    ) -> Plan | None:
        """Place equal pods in these domains, and divide whole slices as equally as capacity allows.

        The result is None if the pods do not fit, or if the pods or the sizes of their slices differ. It is
        also None for more than `_MAX_SEARCHED_SETS` domains.
        """
        if len(codes) > _MAX_SEARCHED_SETS:
            return None
        sizes = [len(of_set) for of_set in _grouped_by_sets(pods)]
        size = max(sizes) if all(len(pod.pod_sets) > depth for pod in pods) else 1
        if len({*map(_shape_of, pods)}) > 1 or (len(sizes) > 1 and len({*sizes}) > 1):
            return None
        rest, plan = sorted_by_index(pods), Plan()
        for position, code in enumerate(sorted(codes, key=lambda code: int(capacity.capped[code]))):
            quota = min(-(-len(rest) // size // (len(codes) - position)) * size, int(capacity.capped[code]))
            batch, rest = rest[:quota], rest[quota:]
            domain_plan = self._place_inside(batch, depth, rows & (capacity.codes == code)) if batch else {}
            if domain_plan is None:
                return None
            plan |= domain_plan
        return None if rest else plan

    def _equal_slices(
        self, pods_by_set: Mapping[TopologySet | None, list[PodRecord]]
    ) -> dict[TopologySet, list[PodRecord]]:
        """Return slices of the same size and shape that can be placed all at once.

        The result is empty if there are fewer than two such slices.
        """
        slices = {
            pod_set: pods
            for pod_set, pods in pods_by_set.items()
            if pod_set and pod_set.is_slice and not self._affinity.has_members(pod_set)
        }
        sizes = Counter(map(len, slices.values())).most_common(1)
        result = {pod_set: pods for pod_set, pods in slices.items() if len(pods) == sizes[0][0]}
        all_pods = [pod for pods in result.values() for pod in pods]
        are_equal = len({(pod.shape, pod.pod_sets[-1].level) for pod in all_pods}) == 1
        return result if len(result) > 1 and are_equal and not self._affinity.dependent_uids(all_pods) else {}

    def _place_slices(self, slices: dict[TopologySet, list[PodRecord]], rows: Mask) -> Plan | None:
        """Place equal slices, each slice inside one domain.

        Domains with capacity for the most slices come first.
        """
        (pod_set, (pod, *_)), *_ = slices.items()
        codes, counts = self._nodes.domains_of_level(pod_set.level), self._tools.count_fitting(pod.shape)
        sorted_rows, _ = self._nodes.path_order(pod_set.level)
        in_rows = sorted_rows[(rows & (codes >= 0) & (counts > 0))[sorted_rows]]
        size = len(slices[pod_set])
        capacity = np.bincount(codes[in_rows], weights=counts[in_rows]).astype(np.int64) // size
        ranking = np.argsort(-capacity, kind="stable")
        slices_before = np.cumsum(capacity[ranking]) - capacity[ranking]  # slices that fit in earlier domains
        chosen_slices = np.zeros_like(capacity)
        chosen_slices[ranking] = np.clip(len(slices) - slices_before, 0, capacity[ranking])
        if chosen_slices.sum() < len(slices):
            return None
        row_of = np.repeat(in_rows, np.minimum(counts[in_rows], chosen_slices[codes[in_rows]] * size))
        place_codes = codes[row_of]
        first_places = np.flatnonzero(np.diff(place_codes, prepend=-1))  # the rows of a domain are adjacent
        places = np.arange(len(row_of)) - np.repeat(first_places, np.diff(first_places, append=len(row_of)))
        row_of = row_of[places < chosen_slices[place_codes] * size]
        ordered_slices = list(map(sorted_by_index, slices.values()))
        if all(pods[0].index is not None for pods in ordered_slices):
            ordered_slices.sort(key=lambda pods: _index_of(pods[0]))
        members = [pod for pods in ordered_slices for pod in pods]
        return self._tools.allocate(list(zip(members, row_of.tolist(), strict=True)))


def _grouped_by_sets(pods: Sequence[PodRecord]) -> Collection[Sequence[PodRecord]]:
    """Return the pods grouped by their pod sets."""
    groups: dict[int, list[PodRecord]] = {}
    for pod_sets, pods_of_sets in groupby(pods, _sets_of):
        groups.setdefault(id(pod_sets), []).extend(pods_of_sets)
    return groups.values()


def _slice_level_and_size(pods: Sequence[PodRecord], depth: int) -> tuple[str, int] | None:
    """Return the level and the size of the slices that all `pods` form.

    The result is None in these cases:

    - A pod is in no slice, or in at most `depth` sets.
    - The slices differ in size.
    """
    if len(pods[0].pod_sets) <= depth:
        return None
    slices = [(of_set[0].pod_sets, len(of_set)) for of_set in _grouped_by_sets(pods)]
    if any(len(sets) <= depth or not sets[-1].is_slice for sets, _ in slices):
        return None
    return (pods[0].pod_sets[-1].level, slices[0][1]) if len({size for _, size in slices}) == 1 else None


def sorted_by_index(pods: list[PodRecord]) -> list[PodRecord]:
    """Return pods in the order of their indices. If any pod has no index, the order stays the same."""
    return pods if None in map(_index_of, pods) else sorted(pods, key=_index_of)
