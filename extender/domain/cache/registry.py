"""Groups, their members and their queues, with the views that decide() sees of them.

A view is rebuilt only when something about its group changed; the sums of a queue follow by difference.
"""

from collections import Counter
from collections.abc import Iterable

from extender.api import keys
from extender.api.objects import PriorityClass
from extender.domain.cache.claims import Claims
from extender.domain.cache.groups import Group, Members
from extender.domain.cache.owners import Owners
from extender.domain.cache.priorities import Priorities
from extender.domain.cache.usage import Usage
from extender.domain.lifecycle.quorum import whole
from extender.domain.model.pod_owners import OwnerRecord
from extender.domain.model.queue_of_group import queue_of_podgroup, queue_of_pods
from extender.domain.model.reasons import Reason
from extender.domain.model.records import GroupKey, GroupRecord, Origin, group_of_owner
from extender.domain.model.shapes import requests_of
from extender.domain.queues.orphans import Orphan, Wards, orphan
from extender.domain.queues.queue_records import QueueRecord
from extender.domain.queues.queue_view import QueueView
from extender.domain.queues.queues import Queues
from extender.domain.snapshot.group_view import GroupView

# A group that was judged with any other reason had come while its queue was open.
_NOT_JUDGED = ("", "Pending")
_SAYS_NOTHING = ("", Reason.QUEUE_NOT_OPEN, Reason.QUEUE_NOT_FOUND, Reason.INVALID_SPEC, Reason.NOT_READY)


class Registry:
    def __init__(self) -> None:
        self.groups: dict[GroupKey, Group] = {}
        self.namespace_queues: dict[str, str] = {}
        self._queues = Queues()
        self._wards = Wards()
        self._owners = Owners()
        self._priorities = Priorities()
        self._usage = Usage()
        self._dirty: dict[GroupKey, None] = {}  # in the order of what happened
        self._views: dict[GroupKey, GroupView] = {}

    # ---- changes

    def group(self, key: GroupKey) -> Group:
        if key not in self.groups:
            self.groups[key] = Group(key)
            self.groups[key].owner = self._owners.get(key)
        return self.groups[key]

    def touch(self, key: GroupKey) -> None:
        self._dirty[key] = None

    def set_group(self, record: GroupRecord, version: int) -> bool:
        """True when anything that matters changed. `version`: the ledger's, from which on it is so."""
        group = self.group(record.key)
        group.records[record.origin] = record
        return self._settle_record(group, version)

    def _settle_record(self, group: Group, version: int) -> bool:
        """What a group needs, and how far it came, outlives its PodGroup while members are there."""
        before, now = group.record, group.records[min(group.records)] if group.records else None
        if before == now:
            return False
        if now is None:
            group.entitled = False  # pods that are left without it come to their queue anew
        elif not ((before and before.uid == now.uid) or group.is_implied):
            group.forget_history()
        self._wards.note(before, now)
        group.put_record(now, version)
        self._note_arrival(group)
        self.touch(group.key)
        return True

    def drop_group(self, key: GroupKey, origin: Origin, version: int) -> None:
        group = self.groups.get(key)
        if group is not None and group.records.pop(origin, None) is not None:
            self._settle_record(group, version)

    def set_owner(self, namespace: str, record: OwnerRecord) -> bool:
        """True when anything that matters changed."""
        key = group_of_owner(namespace, record.uid)
        return self._owners.put(key, record) and self._heed(key, record)

    def drop_owner(self, namespace: str, uid: str) -> bool:
        key = group_of_owner(namespace, uid)
        return self._owners.drop(key) and self._heed(key, OwnerRecord(uid))

    def _heed(self, key: GroupKey, owner: OwnerRecord) -> bool:
        if key in self.groups:
            self.groups[key].owner = owner
            self.touch(key)
        return True

    def set_queue(self, record: QueueRecord) -> bool:
        """True when anything that matters changed."""
        affected = self._queues.put(record)
        for group in self.groups.values() if affected else ():
            if self.queue_of(group) in affected:
                self._note_arrival(group)
                self.touch(group.key)
        return bool(affected)

    def _note_arrival(self, group: Group) -> None:
        """A group whose queue is open when it comes stays entitled, however soon the queue is closed."""
        if group.record is not None:
            group.entitled = group.entitled or self._queues.is_open(self.queue_of(group))

    def drop_queue(self, name: str) -> None:
        affected = self._queues.drop(name)
        self._touch_all(group for group in self.groups.values() if self.queue_of(group) in affected)

    def set_namespace_queue(self, namespace: str, queue: str) -> bool:
        if self.namespace_queues.get(namespace, "") == queue:
            return False
        self.namespace_queues[namespace] = queue
        self._touch_all(group for group in self.groups.values() if group.namespace == namespace)
        return True

    def set_priority_class(self, priority: PriorityClass) -> bool:
        """True when anything that matters changed."""
        return self._priorities.put(priority) and self._touch_all(self.groups.values())

    def drop_priority_class(self, name: str) -> bool:
        return self._priorities.drop(name) and self._touch_all(self.groups.values())

    def _touch_all(self, groups: Iterable[Group]) -> bool:
        for group in groups:
            self.touch(group.key)
        return True

    # ---- reading

    def queue_of(self, group: Group) -> str:
        """Where the PodGroup is gone, the queue that it had."""
        namespace_queue = self.namespace_queues.get(group.namespace, "")
        if group.last_record is not None:
            return queue_of_podgroup(group.last_record.queue, namespace_queue)
        return queue_of_pods(next((pod.queue for pod in group.pods.values()), ""), namespace_queue)

    def owner_of(self, key: GroupKey) -> OwnerRecord | None:
        """The controller of pods that name no group, where it says anything about theirs."""
        return self._owners.get(key)

    def refresh(
        self, claims: Claims
    ) -> tuple[Iterable[GroupKey], dict[GroupKey, GroupView], dict[str, QueueView]]:
        """Where something changed since this was last asked; and the views of all groups and queues, rebuilt
        there."""
        self._usage.sum_up(claims.capacity.columns.names, self._views.values())
        touched = self._dirty
        if touched:
            self._views = dict(self._views)
        for key in touched:
            self._rebuild(key, claims)
        self._dirty = {}
        return touched, self._views, {name: self.queue_view(name) for name in sorted(self._queue_names())}

    def _rebuild(self, key: GroupKey, claims: Claims) -> None:
        group, before = self.groups.get(key), self._views.pop(key, None)
        if before is not None:
            self._usage.count(before, -1)
        if group is None:
            return
        if not group.pods and group.record is None:
            del self.groups[key]
            return
        group.view = self._views[key] = self._view(group, claims)
        self._usage.count(group.view, 1)

    def _view(self, group: Group, claims: Claims) -> GroupView:
        queue, members = self.queue_of(group), Members(group, claims)
        record, (min_member, min_task_member) = group.record, group.needs
        self._note_history(group, queue, members)
        return GroupView(
            key=group.key,
            queue=queue,
            min_member=min_member,
            min_task_member=min_task_member,
            priority=self._priority(group),
            created=record.created if record else min((p.created for p in group.pods.values()), default=""),
            recorded=record is not None,
            exists=group.exists,
            fault=record.fault if record else "",
            entitled=group.entitled,
            stood_whole=group.stood_whole,
            stands=whole(*group.needs, Counter(pod.role for pod in members.placed), len(members.placed)),
            resumes=self._resumes(group),
            start=group.start,
            placed=tuple(members.placed),
            pinned=tuple(members.pinned),
            waiting=tuple(members.waiting),
            planned=members.planned,
            expected_since=dict(group.expected_since),
            bound_since=dict(group.bound_since),
            refusals=dict(group.refusals),
            held_back=members.held_back,
            leaving=members.leaving,
            running=members.running,
            succeeded=members.succeeded,
            failed=members.failed,
            aborted=self._lost_its_queue(group) or self._is_suspended(group),
            accepted_by=self._accepts(group, queue),
            told_phase=record.phase if record else "",
            allocated=requests_of(members.holding),
            pending=requests_of(Counter(pod.shape for pod in members.waiting)),
        )

    def _note_history(self, group: Group, queue: str, members: Members) -> None:
        """Facts that stay true once they were: it came in time, it stood whole. A group of which no member is
        left on a node stands no more: it starts anew, whole."""
        record = group.record
        came_before = record is not None and (
            record.phase not in _NOT_JUDGED or record.last_reason not in _SAYS_NOTHING or record.stood_whole
        )
        group.entitled = group.entitled or came_before or self._queues.is_open(queue)
        roles = Counter(pod.role for pod in members.placed if pod.started)
        stood = whole(*group.needs, roles, roles.total()) or (record is not None and record.stood_whole)
        group.stood_whole = bool(members.placed) and (group.stood_whole or stood)

    @staticmethod
    def _resumes(group: Group) -> bool:
        """Whether members on nodes show a start that Muster had admitted before it was started anew. Kinds of
        PodGroup that have no phase of ours cannot tell."""
        record = group.record
        if record is None or group.waited:
            return False
        return record.origin is not Origin.VOLCANO or record.phase not in _NOT_JUDGED

    def _accepts(self, group: Group, queue: str) -> str:
        """The UID of the queue that takes a group in. A queue made again under the name of one that is gone
        does not: it never saw the group."""
        there = self._queues.get(queue)
        accepts = there is not None and group.entitled and not self._lost_its_queue(group)
        return there.uid if there is not None and accepts else ""

    def _is_suspended(self, group: Group) -> bool:
        named = group.record.owner if group.record else ""
        return self._owners.suspends(named) or (group.owner is not None and group.owner.suspended)

    def _lost_its_queue(self, group: Group) -> bool:
        """Whether the queue that took a group in is gone for good. `default` never is: it is made again."""
        noted = group.record.queue_uid if group.record else ""
        return bool(noted) and noted not in self._queues.uids and self.queue_of(group) != keys.DEFAULT_QUEUE

    def _priority(self, group: Group) -> int:
        name = group.last_record.priority_class if group.last_record else ""
        return self._priorities.of_group(name, (pod.priority for pod in group.pods.values()))

    def is_open(self, queue: str) -> bool:
        return self._queues.is_open(queue)

    @property
    def queue_records(self) -> dict[str, QueueRecord]:
        """As the API has them now."""
        return self._queues.records

    @property
    def known_queues(self) -> set[str]:
        """Those that the API has; `default` may be missing."""
        return self._queues.names

    def queue(self, name: str) -> QueueRecord | None:
        """A queue; `default` is there even before somebody creates it."""
        return self._queues.get(name)

    def orphans(self) -> tuple[Orphan, ...]:
        """The groups that queues had taken in which are no more."""
        left = self._wards.left_by(self._queues.uids)
        return tuple(orphan(record) for record in left if self._lost_its_queue(self.groups[record.key]))

    def queue_view(self, name: str) -> QueueView:
        used = self._usage.of(name)
        return self._queues.view(name, used.groups, dict(used.allocated), dict(used.requested))

    def _queue_names(self) -> set[str]:
        return {keys.DEFAULT_QUEUE, *self._queues.names, *self._usage.queues}
