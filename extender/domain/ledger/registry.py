"""Groups and their queues, and the objects to which groups refer: owners, priorities, namespaces."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec

from extender.api import keys
from extender.api.objects.cluster import PriorityClass
from extender.api.workloads.gangs import Defaults
from extender.api.workloads.shape import VOLCANO_JOB, KindName
from extender.domain.ledger.groups import Group
from extender.domain.ledger.jobs import Ancestors, Jobs, Owner, Runtimes
from extender.domain.ledger.routes import Routes
from extender.domain.model.ownership import OwnerRecord, has_many_groups
from extender.domain.model.records import GroupKey, GroupRecord, Origin, group_of_owner
from extender.domain.queues.flavors import Flavor, SharedFlavor
from extender.domain.queues.records import Limit, QueueRecord, allows_namespace
from extender.domain.queues.tree import AdmittedGroups, Orphan, Queues


class Owners:
    """Controllers of pods without a group name, with the facts that define the group of these pods."""

    def __init__(self) -> None:
        self._by_group: dict[GroupKey, OwnerRecord] = {}
        self.suspended_uids: set[str] = set()  # UIDs of suspended controllers
        self.is_read: Callable[[str], bool] = lambda _: False  # whether a kind of owners has been read

    def get(self, key: GroupKey) -> OwnerRecord | None:
        return self._by_group.get(key)

    def put(self, key: GroupKey, record: OwnerRecord) -> bool:
        """Record a controller. Return whether any relevant fact has changed.

        A record is stored only once it differs from the defaults.
        """
        if record == (self._by_group.get(key) or OwnerRecord(record.uid)):
            return False
        self._by_group[key] = record
        if record.is_suspended:
            self.suspended_uids.add(record.uid)
        else:
            self.suspended_uids.discard(record.uid)
        return True

    def drop(self, key: GroupKey) -> bool:
        """Remove a record. Return whether it existed."""
        record = self._by_group.pop(key, None)
        if record is not None:
            self.suspended_uids.discard(record.uid)
        return record is not None


_SYSTEM_PREFIX = "system-"  # prefix of names that only classes of Kubernetes may have


class _PriorityClass(msgspec.Struct, frozen=True):
    value: int
    is_default: bool  # globalDefault
    may_preempt: bool  # whether its preemptionPolicy is not Never
    is_for_groups: bool  # whether it counts for PodGroups regardless of their pods


class Priorities:
    """Priority classes, and the priorities that groups get from them.

    A user who may create a PodGroup may write any class into the PodGroup, while the API server lets pods
    have only classes that their quota allows. Therefore, a group's priority is at most the highest priority
    with which one of its pods was admitted.

    A class with the annotation for PodGroups counts regardless of the pods, because only an administrator can
    write the annotation. Kubernetes' own classes never count in this way.
    """

    def __init__(self) -> None:
        self._classes: dict[str, _PriorityClass] = {}
        self._default = 0

    def put(self, priority: PriorityClass) -> bool:
        """Record a class. Return whether anything changed."""
        name, annotations = priority.metadata.name, priority.metadata.annotations or {}
        open_to_groups = annotations.get(keys.FOR_POD_GROUPS) == "true"
        is_for_groups = open_to_groups and not name.startswith(_SYSTEM_PREFIX)
        may_preempt = priority.preemption_policy != keys.NEVER
        new_class = _PriorityClass(priority.value, priority.global_default, may_preempt, is_for_groups)
        old_class, self._classes[name] = self._classes.get(name), new_class
        return old_class != new_class and self._settle_default()

    def drop(self, name: str) -> bool:
        """Remove a class. Return whether it existed."""
        if self._classes.pop(name, None) is None:
            return False
        return self._settle_default()

    def preempts(self, name: str) -> bool:
        """Return whether groups that name this class may evict others."""
        return self._classes.get(name, _UNKNOWN_CLASS).may_preempt

    def _settle_default(self) -> bool:
        """Set the default priority.

        If several classes are the default, the lowest priority counts, as for pods.
        """
        self._default = min((kind.value for kind in self._classes.values() if kind.is_default), default=0)
        return True

    def group_priority(self, name: str, pods: Iterable[int]) -> int:
        """Return the priority of a group.

        If the group names no class, its priority is the highest priority of its pods. If it has no pods
        either, the default class counts. A class that does not exist counts as 0.

        Args:
            name: The name of the group's class; empty without a class.
            pods: The priorities of the group's pods.
        """
        max_priority = max(pods, default=None)
        if not name:
            return self._default if max_priority is None else max_priority
        priority_class = self._classes.get(name, _UNKNOWN_CLASS)
        if priority_class.is_for_groups:
            return priority_class.value
        return min(priority_class.value, self._default if max_priority is None else max_priority)


_UNKNOWN_CLASS = _PriorityClass(0, is_default=False, may_preempt=True, is_for_groups=False)


class Registry:
    """Groups, existing queues, and the objects to which they refer. Dirty groups need new infos."""

    def __init__(self) -> None:
        self.groups: dict[GroupKey, Group] = {}
        self.jobs = Jobs()
        self.foreign_kinds: Collection[KindName] = (VOLCANO_JOB,)  # kinds whose jobs other controllers admit
        self.runtimes = Runtimes()
        self.ancestors = Ancestors()
        self.routes = Routes(lambda group: self.ancestors.nearest_naming_queue(self._owners_of(group)))
        self.queues = Queues()
        self.admitted_groups = AdmittedGroups()
        self.owners = Owners()
        self.priorities = Priorities()
        self.claims_are_read: Callable[[], bool] = lambda: False  # whether all device claims are known
        self.trusts_markers = False  # whether only Muster can write records on PodGroups
        self.trusts_authors = False  # whether the API server refuses records with other users' names
        self.trusts_uses = False  # whether the API server checks records of rights
        self.requires_rights = False  # whether the right to use a restricted queue is required
        # By dirty group, in order: whether its queue may have changed since its last info.
        self._dirty_groups: dict[GroupKey, bool] = {}
        self._claims_changed: set[GroupKey] = set()  # dirty only by claims, attempts or the start
        self._groups_by_queue: defaultdict[str, dict[GroupKey, None]] = defaultdict(dict)  # by queue of info

    def group(self, key: GroupKey) -> Group:
        """Return the group with this key, which is created on first use."""
        if key not in self.groups:
            self.groups[key] = Group(key)
            self.groups[key].owner = self.owner_of(key)
        return self.groups[key]

    def mark_dirty(self, key: GroupKey) -> None:
        self._dirty_groups[key] = True
        self._claims_changed.discard(key)

    def mark_claims_changed(self, key: GroupKey) -> None:
        """Mark a group of which only claims, attempts and the start have changed."""
        if key not in self._dirty_groups:
            self._claims_changed.add(key)
        self._dirty_groups[key] = True

    def _mark_unmoved(self, key: GroupKey) -> None:
        """Mark a group with a change that does not move it to another queue."""
        self._dirty_groups.setdefault(key, False)
        self._claims_changed.discard(key)

    def set_group(self, record: GroupRecord, version: int) -> bool:
        """Record a PodGroup. Return whether any relevant fact has changed.

        Args:
            record: The PodGroup.
            version: The ledger's version from which the PodGroup counts.
        """
        group = self.group(record.key)
        group.records[record.origin] = record
        return self._settle_record(group, version)

    def _settle_record(self, group: Group, version: int) -> bool:
        """Update the record of a group. Return whether it has changed.

        The needs and progress of a group outlive its PodGroup, as long as the group has members.
        """
        old_record, new_record = group.record, group.records[min(group.records)] if group.records else None
        if old_record == new_record:
            return False
        if new_record is None:
            group.entitled_queue = ""  # pods without a PodGroup count as new in their queue
        elif not ((old_record and old_record.uid == new_record.uid) or group.is_implied):
            group.reset_decisions()
        self.admitted_groups.record(old_record, new_record)
        group.put_record(new_record, version)
        self.record_dependencies(group)
        self.record_arrival(group)
        self.mark_dirty(group.key)
        return True

    def drop_group(self, key: GroupKey, origin: Origin, version: int) -> None:
        group = self.groups.get(key)
        if group is not None and group.records.pop(origin, None) is not None:
            self._settle_record(group, version)

    @property
    def dirty_groups(self) -> Collection[GroupKey]:
        """Return the groups that have changed since infos were last made."""
        return self._dirty_groups

    def dirty_jobs(self) -> Collection[GroupKey]:
        """Return the changed groups that have or had a job."""
        return [key for key in self._dirty_groups if key in self.jobs or self.has_job(key)]

    def has_job(self, key: GroupKey) -> bool:
        """Return whether a managed job makes the pods of a group."""
        group = self.groups.get(key)
        return group is not None and group.job is not None

    def set_queue(self, record: QueueRecord) -> bool:
        """Record a queue. Return whether any relevant fact has changed."""
        return self._record_queues(self.queues.put(record))

    def set_flavor(self, name: str, flavor: SharedFlavor | None) -> bool:
        """Record a ResourceFlavor; None means that it is gone. Return whether any queue is affected."""
        return self._record_queues(self.queues.put_flavor(name, flavor))

    def _record_queues(self, queues: set[str]) -> bool:
        """Mark the groups of queues that may have opened, closed or changed.

        Return whether there are such queues.
        """
        self.routes.local_queues.record_queues(queues)
        for key in self._groups_of(queues):
            self.record_arrival(self.groups[key])
            self._mark_unmoved(key)
        return bool(queues)

    def _groups_of(self, queues: Collection[str]) -> list[GroupKey]:
        """Return the groups of queues.

        An index is used, because there may be thousands of queues and status updates.
        """
        indexed_keys = (key for queue in sorted(queues) for key in self._groups_by_queue.get(queue, ()))
        keys_to_check = [key for key, may_move in self._dirty_groups.items() if may_move] if queues else []
        groups_to_check = (group for key in keys_to_check if (group := self.groups.get(key)) is not None)
        moved_keys = (group.key for group in groups_to_check if self.routes.queue_of(group) in queues)
        return [*(key for key in indexed_keys if not self._dirty_groups.get(key)), *moved_keys]

    def record_dependencies(self, group: Group) -> None:
        """Record the objects on which a group depends.

        Changes of these objects mark the group as dirty.
        """
        self.ancestors.record_owners(group.key, self._owners_of(group))
        self.routes.record_group(group)

    def record_arrival(self, group: Group) -> None:
        """Record the arrival of a group. If its queue is open now, the group is entitled from now on."""
        queue = self.routes.queue_of(group)
        if group.record is not None and self.queues.is_open(queue):
            group.entitled_queue = queue

    def record_start(self, group: Group, is_under_way: bool) -> None:
        """Record the queue in which a group is starting or has started.

        If records on pods count, this is the queue recorded with the bindings of the group's pods. Otherwise,
        it is the queue that this process has observed.
        """
        if not is_under_way:
            group.start_queue = ""
            return
        pods = group.pods.values() if self.trusts_markers else ()
        recorded_uids = {pod.queue_uid for pod in pods if pod.queue_uid and pod.holds_capacity}
        queues = {name for uid in recorded_uids if (name := self.queues.name_by_uid.get(uid))}
        queue = group.start_queue or self.routes.queue_of(group)
        if queues and queue not in queues:
            queue = min(queues)
        group.start_queue = queue if self.queues.get(queue) is not None else ""

    def drop_queue(self, name: str) -> None:
        names = self.queues.drop(name)
        self.routes.local_queues.record_queues(names)
        for key in self._groups_of(names):
            self._mark_unmoved(key)

    def forget(self, group: Group) -> None:
        """Forget a group without members, PodGroup and job."""
        del self.groups[group.key]
        self.routes.forget(group)
        self.ancestors.record_owners(group.key, ())

    def take_dirty(self) -> tuple[Collection[GroupKey], Collection[GroupKey]]:
        """Return the groups that changed since the last call, in order.

        The second value contains the groups among them of which only claims, attempts and the start have
        changed.
        """
        dirty, claims_changed = self._dirty_groups, self._claims_changed
        self._dirty_groups, self._claims_changed = {}, set()
        return dirty, claims_changed

    def record_info(self, key: GroupKey, old_queue: str, new_queue: str) -> None:
        """Record that the last info of a group is now in another queue. An empty name means no queue."""
        if old_queue == new_queue:
            return
        if new_queue:
            self._groups_by_queue[new_queue][key] = None
        if old_queue:
            del self._groups_by_queue[old_queue][key]
            if not self._groups_by_queue[old_queue]:
                del self._groups_by_queue[old_queue]

    def accepts_namespace(self, queue: str, namespace: str) -> bool:
        """Return whether a queue accepts groups of a namespace. A queue that does not exist accepts all."""
        record = self.queues.get(queue)
        selector = record.namespace_selector if record is not None else None
        return allows_namespace(selector, self.routes.labels_of(namespace))

    def groups_in(self, namespace: str) -> list[GroupKey]:
        """Return the groups of a namespace, and the groups of its jobs."""
        return [*self.routes.groups_in(namespace), *self.jobs.groups_in(namespace)]

    def may_use(self, group: Group, queue: str) -> bool:
        """Return whether a group may enter a queue.

        A restricted queue requires a record of this right. The record may be on the owner of the pods,
        managed or not, on the PodGroup, or on every waiting pod. If no pod waits, it may be on every other
        pod. Records in the template of a job do not count, because they were not checked.
        """
        record = self.queues.get(queue)
        if not self.requires_rights or record is None or not record.is_restricted:
            return True
        objects = self.jobs.get(group.key), group.owner, group.record, self.routes.nearest_owner_of(group)
        recorded_queues = {each.usable_queue for each in objects if each is not None}
        members = [pod for pod in group.pods.values() if pod.is_waiting] or group.pods.values()
        queues_of_pods = {pod.usable_queue if not pod.is_expected else "" for pod in members}
        return self.trusts_uses and (queue in recorded_queues or queues_of_pods == {queue})

    def submitter_of(self, group: Group) -> str:
        """Return the user who made a group.

        The result is empty if the user is unknown, or if users could have forged the record. The record is on
        the PodGroup, or on an owner of the PodGroup or of its pods. Without such a record, the author of pods
        without a controller counts, if all these pods name the same author.
        """
        if not self.trusts_authors:
            return ""
        if group.record is not None and group.record.submitter:
            return group.record.submitter
        if author := self.ancestors.author(self._owners_of(group)):
            return author
        authors = {pod.author for pod in group.pods.values() if not (pod.is_expected or pod.is_replaceable)}
        return authors.pop() if len(authors) == 1 else ""

    def _owners_of(self, group: Group) -> Iterator[Owner]:
        """Yield the owners of a group: its job, the owner of its pods, and the controller of its PodGroup."""
        job, owner, record = self.jobs.get(group.key), group.owner, group.record
        uids = (job.uid if job else "", owner.uid if owner else "", record.owner_uid if record else "")
        yield from (Owner(group_of_owner(group.namespace, uid)) for uid in uids if uid)
        kind = next((pod.controller for pod in group.pods.values() if pod.controller), "")
        if kind and owner is None:
            yield Owner(group.key, kind)

    def flavors_of(self, key: GroupKey) -> tuple[Flavor, ...]:
        """Return the flavors of a group's queue; empty without any."""
        group = self.groups.get(key)
        return () if group is None else self.queues.flavors_of(self.routes.queue_of(group))

    def owner_of(self, key: GroupKey) -> OwnerRecord | None:
        """Return the owner of pods that name no group, if known.

        All groups of a LeaderWorkerSet have the same owner.
        """
        return self.owners.get(GroupKey(key.partition(".")[0]))

    def set_owner(self, key: GroupKey, record: OwnerRecord) -> Collection[GroupKey]:
        """Record an owner. Return the keys of its groups, which become dirty."""
        group_keys = [key]
        if has_many_groups(key):
            group_keys += [group_key for group_key in self.groups if group_key.startswith(f"{key}.")]
        for group_key in group_keys:
            if (group := self.groups.get(group_key)) is not None:
                group.owner = record
                self.mark_dirty(group_key)
        return group_keys

    def awaits_controller(self, group: Group) -> bool:
        """Return whether the watch still has to show an owner of the group's pods.

        While the owner is unknown, the gang size, the queue, or a user with limits may be unknown, too.
        """
        if group.last_record is not None or group.job is not None:
            return False
        controllers = (pod.controller for pod in group.pods.values() if pod.controller)
        if group.owner is None and any(self.owners.is_read(controller) for controller in controllers):
            return True
        queue = self.queues.get(self.routes.queue_of(group))
        needs_user = self.trusts_authors and queue is not None and queue.limits.user != Limit()
        needs_owners = not self.routes.names_queue(group) or (needs_user and not self.submitter_of(group))
        return needs_owners and self.ancestors.are_coming(self._owners_of(group))

    def settle_defaults(self, group: Group) -> None:
        """Record the defaults of the namespace and the queue for the gang size of a group."""
        queue = self.queues.get(self.routes.queue_of(group))
        namespace_default = self.routes.min_member_of(group.namespace)
        group.defaults = Defaults(namespace_default, queue.min_member if queue is not None else "")

    def admitting_queue_uid(self, group: Group, name: str) -> str:
        """Return the UID of the named queue if this queue admits the group; otherwise an empty text.

        A queue that is created again under the name of a deleted queue does not get the groups of the deleted
        queue.
        """
        queue = self.queues.get(name)
        accepts = queue is not None and group.entitled_queue == queue.name and not self.has_lost_queue(group)
        return queue.uid if queue is not None and accepts else ""

    def was_admitted(self, group: Group, name: str) -> bool:
        """Return whether an annotation proves that a group arrived while the named queue was open.

        The phase and reason in the status do not count, because users may write them.
        """
        queue, record = self.queues.get(name), group.record
        if queue is None or record is None or not self.trusts_markers:
            return False
        is_recorded = bool(queue.uid) and record.queue_uid == queue.uid
        return is_recorded or record.was_admitted or record.members_when_run is not None

    def is_suspended(self, group: Group) -> bool:
        """Return whether the owner of a group is suspended.

        A job that waits in its queue does not count as suspended.
        """
        if group.job is not None and group.job.is_suspended:
            return group.job.is_stopped
        owner, owner_uid = group.owner, group.record.owner_uid if group.record else ""
        return owner_uid in self.owners.suspended_uids or (owner is not None and owner.is_suspended)

    def run_limit_of(self, group: Group) -> float | None:
        """Return the seconds after which the controller of the group's pods ends them.

        None means that there is no limit.
        """
        owner_uid = group.record.owner_uid if group.record else ""
        owner = self.owners.get(group_of_owner(group.namespace, owner_uid)) if owner_uid else group.owner
        return float(owner.run_limit) if owner is not None and owner.run_limit is not None else None

    def has_lost_queue(self, group: Group) -> bool:
        """Return whether the queue that admitted a group is deleted.

        The queue `default` never counts as deleted, because it is created again. If markers are not trusted,
        users may have forged the record of the queue. Then only a deletion that this process has seen counts.
        """
        uid = group.record.queue_uid if group.record else ""
        if not uid or uid in self.queues.name_by_uid or self.routes.queue_of(group) == keys.DEFAULT_QUEUE:
            return False
        return self.trusts_markers or uid in self.queues.deleted_uids

    def priority_of(self, group: Group) -> int:
        """Return the priority of a group, by its class and its pods."""
        name = group.last_record.priority_class if group.last_record else ""
        return self.priorities.group_priority(name, (pod.priority for pod in group.pods.values()))

    def preempts(self, group: Group) -> bool:
        """Return whether a group may evict others: neither its class nor any member forbids it."""
        name = group.last_record.priority_class if group.last_record else ""
        return self.priorities.preempts(name) and not any(pod.never_preempts for pod in group.pods.values())

    def orphans(self) -> tuple[Orphan, ...]:
        """Return the groups whose queue was deleted after it had admitted them."""
        records = self.admitted_groups.groups_of_missing_queues(self.queues.name_by_uid.keys())
        self.queues.deleted_uids &= {record.queue_uid for record in records}
        return tuple(
            Orphan(record.namespace, record.name, record.uid, record.queue, record.queue_uid)
            for record in records
            if self.has_lost_queue(self.groups[record.key])
        )
