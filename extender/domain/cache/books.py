"""The books behind the ledger: all that is known, and the few moves that keep it consistent.

Whoever moves a claim, moves it here: sums, standing members and the version follow by themselves.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from extender.api.objects import Pod
from extender.domain.cache.claims import Claim, Claims, Stage
from extender.domain.cache.groups import Group
from extender.domain.cache.preemption_grants import Grants
from extender.domain.cache.refusals import Refusals
from extender.domain.cache.registry import Registry
from extender.domain.decisions.decisions import Decisions
from extender.domain.model.ownership import Ownership
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.model.shapes import Shapes
from extender.domain.snapshot.attention import Attention
from extender.domain.snapshot.limits import Limits

FEW_SHAPES = 1000


class Books:
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
        self._left: frozenset[str] = frozenset()  # schedulers whose pods are left to somebody else for now
        self._clock = clock
        self._lock = lock or nullcontext()
        self._on_change = on_change
        self._claims = Claims()
        self._registry = Registry()
        self._grants = Grants()
        self._shapes = Shapes()
        self._most_shapes = FEW_SHAPES
        self._pods: dict[Uid, PodRecord] = {}
        self._refusals = Refusals(self._claims)
        self._decisions = Decisions()
        self._moved_claims: dict[GroupKey, int] = {}  # the version at which a group's claims last moved
        self._unpublished: set[GroupKey] = set()  # touched since decisions were last published
        self._version = 0
        self._attention = Attention()

    def note_asked(self) -> None:
        """The scheduler asks for a pod, or says something about one: it is there."""
        before, now = self._attention, self._clock()
        self._attention = before.asked(now, self.limits.asking_pause)
        if self._attention.asked_since != before.asked_since:
            with self._lock:
                self._changed()

    def set_leading(self, leading: bool) -> None:
        """Whether anybody acts on what is decided here."""
        before = self._attention
        self._attention = before.led(self._clock(), leading)
        if self._attention is not before:
            with self._lock:
                self._changed()

    def owns(self, pod: Pod) -> bool:
        """Whether a pod is ours."""
        if self.leaves(pod.spec.scheduler_name):
            return False
        return self._ownership.owns(pod, self._registry.namespace_queues.get(pod.metadata.namespace, ""))

    def leaves(self, scheduler: str) -> bool:
        """Whether pods of this scheduler's are left to somebody else, although they would be ours."""
        return scheduler in self._left

    @property
    def leaving(self) -> bool:
        """Whether anybody's pods are left to somebody else now."""
        return bool(self._left)

    def pod(self, uid: Uid) -> PodRecord | None:
        return self._pods.get(uid)

    def claim(self, uid: Uid) -> Claim | None:
        return self._claims.get(uid)

    # ---- moves

    def _put(self, pod: PodRecord, node: str, stage: Stage, token: int = 0) -> None:
        self._claims.put(pod, node, stage, self._clock(), self._version + 1, token)
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

    def _restand(self, group: Group, pod: PodRecord) -> None:
        claim = self._claims.get(pod.uid)
        if pod.placed or (pod.waiting and claim is not None and claim.stage >= Stage.HELD):
            group.standing[pod.uid] = pod.role
        else:
            group.standing.pop(pod.uid, None)

    def _changed(self) -> None:
        self._version += 1
        self._on_change()
