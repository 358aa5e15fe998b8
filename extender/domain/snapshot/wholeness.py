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

_MAX_NAMES, _MAX_CHARACTERS = 8, 63  # limit of roles in a message, and of characters per role
MemberKind = Shape | tuple[Shape, tuple[tuple[object, ...], ...]]  # shape, with topology sets if any
Signature = frozenset[tuple[MemberKind, int]]
_shape_of, _sets_of = attrgetter("shape"), attrgetter("pod_sets")


class Missing(msgspec.Struct, frozen=True, dict=True):
    """Members that still have to start."""

    members: tuple[PodRecord, ...]
    absent_text: str = ""  # text on needed members that do not exist yet, for users; empty: all exist

    @cached_property
    def shapes(self) -> Counter[Shape]:
        """Return the number of members of each shape."""
        return Counter(map(_shape_of, self.members))

    @cached_property
    def signature(self) -> Signature:
        """Return a key that is equal for groups that lack equal members.

        Members are equal if they have the same shape and the same topology sets.
        """
        if not self.pod_sets:
            return frozenset(self.shapes.items())
        counts = Counter(zip(map(_shape_of, self.members), map(id, map(_sets_of, self.members)), strict=True))
        tails = {key: tuple(sets[1:] for sets in pod_sets) for key, pod_sets in self._distinct_sets.items()}
        return frozenset(((shape, tails[key]), n) for (shape, key), n in counts.items())

    @cached_property
    def pod_sets(self) -> Collection[TopologySet]:
        """Return the topology sets of the members."""
        return {pod_set for pod_sets in self._distinct_sets.values() for pod_set in pod_sets}

    @cached_property
    def _distinct_sets(self) -> Mapping[int, tuple[TopologySet, ...]]:
        """Return the distinct tuples of topology sets, by object identity.

        Members of a group share equal tuples, so the identity suffices.
        """
        return {id(sets): sets for sets in map(_sets_of, self.members)}

    @cached_property
    def requests(self) -> Resources:
        """Return the joint requests of the members."""
        return requests_of(self.shapes)


def role_minima(needs: Needs) -> Mapping[str, int]:
    """Return the minima by role; empty if they are ignored because their sum is more than minMember."""
    return needs.min_task_member if sum(needs.min_task_member.values()) <= needs.min_member else {}


def min_running(needs: Needs) -> Mapping[str, int]:
    """Return the minimum number of members that a running group must have, by role.

    Lost members of these roles are replaced, and an eviction of single members never brings a role below its
    minimum.
    """
    if needs.composite is None:
        return role_minima(needs)
    return {child.name: child.minimum for child in needs.composite.pod_groups}


def is_whole_with(needs: Needs, roles: Counter[str], member_count: int) -> bool:
    """Return whether `member_count` members, counted by role in `roles`, make a group whole.

    A group is whole if it has minMember members, and minTaskMember members of each role. If the minima of the
    roles add up to more than minMember, they are ignored, as in Volcano.
    """
    if member_count < needs.min_member or any(roles[role] < n for role, n in role_minima(needs).items()):
        return False
    return needs.composite is None or needs.composite.is_whole(roles)


def missing(group: GroupInfo) -> Missing:
    """Return the members to start next so that the group is whole. Members with a node come first."""
    return group.compute(members_to_start)


def members_to_start(group: GroupInfo, fitting_uids: Collection[Uid] = ()) -> Missing:
    """Return the members to start next so that the group is whole.

    Members with a node come first, then members that are known to fit (`fitting_uids`).
    """
    return _missing_members(group, group.needs, fitting_uids, replaces=False)


@computed_once
def members_to_replace(group: GroupInfo) -> Missing:
    """Return the members to start next so that the group meets the needs with which it has fully run."""
    needs = group.history.run_needs or Needs(min_member=0, min_task_member={})
    return _missing_members(group, needs, fitting=(), replaces=True)


def _missing_members(group: GroupInfo, needs: Needs, fitting: Collection[Uid], replaces: bool) -> Missing:
    """Return the members that a gang lacks, with a text on needed members that do not exist.

    Args:
        group: The gang.
        needs: The members that the gang needs.
        fitting: Members that are known to fit. They follow planned members, and precede all others.
        replaces: Whether to return only replacements of lost members, for the child groups of a composite.
    """
    # Planned members come first, then members that fit. Each part is ordered by priority, then by name.
    pods = [pod for pod in group.waiting_pods if not pod.is_for_min_resources]
    pods.sort(key=attrgetter("sort_key"))
    pods.sort(key=attrgetter("priority"), reverse=True)  # a stable sort keeps the order by name
    # Pods that are created once others run come last: the gang starts without them.
    pods.sort(key=lambda pod: (pod.is_dependent, pod.uid not in group.planned_nodes, pod.uid not in fitting))
    candidates = _in_sub_groups(group, [pod for pod, _ in group.assumed_pods] + pods)
    if needs.composite is not None:
        return _missing_of_composite(group, needs.composite, candidates, fitting, replaces)
    chosen_pods, lacking_sub_groups = _needed_sub_groups(group, candidates)
    needed_by_role = dict(role_minima(needs))
    for pod in (*group.placed_pods, *chosen_pods):
        needed_by_role[pod.role] = needed_by_role.get(pod.role, 0) - 1
    chosen_uids = {pod.uid for pod in chosen_pods}
    spare_pods: list[PodRecord] = []
    for pod in candidates:
        if needed_by_role.get(pod.role, 0) > 0 and pod.uid not in chosen_uids:
            needed_by_role[pod.role] -= 1
            chosen_pods.append(pod)
        elif pod.uid not in chosen_uids:
            spare_pods.append(pod)
    further_count = max(needs.min_member - len(group.placed_pods) - len(chosen_pods), 0)
    chosen_pods += spare_pods[:further_count]
    chosen_pods += _fill_sub_groups(group, chosen_pods, spare_pods[further_count:])
    members = (*chosen_pods, *(pod for pod in group.waiting_pods if pod.is_for_min_resources))
    roles = [f"{n} of role {role[:_MAX_CHARACTERS]}" for role, n in sorted(needed_by_role.items()) if n > 0]
    roles += [f"{n} sub-groups of {name[:_MAX_CHARACTERS]}" for name, n in sorted(lacking_sub_groups.items())]
    return Missing(members, _absent_message(group, roles, further_count - len(spare_pods)))


def sub_group_sizes(pods: Iterable[PodRecord]) -> Counter[PodSubGroup]:
    """Return the number of pods of each sub-group."""
    return Counter(pod.sub_group for pod in pods if pod.sub_group is not None)


def _in_sub_groups(group: GroupInfo, candidates: list[PodRecord]) -> list[PodRecord]:
    """Return the pods ordered by sub-group, without sub-groups that have too few pods.

    A sub-group of Volcano starts whole: with at least as many pods as its policy demands. Sub-groups with
    pods on nodes come first.
    """
    if all(pod.sub_group is None for pod in candidates):
        return candidates
    sizes_on_nodes = sub_group_sizes(group.placed_pods)
    sizes = sizes_on_nodes + sub_group_sizes(candidates)
    pods_by_sub_group = defaultdict[PodSubGroup | Uid, list[PodRecord]](list)
    for pod in candidates:
        if pod.sub_group is None or sizes[pod.sub_group] >= pod.sub_group.size:
            pods_by_sub_group[pod.sub_group or pod.uid].append(pod)
    pod_lists = sorted(pods_by_sub_group.values(), key=lambda pods: pods[0].sub_group not in sizes_on_nodes)
    return [pod for part in pod_lists for pod in part]


def _needed_sub_groups(
    group: GroupInfo, candidates: Iterable[PodRecord]
) -> tuple[list[PodRecord], Mapping[str, int]]:
    """Return the pods of sub-groups that must start, and the number of lacking sub-groups by policy.

    A sub-group is lacking if the policy demands it, but too few pods for it exist.
    """
    if not group.spec.least_sub_groups:
        return [], {}
    sizes, counts = sub_group_sizes(group.placed_pods), Counter(group.spec.least_sub_groups)
    counts -= Counter(sub_group.policy for sub_group, number in sizes.items() if number >= sub_group.size)
    chosen_pods: list[PodRecord] = []
    for sub_group, pods in groupby(candidates, attrgetter("sub_group")):
        if sub_group is not None and counts[sub_group.policy] > 0 and sizes[sub_group] < sub_group.size:
            chosen_pods += islice(pods, sub_group.size - sizes[sub_group])
            counts[sub_group.policy] -= 1
    return chosen_pods, +counts


def _fill_sub_groups(
    group: GroupInfo, chosen_pods: Iterable[PodRecord], spare_pods: Iterable[PodRecord]
) -> list[PodRecord]:
    """Return the pods that sub-groups of the chosen members still need to be whole.

    Args:
        group: The gang.
        chosen_pods: The chosen members.
        spare_pods: The pods from which the result is taken.
    """
    sizes, further_pods = sub_group_sizes((*group.placed_pods, *chosen_pods)), list[PodRecord]()
    for pod in spare_pods:
        sub_group = pod.sub_group
        if sub_group is not None and 0 < sizes[sub_group] < sub_group.size:
            sizes[sub_group] += 1
            further_pods.append(pod)
    return further_pods


def _missing_of_composite(
    group: GroupInfo,
    composite: ChildGroup,
    candidates: Sequence[PodRecord],
    fitting: Collection[Uid],
    replaces: bool,
) -> Missing:
    """Return the fewest members that make a composite group whole.

    The child groups of a composite group start whole, too: each child group has its own minimum. If some
    needed members do not exist yet, the result is only the members with an assumed or planned node.

    Args:
        group: The group.
        composite: The tree of its child groups.
        candidates: The members that may start, in order.
        fitting: Members that are known to fit, which are preferred.
        replaces: Whether to return only replacements of lost members of running child groups.
    """
    counts, waiting_pods = Counter(pod.role for pod in group.placed_pods), pods_by_child_group(candidates)
    absent_texts = [*composite.describe_missing(counts + Counter(pod.role for pod in candidates))]
    uids_with_nodes = {pod.uid for pod, _ in group.assumed_pods} | group.planned_nodes.keys()
    if replaces:
        losses = {name: n - counts[name] for name, n in min_running(group.needs).items() if counts[name]}
        chosen_pods = [pod for name, n in losses.items() for pod in waiting_pods.get(name, ())[: max(n, 0)]]
    elif absent_texts:
        chosen_pods = [pod for pod in candidates if pod.uid in uids_with_nodes]
    else:
        chosen_pods = fewest_members(composite, counts, waiting_pods, uids_with_nodes.union(fitting)) or []
    placeholders = (pod for pod in group.waiting_pods if pod.is_for_min_resources)
    return Missing((*chosen_pods, *placeholders), _absent_message(group, absent_texts, 0))


def pods_by_child_group(pods: Iterable[PodRecord]) -> Mapping[str, list[PodRecord]]:
    """Return the pods of each child PodGroup, in their order."""
    pods_by_group = defaultdict[str, list[PodRecord]](list)
    for pod in pods:
        pods_by_group[pod.role].append(pod)
    return pods_by_group


def fewest_members(
    child: ChildGroup,
    placed_counts: Mapping[str, int],
    waiting_pods: Mapping[str, Sequence[PodRecord]],
    preferred_uids: Collection[Uid] = (),
) -> list[PodRecord] | None:
    """Return the fewest waiting members that make a child group whole; None if too few members wait.

    Children that run or start come first, then the children with the fewest missing members.

    Args:
        child: The child group, or the whole tree.
        placed_counts: The number of members on nodes by PodGroup.
        waiting_pods: The other members by PodGroup, in the order in which they start.
        preferred_uids: The members that have a planned node or are known to fit.
    """
    if child.children is None:
        n, pods = max(child.minimum - placed_counts.get(child.name, 0), 0), waiting_pods.get(child.name, ())
        return list(pods[:n]) if len(pods) >= n else None
    options: list[tuple[bool, int, int, list[PodRecord]]] = []
    for sub_group in child.children:
        if (members := fewest_members(sub_group, placed_counts, waiting_pods, preferred_uids)) is not None:
            is_new = not any(placed_counts.get(leaf.name) for leaf in sub_group.pod_groups)
            unknown_count = sum(pod.uid not in preferred_uids for pod in members)
            options.append((is_new, unknown_count, len(members), members))
    options.sort(key=itemgetter(0, 1, 2))
    picks = options[: child.minimum]
    return [pod for *_, members in picks for pod in members] if len(picks) == child.minimum else None


def joining_parts(
    child: ChildGroup, placed_counts: Mapping[str, int], waiting_pods: Mapping[str, Sequence[PodRecord]]
) -> Iterator[tuple[list[PodRecord], int]]:
    """Yield lists of members that may join a running tree, and the number that must join together.

    The members of a child group that is not whole have to join together. Other members are yielded by shape,
    and join one by one.
    """
    if members := fewest_members(child, placed_counts, waiting_pods):
        yield members, len(members)
    elif members is not None:
        pods_by_shape = defaultdict[Shape, list[PodRecord]](list)
        for pod in waiting_pods.get(child.name, ()) if child.children is None else ():
            pods_by_shape[pod.shape].append(pod)
        yield from ((pods, 1) for pods in pods_by_shape.values())
        for sub_group in child.children or ():
            yield from joining_parts(sub_group, placed_counts, waiting_pods)


def _absent_message(group: GroupInfo, roles: Sequence[str], further_count: int) -> str:
    """Return a text on how many members a gang lacks, for users; empty if no member is missing.

    Args:
        group: The gang.
        roles: The missing members by role, and the missing sub-groups, as texts.
        further_count: The number of further missing members of any role.
    """
    if not roles and further_count <= 0:
        return ""
    waiting_count = sum(not pod.is_for_min_resources for pod in group.waiting_pods)
    existing_count = len(group.placed_pods) + len(group.assumed_pods) + waiting_count
    cause = f": {group.claim_fault}" if group.claim_fault else " by other scheduling gates"
    held_back_text = f"; {group.held_back_count} held back{cause}" if group.held_back_count else ""
    more_roles = [f"{len(roles) - _MAX_NAMES} more roles"] if len(roles) > _MAX_NAMES else []
    missing_text = f", missing {' and '.join([*roles[:_MAX_NAMES], *more_roles])}" if roles else ""
    exist_text = f"{existing_count} of {group.min_member} members exist"
    if group.job.is_unsuspended:
        exist_text = created_text(existing_count, group.min_member)
    return f"{exist_text}{missing_text}{held_back_text}"


def created_text(created_count: int, needed_count: int) -> str:
    """Return a text on how many of the needed pods exist, for users."""
    return f"its controller has created {created_count} of {needed_count} pods"


def whole_at(group: GroupInfo, grace: float) -> float | None:
    """Return when a group counts as fully running; None if too few members are on nodes.

    All needed members have to be on nodes for a grace period in which none of them fails. After this time,
    lost members never undo the start. A kubelet that refuses a pod does so within seconds, before any
    container runs. Slow images and volumes are no failure.
    """
    since = _whole_since(group)
    return None if since is None else since + grace


@computed_once
def _whole_since(group: GroupInfo) -> float | None:
    """Return since when enough members are on nodes.

    -inf means that enough members have started their containers; None means that too few are on nodes.
    """
    members = sorted(
        (-inf if pod.has_started else group.bound_since.get(pod.uid, 0.0), pod.uid, pod.role)
        for pod in group.placed_pods
    )
    roles, needs = Counter[str](), group.needs
    minima = min_running(needs) if needs.composite is not None else None  # testing a whole tree is slow
    for count, (since, _, role) in enumerate(members, start=1):
        roles[role] += 1
        if (minima is None or roles[role] == minima.get(role)) and is_whole_with(needs, roles, count):
            return since
    return None


def start_begun_at(group: GroupInfo, snapshot: "Snapshot") -> float | None:
    """Return the instant from which the start timeout is counted; None if no timeout is counted.

    The timeout begins when the first gate of a member is removed. Time does not count in these cases:

    - All gates are closed.
    - This replica does not lead.
    - The scheduler does not call Muster.

    If no admission is recorded, since Muster crashed before, the timeout begins now.
    """
    attention = snapshot.attention
    release_times = () if group.start.released_at is None else (group.start.released_at,)
    known_times = (*release_times, *group.bound_since.values())
    if attention.leading_since is None or not (known_times or group.assumed_pods):
        return None
    admission = snapshot.now if group.start.admitted_at is None else group.start.admitted_at
    start_at = max(admission, min(known_times, default=admission), attention.leading_since)
    return attention.since(start_at) if _depends_on_the_scheduler(group) else start_at


def partly_placed_since(group: GroupInfo, snapshot: "Snapshot") -> float | None:
    """Return since when a group that was not admitted has members on nodes, while this replica leads.

    None means that the group has no members on nodes, or that this replica does not lead.
    """
    leading_since = snapshot.attention.leading_since
    if leading_since is None or not (group.is_on_nodes and group.bound_since):
        return None
    return max(leading_since, min(group.bound_since.values()))


def running_since(group: GroupInfo, instant: Callable[[str], float]) -> float | None:
    """Return since when a group runs, by the status of its pods, or else by its first observed binding.

    None means that the group does not run.
    """
    if group.running_since:
        return instant(group.running_since)
    return min(group.bound_since.values(), default=None)


@computed_once
def ready_since(group: GroupInfo) -> str:
    """Return the timestamp since which the group could have started, because all needed objects existed."""
    timestamps: Iterable[str] = map(attrgetter("created_at"), missing(group).members)
    return max((group.created_at, group.history.ready_at, *timestamps))


def _depends_on_the_scheduler(group: GroupInfo) -> bool:
    """Return whether the start now depends on the scheduler alone.

    The gates of planned members are removed, but the scheduler has neither assumed nor refused a member. The
    scheduler may not be running.
    """
    if group.assumed_pods or any(attempt.message for attempt in group.attempts.values()):
        return False
    attempts = (group.attempts[uid] for uid in group.planned_nodes if uid in group.attempts)
    return any(attempt.shown_at is not None for attempt in attempts)
