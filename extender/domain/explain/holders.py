"""Holders of the resources that a group lacks: groups, and pods of other schedulers, the largest first."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import nsmallest
from operator import attrgetter

import msgspec
import numpy as np
from msgspec.structs import replace

from extender.domain.explain.hypotheses import Trial, placements
from extender.domain.model.reasons import CAPACITY_REASONS, Reason, Verdict
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import PODS, Resources, total
from extender.domain.snapshot.decisions import Decisions, GroupDecision
from extender.domain.snapshot.group_info import GroupInfo
from extender.domain.snapshot.nodes import Mask
from extender.domain.snapshot.snapshot import Snapshot, clock_time_of
from extender.domain.snapshot.wholeness import missing


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """Group, or pod of another scheduler, that uses resources which a pending group lacks."""

    name: str  # `namespace/name`
    pods: int  # number of its pods that count
    amounts: Resources  # amounts of the lacking resources that these pods use
    queue: str = ""  # queue of the group; empty for a pod of another scheduler
    group: GroupKey = GroupKey("")  # empty for a pod of another scheduler
    uid: Uid = Uid("")  # UID of a pod of another scheduler
    deleting: int = 0  # number of its pods that are being deleted
    overdue: str = ""  # when the first of them should have ended, as a timestamp; empty if none is late
    called: str = ""  # name for users


class StartChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """Change after which a group would start."""

    text: str  # condition for users, which continues `it starts`
    then: str = ""  # why the group would still wait; empty if it starts
    ends: tuple[str, ...] = ()  # groups and other pods that must end, as `namespace/name`
    queue: str = ""  # queue whose capability must be higher, if any
    capability: Resources = {}  # raised amounts of that capability

    @property
    def sentence(self) -> str:
        """Return the change as a sentence, such as `it starts once team/a (2 pods) ends`."""
        return f"{self.text} it would wait for {self.then}" if self.then else f"it starts {self.text}"


_NODE_REASONS = (*CAPACITY_REASONS, Reason.REFUSED_BY_SCHEDULER, Reason.QUEUE_SHARE)
_Filter = Callable[[GroupDecision], bool]
_position_key = attrgetter("position", "key")


class WaitingCase:
    """Pending group, with the data to try which changes would start it."""

    def __init__(self, snapshot: Snapshot, decisions: Decisions, group: GroupInfo, max_cycles: int) -> None:
        self.snapshot = snapshot
        self.decisions = decisions
        self.group = group
        self.decision = decisions.groups[group.key]
        self.queue = snapshot.queues[group.queue].record if group.queue in snapshot.queues else None
        self.trial = Trial(group.key, max_cycles)
        self._requests = missing(group).requests

    def start_change(self, text: str, snapshot: Snapshot) -> StartChange:
        """Return a change. If the group would still wait after the change, `then` says why."""
        outcome = self.trial.outcome(snapshot)
        return StartChange(text, then=str(outcome[1]) if outcome and outcome[1] else "")

    def holders(self, reason: Reason) -> list[Holder]:
        """Return the holders of the resources that the group lacks by its `reason`."""
        if reason in _NODE_REASONS:
            return self.largest_first([*self.holders_on_suitable_nodes(), *self.other_holders()])
        if reason is Reason.QUEUE_CEILING:
            return self.largest_first(self.queue_holders())
        if reason is Reason.RECLAIMING:
            return self.largest_first(self.victims())
        filter_by_reason: Mapping[Reason, _Filter] = {
            Reason.BEHIND_OTHERS: self._is_ahead,
            Reason.RESERVED: lambda decision: decision.reservation is not None,
            Reason.WINDOW_FULL: lambda decision: decision.verdict is Verdict.STARTING,
        }
        return self.holders_by_decision(filter_by_reason[reason]) if reason in filter_by_reason else []

    def victims(self) -> Iterator[Holder]:
        """Yield the groups of victims, and the number of their pods that still hold capacity."""
        reclaim = self.decision.reclaim
        group_by_uid = {victim.uid: victim.group for victim in reclaim.victims} if reclaim else {}
        for key in dict.fromkeys(group_by_uid.values()):
            if (group := self.snapshot.groups.get(key)) is not None:
                pods = [pod for pod, _ in placements(group) if pod.uid in group_by_uid]
                yield self._holder_of_pods(pods, key, group)
        for uid in group_by_uid:
            if (pod := self.snapshot.other_pods.get(uid)) is not None:
                yield self._holder_of_pods([pod], pod.key)

    def groups_ahead(self, limit: int) -> tuple[GroupKey, ...]:
        """Return the first groups ahead of this group."""
        line = filter(self._is_ahead, self.decisions.groups.values())
        return tuple(decision.key for decision in nsmallest(limit, line, key=_position_key))

    def _is_ahead(self, decision: GroupDecision) -> bool:
        return decision.queue == self.group.queue and 0 < decision.position < self.decision.position

    def holders_by_decision(self, is_match: _Filter) -> list[Holder]:
        """Return the groups whose decision matches, the next group in line first."""
        other_decisions = (item for item in self.decisions.groups.values() if item.key != self.group.key)
        matching_decisions = sorted(filter(is_match, other_decisions), key=_position_key)
        return [self._holder_of_group(self.snapshot.groups[decision.key]) for decision in matching_decisions]

    def holders_on_suitable_nodes(self) -> Iterator[Holder]:
        """Yield the groups with members on suitable nodes."""
        for group in self.snapshot.groups.values():
            if group.key != self.group.key and any(self._suits(node) for _, node in placements(group)):
                yield self._holder_of_group(group)

    def other_holders(self) -> Iterator[Holder]:
        """Yield the pods of other schedulers on suitable nodes."""
        for pod in self.snapshot.other_pods:
            if self._suits(pod.node):
                yield self._holder_of_pods([pod], pod.key)

    def evictable_holders(self) -> Iterator[Holder]:
        """Yield all holders except vital pods, which are never evicted.

        A pod is vital if the cluster depends on it, or if it belongs to its node.
        """
        yield from self.holders_on_suitable_nodes()
        for holder in self.other_holders():
            pod = self.snapshot.other_pods.get(holder.uid)
            if pod is not None and (pod.deleting or not pod.is_vital):
                yield holder

    def queue_holders(self) -> Iterator[Holder]:
        """Yield running or starting groups of the queue and of its siblings."""
        queues = {*queue_path(self.decisions, self.group.queue)} - {"root"}
        for group in self.snapshot.groups.values():
            if group.key == self.group.key or queues.isdisjoint(queue_path(self.decisions, group.queue)):
                continue
            if placements(group) or self.decisions.groups[group.key].verdict is Verdict.STARTING:
                yield self._holder_of_group(group)

    def largest_first(self, holders: Iterable[Holder]) -> list[Holder]:
        """Return holders by their largest part of the whole cluster in any resource."""
        totals = np.maximum(self.snapshot.allocatable.sum(axis=0), 1)
        total_by_name = dict(zip(self.snapshot.dimensions, totals.tolist(), strict=True))

        def sort_key(holder: Holder) -> tuple[float, str]:
            parts = (amount / total_by_name.get(name, 1) for name, amount in holder.amounts.items())
            return -max(parts, default=0.0), holder.called or holder.name

        return sorted(holders, key=sort_key)

    def _holder_of_group(self, group: GroupInfo) -> Holder:
        """Return the holder of the group's pods that are on nodes or planned."""
        pods = [pod for pod, _ in placements(group)]
        plan = self.decisions.groups[group.key].plan
        pods += [pod for pod in group.waiting_pods if pod.uid in plan]
        return self._holder_of_pods(pods, group.key, group)

    def _holder_of_pods(self, pods: Sequence[PodRecord], name: str, group: GroupInfo | None = None) -> Holder:
        """Return the holder of pods: their group, or a single pod of another scheduler."""
        deadlines = [pod.deletion_deadline for pod in pods if pod.deleting]
        now, epoch = self.snapshot.now, self.snapshot.epoch
        holder = Holder(
            name,
            len(pods),
            self._amounts_of(pods),
            uid=pods[0].uid if group is None else Uid(""),
            deleting=len(deadlines),
            overdue=min((end for end in deadlines if clock_time_of(end, epoch) < now), default=""),
        )
        if group is None:
            return holder
        return replace(holder, queue=group.queue, group=group.key, called=group.display_name)

    def _amounts_of(self, pods: Iterable[PodRecord]) -> Resources:
        """Return the requests of pods for the resources that the pending group requests."""
        sums = total(pod.shape.requests for pod in pods)
        return {name: sums[name] for name in self._requests if name in sums and name != PODS}

    def _suits(self, node: str) -> bool:
        row = self.snapshot.nodes.row_of.get(node)
        return row is not None and bool(self._suitable_rows[row])

    @cached_property
    def _suitable_rows(self) -> Mask:
        masks = [self.snapshot.nodes.suitable_rows(shape) for shape in missing(self.group).shapes]
        return np.logical_or.reduce(masks) if masks else np.zeros(len(self.snapshot.nodes.nodes), np.bool_)


def queue_path(decisions: Decisions, queue: str) -> list[str]:
    """Return a queue and all queues above it, from the queue to root."""
    names: list[str] = []
    while queue in decisions.queues and queue not in names:
        names.append(queue)
        queue = decisions.queues[queue].parent
    return names
