"""Topology requests of groups, jobs and pods, and the pod sets that share a domain.

A level is a node label, such as that of racks; the nodes with one value of it are a domain. Requests are
written in the words of Muster, Kueue, Volcano and Kubernetes. That of a PodGroup or a job is for the whole
group, that of a pod template for the pods of its role.
"""

import re
from collections.abc import Iterable, Mapping
from sys import intern
from typing import NamedTuple

from extender.api import keys
from extender.api.objects.queues import NetworkTopology, SchedulingConstraints, SubGroup
from extender.api.units import is_count
from extender.domain.model.selectors import Labels

HOSTNAME = "kubernetes.io/hostname"  # level of single nodes
_LONGEST = 318  # one more than the characters of any node label
_TASK = "volcano.sh/task-spec"  # label of the pods of a Volcano Job
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


NO_TOPOLOGY = TopologyRequest()


class TopologySet(NamedTuple):
    """Pods of a group that share a domain of a level: all, those of a role, or those of a slice."""

    group: str
    part: tuple[str, ...]  # (), (role,), or the role and numbers of the slice
    level: str
    is_required: bool = True


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
    if written.mode == "soft":  # by default, the smallest domains
        return TopologyRequest(preferred=level or "tier:1") if size is None else NO_TOPOLOGY
    if size is None or not level:
        return TopologyRequest(level)
    return TopologyRequest(slice_level=level, slice_size=max(size, 0))


def role_topology(sub_groups: Iterable[SubGroup]) -> dict[str, TopologyRequest]:
    """Return the requests of Volcano's sub-groups by role: each selects the pods of a task."""
    found: dict[str, TopologyRequest] = {}
    for policy in sub_groups:
        labels = policy.label_selector.match_labels if policy.label_selector else None
        request = network_topology(policy.network_topology, policy.sub_group_size)
        if any(request) and (role := (labels or {}).get(_TASK)):
            found[role] = request
    return found


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


def pod_sets(
    group: str, role: str, of_group: TopologyRequest, of_role: TopologyRequest, at: tuple[int, int]
) -> tuple[TopologySet, ...]:
    """Return the sets of a pod, the largest first. `at`: its part of the role, and its index there."""
    sliced = of_role if of_role.slice_level else of_group
    part, index = at
    number = index // sliced.slice_size if sliced.slice_size else 0
    sets = (
        TopologySet(group, (), of_group.required),
        TopologySet(group, (), of_group.preferred, is_required=False),
        TopologySet(group, (role,), of_role.required),
        TopologySet(group, (role,), of_role.preferred, is_required=False),
        TopologySet(group, (role, str(part), str(number)), sliced.slice_level),
    )
    return tuple(it for it in sets if it.level)
