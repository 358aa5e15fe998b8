"""The ledger: everything that Muster knows, kept up event by event, and every claim on room.

Watches feed it, filter and bind move claims in it, published Decisions plan in it, and `snapshot` freezes it
for decide(). One lock guards it, and nothing in here waits for anything. Durable facts live in the API: after
a restart the watches rebuild all of it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import msgspec

from extender.api import keys
from extender.api.objects import Namespace, Node, Pod, PodGroup, PriorityClass, Queue
from extender.domain.claims import Claim, Claims, Stage
from extender.domain.decisions import Decisions, GroupDecision
from extender.domain.grants import Grants, Losses, losses
from extender.domain.nodes import NodeRecord
from extender.domain.reasons import REFUSAL_PREFIX, Reason, Verdict
from extender.domain.records import (
    GroupKey,
    Ownership,
    PodRecord,
    Uid,
    group_record,
    pod_record,
    queue_record,
)
from extender.domain.registry import Group, Registry
from extender.domain.resources import Resources, offered
from extender.domain.shapes import Shape, Shapes, node_taints
from extender.domain.snapshot import Limits, Refusal, Snapshot, Start

_FEW_SHAPES = 1000


class Confirmation(msgspec.Struct, frozen=True):
    """The last check before binding: members to post, and those whose node is no longer theirs."""

    posting: tuple[Claim, ...] = ()
    lost: tuple[Claim, ...] = ()


class Ledger:
    """`clock` is monotonic, in seconds. `on_change` is called, under the lock, when a decision may change."""

    def __init__(
        self,
        ownership: Ownership,
        limits: Limits | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        lock: AbstractContextManager[object] | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.limits = limits or Limits()
        self._ownership = ownership
        self._clock = clock
        self._lock = lock or nullcontext()
        self._on_change = on_change
        self._claims = Claims()
        self._registry = Registry()
        self._grants = Grants()
        self._shapes = Shapes()
        self._most_shapes = _FEW_SHAPES
        self._pods: dict[Uid, PodRecord] = {}
        self._refused: dict[tuple[Shape, str], tuple[int, float]] = {}
        self._decisions = Decisions()
        self._moved_claims: dict[GroupKey, int] = {}  # the version at which a group's claims last moved
        self._version = 0

    # ---- fed by watches

    def set_node(self, node: Node) -> None:
        """Raises BadQuantity."""
        record = NodeRecord(
            name=node.metadata.name,
            labels=node.metadata.labels or {},
            taints=node_taints(node.spec.taints, node.spec.unschedulable),
            allocatable=offered(node.status.allocatable),
        )
        with self._lock:
            if self._claims.set_node(record):
                self._changed()

    def drop_node(self, name: str) -> None:
        with self._lock:
            self._claims.drop_node(name)
            self._changed()

    def set_pod(self, pod: Pod) -> None:
        """Raises BadQuantity."""
        with self._lock:
            record = pod_record(pod, self._shapes, self.owns(pod))
            before = self._pods.get(record.uid)
            if record == before:
                return
            if before is not None and before.group and before.group != record.group:
                self._leave_group(before)
            self._pods[record.uid] = record
            self._forget_old_shapes()
            if record.group:
                self._claims.watch_terms(record)
            self._claim_for(record)
            if record.group:
                self._join_group(record, before)
            if record.group or self._moved(before, record):
                self._changed()

    def adopt_pod(self, pod: Pod) -> None:
        """A pod shown by somebody before the watch does; what the watch showed stays. Raises BadQuantity."""
        with self._lock:
            if Uid(pod.metadata.uid) not in self._pods:
                self.set_pod(pod)

    def drop_pod(self, uid: Uid) -> None:
        with self._lock:
            record = self._pods.pop(uid, None)
            if record is None:
                return
            self._claims.drop(uid)
            if record.group:
                self._claims.unwatch_terms(record)
                self._leave_group(record)
            if record.group or record.node:
                self._changed()

    def set_group(self, group: PodGroup) -> None:
        with self._lock:
            if self._registry.set_group(group_record(group)):
                self._changed()

    def drop_group(self, key: GroupKey) -> None:
        with self._lock:
            self._registry.drop_group(key)
            self._changed()

    def set_queue(self, queue: Queue) -> None:
        with self._lock:
            if self._registry.set_queue(queue_record(queue)):
                self._changed()

    def drop_queue(self, name: str) -> None:
        with self._lock:
            self._registry.drop_queue(name)
            self._changed()

    def set_namespace(self, namespace: Namespace) -> None:
        queue = (namespace.metadata.annotations or {}).get(keys.QUEUE, "")
        with self._lock:
            if self._registry.set_namespace_queue(namespace.metadata.name, queue):
                self._changed()

    def drop_namespace(self, name: str) -> None:
        with self._lock:
            self._registry.set_namespace_queue(name, "")

    def set_priority_class(self, priority: PriorityClass) -> None:
        with self._lock:
            self._registry.set_priority(priority.metadata.name, priority.value, priority.global_default)
            self._changed()

    def drop_priority_class(self, name: str) -> None:
        with self._lock:
            self._registry.set_priority(name, None)
            self._changed()

    # ---- deciding

    @property
    def version(self) -> int:
        return self._version

    @property
    def decisions(self) -> Decisions:
        """The newest published ones."""
        return self._decisions

    def snapshot(self) -> Snapshot:
        with self._lock:
            groups, queues = self._registry.refresh(self._claims)
            refused = self._remembered_refusals()
            return Snapshot(
                version=self._version,
                now=self._clock(),
                limits=self.limits,
                dimensions=tuple(self._claims.dimensions.names),
                nodes=self._claims.table(),
                room=self._claims.room.copy(),
                allocatable=self._claims.allocatable.copy(),
                occupancy=self._claims.occupancy(),
                refused=refused,
                queues=queues,
                groups=groups,
                refused_until=min((expires for _, expires in self._refused.values()), default=None),
            )

    def publish(self, decisions: Decisions) -> None:
        """Turn plans into claims. What filter has pinned since the snapshot was taken stays as it is."""
        with self._lock:
            before, self._decisions = self._decisions.groups, decisions
            moved, version = self._moved_claims, decisions.version
            self._moved_claims = {key: at for key, at in moved.items() if at > version}
            for key, decision in decisions.groups.items():
                was = before.get(key)
                if was is not decision:
                    self._apply(decision)
                if key in moved or not _plan_alike(was, decision):
                    self._replan(decision, version)

    # ---- called by verbs

    def owns(self, pod: Pod) -> bool:
        """Whether a pod is ours."""
        return self._ownership.owns(pod, self._registry.namespace_queues.get(pod.metadata.namespace, ""))

    def knows_node(self, name: str) -> bool:
        return self._claims.knows(name)

    def fullness(self, uid: Uid, nodes: Sequence[str]) -> dict[str, float]:
        """For each node the part of its scarcest resource that would be taken with the pod on it, 0 … 1."""
        with self._lock:
            pod = self._pods.get(uid)
            return {node: self._claims.fullness(pod, node) for node in nodes} if pod else {}

    def may_clear(self, claimant: Uid, victims: Mapping[str, Sequence[Uid]]) -> set[str]:
        """The nodes whose victims a pod of others may evict without breaking a gang or a start under way."""
        with self._lock:
            promised = self._grants.losses(claimant, self._pods, self._clock())
            options = {
                node: [pod for uid in uids if (pod := self._pods.get(uid)) and pod.group]
                for node, uids in victims.items()
            }
            granted = {node: pods for node, pods in options.items() if self._could_lose(pods, promised)}
            self._grants.give(claimant, granted, self._clock())
            return set(granted)

    def pod(self, uid: Uid) -> PodRecord | None:
        return self._pods.get(uid)

    def claim(self, uid: Uid) -> Claim | None:
        return self._claims.get(uid)

    def answer(self, uid: Uid, nodes: Sequence[str]) -> list[str] | Reason:
        """Where, of the offered `nodes`, a pod of ours may go; the claim moves with the answer.

        A member of a gang gets its planned node, or any other that fits where that one is not offered; a
        group of one gets every node that fits.
        """
        with self._lock:
            pod = self._pods.get(uid)
            claim = self._claims.get(uid)
            if pod is None or claim is None:
                return self._why_not(pod)
            if claim.stage >= Stage.POSTED:  # its binding may have reached the API server
                return [claim.node] if claim.node in nodes else Reason.NO_ROOM
            group = self._registry.group(pod.group)
            if group.waits_for_nobody:
                return self._all_that_fit(pod, nodes) or Reason.NO_ROOM
            if claim.node in nodes and (claim.stage.pinned or self._claims.fits(pod, claim.node)):
                return self._pin(pod, claim.node)
            return self._another(pod, group, claim, nodes)

    def hold(self, uid: Uid, node: str) -> Reason | None:
        """A bind call has come for a pod: its claim becomes firm. A reason when it must be refused."""
        with self._lock:
            pod, claim = self._pods.get(uid), self._claims.get(uid)
            if pod is None or claim is None:
                return self._why_not(pod)
            if claim.stage is Stage.BOUND or (claim.node != node and claim.stage is Stage.POSTED):
                return Reason.NO_ROOM
            if claim.node != node and not self._claims.fits(pod, node):
                return Reason.NO_ROOM
            self._put(pod, node, Stage.HELD)
            self._changed()
            return None

    def confirm(self, key: GroupKey) -> Confirmation:
        """Once a group is whole in bound and held members: check every held node once more and let those go
        ahead that still have theirs, provided that the group is whole with them."""
        with self._lock:
            group = self._registry.groups.get(key)
            if group is None or not group.is_quorate():
                return Confirmation()
            held = [claim for uid in group.pods if (claim := self._claims.get(uid)) and _is_held(claim)]
            lost = tuple(claim for claim in held if self._loses_node(claim))
            posting = tuple(claim for claim in held if claim not in lost) if group.is_quorate() else ()
            for claim in posting:
                self._put(claim.pod, claim.node, Stage.POSTED)
            return Confirmation(posting, lost)

    def release(self, uid: Uid) -> None:
        """A claim ends without a binding: the call was abandoned, refused or failed."""
        with self._lock:
            pod, claim = self._pods.get(uid), self._claims.get(uid)
            if pod is not None and claim is not None and claim.stage is not Stage.BOUND:
                self._release(pod)
                self._changed()

    def to_release(self) -> list[Claim]:
        """Claims whose pod still waits for the scheduler to be told: planned, not yet answered."""
        with self._lock:
            return [
                claim
                for decision in self._decisions.groups.values()
                for uid in decision.plan
                if (claim := self._claims.get(uid)) and claim.stage is Stage.PLANNED
            ]

    def awaits_the_scheduler(self) -> bool:
        """Whether any pod is planned and open, so that the scheduler should ask for it."""
        return any(not claim.pod.gated for claim in self.to_release())

    def is_quorate(self, key: GroupKey) -> bool:
        """Whether a group is whole in bound and held members."""
        group = self._registry.groups.get(key)
        return group is not None and group.is_quorate()

    def waits_for_nobody(self, key: GroupKey) -> bool:
        """Whether a group is one pod that needs no other to start."""
        group = self._registry.groups.get(key)
        return group is None or group.waits_for_nobody

    def members(self, key: GroupKey) -> list[PodRecord]:
        with self._lock:
            group = self._registry.groups.get(key)
            return list(group.pods.values()) if group else []

    def stood_whole(self, key: GroupKey) -> bool:
        group = self._registry.groups.get(key)
        return group is not None and group.stood_whole

    def queue_names(self) -> set[str]:
        """The queues that the API has."""
        with self._lock:
            return self._registry.known_queues

    def find_pod(self, namespace: str, name: str) -> PodRecord | None:
        """By name: for people. Everything else goes by UID."""
        with self._lock:
            named = (pod for pod in self._pods.values() if (pod.namespace, pod.name) == (namespace, name))
            return next(named, None)

    def nodes(self) -> list[tuple[str, Resources, Resources, list[Claim]]]:
        """Each node's name, what it offers, what is idle beside all claims, and the claims."""
        with self._lock:
            return [
                (
                    node.name,
                    node.allocatable,
                    self._claims.idle(node.name),
                    list(self._claims.on_node(node.name)),
                )
                for node in self._claims.table().nodes
                if node
            ]

    def _could_lose(self, victims: Sequence[PodRecord], promised: Losses) -> bool:
        """Whether these may go together, besides what others were promised."""
        if any((claim := self._claims.get(pod.uid)) and _in_flight(claim) for pod in victims):
            return False
        lost = promised + losses(victims)
        return all(
            self._registry.group(key).could_lose(
                Counter({role: n for (of, role), n in lost.items() if of == key})
            )
            for key in {pod.group for pod in victims}
        )

    # ---- inside: pods

    def _claim_for(self, pod: PodRecord) -> None:
        """A pod on a node holds room there, a finished one none; a waiting one keeps its claim."""
        if pod.holds_room:
            self._claims.put(pod, pod.node, Stage.BOUND)
        elif pod.node or not pod.waiting:
            self._claims.drop(pod.uid)
        elif (claim := self._claims.get(pod.uid)) is not None:
            self._claims.put(pod, claim.node, claim.stage, claim.since, claim.version)

    def _forget_old_shapes(self) -> None:
        """Now and then, once they have doubled in number."""
        if len(self._shapes) > self._most_shapes:
            used = {pod.shape for pod in self._pods.values()}
            self._shapes.keep_only(used)
            self._claims.keep_only(used)
            self._most_shapes = 2 * len(used) + _FEW_SHAPES

    @staticmethod
    def _moved(before: PodRecord | None, now: PodRecord) -> bool:
        """Whether room changed hands, which is all that matters of pods that are not ours."""
        was = (before.node, before.holds_room, before.shape) if before else ("", False, None)
        return was != (now.node, now.holds_room, now.shape) and (now.node != "" or was[1])

    def _join_group(self, pod: PodRecord, before: PodRecord | None) -> None:
        group = self._registry.group(pod.group)
        group.pods[pod.uid] = pod
        self._note_refusal(group, pod, before)
        if pod.node or not pod.waiting:
            group.refusals.pop(pod.uid, None)
            group.expected_since.pop(pod.uid, None)
        elif not pod.gated and self._claims.get(pod.uid) is not None:
            group.expected_since.setdefault(pod.uid, self._clock())
        self._restand(group, pod)
        self._registry.touch(pod.group)

    def _leave_group(self, pod: PodRecord) -> None:
        group = self._registry.group(pod.group)
        group.forget(pod.uid)
        if group.record is None and not group.pods:
            group.forget_history()
        self._registry.touch(pod.group)

    def _note_refusal(self, group: Group, pod: PodRecord, before: PodRecord | None) -> None:
        """Note what the scheduler newly says of a pod, unless it repeats our own refusal. A claim that
        filter had answered may be moved again."""
        words, claim = pod.unschedulable, self._claims.get(pod.uid)
        if not words or before is None or words == before.unschedulable or REFUSAL_PREFIX in words:
            return
        group.refusals[pod.uid] = Refusal(words, self._clock())
        if claim is not None and claim.stage is Stage.ANSWERED:
            self._claims.put(pod, claim.node, Stage.PLANNED, self._clock())

    def _restand(self, group: Group, pod: PodRecord) -> None:
        claim = self._claims.get(pod.uid)
        if pod.placed or (pod.waiting and claim is not None and claim.stage >= Stage.HELD):
            group.standing[pod.uid] = pod.role
        else:
            group.standing.pop(pod.uid, None)

    # ---- inside: claims

    def _put(self, pod: PodRecord, node: str, stage: Stage) -> None:
        self._claims.put(pod, node, stage, self._clock(), self._version + 1)
        self._moved_claims[pod.group] = self._version + 1
        self._restand(self._registry.group(pod.group), pod)
        self._registry.touch(pod.group)

    def _release(self, pod: PodRecord) -> None:
        self._claims.drop(pod.uid)
        self._moved_claims[pod.group] = self._version + 1
        group = self._registry.group(pod.group)
        group.expected_since.pop(pod.uid, None)
        self._restand(group, pod)
        self._registry.touch(pod.group)

    def _pin(self, pod: PodRecord, node: str) -> list[str]:
        claim = self._claims.get(pod.uid)
        if claim is None or claim.node != node or not claim.stage.pinned:
            self._put(pod, node, Stage.ANSWERED)
            self._registry.group(pod.group).refusals.pop(pod.uid, None)
            self._version += 1
        return [node]

    def _another(
        self, pod: PodRecord, group: Group, claim: Claim, nodes: Sequence[str]
    ) -> list[str] | Reason:
        """The planned node is not on offer: any other that fits beside others' claims."""
        fits = self._claims.rows_that_fit(pod)
        rows = ((node, self._claims.row(node)) for node in nodes)
        for node, row in rows:
            if row is not None and fits[row] and self._claims.fits(pod, node):
                return self._pin(pod, node)
        if list(nodes) != [pod.nominated]:
            words = f"the scheduler did not offer node {claim.node}"
            group.refusals.setdefault(pod.uid, Refusal(words, self._clock()))
            self._registry.touch(pod.group)
            self._changed()
        return Reason.NO_ROOM

    def _all_that_fit(self, pod: PodRecord, nodes: Sequence[str]) -> list[str]:
        if len(nodes) == 1:
            return [node for node in nodes if self._claims.fits(pod, node)]
        fits = self._claims.rows_that_fit(pod)
        return [node for node in nodes if (row := self._claims.row(node)) is not None and fits[row]]

    def _loses_node(self, claim: Claim) -> bool:
        """Whether somebody else took the room of a held claim, or its node went: then it is released."""
        if not self._claims.overcommitted(claim.node) and self._claims.suits(claim.pod, claim.node):
            return False
        self._release(claim.pod)
        self._changed()
        return True

    def _why_not(self, pod: PodRecord | None) -> Reason:
        decision = self._decisions.groups.get(pod.group) if pod else None
        if decision is None:
            return Reason.NOT_READY
        if decision.reason is not None:
            return decision.reason
        beyond = decision.verdict is Verdict.STARTING  # members that the start can do without come after it
        return Reason.BEHIND_OTHERS if beyond else Reason.NOT_READY

    # ---- inside: decisions

    def _apply(self, decision: GroupDecision) -> None:
        group = self._registry.groups.get(decision.key)
        if group is None:
            return
        self._learn(group, decision)
        start = self._started(group, decision)
        if start != group.start:
            group.start = start
            self._registry.touch(group.key)
            self._changed()

    def _started(self, group: Group, decision: GroupDecision) -> Start:
        start = group.start
        if decision.failed:
            return Start(None, start.failures + 1, decision.retry_at, decision.failed)
        match decision.verdict:
            case Verdict.STARTING if start.admitted_at is None:
                return msgspec.structs.replace(start, admitted_at=self._clock())
            case Verdict.RUNNING if group.stood_whole:
                return Start()
            case Verdict.RUNNING | Verdict.WAITING:
                return msgspec.structs.replace(start, admitted_at=None)
        return start

    def _replan(self, decision: GroupDecision, version: int) -> None:
        group = self._registry.groups.get(decision.key)
        if group is None:
            return
        for pod in group.pods.values():
            self._replan_pod(group, pod, decision, version)

    def _replan_pod(self, group: Group, pod: PodRecord, decision: GroupDecision, version: int) -> None:
        """Bring a waiting member's claim in line with its group's decision, made on `version`. One that a
        bind call holds ends with the call."""
        claim, node = self._claims.get(pod.uid), decision.plan.get(pod.uid)
        if claim is not None and claim.stage >= Stage.HELD:
            return
        is_newer = claim is not None and claim.version > version
        if claim is not None and claim.stage.pinned and (is_newer or decision.verdict is not Verdict.WAITING):
            return
        if node is None and claim is not None:
            self._release(pod)
            self._changed()
        elif node is not None and (claim is None or claim.node != node):
            self._put(pod, node, Stage.PLANNED)
            group.refusals.pop(pod.uid, None)
            group.expected_since.pop(pod.uid, None)
            if not pod.gated:
                group.expected_since[pod.uid] = self._clock()
            self._changed()

    def _learn(self, group: Group, decision: GroupDecision) -> None:
        """Remember for a while where the scheduler refuses a shape."""
        expires = self._clock() + self.limits.refusal_memory
        for uid, node in decision.moved.items():
            pod = group.pods.get(uid)
            if pod is not None:
                self._refused[pod.shape, node] = (self._claims.epochs.get(node, 0), expires)

    def _remembered_refusals(self) -> dict[Shape, frozenset[int]]:
        """Refusals that still count: their node has not changed since, and they are not too old."""
        now = self._clock()
        rows: dict[Shape, set[int]] = {}
        self._refused = {
            (shape, node): (epoch, expires)
            for (shape, node), (epoch, expires) in self._refused.items()
            if expires > now and self._claims.epochs.get(node, 0) == epoch
        }
        for shape, node in self._refused:
            row = self._claims.row(node)
            if row is not None:
                rows.setdefault(shape, set()).add(row)
        return {shape: frozenset(of_shape) for shape, of_shape in rows.items()}

    def _changed(self) -> None:
        self._version += 1
        self._on_change()


def _plan_alike(was: GroupDecision | None, decision: GroupDecision) -> bool:
    """Whether claims that follow `was` follow `decision` as well: they are one, or let nobody start."""
    waits = decision.verdict is Verdict.WAITING and not decision.plan
    return was is decision or (waits and was is not None and was.verdict is Verdict.WAITING and not was.plan)


def _is_held(claim: Claim) -> bool:
    return claim.stage is Stage.HELD


def _in_flight(claim: Claim) -> bool:
    return Stage.ANSWERED <= claim.stage <= Stage.POSTED
