"""Trying out what would start a group: by decide() itself, so that what is promised comes true."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from extender.domain.lifecycle.quorum import missing
from extender.domain.model.reasons import Reason, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.placement.planner import Planner
from extender.domain.scheduling.decide import decide
from extender.domain.snapshot.snapshot import Snapshot

_MOST = 48  # rounds for one explanation
_ALONE = 12  # how many are tried one by one before several together

T = TypeVar("T")


def size_of(snapshot: Snapshot) -> int:
    """What one round goes through: groups and nodes."""
    return len(snapshot.groups) + len(snapshot.nodes.nodes) + 1


class Trial:
    """Of one group. `work`: how many groups and nodes all rounds together may go through."""

    def __init__(self, snapshot: Snapshot, key: GroupKey, work: int) -> None:
        self._key = key
        self._left = min(_MOST, work // size_of(snapshot))

    def starts(self, snapshot: Snapshot) -> bool:
        """Whether the group would start at once; False as well where no round is left to find out."""
        return self.outcome(snapshot) == (Verdict.STARTING, None)

    def outcome(self, snapshot: Snapshot) -> tuple[Verdict, Reason | None] | None:
        """What would be decided on it; None where that is not known."""
        if self._left <= 0:
            return None
        self._left -= 1
        decided = decide(snapshot).groups.get(self._key)
        return None if decided is None else (decided.verdict, decided.reason)

    def least(self, most: int, after: Callable[[int], Snapshot]) -> int | None:
        """The smallest number from 1 to `most` with which it starts; None where not even `most` does."""
        if most < 1 or not self.starts(after(most)):
            return None
        return self._least(most, lambda n: self.starts(after(n)))

    def fewest(
        self, things: Sequence[T], after: Callable[[Sequence[T]], Snapshot], needs_room: bool = False
    ) -> Sequence[T]:
        """The first of `things` that does alone, or else some of which none can be spared; empty where not
        even all of them do. `needs_room`: where its members would find no room, no round is spent."""

        def does(some: Sequence[T]) -> bool:
            snapshot = after(some)
            return (not needs_room or self._has_room(snapshot)) and self.starts(snapshot)

        if not things or not does(things):
            return []
        for each in things[:_ALONE] if len(things) > 1 else ():
            if does([each]):
                return [each]
        chosen = list(things[: self._least(len(things), lambda n: does(things[:n]))])
        for each in chosen[:-1][::-1]:
            without = [other for other in chosen if other is not each]
            if does(without):
                chosen = without
        return chosen

    def _has_room(self, snapshot: Snapshot) -> bool:
        wanted = missing(snapshot.groups[self._key])
        return Planner.of(snapshot).could_place(wanted.members, wanted.shapes)

    def _least(self, most: int, does: Callable[[int], bool]) -> int:
        """The smallest number with which it does; it does with `most`."""
        low = 1
        while low < most:
            middle = (low + most) // 2
            if does(middle):
                most = middle
            else:
                low = middle + 1
        return most
