"""The part of the ledger that watches feed: nodes, pods, groups, queues and what they refer to."""

from msgspec.structs import replace

from extender.api.objects import (
    Namespace,
    NativePodGroup,
    Node,
    PluginsPodGroup,
    Pod,
    PodGroup,
    PriorityClass,
    Queue,
    Workload,
)
from extender.domain.cache.books import FEW_SHAPES, Books
from extender.domain.cache.claims import Stage
from extender.domain.cache.groups import Group
from extender.domain.model.ownership import namespace_queue
from extender.domain.model.pod_owners import owner_record
from extender.domain.model.reasons import REFUSAL_PREFIX
from extender.domain.model.records import GroupKey, Origin, PodRecord, Uid
from extender.domain.model.resources import offered_by_node
from extender.domain.model.shapes import node_taints
from extender.domain.model.wire_records import any_group_record, pod_record
from extender.domain.queues.queue_records import queue_record
from extender.domain.snapshot.group_view import Refusal
from extender.domain.snapshot.nodes import NodeRecord


class Intake(Books):
    """An object that says nothing new costs a comparison."""

    def set_node(self, node: Node) -> None:
        """Raises BadQuantity."""
        record = NodeRecord(
            name=node.metadata.name,
            labels=node.metadata.labels or {},
            taints=node_taints(node.spec.taints, node.spec.unschedulable),
            allocatable=offered_by_node(node.status.allocatable),
        )
        with self._lock:
            if self._claims.capacity.set_node(record):
                self._changed()

    def drop_node(self, name: str) -> None:
        with self._lock:
            self._claims.capacity.drop_node(name)
            self._changed()

    def set_pod(self, pod: Pod) -> None:
        """Raises BadQuantity."""
        with self._lock:
            self._set(pod_record(pod, self._shapes, self.owns(pod), self._ownership.auto_groups))

    def drop_pod(self, uid: Uid) -> None:
        with self._lock:
            record = self._pods.pop(uid, None)
            if record is None:
                return
            self._claims.drop(uid)
            if record.group:
                self._claims.capacity.unwatch_terms(record)
                self._leave_group(record)
            if record.group or record.node:
                self._changed()

    def leave(self, schedulers: frozenset[str]) -> None:
        """From now on pods of these schedulers are somebody else's, and those of all others ours again."""
        with self._lock:
            changed = (self._left ^ schedulers) & self._ownership.schedulers
            self._left = schedulers
            for pod in [each for each in self._pods.values() if each.scheduler in changed]:
                if self.leaves(pod.scheduler):
                    self._part_with(pod)
                else:
                    self._set(replace(pod, group=pod.own_group))

    def set_group(self, group: PodGroup | PluginsPodGroup | NativePodGroup) -> None:
        with self._lock:
            if self._registry.set_group(any_group_record(group), self._version + 1):
                self._changed()

    def drop_group(self, key: GroupKey, origin: Origin = Origin.VOLCANO) -> None:
        with self._lock:
            self._registry.drop_group(key, origin, self._version + 1)
            self._changed()

    def set_owner(self, workload: Workload) -> bool:
        """A controller of pods. True when it says something new about them."""
        with self._lock:
            is_news = self._registry.set_owner(workload.metadata.namespace, owner_record(workload))
            if is_news:
                self._changed()
            return is_news

    def drop_owner(self, namespace: str, uid: str) -> None:
        with self._lock:
            if self._registry.drop_owner(namespace, uid):
                self._changed()

    def set_queue(self, queue: Queue) -> None:
        with self._lock:
            if self._registry.set_queue(queue_record(queue)):
                self._changed()

    def drop_queue(self, name: str) -> None:
        with self._lock:
            self._registry.drop_queue(name)
            self._changed()

    def set_namespace(self, namespace: Namespace) -> None:
        queue = namespace_queue(namespace)
        with self._lock:
            if self._registry.set_namespace_queue(namespace.metadata.name, queue):
                self._changed()

    def drop_namespace(self, name: str) -> None:
        with self._lock:
            if self._registry.set_namespace_queue(name, ""):
                self._changed()

    def set_priority_class(self, priority: PriorityClass) -> None:
        with self._lock:
            if self._registry.set_priority_class(priority):
                self._changed()

    def drop_priority_class(self, name: str) -> None:
        with self._lock:
            if self._registry.drop_priority_class(name):
                self._changed()

    # ---- inside

    def _set(self, record: PodRecord) -> None:
        before = self._pods.get(record.uid)
        if record == before:
            return
        if before is not None and before.group and before.group != record.group:
            self._leave_group(before)
        self._pods[record.uid] = record
        self._forget_old_shapes()
        if record.group:
            self._claims.watch_terms(record)
        self._claim_for(record)
        if record.group:
            self._join_group(record, before)
        if record.group or self._moved(before, record):
            self._changed()

    def _part_with(self, pod: PodRecord) -> None:
        """What it holds on a node it goes on to hold, as anybody's pod; a plan for it is void."""
        self.drop_pod(pod.uid)
        self._set(replace(pod, group=GroupKey("")))

    def _claim_for(self, pod: PodRecord) -> None:
        """A pod on a node holds room there, a finished one none; a waiting one keeps its claim."""
        if pod.holds_room:
            self._claims.put(pod, pod.node, Stage.BOUND)
        elif pod.node or not pod.waiting:
            self._claims.drop(pod.uid)
        elif (claim := self._claims.get(pod.uid)) is not None:
            self._claims.put(pod, claim.node, claim.stage, claim.since, claim.version, claim.token)

    def _forget_old_shapes(self) -> None:
        """Now and then, once they have doubled in number."""
        if len(self._shapes) > self._most_shapes:
            used = {pod.shape for pod in self._pods.values()}
            self._shapes.keep_only(used)
            self._claims.capacity.keep_only(used)
            self._most_shapes = 2 * len(used) + FEW_SHAPES

    @staticmethod
    def _moved(before: PodRecord | None, now: PodRecord) -> bool:
        """Whether room changed hands, which is all that matters of pods that are not ours."""
        was = (before.node, before.holds_room, before.shape) if before else ("", False, None)
        return was != (now.node, now.holds_room, now.shape) and (now.node != "" or was[1])

    def _join_group(self, pod: PodRecord, before: PodRecord | None) -> None:
        group = self._registry.group(pod.group)
        group.pods[pod.uid] = pod
        group.note_started(pod)
        group.note_bound(pod, self._clock())
        self._note_refusal(group, pod, before)
        if pod.node or not pod.waiting:
            group.refusals.pop(pod.uid, None)
            group.expected_since.pop(pod.uid, None)
        elif not pod.gated and self._claims.get(pod.uid) is not None:
            group.expected_since.setdefault(pod.uid, self._clock())
        self._restand(group, pod)
        self._registry.touch(pod.group)

    def _leave_group(self, pod: PodRecord) -> None:
        group = self._registry.group(pod.group)
        group.forget(pod.uid)
        if group.record is None and not group.pods:
            group.forget_history()
            group.last_record = None
        self._registry.touch(pod.group)

    def _note_refusal(self, group: Group, pod: PodRecord, before: PodRecord | None) -> None:
        """Note what the scheduler newly says of a pod, unless it repeats our own refusal. A claim that
        filter had answered may be moved again."""
        words, claim = pod.unschedulable, self._claims.get(pod.uid)
        if not words or before is None or words == before.unschedulable or REFUSAL_PREFIX in words:
            return
        self.note_asked()
        group.refusals[pod.uid] = Refusal(words, self._clock())
        if claim is not None and claim.stage is Stage.ANSWERED:
            self._claims.put(pod, claim.node, Stage.PLANNED, self._clock())
