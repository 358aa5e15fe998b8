"""Groups and their queues, and the objects that they refer to: owners, priorities, namespaces."""

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
    """Controllers of pods without a group name, as far as they define the group."""

    def __init__(self) -> None:
        self._by_group: dict[GroupKey, OwnerRecord] = {}
        self.suspended: set[str] = set()  # UIDs of suspended controllers
        self.is_read: Callable[[str], bool] = lambda _: False  # whether a kind of owners has been read

    def get(self, key: GroupKey) -> OwnerRecord | None:
        return self._by_group.get(key)

    def put(self, key: GroupKey, record: OwnerRecord) -> bool:
        """Record a controller; return whether anything that matters changed.

        A record is kept only once it differs from the defaults.
        """
        if record == (self._by_group.get(key) or OwnerRecord(record.uid)):
            return False
        self._by_group[key] = record
        if record.suspended:
            self.suspended.add(record.uid)
        else:
            self.suspended.discard(record.uid)
        return True

    def drop(self, key: GroupKey) -> bool:
        """Remove a record; return whether there was one."""
        record = self._by_group.pop(key, None)
        if record is not None:
            self.suspended.discard(record.uid)
        return record is not None


_OF_KUBERNETES = "system-"  # prefix of names that no other class may have


class _Class(msgspec.Struct, frozen=True):
    value: int
    is_default: bool  # globalDefault
    preempts: bool  # its preemptionPolicy is not Never
    for_groups: bool  # it counts for PodGroups whatever their pods have


class Priorities:
    """Priority classes, and the priority that groups get from them.

    A user who may create a PodGroup may write any class into it, while the API server lets pods have only
    classes that their quota allows. So a group's priority is at most the highest that one of its pods was
    admitted with. A class with the annotation for PodGroups, which only an administrator can write,
    counts whatever the pods have; Kubernetes' own classes never do.
    """

    def __init__(self) -> None:
        self._classes: dict[str, _Class] = {}
        self._default = 0

    def put(self, priority: PriorityClass) -> bool:
        """Record a class; return whether anything changed."""
        name, annotations = priority.metadata.name, priority.metadata.annotations or {}
        open_to_groups = annotations.get(keys.FOR_POD_GROUPS) == "true"
        for_groups = open_to_groups and not name.startswith(_OF_KUBERNETES)
        preempts = priority.preemption_policy != keys.NEVER
        now = _Class(priority.value, priority.global_default, preempts, for_groups)
        before, self._classes[name] = self._classes.get(name), now
        return before != now and self._settle_default()

    def drop(self, name: str) -> bool:
        """Remove a class; return whether it existed."""
        if self._classes.pop(name, None) is None:
            return False
        return self._settle_default()

    def preempts(self, name: str) -> bool:
        """Return whether groups that name this class may evict others."""
        return self._classes.get(name, _MISSING).preempts

    def _settle_default(self) -> bool:
        """Set the default class; if several classes are the default, the lowest counts, as for pods."""
        self._default = min((kind.value for kind in self._classes.values() if kind.is_default), default=0)
        return True

    def group_priority(self, name: str, pods: Iterable[int]) -> int:
        """Return the priority of a group by its class `name`, or none (""), and its `pods`' priorities.

        Without a class it is the highest of the pods; without pods either, that of the default class.
        A class that does not exist counts as 0.
        """
        highest = max(pods, default=None)
        if not name:
            return self._default if highest is None else highest
        found = self._classes.get(name, _MISSING)
        if found.for_groups:
            return found.value
        return min(found.value, self._default if highest is None else highest)


_MISSING = _Class(0, is_default=False, preempts=True, for_groups=False)


class Registry:
    """Groups, queues of the API, and the objects that they refer to. Dirty groups need new infos."""

    def __init__(self) -> None:
        self.groups: dict[GroupKey, Group] = {}
        self.jobs = Jobs()
        self.foreign_kinds: Collection[KindName] = (VOLCANO_JOB,)  # kinds whose jobs others admit
        self.runtimes = Runtimes()
        self.ancestors = Ancestors()
        self.routes = Routes(lambda group: self.ancestors.naming_queue(self._owners_of(group)))
        self.queues = Queues()
        self.admitted_groups = AdmittedGroups()
        self.owners = Owners()
        self.priorities = Priorities()
        self.claims_are_read: Callable[[], bool] = lambda: False  # whether claims of devices are known
        self.trusts_markers = False  # whether only Muster can have written the records on PodGroups
        self.trusts_authors = False  # whether the API server refuses the names of other users
        self.trusts_uses = False  # whether records of rights are checked
        self.users_count = False  # whether rights to use restricted queues are checked
        # Dirty groups in order, and whether their queue may have changed since their last info.
        self._dirty: dict[GroupKey, bool] = {}
        self._moved: set[GroupKey] = set()  # dirty groups with changes of claims and the start only
        self._queued_in: defaultdict[str, dict[GroupKey, None]] = defaultdict(dict)  # by queue of that info

    def group(self, key: GroupKey) -> Group:
        if key not in self.groups:
            self.groups[key] = Group(key)
            self.groups[key].owner = self.owner_of(key)
        return self.groups[key]

    def mark_dirty(self, key: GroupKey) -> None:
        self._dirty[key] = True
        self._moved.discard(key)

    def mark_moved(self, key: GroupKey) -> None:
        """Mark a group as changed in its claims, attempts and start only."""
        if key not in self._dirty:
            self._moved.add(key)
        self._dirty[key] = True

    def _mark_in_place(self, key: GroupKey) -> None:
        """Record a change that does not move the group to another queue."""
        self._dirty.setdefault(key, False)
        self._moved.discard(key)

    def set_group(self, record: GroupRecord, version: int) -> bool:
        """Record a PodGroup; return whether anything that matters changed.

        `version`: since when it counts.
        """
        group = self.group(record.key)
        group.records[record.origin] = record
        return self._settle_record(group, version)

    def _settle_record(self, group: Group, version: int) -> bool:
        """Update the record of a group.

        Its needs and progress outlive its PodGroup as long as it has members.
        """
        before, now = group.record, group.records[min(group.records)] if group.records else None
        if before == now:
            return False
        if now is None:
            group.entitled_in = ""  # pods without their PodGroup count as new in their queue
        elif not ((before and before.uid == now.uid) or group.is_implied):
            group.restart()
        self.admitted_groups.record(before, now)
        group.put_record(now, version)
        self.record_dependencies(group)
        self.record_arrival(group)
        self.mark_dirty(group.key)
        return True

    def drop_group(self, key: GroupKey, origin: Origin, version: int) -> None:
        group = self.groups.get(key)
        if group is not None and group.records.pop(origin, None) is not None:
            self._settle_record(group, version)

    @property
    def dirty(self) -> Collection[GroupKey]:
        """Return the groups that have changed since infos were last made."""
        return self._dirty

    def dirty_jobs(self) -> Collection[GroupKey]:
        """Return the changed groups that have, or had, a job."""
        return [key for key in self._dirty if key in self.jobs or self.has_job(key)]

    def has_job(self, key: GroupKey) -> bool:
        group = self.groups.get(key)
        return group is not None and group.job is not None

    def set_queue(self, record: QueueRecord) -> bool:
        """Record a queue; return whether anything that matters changed."""
        return self._record_queues(self.queues.put(record))

    def set_flavor(self, name: str, flavor: SharedFlavor | None) -> bool:
        """Record a ResourceFlavor; None: it is gone."""
        return self._record_queues(self.queues.put_flavor(name, flavor))

    def _record_queues(self, affected: set[str]) -> bool:
        """Mark the groups of queues that may have opened, closed or changed; return whether there are any."""
        self.routes.local_queues.record_queues(affected)
        for key in self._groups_of(affected):
            self.record_arrival(self.groups[key])
            self._mark_in_place(key)
        return bool(affected)

    def _groups_of(self, queues: Collection[str]) -> list[GroupKey]:
        """Return the groups of queues, from an index: there may be thousands of queues and status updates."""
        indexed = (key for queue in sorted(queues) for key in self._queued_in.get(queue, ()))
        may_have_moved = [key for key, may_move in self._dirty.items() if may_move] if queues else []
        changed = (group for key in may_have_moved if (group := self.groups.get(key)) is not None)
        moved_in = (group.key for group in changed if self.routes.queue_of(group) in queues)
        return [*(key for key in indexed if not self._dirty.get(key)), *moved_in]

    def record_dependencies(self, group: Group) -> None:
        """Record the objects that a group depends on, to mark it dirty when they change."""
        self.ancestors.record_owners(group.key, self._owners_of(group))
        self.routes.record_group(group)

    def record_arrival(self, group: Group) -> None:
        """Record the arrival of a group: if its queue is open at that time, the group stays entitled."""
        queue = self.routes.queue_of(group)
        if group.record is not None and self.queues.is_open(queue):
            group.entitled_in = queue

    def record_start(self, group: Group, is_under_way: bool) -> None:
        """Record the queue in which a group is starting or has started.

        This is the queue recorded with the bindings of its pods or, if such records do not count, the queue
        that this process observed.
        """
        if not is_under_way:
            group.started_in = ""
            return
        pods = group.pods.values() if self.trusts_markers else ()
        recorded = {pod.queue_uid for pod in pods if pod.queue_uid and pod.holds_capacity}
        queues = {name for uid in recorded if (name := self.queues.names.get(uid))}
        queue = group.started_in or self.routes.queue_of(group)
        if queues and queue not in queues:
            queue = min(queues)
        group.started_in = queue if self.queues.get(queue) is not None else ""

    def drop_queue(self, name: str) -> None:
        affected = self.queues.drop(name)
        self.routes.local_queues.record_queues(affected)
        for key in self._groups_of(affected):
            self._mark_in_place(key)

    def forget(self, group: Group) -> None:
        """Forget a group of which nothing is left."""
        del self.groups[group.key]
        self.routes.forget(group)
        self.ancestors.record_owners(group.key, ())

    def take_dirty(self) -> tuple[Collection[GroupKey], Collection[GroupKey]]:
        """Return the groups that changed since the last call, in that order, and which of them only moved."""
        dirty, moved = self._dirty, self._moved
        self._dirty, self._moved = {}, set()
        return dirty, moved

    def record_info(self, key: GroupKey, before: str, now: str) -> None:
        """Record that the last info of a group is in queue `now` instead of `before`; empty: in none."""
        if before == now:
            return
        if now:
            self._queued_in[now][key] = None
        if before:
            del self._queued_in[before][key]
            if not self._queued_in[before]:
                del self._queued_in[before]

    def takes_namespace(self, queue: str, namespace: str) -> bool:
        """Return whether a queue takes groups of a namespace; one that does not exist refuses none."""
        record = self.queues.get(queue)
        selector = record.namespace_selector if record is not None else None
        return allows_namespace(selector, self.routes.labels_of(namespace))

    def groups_in(self, namespace: str) -> list[GroupKey]:
        """Return the groups of a namespace, and those of its jobs."""
        return [*self.routes.groups_in(namespace), *self.jobs.groups_in(namespace)]

    def may_use(self, group: Group, queue: str) -> bool:
        """Return whether a group may enter a queue.

        A restricted queue requires a record of that right on the owner of the pods, managed or not, on the
        PodGroup, or on each waiting pod (without these, on each other pod). Records in a job's template do
        not count: they were not checked.
        """
        record = self.queues.get(queue)
        if not self.users_count or record is None or not record.restricted:
            return True
        objects = self.jobs.get(group.key), group.owner, group.record, self.routes.named_above(group)
        recorded = {each.may_use for each in objects if each is not None}
        members = [pod for pod in group.pods.values() if pod.waiting] or group.pods.values()
        pods = {pod.may_use if not pod.expected else "" for pod in members}
        return self.trusts_uses and (queue in recorded or pods == {queue})

    def submitter_of(self, group: Group) -> str:
        """Return the user who made a group; empty if unknown, or if users could have written it.

        The user is recorded on its PodGroup, on an owner of the PodGroup or of its pods, or on its pods
        without a controller, if all name the same user.
        """
        if not self.trusts_authors:
            return ""
        if group.record is not None and group.record.submitter:
            return group.record.submitter
        if author := self.ancestors.author(self._owners_of(group)):
            return author
        authors = {pod.author for pod in group.pods.values() if not (pod.expected or pod.is_replaced)}
        return authors.pop() if len(authors) == 1 else ""

    def _owners_of(self, group: Group) -> Iterator[Owner]:
        """Yield the owners of a group: its job, the owner of its pods, and the controller of its PodGroup."""
        job, owner, record = self.jobs.get(group.key), group.owner, group.record
        uids = (job.uid if job else "", owner.uid if owner else "", record.owner if record else "")
        yield from (Owner(group_of_owner(group.namespace, uid)) for uid in uids if uid)
        kind = next((pod.controller for pod in group.pods.values() if pod.controller), "")
        if kind and owner is None:
            yield Owner(group.key, kind)

    def flavors_of(self, key: GroupKey) -> tuple[Flavor, ...]:
        """Return the flavors of a group's queue; empty without any."""
        group = self.groups.get(key)
        return () if group is None else self.queues.flavors_of(self.routes.queue_of(group))

    def owner_of(self, key: GroupKey) -> OwnerRecord | None:
        """Return the owner of pods that name no group, if known. Groups of one LeaderWorkerSet share it."""
        return self.owners.get(GroupKey(key.partition(".")[0]))

    def set_owner(self, key: GroupKey, record: OwnerRecord) -> Collection[GroupKey]:
        """Record an owner; return its groups if anything they depend on has changed."""
        shared = (
            [other for other in self.groups if other.startswith(f"{key}.")] if has_many_groups(key) else ()
        )
        for each in (key, *shared):
            if (group := self.groups.get(each)) is not None:
                group.owner = record
                self.mark_dirty(each)
        return (key, *shared)

    def awaits_controller(self, group: Group) -> bool:
        """Return whether an owner of the group's pods has not been read yet.

        Without the owner, the gang size, the queue or a limited user is unknown.
        """
        if group.last_record is not None or group.job is not None:
            return False
        controllers = (pod.controller for pod in group.pods.values() if pod.controller)
        if group.owner is None and any(self.owners.is_read(controller) for controller in controllers):
            return True
        queue = self.queues.get(self.routes.queue_of(group))
        asks_user = self.trusts_authors and queue is not None and queue.limits.user != Limit()
        is_asked = not self.routes.names_queue(group) or (asks_user and not self.submitter_of(group))
        return is_asked and self.ancestors.are_coming(self._owners_of(group))

    def settle_defaults(self, group: Group) -> None:
        """Record the defaults of namespace and queue for the gang size."""
        queue = self.queues.get(self.routes.queue_of(group))
        of_namespace = self.routes.min_member_of(group.namespace)
        group.defaults = Defaults(of_namespace, queue.min_member if queue is not None else "")

    def admitting_queue(self, group: Group, name: str) -> str:
        """Return the UID of the named queue if it admits the group; else empty.

        A queue created again under the name of a deleted one does not take in the groups of the
        deleted one.
        """
        queue = self.queues.get(name)
        accepts = queue is not None and group.entitled_in == queue.name and not self.lost_its_queue(group)
        return queue.uid if queue is not None and accepts else ""

    def was_admitted(self, group: Group, name: str) -> bool:
        """Return whether an annotation proves that a group came while the named queue was open.

        Phase and reason do not count, since users may write them.
        """
        queue, record = self.queues.get(name), group.record
        if queue is None or record is None or not self.trusts_markers:
            return False
        queue_took_it = bool(queue.uid) and record.queue_uid == queue.uid
        return queue_took_it or record.admitted or record.ran_with is not None

    def is_suspended(self, group: Group) -> bool:
        """Return whether the owner is suspended, except for a job that waits in its queue."""
        if group.job is not None and group.job.suspended:
            return group.job.stopped
        named = group.record.owner if group.record else ""
        return named in self.owners.suspended or (group.owner is not None and group.owner.suspended)

    def run_limit_of(self, group: Group) -> float | None:
        """Return the seconds after which the controller of the group's pods ends them."""
        named = group.record.owner if group.record else ""
        owner = self.owners.get(group_of_owner(group.namespace, named)) if named else group.owner
        return float(owner.run_limit) if owner is not None and owner.run_limit is not None else None

    def lost_its_queue(self, group: Group) -> bool:
        """Return whether the queue that admitted a group is deleted.

        `default` never is: it is created again. If users may have written the record, it counts only
        for a queue that this process has seen.
        """
        recorded = group.record.queue_uid if group.record else ""
        if not recorded or recorded in self.queues.names or self.routes.queue_of(group) == keys.DEFAULT_QUEUE:
            return False
        return self.trusts_markers or recorded in self.queues.gone

    def priority_of(self, group: Group) -> int:
        name = group.last_record.priority_class if group.last_record else ""
        return self.priorities.group_priority(name, (pod.priority for pod in group.pods.values()))

    def preempts(self, group: Group) -> bool:
        """Return whether a group may evict others: neither its class nor a member's says never."""
        name = group.last_record.priority_class if group.last_record else ""
        return self.priorities.preempts(name) and not any(pod.never_preempts for pod in group.pods.values())

    def orphans(self) -> tuple[Orphan, ...]:
        """Return the groups that were taken in by queues which are gone."""
        remaining = self.admitted_groups.of_missing_queues(self.queues.names.keys())
        self.queues.gone &= {record.queue_uid for record in remaining}
        return tuple(
            Orphan(record.namespace, record.name, record.uid, record.queue, record.queue_uid)
            for record in remaining
            if self.lost_its_queue(self.groups[record.key])
        )
