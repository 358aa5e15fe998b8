"""Flavors: what queues hold of each, and which one the members of a group get.

The rule is that of Kueue's v0.1 for the parts of a workload: role by role, the flavors are tried in their
order, next to what earlier roles of the same group were given, and the first that takes all of the role is
its. Beyond that, an earlier role makes way for a later one that would find none. A role is never divided:
where members of it run already, the others follow them. Which flavor a node belongs to follows from its
labels."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from extender.domain.model.reasons import LACKS_ROOM, Reason
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.resources import Resources, add, total
from extender.domain.model.shapes import Shape, requests_of
from extender.domain.placement.planner import Journal
from extender.domain.queues.guarantees_and_ceilings import exceeded, excess
from extender.domain.queues.spec import Flavor, flavor_on
from extender.domain.snapshot.group_view import GroupView, once
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import Missing, Signature, binding_roles, missing

Amounts = Mapping[tuple[str, str], Resources]  # by queue and flavor


class FlavorAmounts:
    """What queues hold of their flavors by now, in a round. Members count where their nodes are."""

    def __init__(self, snapshot: Snapshot, journal: Journal) -> None:
        self._nodes = snapshot.nodes
        self._flavors = {name: view.record.flavors for name, view in snapshot.queues.items()}
        self.amounts = {  # all that is held by now; never changed, if nothing is taken any more
            (name, flavor): dict(amounts)
            for name, view in snapshot.queues.items()
            for flavor, amounts in view.by_flavor.items()
        }
        self._journal = journal
        self._on: dict[tuple[str, str], Flavor | None] = {}

    def of(self, queue: str) -> tuple[Flavor, ...]:
        """The flavors of a queue, in order; none where it divides nothing."""
        return self._flavors.get(queue, ())

    def on(self, queue: str, node: str) -> Flavor | None:
        """The flavor of a queue that a node belongs to; None for none."""
        if (queue, node) not in self._on:
            row = self._nodes.row.get(node)
            record = self._nodes.nodes[row] if row is not None else None
            self._on[queue, node] = flavor_on(self.of(queue), record.labels) if record else None
        return self._on[queue, node]

    def take(self, group: GroupView, plan: Mapping[Uid, str], times: int = 1) -> None:
        """Members hold their planned nodes; -1 times gives them back."""
        if not self.of(group.queue):
            return
        shapes: dict[str, Counter[Shape]] = {}
        for pod in group.waiting:
            flavor = self.on(group.queue, plan[pod.uid]) if pod.uid in plan else None
            if flavor is not None:
                shapes.setdefault(flavor.name, Counter())[pod.shape] += 1
        for name, of_flavor in shapes.items():
            held, asked = self.amounts.setdefault((group.queue, name), {}), requests_of(of_flavor)
            self._journal.take(partial(add, held, asked), times)

    def as_many_as(
        self,
        queue: str,
        flavor: Flavor,
        pods: Iterable[PodRecord],
        asked: dict[str, int],
        is_lent: bool,
    ) -> list[PodRecord]:
        """The first of `pods` that keep the queue within a flavor's capability and, unless room is lent,
        within what it deserves there. `asked`: what others ask of the flavor; these are added."""
        limits = [flavor.capability] if is_lent else [flavor.capability, flavor.deserved or {}]
        names = {name for most in limits for name in most}
        limit = {name: min(most[name] for most in limits if name in most) for name in names}
        held, admitted = self.held(queue, flavor), []
        for pod in pods:
            more = total([asked, pod.shape.requests])
            if exceeded(_named(more, limit), held, limit):
                break
            asked.update(more)
            admitted.append(pod)
        return admitted

    def held(self, queue: str, flavor: Flavor) -> Resources:
        self._journal.reads.note((FlavorAmounts, queue))
        return self.amounts.get((queue, flavor.name), {})


def _named(asked: Resources, limit: Resources) -> Resources:
    return {name: amount for name, amount in asked.items() if name in limit}


# Equal for groups that miss as many members of the same shapes, and of the same roles where these count.
Alike = Signature | frozenset[tuple[tuple[str, Shape, str], int]]


def role_of(group: GroupView, pod: PodRecord) -> str:
    """A role that minTaskMember counts; all other members are alike, and have none."""
    return pod.role if pod.role in _counted_roles(group) else ""


@once
def _counted_roles(group: GroupView) -> frozenset[str]:
    return frozenset(binding_roles(*group.needs))


def by_role(group: GroupView, pods: Iterable[PodRecord]) -> dict[str, list[PodRecord]]:
    """In the order of the roles' names."""
    roles: dict[str, list[PodRecord]] = {}
    for pod in pods:
        roles.setdefault(role_of(group, pod), []).append(pod)
    return dict(sorted(roles.items()))


@once
def roles_of(group: GroupView) -> Alike:
    """What a group misses, and where members of the same roles are."""
    missed = Counter((role_of(group, pod), pod.shape, "") for pod in missing(group).members)
    placed = Counter((role_of(group, pod), pod.shape, pod.node) for pod in group.placed if pod.holds_room)
    return frozenset((missed + placed).items())


def on_nodes_of(flavor: Flavor, pods: Iterable[PodRecord]) -> list[PodRecord]:
    """The same pods, to be planned on the nodes of a flavor only."""
    return [replace(pod, shape=pod.shape.within(flavor.nodes)) for pod in pods]


def flavors_in_use(amounts: FlavorAmounts, group: GroupView, plan: Mapping[Uid, str]) -> dict[str, Flavor]:
    """By role, the flavor of its members that are on nodes, or in `plan`."""
    if not amounts.of(group.queue):
        return {}
    placed = [(pod, pod.node) for pod in group.placed if pod.holds_room]
    places = [*placed, *group.pinned, *((pod, plan[pod.uid]) for pod in group.waiting if pod.uid in plan)]
    used: dict[str, Flavor] = {}
    for pod, node in places:
        if (flavor := amounts.on(group.queue, node)) is not None:
            used.setdefault(role_of(group, pod), flavor)
    return used


Why = tuple[Reason, str]
LacksRoom = Callable[[Missing], Why | None]  # why members find no room next to each other; None if they do

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
    is_amount: bool  # whether the amounts of the flavor say so, and not the nodes


class Choice(msgspec.Struct, frozen=True):
    """`wanted`: the members with a flavor, each bound to its nodes. `flavors`: by role. `asked`: by flavor,
    what these members ask for. `tried`: why `role` has none; empty if all have one."""

    wanted: Missing
    flavors: dict[str, str]
    asked: dict[str, Resources]
    role: str = ""
    tried: tuple[Tried, ...] = ()
    is_above_share: bool = False  # whether another choice may be there once room is lent

    @property
    def exceeds_queue(self) -> bool:
        """Whether no further node would help."""
        return all(flavor.is_amount and flavor.reason is Reason.NEVER_FITS for flavor in self.tried)

    def why(self) -> Why:
        """The reason for all flavors together, and what stands against each."""
        reason = min((tried.reason for tried in self.tried), key=_NEAREST_FIRST.index)
        texts = [f"flavor {it.flavor}: {it.reason} ({it.detail})" for it in self.tried[:_MOST_TEXTS]]
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
    filled = search.fill(roles, _NOTHING)
    return filled or replace(search.dead_end, is_above_share=search.is_above_share)


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


class _Search(msgspec.Struct, eq=False):
    """Depth first, in the order of roles and flavors: the first choice is that in which each role takes what
    the earlier ones left. Others are looked at where that ends in nothing, as far as the number of attempts
    allows."""

    amounts: FlavorAmounts
    queue: str
    is_lent: bool
    lacks_room: LacksRoom
    attempts_left: int
    is_above_share: bool = False
    dead_end: Choice = _NOTHING  # the first role that found no flavor, and why

    def fill(self, roles: Sequence[_Role], chosen: Choice) -> Choice | None:
        """Flavors for `roles`, next to those `chosen` before; None where there are none."""
        if not roles:
            return chosen
        (role, pods, flavors), *later = roles
        asked, tried = total(pod.shape.requests for pod in pods), []
        for flavor in flavors:
            more = total([chosen.asked.get(flavor.name, {}), asked])
            wanted = Missing((*chosen.wanted.members, *on_nodes_of(flavor, pods)))
            if (why := self._above(flavor, more)) is None:
                self.attempts_left -= 1
                is_tried = self.attempts_left >= 0
                lacks = self.lacks_room(wanted) if is_tried else (Reason.NO_ROOM, "not looked at any more")
                why = None if lacks is None else Tried(flavor.name, *lacks, is_amount=False)
            if why is not None:
                tried.append(why)
                continue
            names, sums = chosen.flavors | {role: flavor.name}, chosen.asked | {flavor.name: more}
            if (found := self.fill(later, Choice(wanted, names, sums))) is not None:
                return found
        if len(tried) == len(flavors) and not self.dead_end.tried:  # every one was refused for a reason
            lacking = [flavor.flavor for flavor in tried if flavor.reason in LACKS_ROOM]
            names = chosen.flavors | ({role: lacking[0]} if lacking else {})
            self.dead_end = replace(chosen, flavors=names, role=role, tried=tuple(tried))
        return None

    def _above(self, flavor: Flavor, asked: Resources) -> Tried | None:
        held, limited = self.amounts.held(self.queue, flavor), _named(asked, flavor.capability)
        if above := excess(limited, held, flavor.capability):
            never = exceeded(limited, {}, flavor.capability)
            reason = Reason.NEVER_FITS if never else Reason.QUEUE_CEILING
            return Tried(flavor.name, reason, above, is_amount=True)
        if flavor.deserved is not None and not self.is_lent:
            above = excess(_named(asked, flavor.deserved), held, flavor.deserved)
        self.is_above_share |= bool(above)
        return Tried(flavor.name, Reason.QUEUE_SHARE, above, is_amount=True) if above else None
