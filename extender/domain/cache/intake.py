"""Intake from the watches of everything but pods: nodes, groups, queues and the objects that they refer to.

An unchanged object costs only a comparison.
"""

from collections.abc import Mapping

from extender.api import keys
from extender.api.objects.cluster import Namespace, PriorityClass
from extender.api.objects.groups import NativePodGroup, PluginsPodGroup, PodGroup
from extender.api.objects.nodes import Node
from extender.api.objects.owners import Workload
from extender.api.objects.queues import LocalQueue, Queue
from extender.domain.cache.parts import Parts
from extender.domain.cache.pod_intake import PodIntake
from extender.domain.jobs.job_record import JobKind, JobRules
from extender.domain.jobs.reading import AnyJob, job_record
from extender.domain.model.pod_owners import owner_record
from extender.domain.model.records import GroupKey, Origin, group_of_owner
from extender.domain.model.resources import offered_by_node
from extender.domain.model.shapes import node_taints
from extender.domain.model.wire_records import any_group_record
from extender.domain.queues.local_queue_records import local_queue_record
from extender.domain.queues.queue_records import queue_record
from extender.domain.snapshot.nodes import NodeRecord


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
