"""Groups, their members and their queues, with the views that decide() sees of them.

A view is rebuilt only when something about its group changed; the sums of a queue follow by difference.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from extender.api import keys
from extender.domain.auto_groups import OwnerRecord
from extender.domain.claims import Claims
from extender.domain.orphans import Orphan, Wards, orphan
from extender.domain.queue_records import QueueRecord
from extender.domain.queues import Queues
from extender.domain.quorum import whole
from extender.domain.reasons import Reason
from extender.domain.records import GroupKey, GroupRecord, Origin, PodRecord, Uid, group_of_owner, is_single
from extender.domain.resources import add
from extender.domain.shapes import Shape, requests_of
from extender.domain.snapshot import GroupView, QueueView, Refusal, Start

# A group that was judged with any other reason had come while its queue was open.
_NOT_JUDGED = ("", "Pending")
_SAYS_NOTHING = ("", Reason.QUEUE_NOT_OPEN, Reason.QUEUE_NOT_FOUND, Reason.INVALID_SPEC, Reason.NOT_READY)


class Group:
    """What is known of one group. `standing` are the members on a node, posted or held, by role."""

    __slots__ = (
        "entitled",
        "expected_since",
        "key",
        "owner",
        "pods",
        "record",
        "records",
        "refusals",
        "standing",
        "start",
        "started",
        "stood_whole",
        "view",
    )

    def __init__(self, key: GroupKey) -> None:
        self.key = key
        self.record: GroupRecord | None = None
        self.records: dict[Origin, GroupRecord] = {}
        self.owner: OwnerRecord | None = None  # the controller of pods that name no group
        self.pods: dict[Uid, PodRecord] = {}
        self.standing: dict[Uid, str] = {}
        self.started: dict[Uid, str] = {}
        self.expected_since: dict[Uid, float] = {}
        self.refusals: dict[Uid, Refusal] = {}
        self.view: GroupView | None = None
        self.forget_history()

    def forget_history(self) -> None:
        self.start = Start()
        self.entitled = False
        self.stood_whole = False

    def forget(self, uid: Uid) -> None:
        self.pods.pop(uid, None)
        self.standing.pop(uid, None)
        self.started.pop(uid, None)
        self.expected_since.pop(uid, None)
        self.refusals.pop(uid, None)

    @property
    def is_implied(self) -> bool:
        """Whether the group is there without a PodGroup, by its pods alone."""
        return any(pod.auto for pod in self.pods.values())

    @property
    def needs(self) -> tuple[int, dict[str, int]]:
        """minMember and minTaskMember; without a PodGroup 1, unless the pods' controller asks for more."""
        if self.record is None:
            return (self.owner.min_member if self.owner else 1), {}
        return self.record.min_member, dict(self.record.min_task_member)

    def is_quorate(self) -> bool:
        """Whether the members that stand make the group whole, or it once was."""
        if self.stood_whole:
            return True
        enough = len(self.standing) >= self.needs[0]
        return enough and whole(*self.needs, Counter(self.standing.values()), len(self.standing))

    def note_started(self, pod: PodRecord) -> None:
        """A group stood whole even if it did so only between two decisions."""
        if not (pod.placed and pod.started):
            self.started.pop(pod.uid, None)
            return
        self.started[pod.uid] = pod.role
        if not self.stood_whole and self.record is not None and len(self.started) >= self.needs[0]:
            self.stood_whole = whole(*self.needs, Counter(self.started.values()), len(self.started))

    def could_lose(self, lost: Mapping[str, int]) -> bool:
        """Whether the group stands, and still would with so many members of each role less. A group of one is
        no gang."""
        if self.waits_for_nobody:
            return True
        left = Counter(self.standing.values())
        left.subtract(lost)
        return self.is_quorate() and whole(*self.needs, left, left.total())

    @property
    def waits_for_nobody(self) -> bool:
        """Groups of one have no barrier, and the scheduler's own scoring picks their node."""
        return self.needs[0] <= 1 and not self.needs[1]


class Registry:
    def __init__(self) -> None:
        self.groups: dict[GroupKey, Group] = {}
        self.namespace_queues: dict[str, str] = {}
        self._queues = Queues()
        self._wards = Wards()
        self._owners: dict[GroupKey, OwnerRecord] = {}
        self._suspended: set[str] = set()
        self._priorities: dict[str, int] = {}
        self._default_priority: str | None = None
        self._dirty: set[GroupKey] = set()
        self._touched: set[GroupKey] = set()
        self._views: dict[GroupKey, GroupView] = {}
        self._allocated: dict[str, dict[str, int]] = {}
        self._requested: dict[str, dict[str, int]] = {}
        self._members: Counter[str] = Counter()

    # ---- changes

    def group(self, key: GroupKey) -> Group:
        if key not in self.groups:
            self.groups[key] = Group(key)
            self.groups[key].owner = self._owners.get(key)
        return self.groups[key]

    def touch(self, key: GroupKey) -> None:
        self._dirty.add(key)
        self._touched.add(key)

    def take_touched(self) -> set[GroupKey]:
        touched, self._touched = self._touched, set()
        return touched

    def set_group(self, record: GroupRecord) -> bool:
        """True when anything that matters changed."""
        group = self.group(record.key)
        group.records[record.origin] = record
        return self._settle_record(group)

    def _settle_record(self, group: Group) -> bool:
        """A PodGroup that comes to pods that had a group without it changes nothing of their course."""
        before, now = group.record, group.records[min(group.records)] if group.records else None
        if before == now:
            return False
        if not ((before and now and before.uid == now.uid) or group.is_implied):
            group.forget_history()
        self._wards.note(before, now)
        group.record = now
        self._note_arrival(group)
        self.touch(group.key)
        return True

    def drop_group(self, key: GroupKey, origin: Origin) -> None:
        group = self.groups.get(key)
        if group is not None and group.records.pop(origin, None) is not None:
            self._settle_record(group)

    def set_owner(self, namespace: str, record: OwnerRecord) -> bool:
        """True when anything that matters changed. One that never said anything special is not kept."""
        key = group_of_owner(namespace, record.uid)
        before = self._owners.get(key)
        if record == (before or OwnerRecord(record.uid)):
            return False
        self._owners[key] = record
        self._heed(key, record)
        return True

    def drop_owner(self, namespace: str, uid: str) -> bool:
        key = group_of_owner(namespace, uid)
        if self._owners.pop(key, None) is None:
            return False
        self._heed(key, OwnerRecord(uid))
        return True

    def _heed(self, key: GroupKey, owner: OwnerRecord) -> None:
        if owner.suspended:
            self._suspended.add(owner.uid)
        else:
            self._suspended.discard(owner.uid)
        if key in self.groups:
            self.groups[key].owner = owner
            self.touch(key)

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
        self._touch_all(group for group in self.groups.values() if _namespace(group) == namespace)
        return True

    def set_priority(self, name: str, value: int | None, is_default: bool = False) -> None:
        """A priority class; `value` None: it is gone."""
        if value is None:
            self._priorities.pop(name, None)
        else:
            self._priorities[name] = value
        if is_default:
            self._default_priority = name
        self._touch_all(self.groups.values())

    def _touch_all(self, groups: Iterable[Group]) -> None:
        for group in groups:
            self.touch(group.key)

    # ---- reading

    def queue_of(self, group: Group) -> str:
        """The PodGroup's queue, else the pod's own, else its namespace's, else `default`.

        `default` in a PodGroup is what its schema fills in, so the namespace may say otherwise.
        """
        namespace_queue = self.namespace_queues.get(_namespace(group), "")
        if group.record is not None:
            named = group.record.queue if group.record.queue != keys.DEFAULT_QUEUE else ""
        else:
            named = next((pod.queue for pod in group.pods.values()), "")
        return named or namespace_queue or keys.DEFAULT_QUEUE

    def owner_of(self, key: GroupKey) -> OwnerRecord | None:
        """The controller of pods that name no group, where it says anything about theirs."""
        return self._owners.get(key)

    def refresh(self, claims: Claims) -> tuple[dict[GroupKey, GroupView], dict[str, QueueView]]:
        """The views of all groups and queues, rebuilt where something changed."""
        if self._dirty:
            self._views = dict(self._views)
        for key in self._dirty:
            self._rebuild(key, claims)
        self._dirty = set()
        return self._views, {name: self.queue_view(name) for name in sorted(self._queue_names())}

    def _rebuild(self, key: GroupKey, claims: Claims) -> None:
        group, before = self.groups.get(key), self._views.pop(key, None)
        if before is not None:
            self._count(before, -1)
        if group is None:
            return
        if not group.pods and group.record is None:
            del self.groups[key]
            return
        group.view = self._views[key] = self._view(group, claims)
        self._count(group.view, 1)

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
            exists=record is not None or group.is_implied or is_single(group.key),
            fault=record.fault if record else "",
            entitled=group.entitled,
            stood_whole=group.stood_whole,
            stands=whole(*group.needs, Counter(pod.role for pod in members.placed), len(members.placed)),
            start=group.start,
            placed=tuple(members.placed),
            pinned=tuple(members.pinned),
            waiting=tuple(members.waiting),
            planned=members.planned,
            expected_since=dict(group.expected_since),
            refusals=dict(group.refusals),
            held_back=members.held_back,
            leaving=members.leaving,
            running=members.running,
            succeeded=members.succeeded,
            failed=members.failed,
            aborted=self._lost_its_queue(group) or self._is_suspended(group),
            accepted_by=self._accepts(group, queue),
            allocated=requests_of(members.holding),
            pending=requests_of(Counter(pod.shape for pod in members.waiting)),
        )

    def _note_history(self, group: Group, queue: str, members: "Members") -> None:
        """Facts that stay true once they were: it came in time, it stood whole. A group of which no member is
        left on a node stands no more: it starts anew, whole."""
        record = group.record
        came_before = record is not None and (
            record.phase not in _NOT_JUDGED or record.last_reason not in _SAYS_NOTHING
        )
        group.entitled = group.entitled or came_before or bool(members.placed) or self._queues.is_open(queue)
        roles = Counter(pod.role for pod in members.placed if pod.started)
        stood = whole(*group.needs, roles, roles.total()) or (record is not None and record.stood_whole)
        group.stood_whole = bool(members.placed) and (group.stood_whole or stood)

    def _accepts(self, group: Group, queue: str) -> str:
        """The UID of the queue that takes a group in. A queue made again under the name of one that is gone
        does not: it never saw the group."""
        there = self._queues.get(queue)
        accepts = there is not None and group.entitled and not self._lost_its_queue(group)
        return there.uid if there is not None and accepts else ""

    def _is_suspended(self, group: Group) -> bool:
        named = group.record.owner if group.record else ""
        return named in self._suspended or (group.owner is not None and group.owner.suspended)

    def _lost_its_queue(self, group: Group) -> bool:
        """Whether the queue that took a group in is gone for good. `default` never is: it is made again."""
        noted = group.record.queue_uid if group.record else ""
        return bool(noted) and noted not in self._queues.uids and self.queue_of(group) != keys.DEFAULT_QUEUE

    def _priority(self, group: Group) -> int:
        name = group.record.priority_class if group.record else ""
        if name:
            return self._priorities.get(name, 0)
        if group.pods:
            return max(pod.priority for pod in group.pods.values())
        return self._priorities.get(self._default_priority or "", 0)

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

    def _queue_names(self) -> set[str]:
        return {keys.DEFAULT_QUEUE, *self._queues.names, *self._members}

    def queue_view(self, name: str) -> QueueView:
        allocated, requested = self._allocated.get(name, {}), self._requested.get(name, {})
        return self._queues.view(name, self._members[name], dict(allocated), dict(requested))

    def _count(self, view: GroupView, times: int) -> None:
        allocated = self._allocated.setdefault(view.queue, {})
        requested = self._requested.setdefault(view.queue, {})
        add(allocated, view.allocated, times)
        add(requested, view.allocated, times)
        if view.entitled and not view.fault:
            add(requested, view.pending, times)
        self._members[view.queue] += times
        if not self._members[view.queue]:
            del self._members[view.queue], self._allocated[view.queue], self._requested[view.queue]


class Members:
    """A group's pods, sorted by where they are on their way."""

    def __init__(self, group: Group, claims: Claims) -> None:
        self.placed: list[PodRecord] = []
        self.pinned: list[tuple[PodRecord, str]] = []
        self.waiting: list[PodRecord] = []
        self.planned: dict[Uid, str] = {}
        self.holding: Counter[Shape] = Counter()
        self.held_back = 0
        self.leaving = 0
        self.running = 0
        self.succeeded = 0
        self.failed = 0
        for pod in group.pods.values():
            self._sort_in(pod, claims)

    def _sort_in(self, pod: PodRecord, claims: Claims) -> None:
        self._note_phase(pod)
        claim = claims.get(pod.uid)
        pinned = claim is not None and claim.stage.pinned
        if pinned:
            self.holding[pod.shape] += 1
        if pod.placed:
            self.placed.append(pod)
        elif pod.waiting and pod.foreign_gates:
            self.held_back += 1
        elif pod.waiting and claim is not None and pinned:
            self.pinned.append((pod, claim.node))
        elif pod.waiting:
            self.waiting.append(pod)
            if claim is not None:
                self.planned[pod.uid] = claim.node
        elif pod.holds_room:
            self.leaving += 1

    def _note_phase(self, pod: PodRecord) -> None:
        self.running += pod.phase == "Running" and not pod.deleting
        self.succeeded += pod.phase == "Succeeded"
        self.failed += pod.phase == "Failed"


def _namespace(group: Group) -> str:
    return group.key.partition("/")[0]
