"""Topology requests of groups, jobs and pods, and the sets of pods that share a domain.

A level is a node label, such as the label for racks. The nodes with one value of this label are a domain.
Requests may be written in the terms of Muster, Kueue, Volcano or Kubernetes. The request of a PodGroup or a
job concerns the whole group; the request of a pod template concerns the pods of its role.
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
_MAX_LEVEL_LENGTH = 318  # one character more than the longest node label
_MAX_POLICIES = 256  # limit of sub-group policies per group
_MAX_LABELS = 64  # limit of labels and values in the policies for pods of one role
_MAX_NAME_LENGTH = 63  # limit of characters of a name in a message
_PARTITION_LABEL = "volcano.sh/partition-id"  # label of a Volcano Job's pods: index of their partition
# Labels with the index of a pod, and with the index of its part of the role, if the role has parts.
_INDEX_LABELS = (
    ("batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/job-index"),
    ("leaderworkerset.sigs.k8s.io/worker-index", "leaderworkerset.sigs.k8s.io/group-index"),
    ("apps.kubernetes.io/pod-index", ""),
    ("training.kubeflow.org/replica-index", ""),
)
_INDEX_SUFFIX = re.compile(r"-(\d{1,4})$")  # pod names with an index; random suffixes are longer


class TopologyRequest(NamedTuple):
    """Request for domains of a topology. A level is the name of a node label."""

    required: str = ""  # level of the domain that all pods must share; empty: none
    preferred: str = ""  # level of the domain that all pods share if it has capacity
    slice_level: str = ""  # level of the domain that the pods of a slice must share
    slice_size: int = 0  # number of pods of a slice, ordered by index; 0: all pods
    prefers_slices: bool = False  # whether slices prefer their domains and do not require them


NO_TOPOLOGY = TopologyRequest()
# Part of a group: () for all of it, a composite in it, (role,), a claim, or role and numbers of a slice.
Part = tuple[str, ...]
PartRequest = tuple[Part, TopologyRequest]
_MAX_PART_ITEMS = 2  # limit of items of a part that is not a slice


class SubGroupPolicy(NamedTuple):
    """Policy by which Volcano divides the pods of a group into sub-groups. A sub-group starts as a whole."""

    name: str
    selector: LabelSelector | None  # None selects all pods that have the labels
    labels: tuple[str, ...]  # keys of labels with equal values in a sub-group; empty: by index
    size: int  # least number of pods of a sub-group
    min_sub_groups: int  # least number of sub-groups that start together
    topology: TopologyRequest

    def may_select(self, role: str) -> bool:
        """Return whether the policy may select pods of a role."""
        pairs = self.selector.match_labels if self.selector is not None else None
        return (pairs or {}).get(keys.ROLE, role) == role

    def selects(self, labels: Labels) -> bool:
        """Return whether the policy selects a pod.

        Args:
            labels: The labels of the pod, with its role.
        """
        is_selected = self.selector is None or selects(self.selector, labels)
        return is_selected and all(map(labels.get, self.labels))


class PodSubGroup(NamedTuple):
    """Sub-group of a pod.

    Attributes:
        size: The least number of pods with which the sub-group starts.
    """

    policy: str
    part: Part
    size: int


class ChildGroup(NamedTuple):
    """Node in a tree of Kubernetes groups: a PodGroup, or a composite with child groups, each with a minimum.

    The role of a pod is the name of its PodGroup.
    """

    name: str
    minimum: int  # least number of pods, or of children, that start together
    children: tuple["ChildGroup", ...] | None = None  # None for a PodGroup
    is_evicted_whole: bool = False  # whether all pods of this PodGroup are evicted together, even spare pods
    requests: tuple[PartRequest, ...] = ()  # requests of the composites above, then of this PodGroup

    @property
    def tree(self) -> Iterator["ChildGroup"]:
        """Return this group and all groups below it."""
        yield self
        for child in self.children or ():
            yield from child.tree

    @property
    def pod_groups(self) -> Iterator["ChildGroup"]:
        """Return the PodGroups in the tree."""
        return (child for child in self.tree if child.children is None)

    @property
    def min_pods(self) -> int:
        """Return the fewest pods with which the group is whole."""
        if self.children is None:
            return self.minimum
        return sum(sorted(child.min_pods for child in self.children)[: self.minimum])

    def is_whole(self, roles: Mapping[str, int]) -> bool:
        """Return whether the group has enough pods, given the number of pods in each role."""
        if self.children is None:
            return roles.get(self.name, 0) >= self.minimum
        return sum(child.is_whole(roles) for child in self.children) >= self.minimum

    def complete_pod_groups(self, roles: Mapping[str, int]) -> Iterator[str]:
        """Yield the PodGroups that are whole, if all composites above them are whole, too."""
        if self.is_whole(roles) and self.children is None:
            yield self.name
        elif self.is_whole(roles):
            for child in self.children or ():
                yield from child.complete_pod_groups(roles)

    def describe_missing(self, roles: Mapping[str, int]) -> Iterator[str]:
        """Yield the missing pods and child groups without which the group cannot be whole, for users."""
        if self.is_whole(roles):
            return
        name, children = self.name[:_MAX_NAME_LENGTH], self.children or ()
        if self.children is None:
            yield f"{self.minimum - roles.get(self.name, 0)} of PodGroup {name}"
        elif len(children) < self.minimum:
            yield f"{self.minimum - len(children)} child groups of CompositePodGroup {name}"
        for child in children:
            yield from child.describe_missing(roles)


class TopologySet(NamedTuple):
    """Set of pods in a group that share a domain of a level.

    The set contains all pods of the group, the pods of a role, or the pods of a slice.
    """

    group: str
    part: Part
    level: str
    is_required: bool = True

    @property
    def is_slice(self) -> bool:
        """Return whether the set is a slice whose pods must share a domain."""
        return len(self.part) > _MAX_PART_ITEMS and self.is_required


def first_request(*requests: TopologyRequest) -> TopologyRequest:
    """Return the first request that asks for any domain."""
    return next(filter(any, requests), NO_TOPOLOGY)


def topology_of(annotations: Mapping[str, str]) -> TopologyRequest:
    """Return the topology that annotations request. Muster's annotations come before Kueue's."""

    def value_of(key: str, kueue_key: str) -> str:
        return _level(annotations.get(key) or annotations.get(kueue_key, ""))

    size = value_of(keys.SLICE_SIZE, keys.KUEUE_SLICE_SIZE)
    request = TopologyRequest(
        value_of(keys.REQUIRED_TOPOLOGY, keys.KUEUE_REQUIRED_TOPOLOGY),
        value_of(keys.PREFERRED_TOPOLOGY, keys.KUEUE_PREFERRED_TOPOLOGY),
        value_of(keys.SLICE_TOPOLOGY, keys.KUEUE_SLICE_TOPOLOGY),
        int(size) if is_count(size) else 0,
    )
    return request if any(request) else NO_TOPOLOGY


def network_topology(spec: NetworkTopology | None, size: int | None = None) -> TopologyRequest:
    """Return the request in a networkTopology of Volcano. The levels of its tiers are `tier:1` and so on.

    Args:
        spec: The networkTopology, if any.
        size: The number of pods of a slice, if the request is for slices.
    """
    if spec is None:
        return NO_TOPOLOGY
    tier = spec.highest_tier_name or spec.highest_tier_allowed
    level = _level(f"tier:{tier}") if tier is not None else ""
    is_soft = spec.mode == "soft"
    level = level or ("tier:1" if is_soft else "")  # the default is the smallest domains
    if size is not None and level:
        return TopologyRequest(slice_level=level, slice_size=max(size, 0), prefers_slices=is_soft)
    return TopologyRequest(preferred=level) if is_soft else TopologyRequest(level)


def sub_group_policies(specs: Sequence[SubGroup]) -> tuple[SubGroupPolicy, ...]:
    """Return the policies that select pods. If several policies select a pod, the first policy counts.

    Raises:
        BadQuantity: The policies have too many labels and values to compare with each pod.
    """
    sizes = Counter[str]()  # by the only role whose pods are compared; empty: any role
    for policy in specs:
        selector = policy.label_selector or LabelSelector()
        terms = [term.values or () for term in selector.match_expressions or ()]
        parts = (*terms, terms, selector.match_labels or (), policy.match_label_keys or ())
        sizes[(selector.match_labels or {}).get(keys.ROLE, "")] += 1 + sum(map(len, parts))
    size = sizes.pop("", 0) + max(sizes.values(), default=0)
    if size > _MAX_LABELS or len(specs) > _MAX_POLICIES:
        limits = f"at most {_MAX_POLICIES} and {_MAX_LABELS}"
        raise BadQuantity(f"spec.subGroupPolicy: {len(specs):,} items, {size:,} labels of a role: {limits}")
    return tuple(
        SubGroupPolicy(
            policy.name or str(number),
            policy.label_selector,
            tuple(key for key in policy.match_label_keys or () if key != _PARTITION_LABEL),
            max(policy.sub_group_size, 1),
            max(policy.min_sub_groups, 0),
            network_topology(policy.network_topology, policy.sub_group_size)._replace(
                slice_size=max(policy.sub_group_size, 0)
            ),
        )
        for number, policy in enumerate(specs)
        if policy.label_selector is not None or policy.match_label_keys
    )


def constraint_request(constraints: SchedulingConstraints) -> TopologyRequest:
    """Return the request of a Kubernetes PodGroup. The API server allows one constraint."""
    levels = [_level(each.key) for each in constraints.topology or () if each.key]
    return TopologyRequest(levels[0]) if levels else NO_TOPOLOGY


def _level(text: str) -> str:
    """Return a level, interned and cut to the maximum length."""
    return intern(text[:_MAX_LEVEL_LENGTH])


def index_of(name: str, labels: Labels) -> tuple[int, int] | None:
    """Return the number of a pod's part of its role, and the pod's index in this part.

    None means that the pod has no index.
    """
    for label, part_label in _INDEX_LABELS:
        if label in labels and is_count(index := labels[label]):
            part = labels.get(part_label, "")
            return int(part) if is_count(part) else 0, int(index)
    match = _INDEX_SUFFIX.search(name)
    return (0, int(match[1])) if match else None


def pod_sets(group: str, requests: Sequence[PartRequest], part: Part) -> tuple[TopologySet, ...]:
    """Return the topology sets of a pod, the largest set first.

    Args:
        group: The group of the pod.
        requests: The requests of the group, of the composites in the group that contain the pod, and of its
            role.
        part: The slice of the pod.
    """
    (_, group_request), (_, role_request) = requests[0], requests[-1]
    with_slices = role_request if role_request.slice_level else group_request
    sets = (
        *(
            TopologySet(group, request_part, level, is_required)
            for request_part, request in requests
            for level, is_required in ((request.required, True), (request.preferred, False))
        ),
        TopologySet(group, part, with_slices.slice_level, not with_slices.prefers_slices),
    )
    return tuple(pod_set for pod_set in sets if pod_set.level)
