"""Shortages: gangs that wait because all nodes have room for fewer members of some shape than they miss.

On a full cluster that is nearly all that waits. What is decided on them stands until there is more room for
these shapes, so it can be carried over when room comes or goes somewhere.
"""

from collections import Counter
from collections.abc import Container

import msgspec
from msgspec.structs import replace

from extender.domain.lifecycle.quorum import Signature
from extender.domain.model.reasons import Reason
from extender.domain.model.records import GroupKey
from extender.domain.model.shapes import Shape


class Shortage(msgspec.Struct, frozen=True):
    """What gangs that miss the same lack."""

    shapes: Counter[Shape]
    """What they miss."""
    why: tuple[Reason, str]
    """The reason, and the numbers behind it."""
    groups: list[GroupKey]
    """Those that wait with just these words."""
    is_quoted: bool = False
    """Whether others wait, too, whose words contain these: they are those of one flavor of several."""

    def only(self, groups: Container[GroupKey]) -> "Shortage":
        """The same for no others than `groups`."""
        return replace(self, groups=[key for key in self.groups if key in groups])

    def and_of(self, other: "Shortage | None") -> "Shortage":
        """The same for the groups of `other`, too."""
        if other is None:
            return self
        quoted = self.is_quoted or other.is_quoted
        return replace(self, groups=[*other.groups, *self.groups], is_quoted=quoted)


class Shortages:
    """All shortages of a round, as far as they are all that depended on room."""

    def __init__(self) -> None:
        self.known: dict[Signature, Shortage] = {}
        self.are_all = True
        """Whether nothing else depended on how much room there is."""
        self.keeps_first_room = False
        """Whether there was no room to keep for groups that have a claim on it: the first that comes would be
        kept, not lent."""
        self.minds_others = False
        """Whether a group that starves may take the room of pods that are not ours."""
        self.minds_disruptions = False
        """Whether a group that starves may take the room of pods that disruption budgets cover."""
        self.seek_in_turn = False
        """Whether more groups look for victims than can in one round, so that with any change a new lap of
        their turns begins."""
        self._takings: int | None = None

    def note(
        self,
        signature: Signature | None,
        shapes: Counter[Shape],
        why: tuple[Reason, str],
        takings: int,
        is_quoted: bool = False,
    ) -> None:
        """Gangs of a signature lack room, after room was taken so often in this round."""
        if signature is None or self._takings not in (None, takings):
            self.are_all = False
            return
        self._takings = takings
        self.known.setdefault(signature, Shortage(shapes, why, [], is_quoted))

    def add(self, signature: Signature, group: GroupKey) -> None:
        """A group waits for room."""
        shortage = self.known.get(signature)
        if shortage is None:
            self.are_all = False
        else:
            shortage.groups.append(group)

    def hold_after(self, takings: int) -> bool:
        """Whether they still stood when the round ended, when room had been taken so often."""
        return self.are_all and self._takings in (None, takings)

    def together_with(self, now: "Shortages", others: Container[GroupKey]) -> "Shortages":
        """Those of a round in which `others` of these groups were not judged, together with theirs."""
        both = {signature: each.only(others) for signature, each in self.known.items()}
        for signature, each in now.known.items():
            both[signature] = each.and_of(both.get(signature))
        later = now.with_numbers({s: each for s, each in both.items() if each.groups or each.is_quoted})
        later.keeps_first_room |= self.keeps_first_room
        return later

    def with_numbers(self, known: dict[Signature, Shortage]) -> "Shortages":
        """The same gangs with other numbers."""
        later = Shortages()
        later.known, later.keeps_first_room, later._takings = known, self.keeps_first_room, self._takings
        later.minds_others, later.minds_disruptions = self.minds_others, self.minds_disruptions
        later.seek_in_turn = self.seek_in_turn
        return later
