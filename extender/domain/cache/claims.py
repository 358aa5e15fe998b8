"""Claims on room: which pod takes what on which node.

A claim is keyed by pod UID and advances in stages. From ANSWERED on it is pinned: filter has given the node
to the scheduler, and no decision made on an older snapshot may move it. What claims take from nodes is
counted in `capacity`.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from extender.domain.cache.claim_stages import ClaimStage
from extender.domain.cache.node_capacity import NodeCapacity
from extender.domain.model.records import PodRecord, Uid
from extender.domain.snapshot.nodes import Mask


class Posting(NamedTuple):
    """A binding that is on its way to the API server, and may have taken effect."""

    token: int  # of its bind call
    since: float  # when it was posted: monotonic, in seconds


class Claim(msgspec.Struct, frozen=True, gc=False):
    pod: PodRecord
    """The pod as it was when the claim was last put."""
    node: str
    """The name of the node, which may be unknown so far."""
    stage: ClaimStage
    """How far the pod has come on its way to the node."""
    since: float = 0.0
    """When it reached this stage: monotonic, in seconds."""
    version: int = 0
    """The ledger's version from which on the claim is as it is now."""
    token: int = 0
    """The token of the bind call that holds it or has posted it; 0 before."""
    posting: tuple[Posting, ...] = ()
    """The bindings that are on their way, the oldest first; also while a newer call holds the claim."""

    @property
    def calls(self) -> set[int]:
        """The tokens of all bind calls that hold it or have posted a binding of it."""
        return {self.token, *(posting.token for posting in self.posting)}

    @property
    def pinned(self) -> bool:
        return self.stage.pinned

    @property
    def in_flight(self) -> bool:
        """Whether its pod is on its way to the node."""
        return self.pinned and self.stage is not ClaimStage.BOUND


class Claims:
    """All claims on all nodes, by the pod's UID and by node. Putting or dropping one updates `capacity`."""

    def __init__(self) -> None:
        self.capacity = NodeCapacity()
        self._claims: dict[Uid, Claim] = {}
        self._on_node: dict[str, dict[Uid, Claim]] = {}
        self._at: dict[ClaimStage, dict[Uid, Claim]] = {stage: {} for stage in ClaimStage}

    def get(self, uid: Uid) -> Claim | None:
        return self._claims.get(uid)

    def on_node(self, node: str) -> Iterable[Claim]:
        return self._on_node.get(node, {}).values()

    def at(self, stage: ClaimStage) -> Iterable[Claim]:
        """The claims at a stage."""
        return self._at[stage].values()

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
    ) -> None:
        """Set the claim of a pod, in place of any that it had."""
        before, claim = self._claims.get(pod.uid), Claim(pod, node, stage, since, version, token, posting)
        if before is None or not _count_alike(before, claim):
            if before is not None:
                self._take_off(before)
            self.capacity.count(claim, 1)
        if before is not None:
            del self._at[before.stage][pod.uid]
        self._claims[pod.uid] = self._at[stage][pod.uid] = claim
        self._on_node.setdefault(node, {})[pod.uid] = claim

    def drop(self, uid: Uid) -> Claim | None:
        claim = self._claims.pop(uid, None)
        if claim is not None:
            del self._at[claim.stage][uid]
            self._take_off(claim)
            if claim.stage is ClaimStage.BOUND:
                self.capacity.touch(claim.node)
        return claim

    # ---- looking for a pod: its own claim does not count against it

    def fits(self, pod: PodRecord, node: str) -> bool:
        """Whether `pod` may stand on `node` net of all other claims, planned ones included."""
        return self.capacity.fits(pod, node, self._claims.get(pod.uid))

    def rows_that_fit(self, pod: PodRecord) -> Mask:
        """For each row whether `pod` fits by amounts, net of all other claims."""
        return self.capacity.rows_that_fit(pod, self._claims.get(pod.uid))

    def fullness(self, pod: PodRecord, node: str) -> float:
        """The part of the scarcest resource on a node that would be taken with `pod` on it, 0 … 1."""
        return self.capacity.fullness(pod, node, self._claims.get(pod.uid))

    # ---- inside

    def _take_off(self, claim: Claim) -> None:
        on_node = self._on_node[claim.node]
        del on_node[claim.pod.uid]
        if not on_node:
            del self._on_node[claim.node]
        self.capacity.count(claim, -1)


def _count_alike(before: Claim, claim: Claim) -> bool:
    """Whether all sums stay as they are, as for a claim that only advances to another pinned stage."""
    if (before.node, before.stage.pinned) != (claim.node, claim.stage.pinned):
        return False
    return before.pod.shape is claim.pod.shape and before.pod.labels is claim.pod.labels
