"""Intake from the watches: pods, nodes, groups, queues and the objects that they refer to."""

from collections.abc import Mapping

from msgspec.structs import replace

from extender.api import keys
from extender.api.objects.cluster import Namespace, Node, PodDisruptionBudget, PriorityClass, Workload
from extender.api.objects.pods import Pod
from extender.api.objects.queues import LocalQueue, NativePodGroup, PluginsPodGroup, PodGroup, Queue
from extender.domain.ledger.groups import Group
from extender.domain.ledger.state import Changes, Parts
from extender.domain.model.evictions import BudgetsByNamespace, DisruptionBudget, disruption_budget
from extender.domain.model.ownership import Ownership, owner_record
from extender.domain.model.reasons import REFUSAL_PREFIX
from extender.domain.model.records import GroupKey, Origin, PodRecord, Uid, group_of_owner
from extender.domain.model.resources import offered_by_node
from extender.domain.model.shapes import Shapes, node_taints
from extender.domain.model.wire_records import any_group_record, foreign_record, pod_record
from extender.domain.queues.local_queues import local_queue_record
from extender.domain.queues.records import queue_record
from extender.domain.snapshot.group_view import Refusal
from extender.domain.snapshot.jobs import AnyJob, JobKind, JobRules, job_record
from extender.domain.snapshot.nodes import NodeRecord

# ---- The PodDisruptionBudgets of the cluster, by namespace.


class DisruptionBudgets:
    """Callers hold the ledger's lock."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._known: dict[str, dict[str, DisruptionBudget]] = {}
        self._stale: set[str] = set()  # namespaces that differ from what was last shown
        self._shown: BudgetsByNamespace = {}

    def put(self, budget: PodDisruptionBudget) -> None:
        record = disruption_budget(budget)
        there = self._known.setdefault(record.namespace, {})
        if there.get(record.name) != record:
            there[record.name] = record
            self._note(record.namespace)

    def drop(self, namespace: str, name: str) -> None:
        if self._known.get(namespace, {}).pop(name, None) is not None:
            self._note(namespace)

    def view(self) -> BudgetsByNamespace:
        """The same object until a budget changes; never changed."""
        if self._stale:
            now = dict(self._shown)
            for namespace in self._stale:
                self._show(namespace, now)
            self._shown, self._stale = now, set()
        return self._shown

    def _note(self, namespace: str) -> None:
        self._stale.add(namespace)
        self._changes.mark()

    def _show(self, namespace: str, now: dict[str, tuple[DisruptionBudget, ...]]) -> None:
        if there := self._known[namespace]:
            now[namespace] = tuple(there.values())
        else:
            del self._known[namespace]
            now.pop(namespace, None)


# ---- Intake from the watch of pods: whether they are ours, what they hold, and what the scheduler
# reports on them.
#
# An unchanged pod costs only a comparison.

_FEW_SHAPES = 1000


class PodIntake:
    """`pods`: all pods that exist, as far as the watch has shown. `left`: the scheduler names whose pods are
    left to another scheduler for now. Callers hold the ledger's lock."""

    def __init__(self, parts: Parts, ownership: Ownership) -> None:
        self.pods: dict[Uid, PodRecord] = {}
        self.left: frozenset[str] = frozenset()
        self.ownership = ownership
        self._registry, self._claims, self._moves = parts.registry, parts.claims, parts.moves
        self._releases, self._changes = parts.releases, parts.changes
        self._attendance = parts.attendance
        self._clock = parts.clock
        self._others: dict[Uid, PodRecord] = {}
        self._others_now: Mapping[Uid, PodRecord] | None = None  # a copy that does not change
        self.shapes = Shapes()
        self._most_shapes = _FEW_SHAPES

    def owns(self, pod: Pod) -> bool:
        """Whether a pod is ours."""
        if self.leaves(pod.spec.scheduler_name):
            return False
        return self.ownership.owns(pod, self._registry.routes.namespace_queue(pod.metadata.namespace))

    def leaves(self, scheduler: str) -> bool:
        """Whether pods of this scheduler name are left to another scheduler, although they would be ours."""
        return scheduler in self.left

    def others(self) -> Mapping[Uid, PodRecord]:
        """The pods on nodes that are not ours; the same mapping until that changes."""
        if self._others_now is None:
            self._others_now = dict(self._others)
        return self._others_now

    def set_pod(self, pod: Pod) -> None:
        """Raises BadQuantity."""
        self._set(self._record(pod))

    def drop_pod(self, uid: Uid) -> None:
        record = self.pods.pop(uid, None)
        if record is None:
            return
        self._moves.drop(record)
        self._count_among_others(record, is_other=False)
        if record.group:
            self._claims.capacity.unwatch_terms(record)
            self._registry.group(record.group).note_vacated(record)
            self.leave_group(record)
        if record.group or record.node:
            self._changes.mark()

    def leave(self, schedulers: frozenset[str]) -> None:
        """From now on pods of these schedulers are left to another scheduler; all others are ours again."""
        changed = (self.left ^ schedulers) & self.ownership.schedulers
        self.left = schedulers
        for pod in [each for each in self.pods.values() if each.scheduler in changed]:
            if self.leaves(pod.scheduler):
                self._give_away(pod)
            else:
                self._set(replace(pod, group=pod.own_group))

    # ---- inside

    def _record(self, pod: Pod) -> PodRecord:
        """Raises BadQuantity."""
        ours = self.owns(pod)
        if not ours and not self.leaves(pod.spec.scheduler_name):
            return foreign_record(pod, self.shapes)
        return pod_record(pod, self.shapes, ours, self.ownership.auto_groups)

    def _set(self, record: PodRecord) -> None:
        before = self.pods.get(record.uid)
        if record == before:
            return
        if before is not None and _is_alike(before, record):
            return self._note(record)
        try:
            self._take_in(record, before)
        except Exception:  # better unknown than half-recorded: the watch delivers the pod again
            self.drop_pod(record.uid)
            raise

    def _note(self, record: PodRecord) -> None:
        """The thousands of conditions that Muster writes itself must not cause a single decision."""
        self.pods[record.uid] = record
        if record.group:
            self._registry.group(record.group).pods[record.uid] = record

    def _take_in(self, record: PodRecord, before: PodRecord | None) -> None:
        if before is not None and before.group and before.group != record.group:
            self.leave_group(before)
        self.pods[record.uid] = record
        self._count_among_others(record, is_other=record.holds_room and not record.group)
        self.forget_old_shapes()
        if record.group:
            self._claims.capacity.watch_terms(record)
        elif before is not None and before.group:
            self._claims.capacity.unwatch_terms(before)
        self._moves.show(record)
        if record.group:
            self._join_group(record, before)
        elif record.scheduler in self.ownership.schedulers and not record.node:
            self._releases.note_stranger(record.uid, is_left=self.leaves(record.scheduler))
        if record.group or self._moved(before, record):
            self._changes.mark()

    def _count_among_others(self, pod: PodRecord, is_other: bool) -> None:
        if is_other:
            self._others[pod.uid] = pod
        elif self._others.pop(pod.uid, None) is None:
            return
        self._others_now = None

    def _give_away(self, pod: PodRecord) -> None:
        """Treat a pod as not ours: it keeps what it holds on a node, but a plan for it is void."""
        self.drop_pod(pod.uid)
        self._set(replace(pod, group=GroupKey("")))

    def forget_old_shapes(self) -> None:
        """Forget shapes that no pod has any more, each time the number of shapes has doubled."""
        if len(self.shapes) > self._most_shapes:
            used = {pod.shape for pod in self.pods.values()} | self._registry.jobs.shapes
            self.shapes.keep_only(used)
            self._claims.capacity.keep_only(used)
            self._most_shapes = 2 * len(used) + _FEW_SHAPES

    @staticmethod
    def _moved(before: PodRecord | None, now: PodRecord) -> bool:
        """Whether room was taken or freed, which is all that matters of pods that are not ours."""
        was = (before.node, before.holds_room, before.shape) if before else ("", False, None)
        return was != (now.node, now.holds_room, now.shape) and (now.node != "" or was[1])

    def _join_group(self, pod: PodRecord, before: PodRecord | None) -> None:
        group = self._registry.group(pod.group)
        group.pods[pod.uid] = pod
        if before is not None and not pod.holds_room:
            group.note_vacated(before)
        group.note_started(pod)
        group.note_bound(pod, self._clock())
        self._note_refusal(group, pod, before)
        if pod.node or not pod.waiting:
            group.refusals.pop(pod.uid, None)
            group.expected_since.pop(pod.uid, None)
        elif self._releases.sees(pod) and self._claims.get(pod.uid) is not None:
            group.expected_since.setdefault(pod.uid, self._clock())
        self._moves.restand(group, pod)
        self._registry.touch(pod.group)

    def leave_group(self, pod: PodRecord) -> None:
        """It is a member no more, whatever becomes of it."""
        group = self._registry.group(pod.group)
        group.forget(pod.uid)
        if group.record is None and not group.pods:
            group.forget_history()
            group.last_record = None
        self._registry.touch(pod.group)

    def _note_refusal(self, group: Group, pod: PodRecord, before: PodRecord | None) -> None:
        """Note a new refusal of a pod by the scheduler, unless it repeats Muster's own. A claim that filter
        had answered may be moved again."""
        text = pod.unschedulable
        if not text or before is None or text == before.unschedulable or REFUSAL_PREFIX in text:
            return
        if self._attendance.note_asked():
            self._changes.mark()
        group.refusals[pod.uid] = Refusal(text, self._clock())
        self._moves.refuse(pod)


def _is_alike(before: PodRecord, now: PodRecord) -> bool:
    """Whether the two differ only in what no decision depends on: a version, and what a pod says of itself
    without the scheduler having said it."""
    if before.unschedulable != now.unschedulable:
        return False
    return replace(before, version=now.version, unscheduled=now.unscheduled) == now


# ---- Intake from the watches of everything but pods: nodes, groups, queues and the objects that they
# refer to.
#
# An unchanged object costs only a comparison.


class Intake:
    """Callers hold the ledger's lock."""

    def __init__(self, parts: Parts, pods: PodIntake, jobs: JobRules) -> None:
        self._registry, self._claims, self._moves = parts.registry, parts.claims, parts.moves
        self._capacity, self._changes = parts.claims.capacity, parts.changes
        self._pods, self._jobs = pods, jobs

    def set_node(self, node: Node) -> None:
        """Raises BadQuantity."""
        record = NodeRecord(
            name=node.metadata.name,
            labels=node.metadata.labels or {},
            taints=node_taints(node.spec.taints, node.spec.unschedulable),
            allocatable=offered_by_node(node.status.allocatable),
        )
        before = self._capacity.labels(record.name)
        if self._capacity.set_node(record):
            self._moves.note_freed()
            self._changes.mark()
        if before != record.labels:
            self._touch_flavored(record.name)

    def drop_node(self, name: str) -> None:
        self._capacity.drop_node(name)
        self._touch_flavored(name)
        self._changes.mark()

    def _touch_flavored(self, node: str) -> None:
        """A node's labels say which flavor of a queue its pods hold."""
        for key in {claim.pod.group for claim in self._claims.on_node(node) if claim.pod.group}:
            if self._registry.flavors_of(key):
                self._registry.touch(key)

    def set_group(self, group: PodGroup | PluginsPodGroup | NativePodGroup) -> None:
        if self._registry.set_group(any_group_record(group), self._changes.next_version):
            self._changes.mark()

    def drop_group(self, key: GroupKey, origin: Origin = Origin.VOLCANO) -> None:
        self._registry.drop_group(key, origin, self._changes.next_version)
        self._changes.mark()

    def set_owner(self, workload: Workload) -> bool:
        """A controller of pods. True if anything changed that matters for their group."""
        has_changed = self._registry.set_owner(workload.metadata.namespace, owner_record(workload))
        if has_changed:
            self._changes.mark()
        return has_changed

    def drop_owner(self, namespace: str, uid: str) -> None:
        if self._registry.drop_owner(namespace, uid):
            self._changes.mark()

    def set_job(self, kind: JobKind, job: AnyJob) -> None:
        ownership, key = self._pods.ownership, group_of_owner(job.metadata.namespace, job.metadata.uid)
        whole = self._registry.runtimes.complete(key, self._jobs.table[kind], kind, job)
        record = job_record(
            kind, whole, self._jobs.table, self._pods.shapes, ownership.schedulers, ownership.auto_groups
        )
        if self._registry.set_job(record):
            self._pods.forget_old_shapes()
            self._changes.mark()

    def drop_job(self, namespace: str, uid: str) -> None:
        key = group_of_owner(namespace, uid)
        self._registry.runtimes.forget(key)
        if self._registry.drop_job(key):
            self._changes.mark()

    def read_again(self, key: GroupKey) -> None:
        """A job whose runtime has changed."""
        if (read := self._registry.runtimes.job(key)) is not None:
            self.set_job(*read)

    def set_queue(self, queue: Queue) -> None:
        if self._registry.set_queue(queue_record(queue)):
            self._moves.note_freed()
            self._changes.mark()

    def drop_queue(self, name: str) -> None:
        self._registry.drop_queue(name)
        self._changes.mark()

    def set_local_queue(self, local: LocalQueue) -> None:
        if self._registry.set_local_queue(local_queue_record(local)):
            self._moves.note_freed()
            self._changes.mark()

    def drop_local_queue(self, key: str) -> None:
        if self._registry.drop_local_queue(key):
            self._changes.mark()

    def note_kueue(self, is_served: bool) -> None:
        if self._registry.note_kueue(is_served):
            self._changes.mark()

    def set_namespace(self, namespace: Namespace) -> None:
        queue = (namespace.metadata.annotations or {}).get(keys.QUEUE, "")
        labels = namespace.metadata.labels or {}
        if self._registry.set_namespace(namespace.metadata.name, queue, labels):
            self._changes.mark()

    def drop_namespace(self, name: str) -> None:
        if self._registry.drop_namespace(name):
            self._changes.mark()

    def set_quota_namespaces(self, queues: Mapping[str, str]) -> None:
        if self._registry.set_quota_namespaces(queues):
            self._changes.mark()

    def set_priority_class(self, priority: PriorityClass) -> None:
        if self._registry.set_priority_class(priority):
            self._changes.mark()

    def drop_priority_class(self, name: str) -> None:
        if self._registry.drop_priority_class(name):
            self._changes.mark()

    def trust_marks(self, kept: bool) -> None:
        if self._registry.trust_marks(kept):
            self._changes.mark()
