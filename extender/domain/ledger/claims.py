"""Claims: the capacity that a pod uses on a node, and the stages of a claim."""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, IntEnum, auto
from typing import NamedTuple

import msgspec

from extender.domain.ledger.nodes import NodeCapacity
from extender.domain.model.records import PodRecord, Uid
from extender.domain.snapshot.nodes import Mask


class ClaimStage(IntEnum):
    """Stage of a claim: one of five, with a transition for every event.

        planned ──► answered ──► held ──► posted ──► bound

    Each stage has an owner that ends it: decisions end a plan, the scheduler an answer (or it expires), the
    bind call whose token it carries a held or posted claim, and the pod itself a bound one.
    """

    PLANNED = 1  # a decision has given the pod a node; another decision may take it away
    ANSWERED = 2  # Filter has named the node to the scheduler
    HELD = 3  # a bind call waits for the rest of the pod's group
    POSTED = 4  # the binding was sent to the API server, and may have taken effect
    BOUND = 5  # the watch shows the pod on the node

    @property
    def is_fixed(self) -> bool:
        """Return whether decisions made on older snapshots may no longer move it."""
        return self >= ClaimStage.ANSWERED


class ClaimEvent(Enum):
    PLAN = auto()  # a decision has a node for the pod
    WITHDRAW = auto()  # a decision no longer has one
    ANSWER = auto()  # Filter names a node to the scheduler
    REFUSE = auto()  # the scheduler reports that it finds no node
    EXPIRE = auto()  # no bind call followed an answer in time
    HOLD = auto()  # a bind call arrived; a second one for the pod takes the claim over
    POST = auto()  # the group is whole; or one call has ended while the binding of another is under way
    RELEASE = auto()  # the last bind call ended without a binding, or the node was lost
    BIND = auto()  # the watch shows the pod on a node, however it was bound
    LEAVE = auto()  # the watch shows that the pod is gone, has ended, or is being deleted without a node


_PLANNED, _ANSWERED, _HELD, _POSTED, _BOUND = ClaimStage
_ALL = (None, *ClaimStage)

# None: there is no claim.
TRANSITIONS: Mapping[ClaimEvent, Mapping[ClaimStage | None, ClaimStage | None]] = {
    ClaimEvent.PLAN: {None: _PLANNED, _PLANNED: _PLANNED, _ANSWERED: _PLANNED},
    ClaimEvent.WITHDRAW: {_PLANNED: None, _ANSWERED: None},
    ClaimEvent.ANSWER: {_PLANNED: _ANSWERED, _ANSWERED: _ANSWERED, _HELD: _ANSWERED},
    ClaimEvent.REFUSE: {_ANSWERED: _PLANNED},
    ClaimEvent.EXPIRE: {_ANSWERED: None},
    ClaimEvent.HOLD: {_PLANNED: _HELD, _ANSWERED: _HELD, _HELD: _HELD, _POSTED: _HELD},
    ClaimEvent.POST: {_HELD: _POSTED, _POSTED: _POSTED},
    ClaimEvent.RELEASE: {_HELD: None, _POSTED: None},
    ClaimEvent.BIND: dict.fromkeys(_ALL, _BOUND),
    ClaimEvent.LEAVE: dict.fromkeys(_ALL, None),
}


def allows(event: ClaimEvent, stage: ClaimStage | None) -> bool:
    return stage in TRANSITIONS[event]


def next_stage(event: ClaimEvent, stage: ClaimStage | None) -> ClaimStage | None:
    """Return the stage that follows; None: no claim.

    Raises:
        KeyError: The event is not allowed at this stage.
    """
    return TRANSITIONS[event][stage]


class Posting(NamedTuple):
    """Binding under way to the API server, which may have taken effect."""

    token: int  # token of the bind call
    since: float  # when it was posted: monotonic, in seconds


class Claim(msgspec.Struct, frozen=True, gc=False):
    """Claim of a pod on a node. From ANSWERED on it is fixed: no older decision may move it any more."""

    pod: PodRecord  # the pod as it was when the claim was last put
    node: str  # the name of the node, which may be unknown so far
    stage: ClaimStage  # progress of the pod to the node
    since: float = 0.0  # when it reached this stage: monotonic, in seconds
    version: int = 0  # the ledger's version of its last change
    token: int = 0  # the token of the bind call that holds it or has posted it; 0 before
    posting: tuple[Posting, ...] = ()  # bindings under way, oldest first, also while a newer call holds it

    @property
    def calls(self) -> set[int]:
        """Return the tokens of all bind calls that hold the claim or have posted a binding."""
        return {self.token, *(posting.token for posting in self.posting)}

    @property
    def is_fixed(self) -> bool:
        return self.stage.is_fixed

    @property
    def in_flight(self) -> bool:
        """Return whether the pod is being bound to the node."""
        return self.is_fixed and self.stage is not ClaimStage.BOUND


class Claims:
    """All claims, by the pod's UID and by node. `capacity` follows each change."""

    def __init__(self) -> None:
        self.capacity = NodeCapacity()
        self._claims: dict[Uid, Claim] = {}
        self._on_node: dict[str, dict[Uid, Claim]] = {}
        self._by_stage: dict[ClaimStage, dict[Uid, Claim]] = {stage: {} for stage in ClaimStage}

    def get(self, uid: Uid) -> Claim | None:
        return self._claims.get(uid)

    def on_node(self, node: str) -> Iterable[Claim]:
        return self._on_node.get(node, {}).values()

    def in_stage(self, stage: ClaimStage) -> Iterable[Claim]:
        return self._by_stage[stage].values()

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._claims.values())

    def put(
        self,
        pod: PodRecord,
        node: str,
        stage: ClaimStage,
        since: float = 0.0,
        version: int = 0,
        token: int = 0,
        posting: tuple[Posting, ...] = (),
    ) -> Claim:
        """Set the claim of a pod, in place of any that it had."""
        before, claim = self._claims.get(pod.uid), Claim(pod, node, stage, since, version, token, posting)
        # Sums do not change between fixed stages.
        is_same_place = before is not None and (before.node, before.stage.is_fixed) == (node, stage.is_fixed)
        pod_before = before.pod if before is not None and is_same_place else None
        if pod_before is None or pod_before.shape is not pod.shape or pod_before.labels is not pod.labels:
            if before is not None:
                self._remove_from_node(before)
            self.capacity.count(claim, times=1)
        if before is not None:
            del self._by_stage[before.stage][pod.uid]
        self._claims[pod.uid] = self._by_stage[stage][pod.uid] = claim
        if (on_node := self._on_node.get(node)) is None:
            on_node = self._on_node[node] = {}
        on_node[pod.uid] = claim
        return claim

    def drop(self, uid: Uid) -> Claim | None:
        """Remove the claim of a pod and return it, if there is one."""
        claim = self._claims.pop(uid, None)
        if claim is not None:
            del self._by_stage[claim.stage][uid]
            self._remove_from_node(claim)
            if claim.stage is ClaimStage.BOUND:
                self.capacity.forget_refusals(claim.node)
        return claim

    # Capacity for a pod, without its own claim.

    def fits(self, pod: PodRecord, node: str) -> bool:
        return self.capacity.fits(pod, node, self._claims.get(pod.uid))

    def rows_that_fit(self, pod: PodRecord) -> Mask:
        """Return the rows that fit, by amounts only."""
        return self.capacity.rows_that_fit(pod, self._claims.get(pod.uid))

    def fullness(self, pod: PodRecord, node: str) -> float:
        """Return the used fraction of a node, from 0 to 1, with the pod on it."""
        return self.capacity.fullness(pod, node, self._claims.get(pod.uid))

    def _remove_from_node(self, claim: Claim) -> None:
        on_node = self._on_node[claim.node]
        del on_node[claim.pod.uid]
        if not on_node:
            del self._on_node[claim.node]
        self.capacity.count(claim, times=-1)
