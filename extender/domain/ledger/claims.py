"""Claims: the capacity that a pod uses on a node, and the stages of a claim."""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, IntEnum, auto
from typing import NamedTuple

import msgspec

from extender.domain.ledger.nodes import NodeCapacity
from extender.domain.model.records import PodRecord, Uid
from extender.domain.snapshot.nodes import Mask


class ClaimStage(IntEnum):
    """Stage of a claim. There is a transition for every event.

        planned ──► answered ──► held ──► posted ──► bound

    For each stage, one party can end the claim. Decisions end a planned claim. The scheduler ends an answered
    claim, or the claim expires. The bind call whose token the claim carries ends a held or posted claim. The
    pod itself ends a bound claim.
    """

    PLANNED = 1  # a decision has a node for the pod; another decision may withdraw it
    ANSWERED = 2  # a filter call has named the node to the scheduler
    HELD = 3  # a bind call waits for the other members of the pod's group
    POSTED = 4  # the binding was sent to the API server, and may have taken effect
    BOUND = 5  # the watch shows the pod on the node

    @property
    def is_fixed(self) -> bool:
        """Return whether decisions on older snapshots may no longer move the claim."""
        return self >= ClaimStage.ANSWERED


class ClaimEvent(Enum):
    """Event that changes the stage of a claim."""

    PLAN = auto()  # a decision has a node for the pod
    WITHDRAW = auto()  # a decision no longer has a node for the pod
    ANSWER = auto()  # a filter call names a node to the scheduler
    REFUSE = auto()  # the scheduler reports that it found no node
    EXPIRE = auto()  # no bind call followed an answer in time
    HOLD = auto()  # a bind call arrived; a second bind call for the pod takes over the claim
    POST = auto()  # the group is whole, or a call ended while the binding of another call is under way
    RELEASE = auto()  # the last bind call ended without a binding, or the node was lost
    BIND = auto()  # the watch shows the pod on a node, however it was bound
    LEAVE = auto()  # the watch shows that the pod is gone, has ended, or is being deleted without a node


_PLANNED, _ANSWERED, _HELD, _POSTED, _BOUND = ClaimStage
_ALL_STAGES = (None, *ClaimStage)

# Next stage by event and current stage; None means that there is no claim.
TRANSITIONS: Mapping[ClaimEvent, Mapping[ClaimStage | None, ClaimStage | None]] = {
    ClaimEvent.PLAN: {None: _PLANNED, _PLANNED: _PLANNED, _ANSWERED: _PLANNED},
    ClaimEvent.WITHDRAW: {_PLANNED: None, _ANSWERED: None},
    ClaimEvent.ANSWER: {_PLANNED: _ANSWERED, _ANSWERED: _ANSWERED, _HELD: _ANSWERED},
    ClaimEvent.REFUSE: {_ANSWERED: _PLANNED},
    ClaimEvent.EXPIRE: {_ANSWERED: None},
    ClaimEvent.HOLD: {_PLANNED: _HELD, _ANSWERED: _HELD, _HELD: _HELD, _POSTED: _HELD},
    ClaimEvent.POST: {_HELD: _POSTED, _POSTED: _POSTED},
    ClaimEvent.RELEASE: {_HELD: None, _POSTED: None},
    ClaimEvent.BIND: dict.fromkeys(_ALL_STAGES, _BOUND),
    ClaimEvent.LEAVE: dict.fromkeys(_ALL_STAGES, None),
}


def allows(event: ClaimEvent, stage: ClaimStage | None) -> bool:
    """Return whether a claim at this stage may have the event."""
    return stage in TRANSITIONS[event]


def next_stage(event: ClaimEvent, stage: ClaimStage | None) -> ClaimStage | None:
    """Return the next stage of a claim after an event; None means no claim.

    Raises:
        KeyError: The event is not allowed at this stage.
    """
    return TRANSITIONS[event][stage]


class Posting(NamedTuple):
    """Binding that was sent to the API server, and may have taken effect."""

    token: int  # token of the bind call
    posted_at: float  # time of the post: monotonic, in seconds


class Claim(msgspec.Struct, frozen=True, gc=False):
    """Claim of a pod on a node.

    From the stage ANSWERED on, no decision on an older snapshot may move the claim.
    """

    pod: PodRecord  # record of the pod when the claim was last updated
    node: str  # name of the node, which may be unknown so far
    stage: ClaimStage  # progress of the pod to the node
    stage_since: float = 0.0  # when the claim reached this stage: monotonic, in seconds
    version: int = 0  # the ledger's version at its last change
    token: int = 0  # token of the bind call that holds or has posted the claim; 0: none yet
    postings: tuple[Posting, ...] = ()  # bindings under way, oldest first, even while a newer call holds it

    @property
    def call_tokens(self) -> set[int]:
        """Return the tokens of all bind calls that hold the claim or have posted a binding."""
        return {self.token, *(posting.token for posting in self.postings)}

    @property
    def is_fixed(self) -> bool:
        return self.stage.is_fixed

    @property
    def is_in_flight(self) -> bool:
        """Return whether the pod is being bound to the node."""
        return self.is_fixed and self.stage is not ClaimStage.BOUND


class Claims:
    """All claims, by the pod's UID and by node. `capacity` is updated with each change."""

    def __init__(self) -> None:
        self.capacity = NodeCapacity()
        self._claims: dict[Uid, Claim] = {}
        self._claims_by_node: dict[str, dict[Uid, Claim]] = {}
        self._claims_by_stage: dict[ClaimStage, dict[Uid, Claim]] = {stage: {} for stage in ClaimStage}

    def get(self, uid: Uid) -> Claim | None:
        return self._claims.get(uid)

    def on_node(self, node: str) -> Iterable[Claim]:
        return self._claims_by_node.get(node, {}).values()

    def in_stage(self, stage: ClaimStage) -> Iterable[Claim]:
        return self._claims_by_stage[stage].values()

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
        postings: tuple[Posting, ...] = (),
    ) -> Claim:
        """Set the claim of a pod, in place of its earlier claim."""
        old, claim = self._claims.get(pod.uid), Claim(pod, node, stage, since, version, token, postings)
        # Sums do not change between fixed stages.
        is_same_place = old is not None and (old.node, old.stage.is_fixed) == (node, stage.is_fixed)
        old_pod = old.pod if old is not None and is_same_place else None
        if old_pod is None or old_pod.shape is not pod.shape or old_pod.labels is not pod.labels:
            if old is not None:
                self._remove_from_node(old)
            self.capacity.add(claim, sign=1)
        if old is not None:
            del self._claims_by_stage[old.stage][pod.uid]
        self._claims[pod.uid] = self._claims_by_stage[stage][pod.uid] = claim
        if (node_claims := self._claims_by_node.get(node)) is None:
            node_claims = self._claims_by_node[node] = {}
        node_claims[pod.uid] = claim
        return claim

    def drop(self, uid: Uid) -> Claim | None:
        """Remove the claim of a pod. Return the claim, if there was one."""
        claim = self._claims.pop(uid, None)
        if claim is not None:
            del self._claims_by_stage[claim.stage][uid]
            self._remove_from_node(claim)
            if claim.stage is ClaimStage.BOUND:
                self.capacity.forget_refusals(claim.node)
        return claim

    def fits(self, pod: PodRecord, node: str) -> bool:
        """Return whether a pod fits on a node. Its own claim is not counted."""
        return self.capacity.fits(pod, node, self._claims.get(pod.uid))

    def rows_that_fit(self, pod: PodRecord) -> Mask:
        """Return a mask of the rows where a pod fits, by amounts only. Its own claim is not counted."""
        return self.capacity.rows_that_fit(pod, self._claims.get(pod.uid))

    def fullness(self, pod: PodRecord, node: str) -> float:
        """Return the used part of the scarcest resource of a node with the pod on it, from 0 to 1."""
        return self.capacity.fullness(pod, node, self._claims.get(pod.uid))

    def _remove_from_node(self, claim: Claim) -> None:
        node_claims = self._claims_by_node[claim.node]
        del node_claims[claim.pod.uid]
        if not node_claims:
            del self._claims_by_node[claim.node]
        self.capacity.add(claim, sign=-1)
