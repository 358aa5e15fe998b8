"""What other parts ask the ledger: about pods, queues and nodes here, about groups in `group_queries`.
Nothing here changes anything.
"""

from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager

from extender.api.objects.base import Meta
from extender.api.objects.pods import Pod
from extender.api.workloads.shape import Json
from extender.domain.cache.changes import Changes
from extender.domain.cache.claim_stages import ClaimStage
from extender.domain.cache.claims import Claim, Claims
from extender.domain.cache.group_queries import GroupQueries
from extender.domain.cache.group_views import GroupViews
from extender.domain.cache.groups import Group
from extender.domain.cache.pod_intake import PodIntake
from extender.domain.cache.publishing import Publishing
from extender.domain.cache.registry import Registry
from extender.domain.decisions.decisions import Decisions
from extender.domain.jobs.steps import ManagedJob
from extender.domain.model.local_queue_label import local_queue_label
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.queues.local_queue_activity import Activity, activity_of
from extender.domain.queues.local_queue_records import LocalQueueRecord
from extender.domain.queues.queue_records import QueueRecord
from extender.domain.queues.queue_tree import QueueTree
from extender.domain.queues.queue_view import QueueView
from extender.domain.queues.spec_fields import START_TIMEOUT


class LedgerQueries(GroupQueries):
    """Single look-ups are made without the lock: a dict's are atomic."""

    def __init__(
        self,
        lock: AbstractContextManager[object],
        registry: Registry,
        views: GroupViews,
        claims: Claims,
        pod_intake: PodIntake,
        publishing: Publishing,
        changes: Changes,
    ) -> None:
        super().__init__(lock, registry, pod_intake)
        self._views = views
        self._claims = claims
        self._publishing = publishing
        self._changes = changes

    @property
    def version(self) -> int:
        """It grows with every change that a decision may depend on."""
        return self._changes.version

    @property
    def decisions(self) -> Decisions:
        """The decisions published last."""
        return self._publishing.decisions

    # ---- jobs

    def managed_job(self, key: GroupKey) -> ManagedJob | None:
        """The job that makes a group's pods; None if there is none, or it is not managed."""
        with self._lock:
            group = self._registry.groups.get(key)
            if group is None or group.job is None:
                return None
            decisions = self.decisions
            queue = self._registry.routes.queue_of_job(group.job) or self._registry.queue_of(group)
            record = self._registry.queues.get(queue)
            return ManagedJob(
                group.job,
                queue,
                group.record,
                decisions.groups.get(key),
                group.job_let_go,
                self._has_room(group),
                group.reduced_to,
                group.got_going,
                any(pod.holds_room for pod in group.pods.values()),
                record.start_timeout if record is not None else START_TIMEOUT,
                is_victim=any(uid in decisions.evictions for uid in group.pods),
                runs_since=self._runs_since(group),
                max_run_time=record.max_run_time if record is not None else None,
                finished_at=group.job_finished_at,
            )

    def runtime_of(self, key: GroupKey) -> Json | None:
        """What the object says that has the templates of a job; None if it is not there."""
        with self._lock:
            return self._registry.runtimes.used_by(key)

    def _has_room(self, group: Group) -> bool:
        """Whether its job is as it was when room was claimed for all pods with which that starts: a decision
        may be older than a change of the job."""
        job = self._registry.jobs.get(group.key)
        if job is None or job != group.job:
            return False
        claimed = sum(1 for pod in group.pods.values() if pod.to_be and self._claims.get(pod.uid) is not None)
        return claimed > 0 and claimed >= (job.needed if group.reduced_to is None else group.reduced_to)

    def _runs_since(self, group: Group) -> float | None:
        if group.job is None or group.job_let_go is None:
            return None
        return min(group.job_let_go, self._publishing.moment(group.job.started_at))

    def has_job(self, key: GroupKey) -> bool:
        """Whether a managed job makes a group's pods."""
        return self._registry.has_job(key)

    # ---- pods

    def pod(self, uid: Uid) -> PodRecord | None:
        return self._pod_intake.pods.get(uid)

    def claim(self, uid: Uid) -> Claim | None:
        return self._claims.get(uid)

    def owns(self, pod: Pod) -> bool:
        """Whether a pod is ours."""
        return self._pod_intake.owns(pod)

    def leaves(self, scheduler: str) -> bool:
        """Whether pods of this scheduler name are left to another scheduler, although they would be ours."""
        return self._pod_intake.leaves(scheduler)

    @property
    def leaving(self) -> bool:
        """Whether pods of any scheduler name are left to another scheduler now."""
        return bool(self._pod_intake.left)

    def find_pod(self, namespace: str, name: str) -> PodRecord | None:
        """A pod by name, for the debug pages. Everything else looks pods up by UID."""
        with self._lock:
            pods = self._pod_intake.pods.values()
            return next((pod for pod in pods if (pod.namespace, pod.name) == (namespace, name)), None)

    def left_gated(self) -> list[PodRecord]:
        """Pods that are left to another scheduler, which cannot schedule them while our gate is on."""
        with self._lock:
            pods = self._pod_intake.pods.values() if self._pod_intake.left else ()
            return [pod for pod in pods if pod.gated and pod.waiting and self.leaves(pod.scheduler)]

    def to_release(self, groups: Iterable[GroupKey] | None = None) -> list[Claim]:
        """Claims that are planned but not yet answered, so that the scheduler still has to look at their
        pods: those of `groups`, None: of all groups."""
        with self._lock:
            decided = self._publishing.decisions.groups
            return [
                claim
                for key in (decided if groups is None else groups)
                for uid in (decided[key].plan if key in decided else ())
                if (claim := self._claims.get(uid)) and claim.stage is ClaimStage.PLANNED
            ]

    def awaits_the_scheduler(self) -> bool:
        """Whether any pod is planned and has no gate of ours, so that the scheduler should ask about it."""
        return any(not claim.pod.gated for claim in self.to_release())

    # ---- queues

    def queue_names(self) -> set[str]:
        """The queues that the API has."""
        with self._lock:
            return self._registry.queues.names

    def queue(self, name: str) -> QueueRecord | None:
        with self._lock:
            return self._registry.queues.get(name)

    def queue_view(self, name: str) -> QueueView | None:
        """None if there is no such queue; `default` counts as existing before it is created."""
        with self._lock:
            view = self._views.queue_view(name)
        return view if view.exists else None

    def has_groups(self, queue: str, uid: str) -> bool:
        """Whether groups are in a queue, or were taken in by it and would be lost with it."""
        with self._lock:
            return self._views.queue_view(queue).groups > 0 or self._registry.took_in_groups(uid)

    def parents_of_queues(self) -> set[str]:
        """The names of the queues that contain others."""
        with self._lock:
            return {record.parent for record in self._registry.queues.records.values() if record.parent}

    def queue_tree(self) -> QueueTree:
        """All queues, for rules that compare several of them."""
        with self._lock:
            return QueueTree(self._registry.queues.records, self.queue_view)

    def namespace_queue(self, namespace: str) -> str:
        """The queue of what names none in a namespace, or empty."""
        return self._registry.routes.namespace_queue(namespace)

    def takes_namespace(self, queue: str, namespace: str) -> bool:
        """Whether a queue takes groups of a namespace, by the namespace's labels."""
        with self._lock:
            return self._registry.takes_namespace(queue, namespace)

    # ---- LocalQueues, by `namespace/name`

    def local_queue(self, key: str) -> LocalQueueRecord | None:
        return self._registry.routes.local_queues.get(key)

    def local_queue_keys(self) -> set[str]:
        with self._lock:
            return self._registry.routes.local_queues.keys

    def local_queue_activity(self, key: str) -> Activity | None:
        """Whether its groups may start, and if not, why; None if there is no such LocalQueue."""
        with self._lock:
            record = self._registry.routes.local_queues.get(key)
            if record is None:
                return None
            allowed = self._registry.takes_namespace(record.queue, record.namespace)
            return activity_of(record, self._views.queue_view(record.queue), allowed)

    def local_queues_of(self, queue: str) -> set[str]:
        """Those that lead into a queue."""
        with self._lock:
            return self._registry.routes.local_queues.of_queue(queue)

    def named_local_queue(self, namespace: str, meta: Meta) -> LocalQueueRecord | None:
        """What an object of the namespace names by a label, whether it exists or not; None: nothing."""
        label = local_queue_label(meta)
        with self._lock:
            return self._registry.routes.local_queues.named(namespace, label) if label else None

    def local_queue_reserved(self, key: str) -> Resources:
        """What its groups hold."""
        with self._lock:
            return self._views.reserved_of(key)

    def take_turned_local_queues(self) -> Collection[str]:
        """Those of which anything changed since the last call, but for numbers that are in decisions."""
        with self._lock:
            return self._views.take_turned()

    # ---- nodes

    def knows_node(self, name: str) -> bool:
        return self._claims.capacity.knows(name)

    def suits(self, pod: PodRecord, node: str) -> bool:
        """Whether a node's labels and taints admit a pod."""
        with self._lock:
            return self._claims.capacity.suits(pod, node)

    def nodes(self) -> list[tuple[str, Resources, Resources, list[Claim]]]:
        """For each node its name, what it offers, what is idle net of all claims, and the claims."""
        with self._lock:
            return [
                (
                    node.name,
                    node.allocatable,
                    self._claims.capacity.idle(node.name),
                    list(self._claims.on_node(node.name)),
                )
                for node in self._claims.capacity.table().nodes
                if node
            ]
