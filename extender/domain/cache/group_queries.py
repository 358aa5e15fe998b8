"""What other parts ask the ledger about groups. Nothing here changes anything."""

from contextlib import AbstractContextManager

from extender.domain.cache.pod_intake import PodIntake
from extender.domain.cache.registry import Registry
from extender.domain.lifecycle.auto_podgroups import AutoGroup
from extender.domain.model.local_queue_label import LocalQueueLabel
from extender.domain.model.pod_owners import OwnerRecord
from extender.domain.model.records import GroupKey, GroupRecord, PodRecord


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
