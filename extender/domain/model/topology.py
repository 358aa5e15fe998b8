"""Topology requests of groups, jobs and pods, and the pod sets that share a domain.

A level is a node label, such as that of racks; the nodes with one value of it are a domain. Requests are
written in the words of Muster, Kueue, Volcano and Kubernetes. That of a PodGroup or a job is for the whole
group, that of a pod template for the pods of its role.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from sys import intern
from typing import NamedTuple

from extender.api import keys
from extender.api.objects.pods import LabelSelector
from extender.api.objects.queues import NetworkTopology, SchedulingConstraints, SubGroup
from extender.api.units import BadQuantity, is_count
from extender.domain.model.selectors import Labels, selects

HOSTNAME = "kubernetes.io/hostname"  # level of single nodes
_LONGEST = 318  # one more than the characters of any node label
_MOST_POLICIES = 256  # of sub-groups, for one group
_MOST_COMPARED = 64  # labels and values in these, for pods of one role
_LONGEST_NAME = 63  # characters of a name in a message
_PARTITION = "volcano.sh/partition-id"  # label of the pods of a Volcano Job: their index by that size
# Labels with the index of a pod, and with that of its part of the role, if it has any.
_INDICES = (
    ("batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/job-index"),
    ("leaderworkerset.sigs.k8s.io/worker-index", "leaderworkerset.sigs.k8s.io/group-index"),
    ("apps.kubernetes.io/pod-index", ""),
    ("training.kubeflow.org/replica-index", ""),
)
_INDEXED = re.compile(r"-(\d{1,4})$")  # names of pods with an index; random suffixes are longer


class TopologyRequest(NamedTuple):
    """Request for domains of a topology; a level is the name of a node label."""

    required: str = ""  # level of the domain that all pods share; empty: none
    preferred: str = ""  # the same, if a domain has capacity for all
    slice_level: str = ""  # level of the domain that the pods of a slice share
    slice_size: int = 0  # pods of a slice, in the order of their indices; 0: all
    prefers_slices: bool = False  # the domain of a slice is preferred, and not required


NO_TOPOLOGY = TopologyRequest()
# Part of a group: (), a composite inside it, (role,), a claim, or the role and numbers or labels of a slice.
Part = tuple[str, ...]
PartRequest = tuple[Part, TopologyRequest]
_LARGER_PARTS = 2  # the most items of other parts than slices


class SubGroupPolicy(NamedTuple):
    """Volcano's sub-groups of some pods of a group. Each starts whole."""

    name: str
    selector: LabelSelector | None  # None: all pods that have the labels
    labels: tuple[str, ...]  # keys of the labels that the pods of a sub-group share; none: by their indices
    size: int  # the least pods of a sub-group
    least: int  # the least sub-groups that start together
    topology: TopologyRequest

    def may_select(self, role: str) -> bool:
        wanted = self.selector.match_labels if self.selector is not None else None
        return (wanted or {}).get(keys.ROLE, role) == role

    def selects(self, labels: Labels) -> bool:
        """Return whether it selects a pod. `labels`: those of the pod, with its role."""
        agrees = self.selector is None or selects(self.selector, labels)
        return agrees and all(map(labels.get, self.labels))


class PodSubGroup(NamedTuple):
    """Sub-group that a pod belongs to. `size`: the least pods with which it starts."""

    policy: str
    part: Part
    size: int


class ChildGroup(NamedTuple):
    """Tree of groups of Kubernetes, each with a minimum: a PodGroup, or a composite with its children.

    The role of a pod is the name of its PodGroup.
    """

    name: str
    least: int  # pods, or children, that start together
    children: tuple["ChildGroup", ...] | None = None  # None: it is a PodGroup
    goes_whole: bool = False  # the pods of this PodGroup are evicted together, including spare ones
    requests: tuple[PartRequest, ...] = ()  # of this PodGroup, after those of the composites above it

    @property
    def tree(self) -> Iterator["ChildGroup"]:
        yield self
        for child in self.children or ():
            yield from child.tree

    @property
    def pod_groups(self) -> Iterator["ChildGroup"]:
        return (child for child in self.tree if child.children is None)

    @property
    def fewest(self) -> int:
        """Return the fewest pods with which it is whole."""
        if self.children is None:
            return self.least
        return sum(sorted(child.fewest for child in self.children)[: self.least])

    def is_whole(self, roles: Mapping[str, int]) -> bool:
        """Return whether enough pods are there, by their numbers in each role."""
        if self.children is None:
            return roles.get(self.name, 0) >= self.least
        return sum(child.is_whole(roles) for child in self.children) >= self.least

    def complete_pod_groups(self, roles: Mapping[str, int]) -> Iterator[str]:
        """Yield the PodGroups that are whole, and below composites that are whole."""
        if self.is_whole(roles) and self.children is None:
            yield self.name
        elif self.is_whole(roles):
            for child in self.children or ():
                yield from child.complete_pod_groups(roles)

    def lacks(self, roles: Mapping[str, int]) -> Iterator[str]:
        """Yield the pods and child groups without which it cannot be whole, for users."""
        if self.is_whole(roles):
            return
        name, children = self.name[:_LONGEST_NAME], self.children or ()
        if self.children is None:
            yield f"{self.least - roles.get(self.name, 0)} of PodGroup {name}"
        elif len(children) < self.least:
            yield f"{self.least - len(children)} child groups of CompositePodGroup {name}"
        for child in children:
            yield from child.lacks(roles)


class TopologySet(NamedTuple):
    """Pods of a group that share a domain of a level: all, those of a role, or those of a slice."""

    group: str
    part: Part
    level: str
    is_required: bool = True

    @property
    def is_slice(self) -> bool:
        """Return whether its pods must share a domain as a slice."""
        return len(self.part) > _LARGER_PARTS and self.is_required


def first_request(*requests: TopologyRequest) -> TopologyRequest:
    """Return the first request that asks for anything."""
    return next(filter(any, requests), NO_TOPOLOGY)


def topology_of(annotations: Mapping[str, str]) -> TopologyRequest:
    """Return the topology that annotations request; Muster's come before Kueue's."""

    def named(own: str, kueues: str) -> str:
        return _level(annotations.get(own) or annotations.get(kueues, ""))

    size = named(keys.SLICE_SIZE, keys.KUEUE_SLICE_SIZE)
    request = TopologyRequest(
        named(keys.REQUIRED_TOPOLOGY, keys.KUEUE_REQUIRED_TOPOLOGY),
        named(keys.PREFERRED_TOPOLOGY, keys.KUEUE_PREFERRED_TOPOLOGY),
        named(keys.SLICE_TOPOLOGY, keys.KUEUE_SLICE_TOPOLOGY),
        int(size) if is_count(size) else 0,
    )
    return request if any(request) else NO_TOPOLOGY


def network_topology(written: NetworkTopology | None, size: int | None = None) -> TopologyRequest:
    """Return the request of Volcano's networkTopology; the levels of its tiers are `tier:1` and so on.

    `size`: pods of a slice, if it is that of slices.
    """
    if written is None:
        return NO_TOPOLOGY
    tier = written.highest_tier_name or written.highest_tier_allowed
    level = _level(f"tier:{tier}") if tier is not None else ""
    is_soft = written.mode == "soft"
    level = level or ("tier:1" if is_soft else "")  # by default, the smallest domains
    if size is not None and level:
        return TopologyRequest(slice_level=level, slice_size=max(size, 0), prefers_slices=is_soft)
    return TopologyRequest(preferred=level) if is_soft else TopologyRequest(level)


def sub_group_policies(written: Sequence[SubGroup]) -> tuple[SubGroupPolicy, ...]:
    """Return the policies that select pods; of several that select a pod, the first counts.

    Raises:
        BadQuantity: They have too many labels and values, which are compared with those of each pod.
    """
    sizes = Counter[str]()  # by the role whose pods alone are compared; empty: all
    for policy in written:
        selector = policy.label_selector or LabelSelector()
        terms = [term.values or () for term in selector.match_expressions or ()]
        parts = (*terms, terms, selector.match_labels or (), policy.match_label_keys or ())
        sizes[(selector.match_labels or {}).get(keys.ROLE, "")] += 1 + sum(map(len, parts))
    size = sizes.pop("", 0) + max(sizes.values(), default=0)
    if size > _MOST_COMPARED or len(written) > _MOST_POLICIES:
        limits = f"at most {_MOST_POLICIES} and {_MOST_COMPARED}"
        raise BadQuantity(f"spec.subGroupPolicy: {len(written):,} items, {size:,} labels of a role: {limits}")
    return tuple(
        SubGroupPolicy(
            policy.name or str(number),
            policy.label_selector,
            tuple(key for key in policy.match_label_keys or () if key != _PARTITION),
            max(policy.sub_group_size, 1),
            max(policy.min_sub_groups, 0),
            network_topology(policy.network_topology, policy.sub_group_size)._replace(
                slice_size=max(policy.sub_group_size, 0)
            ),
        )
        for number, policy in enumerate(written)
        if policy.label_selector is not None or policy.match_label_keys
    )


def constraint(constraints: SchedulingConstraints) -> TopologyRequest:
    """Return the request of a Kubernetes PodGroup; the API server allows one constraint."""
    levels = [_level(each.key) for each in constraints.topology or () if each.key]
    return TopologyRequest(levels[0]) if levels else NO_TOPOLOGY


def _level(written: str) -> str:
    return intern(written[:_LONGEST])


def index_of(name: str, labels: Labels) -> tuple[int, int] | None:
    """Return the part of its role that a pod belongs to, and its index there; None: it has no index."""
    for own, parts in _INDICES:
        if own in labels and is_count(index := labels[own]):
            part = labels.get(parts, "")
            return int(part) if is_count(part) else 0, int(index)
    found = _INDEXED.search(name)
    return (0, int(found[1])) if found else None


def pod_sets(group: str, requests: Sequence[PartRequest], part: Part) -> tuple[TopologySet, ...]:
    """Return the sets of a pod, the largest first.

    Args:
        group: Its group.
        requests: Those of the group, of the composites inside it that the pod belongs to, and of its role.
        part: That of its slice.
    """
    (_, of_group), (_, of_role) = requests[0], requests[-1]
    sliced = of_role if of_role.slice_level else of_group
    sets = (
        *(
            TopologySet(group, of, level, is_required)
            for of, request in requests
            for level, is_required in ((request.required, True), (request.preferred, False))
        ),
        TopologySet(group, part, sliced.slice_level, not sliced.prefers_slices),
    )
    return tuple(pod_set for pod_set in sets if pod_set.level)
