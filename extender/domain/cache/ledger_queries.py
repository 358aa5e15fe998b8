"""What others want to know of the ledger. Nothing here changes anything."""

from collections.abc import Iterable
from contextlib import AbstractContextManager

from extender.api.objects import Pod
from extender.domain.cache.changes import Changes
from extender.domain.cache.claim_stages import ClaimStage
from extender.domain.cache.claims import Claim, Claims
from extender.domain.cache.group_views import GroupViews
from extender.domain.cache.pod_intake import PodIntake
from extender.domain.cache.publishing import Publishing
from extender.domain.cache.registry import Registry
from extender.domain.decisions.decisions import Decisions
from extender.domain.lifecycle.auto_podgroups import AutoGroup
from extender.domain.model.pod_owners import OwnerRecord
from extender.domain.model.records import GroupKey, GroupRecord, PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.queues.queue_records import QueueRecord
from extender.domain.queues.queue_tree import QueueTree
from extender.domain.queues.queue_view import QueueView


class LedgerQueries:
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
        self._lock = lock
        self._registry = registry
        self._views = views
        self._claims = claims
        self._pod_intake = pod_intake
        self._publishing = publishing
        self._changes = changes

    @property
    def version(self) -> int:
        """It moves on with everything that a decision may depend on."""
        return self._changes.version

    @property
    def decisions(self) -> Decisions:
        """The newest published ones."""
        return self._publishing.decisions

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
        """By name: for people. Everything else goes by UID."""
        with self._lock:
            pods = self._pod_intake.pods.values()
            return next((pod for pod in pods if (pod.namespace, pod.name) == (namespace, name)), None)

    def left_gated(self) -> list[PodRecord]:
        """Pods that are left to another scheduler, which cannot schedule them while our gate is on."""
        with self._lock:
            pods = self._pod_intake.pods.values() if self._pod_intake.left else ()
            return [pod for pod in pods if pod.gated and pod.waiting and self.leaves(pod.scheduler)]

    def to_release(self, groups: Iterable[GroupKey] | None = None) -> list[Claim]:
        """Claims whose pod still waits for the scheduler to be told: planned, not yet answered. Of these
        groups; None: of all."""
        with self._lock:
            decided = self._publishing.decisions.groups
            return [
                claim
                for key in (decided if groups is None else groups)
                for uid in (decided[key].plan if key in decided else ())
                if (claim := self._claims.get(uid)) and claim.stage is ClaimStage.PLANNED
            ]

    def awaits_the_scheduler(self) -> bool:
        """Whether any pod is planned and open, so that the scheduler should ask for it."""
        return any(not claim.pod.gated for claim in self.to_release())

    # ---- groups

    def is_quorate(self, key: GroupKey) -> bool:
        """Whether a group is whole in bound and held members."""
        with self._lock:
            group = self._registry.groups.get(key)
            return group is not None and group.is_quorate()

    def waits_for_nobody(self, key: GroupKey) -> bool:
        """Whether a group is one pod that needs no other to start."""
        group = self._registry.groups.get(key)
        return group is None or group.waits_for_nobody

    def has_members(self, key: GroupKey) -> bool:
        group = self._registry.groups.get(key)
        return group is not None and bool(group.pods)

    def members(self, key: GroupKey) -> list[PodRecord]:
        with self._lock:
            group = self._registry.groups.get(key)
            return list(group.pods.values()) if group else []

    def group_record(self, key: GroupKey) -> GroupRecord | None:
        """The PodGroup as the API has it; None where there is none."""
        group = self._registry.groups.get(key)
        return group.record if group else None

    def owner_of(self, key: GroupKey) -> OwnerRecord | None:
        """What the controller of pods that name no group says about theirs."""
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
                is_used=bool(members) or self.may_be_left(key),
            )

    def queue_of(self, key: GroupKey) -> str:
        """The queue of a group; empty when it is gone."""
        with self._lock:
            group = self._registry.groups.get(key)
            return self._registry.queue_of(group) if group else ""

    def group_queue(self, namespace: str, name: str) -> str | None:
        """The queue of a PodGroup; None when there is none of this name."""
        with self._lock:
            group = self._registry.groups.get(GroupKey(f"{namespace}/{name}"))
            return self._registry.queue_of(group) if group is not None and group.record else None

    def may_be_left(self, key: GroupKey) -> bool:
        """Whether a group without members of ours may belong to a scheduler to which pods are left."""
        group = self._registry.groups.get(key)
        return bool(self._pod_intake.left) and (group is None or not group.pods)

    def history(self, key: GroupKey) -> tuple[int | None, str, bool]:
        """What outlives a restart: how many members a group needed when it stood whole, None where it never
        did; the UID of the queue that takes it in; whether its start was admitted and is not whole yet."""
        group = self._registry.groups.get(key)
        view = group.view if group else None
        stood_with = group.stood_with.min_member if group and group.stood_with else None
        admitted = group is not None and group.start.admitted
        return stood_with, view.accepted_by if view else "", admitted

    # ---- queues

    def queue_names(self) -> set[str]:
        """The queues that the API has."""
        with self._lock:
            return self._registry.queues.names

    def queue(self, name: str) -> QueueRecord | None:
        with self._lock:
            return self._registry.queues.get(name)

    def queue_view(self, name: str) -> QueueView | None:
        """None when there is no such queue; `default` counts as existing before it is created."""
        with self._lock:
            view = self._views.queue_view(name)
        return view if view.exists else None

    def queue_tree(self) -> QueueTree:
        """All queues, for rules about several of them."""
        with self._lock:
            return QueueTree(self._registry.queues.records, self.queue_view)

    def namespace_queue(self, namespace: str) -> str:
        return self._registry.namespace_queues.get(namespace, "")

    # ---- nodes

    def knows_node(self, name: str) -> bool:
        return self._claims.capacity.knows(name)

    def suits(self, pod: PodRecord, node: str) -> bool:
        """Whether a node's labels and taints admit a pod."""
        with self._lock:
            return self._claims.capacity.suits(pod, node)

    def nodes(self) -> list[tuple[str, Resources, Resources, list[Claim]]]:
        """Each node's name, what it offers, what is idle net of all claims, and the claims."""
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
