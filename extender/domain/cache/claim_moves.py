"""The moves of claims, together with what follows from them: sums, standing members, groups to look at again.

Everything that happens to a claim happens here, by the table of `claim_stages`.
"""

from collections.abc import Callable

from extender.domain.cache.changes import Changes
from extender.domain.cache.claim_stages import ClaimEvent, ClaimStage, after
from extender.domain.cache.claims import Claim, Claims, Posting
from extender.domain.cache.groups import Group
from extender.domain.cache.registry import Registry
from extender.domain.cache.releases import Releases
from extender.domain.model.records import GroupKey, PodRecord, Uid
from extender.domain.snapshot.freed import OF_OTHERS, Freed


class ClaimMoves:
    """`clock` is monotonic, in seconds."""

    def __init__(
        self,
        claims: Claims,
        registry: Registry,
        releases: Releases,
        changes: Changes,
        clock: Callable[[], float],
    ) -> None:
        self._claims = claims
        self._registry = registry
        self._releases = releases
        self._changes = changes
        self._clock = clock
        self.freed = Freed()
        """When something last became free."""
        self._moved: dict[GroupKey, int] = {}  # by group: the version at which one of its claims last moved

    def put(
        self,
        pod: PodRecord,
        event: ClaimEvent,
        node: str,
        token: int = 0,
        posting: tuple[Posting, ...] = (),
    ) -> None:
        """Put a claim of ours on `node`, or advance it there. Raises KeyError if `event` is not allowed at
        its stage."""
        before = self._claims.get(pod.uid)
        stage = after(event, self._stage(pod.uid))
        assert stage is not None, event
        self._claims.put(pod, node, stage, self._clock(), self._changes.next_version, token, posting)
        self._note(pod, before)

    def end(self, pod: PodRecord, event: ClaimEvent) -> None:
        """End a claim of ours without a binding. Raises KeyError as `put` does."""
        stage = after(event, self._stage(pod.uid))
        assert stage is None, event
        before = self._claims.drop(pod.uid)
        self.note_freed(pod.group)
        self._registry.group(pod.group).expected_since.pop(pod.uid, None)
        self._note(pod, before)

    def refuse(self, pod: PodRecord) -> None:
        """The scheduler found no node for a pod: a claim that filter had answered may be planned again."""
        claim = self._claims.get(pod.uid)
        if claim is not None and claim.stage is ClaimStage.ANSWERED:
            self._claims.put(pod, claim.node, ClaimStage.PLANNED, self._clock())
            self._releases.follow(pod, claim, self._claims.get(pod.uid))

    def show(self, pod: PodRecord) -> None:
        """The watch shows a pod, whether ours or not: on a node it holds room there, when finished none; a
        waiting one keeps its claim."""
        before = self._claims.get(pod.uid)
        if pod.holds_room:
            self._claims.put(pod, pod.node, ClaimStage.BOUND)
        elif pod.node or not pod.waiting:
            self._claims.drop(pod.uid)
        elif (claim := self._claims.get(pod.uid)) is not None:
            self._claims.put(
                pod, claim.node, claim.stage, claim.since, claim.version, claim.token, claim.posting
            )
        now = self._claims.get(pod.uid)
        if before is not None and (now is None or now.stage is not before.stage):  # its room, or its place
            self.note_freed(pod.group)
        if pod.group:
            self._releases.follow(pod, before, now)

    def drop(self, pod: PodRecord) -> None:
        """The pod is gone."""
        if self._claims.drop(pod.uid) is not None:
            self.note_freed(pod.group)
        self._releases.forget(pod)

    def note_freed(self, by: GroupKey = OF_OTHERS) -> None:
        """Something that belonged to a group, or to others, is free now."""
        self.freed = self.freed.noted(self._clock(), by)

    def restand(self, group: Group, pod: PodRecord) -> None:
        """Count a member as standing, or no longer."""
        if pod.placed or (pod.waiting and (self._stage(pod.uid) or 0) >= ClaimStage.HELD):
            group.standing[pod.uid] = pod.role
        else:
            group.standing.pop(pod.uid, None)

    def moved_since(self, version: int) -> dict[GroupKey, int]:
        """The groups whose claims moved since the last call; those that moved after `version` are returned
        again next time."""
        moved, self._moved = self._moved, {key: at for key, at in self._moved.items() if at > version}
        return moved

    def _stage(self, uid: Uid) -> ClaimStage | None:
        claim: Claim | None = self._claims.get(uid)
        return claim.stage if claim else None

    def _note(self, pod: PodRecord, before: Claim | None) -> None:
        self._moved[pod.group] = self._changes.next_version
        self.restand(self._registry.group(pod.group), pod)
        self._registry.touch(pod.group)
        if not pod.to_be:
            self._releases.follow(pod, before, self._claims.get(pod.uid))
