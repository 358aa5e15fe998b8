"""Whole gangs: the members that make a group whole, since when it has fully run, and its start deadline."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby, islice
from math import inf
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

import msgspec

from extender.domain.model.records import Needs, PodRecord, Uid
from extender.domain.model.resources import Resources
from extender.domain.model.shapes import Shape, requests_of
from extender.domain.model.topology import ChildGroup, PodSubGroup, TopologySet
from extender.domain.snapshot.group_info import GroupInfo, computed_once

if TYPE_CHECKING:  # `muster why` imports this module, and starts faster without numpy
    from extender.domain.snapshot.snapshot import Snapshot

# A group is whole with minMember members and each role's minTaskMember. If the roles add up to more than
# minMember, they do not bind, as in Volcano.

_MOST_NAMES, _LONGEST_NAME = 8, 63  # roles in a status, and characters of each
Kind = Shape | tuple[Shape, tuple[tuple[object, ...], ...]]  # shape of a member, and its sets if it has any
Signature = frozenset[tuple[Kind, int]]
_SHAPE, _SETS = attrgetter("shape"), attrgetter("pod_sets")


class Missing(msgspec.Struct, frozen=True, dict=True):
    """The members that must still start."""

    members: tuple[PodRecord, ...]
    absent: str = ""  # members that do not exist yet, for users; empty: all needed ones exist

    @cached_property
    def shapes(self) -> Counter[Shape]:
        return Counter(map(_SHAPE, self.members))

    @cached_property
    def signature(self) -> Signature:
        """Return a key that is equal for groups that lack as many members of the same shapes and sets."""
        if not self.pod_sets:
            return frozenset(self.shapes.items())
        similar = Counter(zip(map(_SHAPE, self.members), map(id, map(_SETS, self.members)), strict=True))
        parts = {key: tuple(sets[1:] for sets in pod_sets) for key, pod_sets in self._distinct_sets.items()}
        return frozenset(((shape, parts[key]), n) for (shape, key), n in similar.items())

    @cached_property
    def pod_sets(self) -> Collection[TopologySet]:
        """Return the pod sets of the members."""
        return {pod_set for pod_sets in self._distinct_sets.values() for pod_set in pod_sets}

    @cached_property
    def _distinct_sets(self) -> Mapping[int, tuple[TopologySet, ...]]:
        """Return the distinct sets of the members, by identity: members of a group share equal sets."""
        return {id(sets): sets for sets in map(_SETS, self.members)}

    @cached_property
    def requests(self) -> Resources:
        return requests_of(self.shapes)


def binding_roles(needs: Needs) -> Mapping[str, int]:
    return needs.min_task_member if sum(needs.min_task_member.values()) <= needs.min_member else {}


def kept_roles(needs: Needs) -> Mapping[str, int]:
    """Return how many members of each role are kept: lost ones are replaced, and none is evicted alone."""
    if needs.composite is None:
        return binding_roles(needs)
    return {child.name: child.least for child in needs.composite.pod_groups}


def whole(needs: Needs, roles: Counter[str], members: int) -> bool:
    """Return whether `members` members, counted by role in `roles`, make a group whole."""
    if members < needs.min_member or any(roles[role] < n for role, n in binding_roles(needs).items()):
        return False
    return needs.composite is None or needs.composite.is_whole(roles)


def missing(group: GroupInfo) -> Missing:
    """Return the members to start next so that the group is whole: assumed ones first, then planned ones."""
    return group.computed(missing_of)


def missing_of(group: GroupInfo, fitting: Collection[Uid] = ()) -> Missing:
    """Return the members to start next, those known to be `fitting` before the others."""
    return _missing(group, group.needs, fitting, replaces=False)


@computed_once
def members_to_replace(group: GroupInfo) -> Missing:
    """Return the members to start next so that the group has as many as when it was fully running."""
    needs = group.history.ran_with or Needs(min_member=0, min_task_member={})
    return _missing(group, needs, fitting=(), replaces=True)


def _missing(group: GroupInfo, needs: Needs, fitting: Collection[Uid], replaces: bool) -> Missing:
    """Return the members that a gang lacks, and as text those that do not exist.

    `replaces`: only lost members of the child groups of a composite.
    """
    # Planned members first, then those that fit; then by priority, highest first, and name.
    pods = sorted((pod for pod in group.waiting if not pod.is_for_min_resources), key=attrgetter("sort_key"))
    pods.sort(key=attrgetter("priority"), reverse=True)  # a stable sort
    # Pods that are created once others run come last: the gang starts without them.
    pods.sort(key=lambda pod: (pod.dependent, pod.uid not in group.planned, pod.uid not in fitting))
    candidates = _in_sub_groups(group, [pod for pod, _ in group.assumed] + pods)
    if needs.composite is not None:
        return _missing_of_composite(group, needs.composite, candidates, fitting, replaces)
    chosen, lacking = _least_sub_groups(group, candidates)
    needed = dict(binding_roles(needs))
    for pod in (*group.placed, *chosen):
        needed[pod.role] = needed.get(pod.role, 0) - 1
    taken = {pod.uid for pod in chosen}
    spare: list[PodRecord] = []
    for pod in candidates:
        if needed.get(pod.role, 0) > 0 and pod.uid not in taken:
            needed[pod.role] -= 1
            chosen.append(pod)
        elif pod.uid not in taken:
            spare.append(pod)
    further = max(needs.min_member - len(group.placed) - len(chosen), 0)
    chosen += spare[:further]
    chosen += _mates(group, chosen, spare[further:])
    members = (*chosen, *(pod for pod in group.waiting if pod.is_for_min_resources))
    roles = [f"{n} of role {role[:_LONGEST_NAME]}" for role, n in sorted(needed.items()) if n > 0]
    roles += [f"{n} sub-groups of {name[:_LONGEST_NAME]}" for name, n in sorted(lacking.items())]
    return Missing(members, _absent_message(group, roles, further - len(spare)))


# Sub-groups of Volcano start whole: with at least as many pods as their policy says.


def sub_group_sizes(pods: Iterable[PodRecord]) -> Counter[PodSubGroup]:
    """Return how many of some pods each sub-group has."""
    return Counter(pod.sub_group for pod in pods if pod.sub_group is not None)


def _in_sub_groups(group: GroupInfo, candidates: list[PodRecord]) -> list[PodRecord]:
    """Return the pods of each sub-group next to each other, without sub-groups that lack pods.

    Sub-groups with pods on nodes come first.
    """
    if all(pod.sub_group is None for pod in candidates):
        return candidates
    sizes_on_nodes, sizes = sub_group_sizes(group.placed), sub_group_sizes((*group.placed, *candidates))
    found = defaultdict[PodSubGroup | Uid, list[PodRecord]](list)
    for pod in candidates:
        if pod.sub_group is None or sizes[pod.sub_group] >= pod.sub_group.size:
            found[pod.sub_group or pod.uid].append(pod)
    parts = sorted(found.values(), key=lambda pods: pods[0].sub_group not in sizes_on_nodes)
    return [pod for part in parts for pod in part]


def _least_sub_groups(
    group: GroupInfo, candidates: Iterable[PodRecord]
) -> tuple[list[PodRecord], Mapping[str, int]]:
    """Return the pods of the sub-groups that must start, and how many sub-groups each policy lacks."""
    if not group.spec.least_sub_groups:
        return [], {}
    sizes, lacking = sub_group_sizes(group.placed), Counter(group.spec.least_sub_groups)
    lacking -= Counter(sub_group.policy for sub_group, number in sizes.items() if number >= sub_group.size)
    chosen: list[PodRecord] = []
    for sub_group, pods in groupby(candidates, attrgetter("sub_group")):
        if sub_group is not None and lacking[sub_group.policy] > 0 and sizes[sub_group] < sub_group.size:
            chosen += islice(pods, sub_group.size - sizes[sub_group])
            lacking[sub_group.policy] -= 1
    return chosen, +lacking


def _mates(group: GroupInfo, chosen: Iterable[PodRecord], others: Iterable[PodRecord]) -> list[PodRecord]:
    """Return the others that the sub-groups of the chosen members need to be whole."""
    sizes, found = sub_group_sizes((*group.placed, *chosen)), list[PodRecord]()
    for pod in others:
        sub_group = pod.sub_group
        if sub_group is not None and 0 < sizes[sub_group] < sub_group.size:
            sizes[sub_group] += 1
            found.append(pod)
    return found


# Child groups of a composite group start whole, too: each with its minimum.


def _missing_of_composite(
    group: GroupInfo,
    composite: ChildGroup,
    candidates: Sequence[PodRecord],
    fitting: Collection[Uid],
    replaces: bool,
) -> Missing:
    """Return the members with which its least child groups are whole, or those on the way if some are absent.

    `replaces`: only lost members of child groups that run.
    """
    placed, waiting = Counter(pod.role for pod in group.placed), in_child_groups(candidates)
    absent = [*composite.lacks(placed + Counter(pod.role for pod in candidates))]
    on_the_way = {pod.uid for pod, _ in group.assumed} | group.planned.keys()
    if replaces:
        lost = {name: n - placed[name] for name, n in kept_roles(group.needs).items() if placed[name]}
        chosen = [pod for name, n in lost.items() for pod in waiting.get(name, ())[: max(n, 0)]]
    elif absent:
        chosen = [pod for pod in candidates if pod.uid in on_the_way]
    else:
        chosen = least_members(composite, placed, waiting, on_the_way.union(fitting)) or []
    reserved = (pod for pod in group.waiting if pod.is_for_min_resources)
    return Missing((*chosen, *reserved), _absent_message(group, absent, 0))


def in_child_groups(pods: Iterable[PodRecord]) -> Mapping[str, list[PodRecord]]:
    """Return the pods of each PodGroup, in their order."""
    found = defaultdict[str, list[PodRecord]](list)
    for pod in pods:
        found[pod.role].append(pod)
    return found


def least_members(
    child: ChildGroup,
    placed: Mapping[str, int],
    waiting: Mapping[str, Sequence[PodRecord]],
    known: Collection[Uid] = (),
) -> list[PodRecord] | None:
    """Return the fewest members with which a child group is whole; None: they are too few.

    Children that run or start come first, and then those with the fewest missing members.

    Args:
        child: The child group, or the whole tree.
        placed: Number of members on nodes by PodGroup.
        waiting: The others by PodGroup, in the order in which they start.
        known: Those with a planned node, or of which it is known that they fit.
    """
    if child.children is None:
        lacking, own = max(child.least - placed.get(child.name, 0), 0), waiting.get(child.name, ())
        return list(own[:lacking]) if len(own) >= lacking else None
    found: list[tuple[bool, int, int, list[PodRecord]]] = []
    for sub_group in child.children:
        if (members := least_members(sub_group, placed, waiting, known)) is not None:
            is_new = not any(placed.get(leaf.name) for leaf in sub_group.pod_groups)
            unknown = sum(pod.uid not in known for pod in members)
            found.append((is_new, unknown, len(members), members))
    found.sort(key=itemgetter(0, 1, 2))
    chosen = found[: child.least]
    return [pod for *_, members in chosen for pod in members] if len(chosen) == child.least else None


def joining_parts(
    child: ChildGroup, placed: Mapping[str, int], waiting: Mapping[str, Sequence[PodRecord]]
) -> Iterator[tuple[list[PodRecord], int]]:
    """Yield members that may join a tree, and how many of them at once: child groups start whole.

    Others are yielded with those of equal shape.
    """
    if members := least_members(child, placed, waiting):
        yield members, len(members)
    elif members is not None:
        similar = defaultdict[Shape, list[PodRecord]](list)
        for pod in waiting.get(child.name, ()) if child.children is None else ():
            similar[pod.shape].append(pod)
        yield from ((pods, 1) for pods in similar.values())
        for sub_group in child.children or ():
            yield from joining_parts(sub_group, placed, waiting)


def _absent_message(group: GroupInfo, roles: Sequence[str], lacking: int) -> str:
    """Return how many members a gang lacks, for users; empty if none.

    Args:
        group: The gang.
        roles: Lacking members by role, and sub-groups, for users.
        lacking: Further lacking members, of any role.
    """
    if not roles and lacking <= 0:
        return ""
    waiting = sum(not pod.is_for_min_resources for pod in group.waiting)
    existing = len(group.placed) + len(group.assumed) + waiting
    by = f": {group.claim_fault}" if group.claim_fault else " by other scheduling gates"
    held_back = f"; {group.held_back} held back{by}" if group.held_back else ""
    rest = [f"{len(roles) - _MOST_NAMES} more roles"] if len(roles) > _MOST_NAMES else []
    missing_roles = f", missing {' and '.join([*roles[:_MOST_NAMES], *rest])}" if roles else ""
    exist = f"{existing} of {group.min_member} members exist"
    if group.job.is_unsuspended:
        exist = created_text(existing, group.min_member)
    return f"{exist}{missing_roles}{held_back}"


def created_text(created: int, needed: int) -> str:
    return f"its controller has created {created} of {needed} pods"


def whole_at(group: GroupInfo, grace: float) -> float | None:
    """Return when a group counts as fully running; None: too few members are on nodes.

    All needed members have to be on nodes for a grace period without a failure: from then on, losing members
    never undoes the rest. A kubelet that refuses a pod does so within seconds and before any container runs;
    slow images and volumes are no failure.
    """
    since = _whole_since(group)
    return None if since is None else since + grace


@computed_once
def _whole_since(group: GroupInfo) -> float | None:
    """Return since when enough members are on nodes; -inf: enough have run; None: too few."""
    members = sorted(
        (-inf if pod.started else group.bound_since.get(pod.uid, 0.0), pod.uid, pod.role)
        for pod in group.placed
    )
    roles, needs = Counter[str](), group.needs
    last_of = kept_roles(needs) if needs.composite is not None else None  # a tree has many groups to look at
    for count, (since, _, role) in enumerate(members, start=1):
        roles[role] += 1
        if (last_of is None or roles[role] == last_of.get(role)) and whole(needs, roles, count):
            return since
    return None


def start_begun(group: GroupInfo, snapshot: "Snapshot") -> float | None:
    """Return since when the start timeout runs; None: it does not run.

    It runs from the first removed gate, while this replica leads and the scheduler calls. Closed gates, and
    time without a leader or calls, do not count against the group.

    A start that was admitted before a crash, and whose admission is not recorded, counts from now.
    """
    attention = snapshot.attention
    released = () if group.start.released_at is None else (group.start.released_at,)
    shown = (*released, *group.bound_since.values())
    if attention.leading_since is None or not (shown or group.assumed):
        return None
    admitted = snapshot.now if group.start.admitted_at is None else group.start.admitted_at
    begun = max(admitted, min(shown, default=admitted), attention.leading_since)
    return attention.since(begun) if _depends_on_the_scheduler(group) else begun


def partly_placed_since(group: GroupInfo, snapshot: "Snapshot") -> float | None:
    """Return since when a group that was not admitted has members on nodes; None: it has none."""
    leading = snapshot.attention.leading_since
    if leading is None or not (group.is_on_nodes and group.bound_since):
        return None
    return max(leading, min(group.bound_since.values()))


def running_since(group: GroupInfo, instant: Callable[[str], float]) -> float | None:
    """Return since when a group runs, by its pods' status, else by the watch; None: it does not run."""
    if group.running_since:
        return instant(group.running_since)
    return min(group.bound_since.values(), default=None)


@computed_once
def ready_since(group: GroupInfo) -> str:
    """Return the timestamp since which the group could have started: all needed objects were there."""
    created: Iterable[str] = map(attrgetter("created"), missing(group).members)
    return max((group.created, group.history.ready_at, *created))


def _depends_on_the_scheduler(group: GroupInfo) -> bool:
    """Return whether the start waits for the scheduler.

    Gates are open, and a scheduler that may not be running has neither taken nor refused a member.
    """
    if group.assumed or any(attempt.words for attempt in group.attempts.values()):
        return False
    attempts = (group.attempts[uid] for uid in group.planned if uid in group.attempts)
    return any(attempt.shown_at is not None for attempt in attempts)
