"""Snapshots as they would be if something were different: what decide() makes of them is what would happen.

Terms and host ports of pods that would be gone stay counted, so with those less is promised than would come
true, never more.
"""

from collections.abc import Collection, Iterable, Mapping, Set

import msgspec
import numpy as np
from msgspec.structs import replace

from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import Resources, add, total
from extender.domain.queues.queue_records import QueueRecord
from extender.domain.queues.queue_view import QueueView
from extender.domain.snapshot.group_view import GroupView
from extender.domain.snapshot.nodes import AmountRows, NodeRecord
from extender.domain.snapshot.snapshot import Snapshot

_HOSTNAME = "kubernetes.io/hostname"


class Departed(msgspec.Struct, frozen=True):
    """What would have ended."""

    groups: Set[GroupKey] = frozenset()
    others: Set[Uid] = frozenset()
    """Pods on nodes that are not ours."""


def without(snapshot: Snapshot, gone: Departed) -> Snapshot:
    groups = [snapshot.groups[key] for key in gone.groups]
    pods = [(pod, node) for group in groups for pod, node in on_nodes(group)]
    others = [snapshot.others[uid] for uid in gone.others]
    return replace(
        snapshot,
        groups={key: group for key, group in snapshot.groups.items() if key not in gone.groups},
        others={uid: pod for uid, pod in snapshot.others.items() if uid not in gone.others},
        queues=_queues_without(snapshot, groups),
        room=_room_with(snapshot, [*pods, *((pod, pod.node) for pod in others)]),
    )


def without_pods(snapshot: Snapshot, gone: Set[Uid]) -> Snapshot:
    """The same by pods: a group of which some are left goes on with these."""
    others = frozenset(uid for uid in gone if uid in snapshot.others)
    groups = [
        group for group in snapshot.groups.values() if any(pod.uid in gone for pod, _ in on_nodes(group))
    ]
    smaller = [group for group in groups if any(pod.uid not in gone for pod, _ in on_nodes(group))]
    left = without(
        snapshot, Departed(frozenset(group.key for group in groups if group not in smaller), others)
    )
    for group in smaller:
        left = _with_fewer(left, group, gone)
    return left


def _with_fewer(snapshot: Snapshot, group: GroupView, gone: Set[Uid]) -> Snapshot:
    pods = [(pod, node) for pod, node in on_nodes(group) if pod.uid in gone]
    given, queue = total(pod.shape.requests for pod, _ in pods), snapshot.queues[group.queue]
    rest = replace(
        group,
        placed=tuple(pod for pod in group.placed if pod.uid not in gone),
        departing=tuple(pod for pod in group.departing if pod.uid not in gone),
        allocated=_less(group.allocated, [given]),
    )
    held = replace(
        queue, allocated=_less(queue.allocated, [given]), requested=_less(queue.requested, [given])
    )
    return replace(
        with_group(snapshot, rest),
        queues={**snapshot.queues, group.queue: held},
        room=_room_with(snapshot, pods),
    )


def on_nodes(group: GroupView) -> list[tuple[PodRecord, str]]:
    """The members whose room is taken, and where."""
    there = [(pod, pod.node) for pod in (*group.placed, *group.departing) if pod.holds_room]
    return [*there, *((pod, node) for pod, node in group.pinned)]


def with_group(snapshot: Snapshot, group: GroupView) -> Snapshot:
    return replace(snapshot, groups={**snapshot.groups, group.key: group})


def with_queue(snapshot: Snapshot, record: QueueRecord) -> Snapshot:
    queue = replace(snapshot.queues[record.name], record=record)
    return replace(snapshot, queues={**snapshot.queues, record.name: queue})


def with_nodes(snapshot: Snapshot, row: int, count: int) -> Snapshot:
    """`count` more nodes, empty, like the one in a row."""
    like = snapshot.nodes.nodes[row]
    assert like is not None
    there = len(snapshot.nodes.nodes)
    more = [_another(like, number) for number in range(count)]
    nodes = snapshot.nodes.with_changes((*snapshot.nodes.nodes, *more), range(there, there + count))
    rows = np.repeat(snapshot.allocatable[row : row + 1], count, axis=0)
    return replace(
        snapshot,
        nodes=nodes,
        room=np.concatenate([snapshot.room, rows]),
        allocatable=np.concatenate([snapshot.allocatable, rows]),
    )


def _another(like: NodeRecord, number: int) -> NodeRecord:
    name = f"{like.name}:{number}"
    labels = {**like.labels, _HOSTNAME: name} if _HOSTNAME in like.labels else like.labels
    return replace(like, name=name, labels=labels)


def _queues_without(snapshot: Snapshot, groups: Iterable[GroupView]) -> Mapping[str, QueueView]:
    queues = dict(snapshot.queues)
    for group in groups:
        if (queue := queues.get(group.queue)) is not None:
            queues[group.queue] = replace(
                queue,
                groups=max(queue.groups - 1, 0),
                allocated=_less(queue.allocated, [group.allocated]),
                requested=_less(queue.requested, [group.allocated, group.pending]),
            )
    return queues


def _less(amounts: Resources, those: Iterable[Resources]) -> Resources:
    left = dict(amounts)
    for each in those:
        add(left, each, -1)
    return {name: amount for name, amount in left.items() if amount > 0}


def _room_with(snapshot: Snapshot, pods: Collection[tuple[PodRecord, str]]) -> AmountRows:
    room, column = snapshot.room.copy(), {name: n for n, name in enumerate(snapshot.dimensions)}
    for pod, node in pods:
        row = snapshot.nodes.row.get(node)
        for name, amount in pod.shape.requests.items() if row is not None else ():
            if name in column:
                room[row, column[name]] += amount
    return room
