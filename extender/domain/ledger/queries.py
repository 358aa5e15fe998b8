"""Queries about groups and queues in the ledger, which change nothing."""

from collections import Counter
from collections.abc import Collection

from extender.api.objects.base import OwnerReference
from extender.domain.ledger.composites import Composites
from extender.domain.ledger.group_infos import GroupInfos
from extender.domain.ledger.jobs import Owner
from extender.domain.ledger.pods import Pods
from extender.domain.ledger.state import Core
from extender.domain.model.ownership import is_adopted
from extender.domain.model.queue_of_group import LocalQueueLabel, QueueOfOwner
from extender.domain.model.records import GroupKey, GroupRecord, Origin, PodRecord, group_of_owner
from extender.domain.model.resources import Resources
from extender.domain.queues.local_queues import Activity, LocalQueueRecord, activity_of
from extender.domain.queues.records import QueueRecord
from extender.domain.queues.tree import QueueInfo, QueueTree
from extender.domain.snapshot.auto_podgroups import AutoGroup


class GroupQueries:
    """Queries about groups. Single look-ups in a dict take no lock, because they are atomic."""

    def __init__(self, core: Core, pods: Pods, composites: Composites) -> None:
        self._registry, self._lock = core.registry, core.lock
        self._pods, self._composites = pods, composites

    def is_quorate(self, key: GroupKey) -> bool:
        """Return whether bound and held members make a group whole."""
        with self._lock:
            group = self._registry.groups.get(key)
            return group is not None and group.is_quorate()

    def needs_no_barrier(self, key: GroupKey) -> bool:
        """Return whether a group needs at most one pod to start, so that its bind calls need not wait."""
        group = self._registry.groups.get(key)
        return group is None or group.needs_no_barrier

    def has_members(self, key: GroupKey) -> bool:
        group = self._registry.groups.get(key)
        return group is not None and bool(group.pods)

    def members(self, key: GroupKey) -> list[PodRecord]:
        """Return the existing members of a group."""
        with self._lock:
            group = self._registry.groups.get(key)
            return [pod for pod in group.pods.values() if not pod.is_expected] if group else []

    def record(self, key: GroupKey) -> GroupRecord | None:
        group = self._registry.groups.get(key)
        return group.record if group else None

    def child_groups(self, key: GroupKey) -> list[tuple[GroupRecord, bool]]:
        """Return the groups in the tree of a composite, and whether each has enough members on nodes."""
        with self._lock:
            group = self._registry.groups.get(key)
            if group is None or group.record is None or group.record.composite is None:
                return []
            counts = Counter(pod.role for pod in group.info.placed_pods) if group.info is not None else {}
            tree = group.record.composite.tree
            states = {(child.name, child.children is not None): child.is_whole(counts) for child in tree}
            parts = self._composites.parts_of(key)
            return [(each, states.get((each.name, each.origin is Origin.COMPOSITE), False)) for each in parts]

    def plain_pod(self, key: GroupKey) -> PodRecord | None:
        """Return the plain pod for which a group exists: a pod without a group name and without an owner."""
        group = self._registry.groups.get(key)
        return group.plain_pod if group is not None else None

    def may_use(self, key: GroupKey, queue: str) -> bool:
        """Return whether the rights of its author allow a group to enter a queue."""
        with self._lock:
            group = self._registry.groups.get(key)
            return group is not None and self._registry.may_use(group, queue)

    def auto_group(self, key: GroupKey) -> AutoGroup:
        """Return the current state of a group of pods that name no group."""
        with self._lock:
            members, record = self.members(key), self.record(key)
            pods, group = [pod for pod in members if pod.auto], self._registry.groups.get(key)
            is_incomplete = group is not None and self._registry.awaits_controller(group)
            if group is not None:
                self._registry.settle_defaults(group)
            return AutoGroup(
                min_member=record.min_member if record else None,
                member_count=group.gang_size.members if group else 1,
                owner=self._registry.owner_of(key),
                queue_is_open=self._registry.queues.is_open(self.queue_of(key)),
                has_live_pods=any(pod.is_waiting or pod.holds_capacity for pod in pods) and not is_incomplete,
                has_pods=bool(pods),
                has_job=self._registry.has_job(key),
                is_used=bool(members) or self.may_be_foreign(key),
            )

    def queue_of(self, key: GroupKey) -> str:
        """Return the queue of a group; empty if the group is gone."""
        with self._lock:
            group = self._registry.groups.get(key)
            return self._registry.routes.queue_of(group) if group else ""

    def start_queue(self, key: GroupKey) -> str:
        """Return the queue in which a group starts or has started.

        The result is empty if no member holds capacity.
        """
        group = self._registry.groups.get(key)
        return group.start_queue if group is not None else ""

    def queue_uid(self, key: GroupKey) -> str:
        """Return the UID of the queue of a group; empty if the group or the queue is gone."""
        with self._lock:
            queue = self._registry.queues.get(self.queue_of(key))
            return queue.uid if queue is not None else ""

    def local_queue_label_of(self, key: GroupKey) -> LocalQueueLabel | None:
        with self._lock:
            group = self._registry.groups.get(key)
            return self._registry.routes.label_of(group) if group is not None else None

    def submitter_of(self, key: GroupKey) -> str:
        """Return the user who made a group; empty if the user is unknown."""
        with self._lock:
            group = self._registry.groups.get(key)
            return self._registry.submitter_of(group) if group is not None else ""

    def author_of(self, namespace: str, uid: str) -> str:
        """Return the user who made an owner of pods; empty if the user is unknown."""
        with self._lock:
            counts, owner = self._registry.trusts_authors, Owner(group_of_owner(namespace, uid))
            return self._registry.ancestors.author([owner]) if counts else ""

    def may_be_foreign(self, key: GroupKey) -> bool:
        """Return whether a group may belong to another scheduler.

        This is possible only while Muster leaves some pods to another scheduler, and the group has no members
        of Muster.
        """
        return bool(self._pods.unmanaged_schedulers) and not self.has_members(key)

    def history(self, key: GroupKey) -> tuple[int | None, str, bool, int | None, int]:
        """Return the facts about a group that have to survive a restart.

        Returns:
            - The number of needed members when it fully ran; None if it never did.
            - The UID of the queue that accepts it.
            - Whether its start was admitted and is not complete yet.
            - The number of undone starts in a row; None if its job counts them.
            - The seconds of work that evictions have cost.
        """
        group = self._registry.groups.get(key)
        info = group.info if group else None
        run_size = group.run_needs.min_member if group and group.run_needs else None
        was_admitted = group is not None and group.start.was_admitted
        undone_count = group.start_timeouts if group and group.job is None else None
        lost_work = int(group.lost_work) if group is not None else 0
        return run_size, info.history.accepted_by if info else "", was_admitted, undone_count, lost_work


class QueueQueries:
    """Queries about queues by name, and about LocalQueues by `namespace/name`; see QueueLookup."""

    def __init__(self, core: Core, infos: GroupInfos) -> None:
        self._registry, self._lock = core.registry, core.lock
        self._local_queues = core.registry.routes.local_queues
        self._infos = infos

    def names(self) -> set[str]:
        """Return the names of all existing queues."""
        with self._lock:
            return set(self._registry.queues.records)

    def get(self, name: str) -> QueueRecord | None:
        with self._lock:
            return self._registry.queues.get(name)

    def info(self, name: str) -> QueueInfo | None:
        """Return the state of a queue; None if the queue does not exist.

        `default` counts as existing before it is created.
        """
        with self._lock:
            info = self._infos.queue_info(name)
        return info if info.exists else None

    def queue_of_namespace(self, namespace: str) -> str:
        """Return the default queue of a namespace; empty if it has none."""
        return self._registry.routes.namespace_queue(namespace)

    def adopts(self, namespace: str) -> bool:
        """Return whether Muster schedules pods of a namespace that name no scheduler."""
        return is_adopted(namespace, self._registry.routes.labels_of(namespace))

    def queue_of_podgroup(self, namespace: str, name: str) -> str | None:
        """Return the queue of a PodGroup; None if the PodGroup does not exist."""
        with self._lock:
            group = self._registry.groups.get(GroupKey(f"{namespace}/{name}"))
            return self._registry.routes.queue_of(group) if group is not None and group.record else None

    def queue_of_owner(self, namespace: str, controller: OwnerReference) -> QueueOfOwner:
        """Return the queue that the nearest owner names, beginning with this controller."""
        owners, ancestors = [Owner.from_reference(namespace, controller)], self._registry.ancestors
        with self._lock:
            owner = ancestors.nearest_naming_queue(owners)
            return QueueOfOwner(owner.queue, owner.local_queue, not ancestors.are_coming(owners))

    def accepts_namespace(self, queue: str, namespace: str) -> bool:
        with self._lock:
            return self._registry.accepts_namespace(queue, namespace)

    def tree(self) -> QueueTree:
        """Return all queues, for rules that compare several queues."""
        with self._lock:
            queues = self._registry.queues
            return QueueTree(dict(queues.records), self.info, dict(queues.shared_flavors))

    def parents(self) -> set[str]:
        with self._lock:
            return {record.parent for record in self._registry.queues.records.values() if record.parent}

    def has_groups(self, queue: str, uid: str) -> bool:
        """Return whether a queue has groups, or has admitted groups that would be deleted with the queue."""
        with self._lock:
            admitted_groups = self._registry.admitted_groups
            return self._infos.queue_info(queue).group_count > 0 or admitted_groups.has_groups_of(uid)

    def local_queue(self, key: str) -> LocalQueueRecord | None:
        return self._local_queues.records.get(key)

    def local_queue_keys(self) -> set[str]:
        with self._lock:
            return set(self._local_queues.records)

    def local_queue_activity(self, key: str) -> Activity | None:
        """Return the first obstacle to starts in a LocalQueue, or `Ready` without an obstacle.

        None means that the LocalQueue does not exist.
        """
        with self._lock:
            record = self._local_queues.records.get(key)
            if record is None:
                return None
            namespace_allowed = self._registry.accepts_namespace(record.queue, record.namespace)
            return activity_of(record, self._infos.queue_info(record.queue), namespace_allowed)

    def local_queue_allocation(self, key: str) -> Resources:
        """Return the amounts that the groups of a LocalQueue hold."""
        with self._lock:
            return dict(self._infos.usage.amounts_by_local_queue.get(key, {}))

    def local_queue_named_by(self, namespace: str, label: LocalQueueLabel | None) -> LocalQueueRecord | None:
        with self._lock:
            return self._registry.routes.routes_into_queues.local_queue(namespace, label)

    def take_changed_local_queues(self) -> Collection[str]:
        """Return the LocalQueues that changed since the last call.

        Changes of numbers in decisions are not considered.
        """
        with self._lock:
            usage, local_queues = self._infos.usage, self._local_queues
            changed_keys = local_queues.changed_keys | usage.changed_local_queues
            local_queues.changed_keys, usage.changed_local_queues = set(), set()
            return changed_keys
