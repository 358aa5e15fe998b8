"""What other parts ask the ledger. Nothing here changes anything."""

from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager

from extender.api.objects.base import Meta
from extender.api.objects.pods import Pod
from extender.api.workloads.shape import Json
from extender.domain.ledger.claims import Claim, Claims, ClaimStage
from extender.domain.ledger.group_views import GroupViews
from extender.domain.ledger.groups import Group
from extender.domain.ledger.intake import PodIntake
from extender.domain.ledger.publishing import Publishing
from extender.domain.ledger.registry import Registry
from extender.domain.ledger.state import Changes
from extender.domain.model.ownership import OwnerRecord
from extender.domain.model.queue_of_group import LocalQueueLabel, local_queue_label
from extender.domain.model.records import GroupKey, GroupRecord, PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.queues.local_queues import Activity, LocalQueueRecord, activity_of
from extender.domain.queues.records import QueueRecord
from extender.domain.queues.spec import START_TIMEOUT
from extender.domain.queues.tree import QueueTree, QueueView
from extender.domain.snapshot.auto_podgroups import AutoGroup
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.job_suspension import ManagedJob

# ---- What other parts ask the ledger about groups. Nothing here changes anything.


class GroupQueries:
    """Single look-ups are made without the lock: a dict's are atomic."""

    def __init__(
        self, lock: AbstractContextManager[object], registry: Registry, pod_intake: PodIntake
    ) -> None:
        self._lock = lock
        self._registry = registry
        self._pod_intake = pod_intake

    def is_quorate(self, key: GroupKey) -> bool:
        """Whether a group is whole in bound and held members."""
        with self._lock:
            group = self._registry.groups.get(key)
            return group is not None and group.is_quorate()

    def needs_no_barrier(self, key: GroupKey) -> bool:
        """Whether a group needs at most one pod to start, and so has no barrier."""
        group = self._registry.groups.get(key)
        return group is None or group.needs_no_barrier

    def has_members(self, key: GroupKey) -> bool:
        group = self._registry.groups.get(key)
        return group is not None and bool(group.pods)

    def members(self, key: GroupKey) -> list[PodRecord]:
        with self._lock:
            group = self._registry.groups.get(key)
            return [pod for pod in group.pods.values() if not pod.to_be] if group else []

    def group_record(self, key: GroupKey) -> GroupRecord | None:
        """The PodGroup as the API has it; None if there is none."""
        group = self._registry.groups.get(key)
        return group.record if group else None

    def owner_of(self, key: GroupKey) -> OwnerRecord | None:
        """The controller of a group's pods, if these name no group and it says anything about theirs."""
        with self._lock:
            return self._registry.owner_of(key)

    def auto_group(self, key: GroupKey) -> AutoGroup:
        """A group of pods that name none, as it is now."""
        with self._lock:
            members, record = self.members(key), self.group_record(key)
            pods = [pod for pod in members if pod.auto]
            return AutoGroup(
                min_member=record.min_member if record else None,
                owner=self._registry.owner_of(key),
                queue_is_open=self._registry.queues.is_open(self.queue_of(key)),
                lives=any(pod.waiting or pod.holds_room for pod in pods),
                has_pods=bool(pods),
                has_job=self._registry.has_job(key),
                is_used=bool(members) or self.may_be_left(key),
            )

    def queue_of(self, key: GroupKey) -> str:
        """The queue of a group; empty when it is gone."""
        with self._lock:
            group = self._registry.groups.get(key)
            return self._registry.queue_of(group) if group else ""

    def local_queue_label_of(self, key: GroupKey) -> LocalQueueLabel | None:
        """The label by which a group comes into its queue; None if no LocalQueue leads it there."""
        with self._lock:
            group = self._registry.groups.get(key)
            return self._registry.routes.label_of(group) if group is not None else None

    def group_queue(self, namespace: str, name: str) -> str | None:
        """The queue of a PodGroup; None if there is no PodGroup of this name."""
        with self._lock:
            group = self._registry.groups.get(GroupKey(f"{namespace}/{name}"))
            return self._registry.queue_of(group) if group is not None and group.record else None

    def may_be_left(self, key: GroupKey) -> bool:
        """Whether a group has no members of ours, and may belong to another scheduler that pods are left
        to."""
        group = self._registry.groups.get(key)
        return bool(self._pod_intake.left) and (group is None or not group.pods)

    def history(self, key: GroupKey) -> tuple[int | None, str, bool]:
        """What has to survive a restart: how many members a group needed when it stood whole, None if it
        never did; the UID of the queue that takes it in; whether its start was admitted and is not whole
        yet."""
        group = self._registry.groups.get(key)
        view = group.view if group else None
        stood_with = group.stood_with.min_member if group and group.stood_with else None
        admitted = group is not None and group.start.admitted
        return stood_with, view.accepted_by if view else "", admitted


# ---- What other parts ask the ledger: about pods, queues and nodes here, about groups in
# `group_queries`. Nothing here changes anything.


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
