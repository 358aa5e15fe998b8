"""Hypotheses: snapshots after a change. decide() tries them, so that each reported change really helps."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import Resources, add, add_times, total
from extender.domain.model.shapes import requests_of
from extender.domain.placement.planner import Planner
from extender.domain.queues.records import QueueRecord
from extender.domain.queues.tree import QueueInfo
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.decisions import GroupDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.nodes import AmountRows, NodeRecord
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import missing

_HOSTNAME = "kubernetes.io/hostname"
_MAX_CYCLES = 48  # limit of cycles for one explanation
_MAX_COUNT = 2**30  # more members than any node holds
_MAX_SINGLE_TRIALS = 12  # number of candidates that are tried alone before joint trials

T = TypeVar("T")


def with_changed_groups(
    snapshot: Snapshot, changed_groups: Mapping[GroupKey, GroupInfo | None], uids: Set[Uid] = frozenset()
) -> Snapshot:
    """Return the snapshot with changed groups, and without the pods `uids` of other schedulers.

    A group whose value in `changed_groups` is None is removed. The sums of queues and the free capacity are
    updated.
    """
    groups, queues = dict(snapshot.groups), dict(snapshot.queues)
    pod_changes = [(pod, pod.node, -1) for uid in uids if (pod := snapshot.other_pods.get(uid)) is not None]
    for key, new_group in changed_groups.items():
        old_group = groups.pop(key, None)
        if new_group is not None:
            groups[key] = new_group
        for info, times in ((old_group, -1), (new_group, 1)):
            if info is None:
                continue
            pod_changes += [(pod, node, times) for pod, node in placements(info)]
            if (queue := queues.get(info.queue)) is not None:
                queues[info.queue] = _updated_queue(snapshot, queue, info, times)
    return replace(
        snapshot,
        groups=groups,
        other_pods=snapshot.other_pods.with_changes(dict.fromkeys(uids)) if uids else snapshot.other_pods,
        queues=queues,
        capacity=_updated_capacity(snapshot, pod_changes),
        occupancy=snapshot.occupancy.with_pods(pod_changes),
    )


def _updated_queue(snapshot: Snapshot, queue: QueueInfo, group: GroupInfo, times: int) -> QueueInfo:
    """Return the queue after a group is added (`times` is 1) or removed (`times` is -1)."""
    request = {} if queue.record.stop_policy else group.missing_request
    allocated, requested = dict(queue.allocated), dict(queue.requested)
    for sums, amounts in ((allocated, group.allocated), (requested, group.allocated), (requested, request)):
        add_times(sums, {name: n for name, n in amounts.items() if name in snapshot.dimensions}, times)
    amounts_by_pool = {pool: dict(amounts) for pool, amounts in queue.amounts_by_pool.items()}
    for pool, amounts in group.amounts_by_pool.items():
        add_times(amounts_by_pool.setdefault(pool, {}), amounts, times)
    group_count = max(queue.group_count + times * group.is_in_queue, 0)
    new_queue = replace(queue, group_count=group_count, amounts_by_pool=amounts_by_pool)
    return replace(new_queue, allocated=allocated, requested=requested)


def snapshot_without(snapshot: Snapshot, ended_groups: Set[GroupKey], removed_pods: Set[Uid]) -> Snapshot:
    """Return the snapshot without `ended_groups` and without `removed_pods` of other schedulers."""
    return with_changed_groups(snapshot, dict.fromkeys(ended_groups), removed_pods)


def without_pods(snapshot: Snapshot, uids: Set[Uid]) -> Snapshot:
    """Return the snapshot without some pods. A group continues if it has other pods on nodes."""
    infos: dict[GroupKey, GroupInfo | None] = {}
    for key, group in snapshot.groups.items():
        pods = placements(group)
        lost_pods = [placement for placement in pods if placement[0].uid in uids]
        if lost_pods:
            infos[key] = None if len(lost_pods) == len(pods) else _without_members(snapshot, group, lost_pods)
    return with_changed_groups(snapshot, infos, {uid for uid in uids if uid in snapshot.other_pods})


def _without_members(
    snapshot: Snapshot, group: GroupInfo, members: Collection[tuple[PodRecord, str]]
) -> GroupInfo:
    """Return a group without some of its members on nodes."""
    uids = {pod.uid for pod, _ in members}
    return replace(
        group,
        placed_pods=tuple(pod for pod in group.placed_pods if pod.uid not in uids),
        departing_pods=tuple(pod for pod in group.departing_pods if pod.uid not in uids),
        allocated=_minus(group.allocated, [pod.shape.requests for pod, _ in members]),
        amounts_by_pool=_minus_by_pool(group.amounts_by_pool, snapshot.in_pools(members)),
    )


def placements(group: GroupInfo) -> list[tuple[PodRecord, str]]:
    """Return the members with allocated capacity, with their nodes."""
    pairs = [(pod, pod.node) for pod in (*group.placed_pods, *group.departing_pods) if pod.holds_capacity]
    return [*pairs, *((pod, node) for pod, node in group.assumed_pods)]


def with_group(snapshot: Snapshot, group: GroupInfo) -> Snapshot:
    return with_groups(snapshot, [group])


def with_groups(snapshot: Snapshot, changed_groups: Iterable[GroupInfo]) -> Snapshot:
    """Return the snapshot with changed groups, and with the requests of their queues updated."""
    groups, queues = dict(snapshot.groups), dict(snapshot.queues)
    for group in changed_groups:
        group = replace(group, pending_requests=requests_of(Counter(pod.shape for pod in group.waiting_pods)))
        if (queue := queues.get(group.queue)) is not None and not queue.record.stop_policy:
            other_requests = _minus(queue.requested, [groups[group.key].missing_request])
            queues[group.queue] = replace(
                queue, requested=_offered_sum(snapshot, [other_requests, group.missing_request])
            )
        groups[group.key] = group
    return replace(snapshot, groups=groups, queues=queues)


def with_queue(snapshot: Snapshot, record: QueueRecord) -> Snapshot:
    """Return the snapshot with a changed queue.

    A resumed queue also requests what its waiting groups need.
    """
    old_queue = snapshot.queues[record.name]
    queue = replace(old_queue, record=record)
    if old_queue.record.stop_policy and not record.stop_policy:
        requests = (group.missing_request for group in snapshot.groups.values() if group.queue == record.name)
        queue = replace(queue, requested=_offered_sum(snapshot, [queue.allocated, *requests]))
    return replace(snapshot, queues={**snapshot.queues, record.name: queue})


def best_node(snapshot: Snapshot, group: GroupInfo) -> int | None:
    """Return the row of the suitable node that holds the most members of the group when empty.

    Among equal nodes, the smallest node counts. If no member is missing, the members on nodes count.
    """
    fitting_counts = np.zeros(len(snapshot.nodes.nodes), dtype=np.int64)
    for shape in missing(group).shapes or {pod.shape for pod in group.placed_pods}:
        counts = np.where(snapshot.nodes.suitable_rows(shape), _MAX_COUNT, 0)
        for column, name in enumerate(snapshot.dimensions):
            if amount := shape.requests.get(name, 0):
                counts = np.minimum(counts, snapshot.allocatable[:, column] // amount)
        fitting_counts += counts
    if not fitting_counts.max(initial=0):
        return None
    best_rows = np.flatnonzero(fitting_counts == fitting_counts.max())
    row = int(best_rows[np.argmin(snapshot.allocatable[best_rows].sum(axis=1))])
    return row if snapshot.nodes.nodes[row] is not None else None


def with_nodes(snapshot: Snapshot, row: int, count: int) -> Snapshot:
    """Return the snapshot with `count` additional empty nodes like the node in `row`."""
    node = snapshot.nodes.nodes[row]
    assert node is not None
    row_count = len(snapshot.nodes.nodes)
    copies: list[NodeRecord] = []
    for number in range(row_count, row_count + count):
        name = f"{node.name}:{number}"
        labels = {**node.labels, _HOSTNAME: name} if _HOSTNAME in node.labels else node.labels
        copies.append(replace(node, name=name, labels=labels))
    nodes = snapshot.nodes.with_changes((*snapshot.nodes.nodes, *copies), range(row_count, row_count + count))
    rows = np.repeat(snapshot.allocatable[row : row + 1], count, axis=0)
    return replace(
        snapshot,
        nodes=nodes,
        capacity=np.concatenate([snapshot.capacity, rows]),
        allocatable=np.concatenate([snapshot.allocatable, rows]),
    )


def _minus(amounts: Resources, subtrahends: Iterable[Resources]) -> Resources:
    """Return the positive amounts that remain after others are subtracted."""
    difference = dict(amounts)
    for subtrahend in subtrahends:
        add(difference, subtrahend, times=-1)
    return {name: amount for name, amount in difference.items() if amount > 0}


def _offered_sum(snapshot: Snapshot, amounts: Iterable[Resources]) -> dict[str, int]:
    """Return the sum of amounts of the resources that nodes offer."""
    return {name: n for name, n in total(amounts).items() if name in snapshot.dimensions}


def _minus_by_pool(sums: Mapping[str, Resources], losses: Mapping[str, Resources]) -> dict[str, Resources]:
    """Return by pool the held amounts that remain after others are subtracted."""
    return {pool: _minus(amounts, [losses.get(pool, {})]) for pool, amounts in sums.items()}


def _updated_capacity(snapshot: Snapshot, pods: Iterable[tuple[PodRecord, str, int]]) -> AmountRows:
    """Return the free capacity after pods are added to nodes (1) or removed from nodes (-1)."""
    capacity, column = snapshot.capacity.copy(), {name: n for n, name in enumerate(snapshot.dimensions)}
    for pod, node, times in pods:
        row = snapshot.nodes.row_of.get(node)
        for name, amount in pod.shape.requests.items() if row is not None else ():
            if name in column:
                capacity[row, column[name]] -= amount * times
    return capacity


class Trial:
    """Trials of changes for one group. `cycles` limits the number of scheduling cycles."""

    def __init__(self, key: GroupKey, max_cycles: int) -> None:
        self._key = key
        self._cycles_left = min(_MAX_CYCLES, max_cycles)

    def starts(self, snapshot: Snapshot) -> bool:
        """Return whether the group would start at once. The result is False if no further cycle may run."""
        return self.outcome(snapshot) == (Verdict.STARTING, None)

    def outcome(self, snapshot: Snapshot) -> tuple[Verdict, Reason | None] | None:
        """Return the verdict and reason of the group.

        None means that there is no decision, or that no further cycle may run.
        """
        decision = self.decision(snapshot)
        return None if decision is None else (decision.verdict, decision.reason)

    def decision(self, snapshot: Snapshot) -> GroupDecision | None:
        """Return the decision on the group; None if there is none, or if no further cycle may run."""
        if self._cycles_left <= 0:
            return None
        self._cycles_left -= 1
        return decide(snapshot).groups.get(self._key)

    def smallest_number(self, max_number: int, make_snapshot: Callable[[int], Snapshot]) -> int | None:
        """Return the smallest number up to `max_number` with which the group starts; None if there is none.

        `make_snapshot` returns the snapshot after a change by a number, which is at least 1.
        """
        if max_number < 1 or not self.starts(make_snapshot(max_number)):
            return None
        return 1 + bisect_left(range(1, max_number), True, key=lambda n: self.starts(make_snapshot(n)))

    def smallest_set(
        self, candidates: Sequence[T], change: Callable[[Sequence[T]], Snapshot], needs_capacity: bool = False
    ) -> Sequence[T]:
        """Return one of `candidates` that suffices alone, or else a list of candidates that are all needed.

        `change` returns the snapshot after a change of some candidates. The result is empty if all
        candidates together do not suffice. With `needs_capacity`, no cycle is spent if the members of the
        group lack capacity.
        """

        def is_enough(picks: Sequence[T]) -> bool:
            snapshot = change(picks)
            need = missing(snapshot.groups[self._key])
            if needs_capacity and not Planner.from_snapshot(snapshot).could_place(need):
                return False
            return self.starts(snapshot)

        if not candidates or not is_enough(candidates):
            return []
        for candidate in candidates[:_MAX_SINGLE_TRIALS] if len(candidates) > 1 else ():
            if is_enough([candidate]):
                return [candidate]
        further_count = bisect_left(range(1, len(candidates)), True, key=lambda n: is_enough(candidates[:n]))
        picks = list(candidates[: 1 + further_count])
        tried_candidates = picks[:-1]  # the last candidate is needed
        while tried_candidates:
            old_count = len(picks)
            for candidate in reversed(tried_candidates):
                other_picks = [item for item in picks if item is not candidate]
                if other_picks and is_enough(other_picks):
                    picks = other_picks
            # The order of queues may change when spared groups remain.
            tried_candidates = picks if len(picks) < old_count else []
        return picks
