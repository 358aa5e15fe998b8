"""The pods that the watch has shown: whether they are ours, what they hold, what the scheduler says."""

from itertools import islice

from msgspec.structs import replace

from extender.api.objects.pods import Pod
from extender.domain.ledger.affinity import MOST_WEIGHT, WEIGHT_OF_WIDE
from extender.domain.ledger.groups import Group
from extender.domain.ledger.state import Parts
from extender.domain.ledger.stuck_pods import StuckPods
from extender.domain.model.ownership import Ownership
from extender.domain.model.pod_records import PodRecords, foreign_record
from extender.domain.model.reasons import REFUSAL_PREFIX
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.shapes import Shape, Shapes
from extender.domain.snapshot.snapshot import OtherPods

_FEW = 8  # pods that are looked at again when another one goes
_CROWDED = (
    f"(anti-)affinity terms that are too many together with those of others in its namespace: {MOST_WEIGHT:,}"
    f" are followed, and one that looks into other namespaces or requires no label counts as {WEIGHT_OF_WIDE}"
)


class Pods:
    """`left`: scheduler names whose pods are left to another scheduler. Single look-ups need no lock."""

    def __init__(self, parts: Parts, ownership: Ownership, stuck: StuckPods) -> None:
        self.by_uid: dict[Uid, PodRecord] = {}
        self.left: frozenset[str] = frozenset()
        self.ownership = ownership
        self.shapes = Shapes()
        self._records = PodRecords(self.shapes, ownership.auto_groups)
        self._registry, self._claims, self._moves = parts.registry, parts.claims, parts.moves
        self._releases, self._changes = parts.releases, parts.changes
        self._clock, self._lock = parts.clock, parts.lock
        self._stuck = stuck
        self._crowded: dict[Uid, PodRecord] = {}  # as they are but for what keeps them waiting
        self._others = OtherPods()
        self._other_changes: dict[Uid, PodRecord | None] = {}  # since `_others` was made

    # ---- reading

    def get(self, uid: Uid) -> PodRecord | None:
        return self.by_uid.get(uid)

    def find(self, namespace: str, name: str) -> PodRecord | None:
        """A pod by name, for the debug pages. Everything else looks pods up by UID."""
        with self._lock:
            pods = self.by_uid.values()
            return next((pod for pod in pods if (pod.namespace, pod.name) == (namespace, name)), None)

    def owns(self, pod: Pod) -> bool:
        if self.leaves(pod.spec.scheduler_name):
            return False
        return self.ownership.owns(pod, self._registry.routes.namespace_queue(pod.metadata.namespace))

    def leaves(self, scheduler: str) -> bool:
        """Whether pods of this scheduler name are left to another scheduler, although they would be ours."""
        return scheduler in self.left

    def left_gated(self) -> list[PodRecord]:
        """Pods that are left to another scheduler, which cannot schedule them while our gate is on."""
        with self._lock:
            pods = self.by_uid.values() if self.left else ()
            return [pod for pod in pods if pod.gated and pod.waiting and self.leaves(pod.scheduler)]

    def others(self) -> OtherPods:
        """The pods on nodes that are not ours; the same object until that changes."""
        if self._other_changes:
            self._others, self._other_changes = self._others.with_changes(self._other_changes), {}
        return self._others

    # ---- from the watch

    def set(self, pod: Pod) -> None:
        """Raises BadQuantity."""
        with self._lock:
            before, is_left = self.by_uid.get(Uid(pod.metadata.uid)), self.leaves(pod.spec.scheduler_name)
            had = before if before is not None and before.group and before.holds_room else None
            ours = not is_left and (had is not None or self.owns(pod))
            if ours or is_left:
                record = self._records.of(pod, ours)
                if ours and had is not None:  # one that holds room keeps its group, whatever it names
                    record = replace(record, group=had.group, own_group=had.group, auto=had.auto)
                self._set(self._within_bounds(record))
            else:
                self._set(foreign_record(pod, self.shapes))

    def drop(self, uid: Uid) -> None:
        with self._lock:
            record = self.by_uid.pop(uid, None)
            if record is None:
                return
            self._moves.drop(record)
            self._count_among_others(record, is_other=False)
            self._claims.capacity.terms.unwatch(uid)
            if record.group:
                self._stuck.follow(record, None)
                self._registry.group(record.group).note_vacated(record)
                self.leave_group(record)
            if record.group or record.node:
                self._changes.mark()
            self._crowded.pop(uid, None)
            if record.shape.terms:  # where some go, others may come
                for waiting in list(islice(self._crowded.values(), _FEW)):
                    self._set(self._within_bounds(waiting))

    def leave(self, schedulers: frozenset[str]) -> None:
        """From now on pods of these schedulers are left to another scheduler; all others are ours again. A
        pod that is left keeps what it holds on a node, but a plan for it is void."""
        with self._lock:
            changed = (self.left ^ schedulers) & self.ownership.schedulers
            self.left = schedulers
            for pod in [pod for pod in self.by_uid.values() if pod.scheduler in changed]:
                if self.leaves(pod.scheduler):
                    self.drop(pod.uid)
                    self._set(replace(pod, group=GroupKey("")))
                else:
                    self._set(replace(pod, group=pod.own_group))

    # ---- inside: callers hold the lock

    def _within_bounds(self, pod: PodRecord) -> PodRecord:
        """The pod; one that waits if its namespace has as many (anti-)affinity terms as are followed."""
        self._crowded.pop(pod.uid, None)
        if not pod.group or not pod.shape.terms or self._claims.capacity.terms.has_room_for(pod):
            return pod
        self._crowded[pod.uid] = pod
        return replace(pod, shape=self.shapes.beyond(pod.shape, _CROWDED))

    def leave_group(self, pod: PodRecord) -> None:
        """It is a member no more, whatever becomes of it."""
        group = self._registry.group(pod.group)
        group.forget(pod.uid)
        if group.record is None and not group.pods:
            group.forget_history()
            group.last_record = None
        self._registry.touch(pod.group)

    def _set(self, record: PodRecord) -> None:
        before = self.by_uid.get(record.uid)
        if record == before:
            return
        # The thousands of conditions that Muster writes itself must not cause a single decision: no decision
        # depends on a version, nor on what a pod says of itself without the scheduler having said it.
        as_now = before and replace(before, version=record.version, unscheduled=record.unscheduled)
        if before is not None and as_now == record and before.unschedulable == record.unschedulable:
            self.by_uid[record.uid] = record
            if record.group:
                self._registry.group(record.group).pods[record.uid] = record
            return
        try:
            self._take_in(record, before)
        except Exception:  # better unknown than half-recorded: the watch delivers the pod again
            self.drop(record.uid)
            raise

    def _take_in(self, record: PodRecord, before: PodRecord | None) -> None:
        if before is not None and before.group and before.group != record.group:
            self.leave_group(before)
        self.by_uid[record.uid] = record
        is_other = record.holds_room and not record.group
        if is_other or before is not None:
            self._count_among_others(record, is_other)
        self._claims.capacity.watch_terms(record, before)
        self._moves.show(record)
        if record.group:
            self._stuck.follow(before, record)
            group = self._registry.group(record.group)
            group.pods[record.uid] = record
            group.asked_by_pods = record.min_member or group.asked_by_pods
            if before is not None and not record.holds_room:
                group.note_vacated(before)
            group.note_started(record)
            group.note_bound(record, self._clock())
            self._note_refusal(group, record, before)
            if record.node or not record.waiting:
                group.attempts.pop(record.uid, None)
            elif self._releases.sees(record) and (claim := self._claims.get(record.uid)) is not None:
                group.note_shown(record.uid, claim.node, self._clock())
            self._moves.restand(group, record)
            self._registry.touch(record.group)
        elif record.scheduler in self.ownership.schedulers and not record.node:
            self._releases.note_stranger(record.uid, is_left=self.leaves(record.scheduler))
        if record.group or _has_moved(record, before):  # of others, only room taken or freed matters
            self._changes.mark()

    def _count_among_others(self, pod: PodRecord, is_other: bool) -> None:
        if is_other:
            self._other_changes[pod.uid] = pod
        elif pod.uid in self._other_changes or pod.uid in self._others:
            self._other_changes[pod.uid] = None

    def _note_refusal(self, group: Group, pod: PodRecord, before: PodRecord | None) -> None:
        """Note a new refusal of a pod by the scheduler, unless it repeats Muster's own, or came while no node
        was planned for the pod. A claim that filter had answered may be moved again."""
        text = pod.unschedulable
        if not text or before is None or text == before.unschedulable or REFUSAL_PREFIX in text:
            return
        if self._changes.note_asked():
            self._changes.mark()
        if self._claims.get(pod.uid) is not None:
            self._moves.refuse(pod)
            self.note_refused(pod, text, self._clock())

    def note_refused(
        self, pod: PodRecord, words: str, refused_at: float | None, asked_twice: bool = False
    ) -> None:
        """The scheduler found no node for a pod. `refused_at`: None if it is asked once more."""
        self._registry.group(pod.group).note_refused(pod.uid, words, refused_at, asked_twice)
        if refused_at is not None:
            self.separate(pod)

    def separate(self, pod: PodRecord) -> Shape:
        """The shape of a pod and others of its namespace: what is learned of it concerns them alone."""
        shape = self.shapes.own(pod.namespace, pod.shape)
        if shape is not pod.shape:
            members = self._registry.group(pod.group).pods.values()
            for member in [member for member in members if member.shape is pod.shape]:
                self._set(replace(member, shape=shape))
        return shape


def _has_moved(pod: PodRecord, before: PodRecord | None) -> bool:
    """Whether it takes or frees room."""
    was = (before.node, before.holds_room, before.shape) if before else ("", False, None)
    return was != (pod.node, pod.holds_room, pod.shape) and (pod.node != "" or was[1])
