"""Choosing flavors for the members of a group: role by role, each with the first flavor that takes all of it.

Rule of Kueue's v0.1 for the parts of a workload: the flavors are tried in their order, next to what earlier
roles of the same group were given. Beyond that, an earlier role makes way for a later one that would find
none. A role is never divided: where members of it run already, the others follow them.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from extender.domain.flavors.flavor_amounts import FlavorAmounts
from extender.domain.flavors.roles import by_role, flavors_in_use, on_nodes_of
from extender.domain.lifecycle.quorum import Missing
from extender.domain.model.reasons import LACKS_ROOM, Reason
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.resources import Resources, total
from extender.domain.queues.queue_rules import Flavor
from extender.domain.snapshot.group_view import GroupView

Why = tuple[Reason, str]
LacksRoom = Callable[[Missing], Why | None]
"""Why members find no room next to each other; None if they do."""

# Of several flavors the reason is that which is nearest to a start.
_NEAREST_FIRST = (
    *LACKS_ROOM,
    Reason.REFUSED_BY_SCHEDULER,
    Reason.QUEUE_SHARE,
    Reason.QUEUE_CEILING,
    Reason.NEVER_FITS,
)
_MORE_ATTEMPTS = 64  # placements tried for one group, besides one for each role and flavor
_MOST_TEXTS = 8  # flavors of which the sentence says why; a status should stay small


class Tried(msgspec.Struct, frozen=True):
    """A flavor that did not take a role."""

    flavor: str
    reason: Reason
    detail: str
    is_amount: bool
    """Whether the amounts of the flavor say so, and not the nodes."""


class Choice(msgspec.Struct, frozen=True):
    """`wanted`: the members with a flavor, each bound to its nodes. `flavors`: by role. `asked`: by flavor,
    what these members ask for. `tried`: why `role` has none; empty if all have one."""

    wanted: Missing
    flavors: dict[str, str]
    asked: dict[str, Resources]
    role: str = ""
    tried: tuple[Tried, ...] = ()
    is_above_share: bool = False
    """Whether another choice may be there once room is lent."""
    depends_on_room: bool = False
    """Whether another choice may be there with more room."""

    @property
    def exceeds_queue(self) -> bool:
        """Whether no further node would help."""
        return all(each.is_amount and each.reason is Reason.NEVER_FITS for each in self.tried)

    def why(self) -> Why:
        """The reason for all flavors together, and what stands against each."""
        reason = min((each.reason for each in self.tried), key=_NEAREST_FIRST.index)
        texts = [f"flavor {each.flavor}: {each.reason} ({each.detail})" for each in self.tried[:_MOST_TEXTS]]
        more = [f"and {len(self.tried) - _MOST_TEXTS} more"] if len(self.tried) > _MOST_TEXTS else []
        role = f"role {self.role}: " if self.role else ""
        return reason, role + "; ".join(texts + more)


_NOTHING = Choice(Missing(()), {}, {})


def choose(
    amounts: FlavorAmounts,
    group: GroupView,
    members: Sequence[PodRecord],
    plan: Mapping[Uid, str],
    is_lent: bool,
    lacks_room: LacksRoom,
) -> Choice:
    """Flavors for `members` of a group; `plan` has the nodes of those that have one already. `is_lent`:
    whether what the queue deserves of each flavor is no limit."""
    in_use = flavors_in_use(amounts, group, plan)
    roles = [
        (role, pods, (in_use[role],) if role in in_use else amounts.of(group.queue))
        for role, pods in by_role(group, members).items()
    ]
    most = sum(len(flavors) for *_, flavors in roles) + _MORE_ATTEMPTS
    search = _Search(amounts, group.queue, is_lent, lacks_room, most)
    return search.fill(roles, _NOTHING) or search.failure()


def flavored(
    amounts: FlavorAmounts, group: GroupView, wanted: Missing, flavors: Mapping[str, str]
) -> Missing:
    """The same members, bound to the nodes of the flavors that a decision names by role."""
    by_name = {flavor.name: flavor for flavor in amounts.of(group.queue)}
    members: list[PodRecord] = []
    for role, pods in by_role(group, wanted.members).items():
        flavor = by_name.get(flavors.get(role, ""))
        members += pods if flavor is None else on_nodes_of(flavor, pods)
    return Missing(tuple(members), wanted.absent)


_Role = tuple[str, Sequence[PodRecord], Sequence[Flavor]]  # its name, its members, and what it may use


class _Search:
    """Depth first, in the order of roles and flavors: the first choice is that in which each role takes what
    the earlier ones left. Others are looked at where that ends in nothing, as far as the number of attempts
    allows."""

    def __init__(
        self, amounts: FlavorAmounts, queue: str, is_lent: bool, lacks_room: LacksRoom, most: int
    ) -> None:
        self._amounts = amounts
        self._queue = queue
        self._is_lent = is_lent
        self._lacks_room = lacks_room
        self._most = most
        self._attempts = 0
        self._is_above_share = False
        self._dead_end = _NOTHING  # the first role that found no flavor, and why

    def failure(self) -> Choice:
        """What stood in the way."""
        return replace(
            self._dead_end, is_above_share=self._is_above_share, depends_on_room=self._attempts > 0
        )

    def fill(self, roles: Sequence[_Role], chosen: Choice) -> Choice | None:
        """Flavors for `roles`, next to those `chosen` before; None where there are none."""
        if not roles:
            return chosen
        (role, pods, flavors), *later = roles
        asked, tried = total(pod.shape.requests for pod in pods), []
        for flavor in flavors:
            more = total([chosen.asked.get(flavor.name, {}), asked])
            wanted = Missing((*chosen.wanted.members, *on_nodes_of(flavor, pods)))
            why = self._above(flavor, more) or self._no_room(flavor, wanted)
            if why is not None:
                tried.append(why)
                continue
            names, sums = chosen.flavors | {role: flavor.name}, chosen.asked | {flavor.name: more}
            if (found := self.fill(later, Choice(wanted, names, sums))) is not None:
                return found
        self._note(chosen, role, tuple(tried), len(flavors))
        return None

    def _note(self, chosen: Choice, role: str, tried: tuple[Tried, ...], flavors: int) -> None:
        """The first dead end is what people are told: there every flavor was refused for a reason."""
        if self._dead_end.tried or len(tried) < flavors:
            return
        lacking = [each.flavor for each in tried if each.reason in LACKS_ROOM]
        names = chosen.flavors | ({role: lacking[0]} if lacking else {})
        self._dead_end = replace(chosen, flavors=names, role=role, tried=tried)

    def _above(self, flavor: Flavor, asked: Resources) -> Tried | None:
        if above := self._amounts.above_capability(self._queue, flavor, asked):
            never = self._amounts.is_never_below_capability(flavor, asked)
            reason = Reason.NEVER_FITS if never else Reason.QUEUE_CEILING
            return Tried(flavor.name, reason, above, is_amount=True)
        above = "" if self._is_lent else self._amounts.above_deserved(self._queue, flavor, asked)
        self._is_above_share |= bool(above)
        return Tried(flavor.name, Reason.QUEUE_SHARE, above, is_amount=True) if above else None

    def _no_room(self, flavor: Flavor, wanted: Missing) -> Tried | None:
        self._attempts += 1
        if self._attempts > self._most:
            return Tried(flavor.name, Reason.NO_ROOM, "not looked at any more", is_amount=False)
        lacks = self._lacks_room(wanted)
        return None if lacks is None else Tried(flavor.name, *lacks, is_amount=False)
