"""Flavors: the allocation of queues by flavor, and the assignment of flavors to the members of a group.

The rule is Kueue v0.1's rule for the pod sets of a workload. Roles are assigned one after the other. For each
role, the flavors are tried in their order, after the flavors of earlier roles of the group are assigned. The
role gets the first flavor with capacity for all its members. Unlike in Kueue, an earlier role gets
another flavor if a later role would find no flavor.

A role is never divided: if members of a role run already, its other members get the same flavor. The flavor
of a node follows from the labels of the node.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice, product
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from extender.api.units import and_more
from extender.domain.model.reasons import CAPACITY_REASONS, Reason
from extender.domain.model.records import PodRecord, Uid
from extender.domain.model.resources import Resources, add, in_flavor, total
from extender.domain.model.shapes import Shape, total_requests
from extender.domain.placement.planner import PlannedPod
from extender.domain.queues.flavors import Flavor, flavor_on
from extender.domain.scheduling.shares import QueueShares
from extender.domain.snapshot.group_info import GroupInfo, computed_once
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import Missing, Signature, missing, role_minima

Cause = tuple[Reason, str]  # reason, and its numbers as text


class FlavoredMembers(Missing, frozen=True):
    """Members that may only use the nodes of their flavors."""

    all_requests: Resources = {}  # including amounts of flavors

    @cached_property
    def requests(self) -> Resources:
        return self.all_requests


class FlavorAssignment(NamedTuple):
    """Assignment of flavors to all roles of a group."""

    members: Missing  # the members, which may only use nodes of these flavors
    requests: Resources  # requests on these nodes, including amounts of flavors
    name_map: Mapping[str, Collection[str]]  # the flavored names under which each resource is counted


class Flavors:
    """Flavors of queues in a cycle, with the amounts of each flavor that members request and queues hold."""

    def __init__(self, snapshot: Snapshot, shares: QueueShares) -> None:
        self._snapshot = snapshot
        self._nodes = snapshot.nodes
        self._shares = shares
        self._flavor_by_node: dict[tuple[str, str], Flavor | None] = {}
        self._requests_by_need: dict[tuple[str, NeedKey], tuple[Resources, ...]] = {}

    def flavors_of(self, queue: str) -> tuple[Flavor, ...]:
        """Return the flavors of a queue in order; empty if the queue has none."""
        info = self._snapshot.queues.get(queue)
        return () if info is None else info.flavors

    def flavor_on(self, queue: str, node: str) -> Flavor | None:
        """Return the flavor of a queue that a node belongs to; None if it belongs to no flavor."""
        if (queue, node) not in self._flavor_by_node:
            row = self._nodes.row_of.get(node)
            record = self._nodes.nodes[row] if row is not None else None
            flavors = self.flavors_of(queue)
            self._flavor_by_node[queue, node] = flavor_on(flavors, record.labels) if record else None
        return self._flavor_by_node[queue, node]

    def requests(self, pods: Iterable[PlannedPod], known_sums: Resources | None = None) -> Resources:
        """Return the requests of pods, including the amounts that count for flavors on their nodes.

        `known_sums` are the requests without flavors, if the caller knows them.
        """
        pools = self._snapshot.pools
        if known_sums is not None and not pools.all_pools:
            return known_sums
        planned_pods = list(pods)
        requests = total_requests(pod.shape for pod, _ in planned_pods) if known_sums is None else known_sums
        amounts_by_pool = self._snapshot.in_pools(planned_pods) if pools.all_pools else {}
        return {**requests, **pools.rename(amounts_by_pool)} if pools.all_pools else requests

    def assignments(self, group: GroupInfo, need: Missing) -> Iterator[FlavorAssignment]:
        """Yield the assignments of flavors with suitable nodes to the roles of missing members.

        A queue without flavors has one empty assignment.
        """
        roles = list(by_role(group, need.members).values()) if self.flavors_of(group.queue) else []
        suitable_flavors = [
            [flavor for flavor in self.flavors_of(group.queue) if self._suits(flavor, pods)] for pods in roles
        ]
        for flavors in islice(product(*suitable_flavors), _MAX_ASSIGNMENTS):
            requests, counted_names = dict(need.requests), defaultdict[str, set[str]](set)
            for flavor, pods in zip(flavors, roles, strict=True):
                add(requests, self.counted_part(flavor, total_requests(pod.shape for pod in pods)))
                pool = self._snapshot.pools.by_nodes.get(flavor.nodes)
                for name in pool.resources if pool is not None else ():
                    counted_names[name].add(in_flavor(name, pool.name if pool is not None else ""))
            members = [limit_to_flavor(flavor, pods) for flavor, pods in zip(flavors, roles, strict=True)]
            flavored_need = Missing(tuple(chain.from_iterable(members)), need.absent_text) if roles else need
            yield FlavorAssignment(flavored_need, requests, counted_names)

    def requests_by_assignment(self, group: GroupInfo) -> tuple[Resources, ...]:
        """Return the requests of a group's missing members for each assignment of flavors."""
        key = group.queue, role_key(group)
        if key not in self._requests_by_need:
            assignments = self.assignments(group, missing(group))
            self._requests_by_need[key] = tuple(assignment.requests for assignment in assignments)
        return self._requests_by_need[key]

    def has_choice(self, group: GroupInfo) -> bool:
        """Return whether a group has a choice between flavors, because nodes of several flavors suit it."""
        return bool(self.flavors_of(group.queue)) and len(self.requests_by_assignment(group)) != 1

    def flavored_members(self, group: GroupInfo) -> Missing:
        """Return the missing members with their flavors.

        The members have no flavors if the queue has none, or if the group has a choice.
        """
        need = missing(group)
        if not self.flavors_of(group.queue) or self.has_choice(group):
            return need
        assignment = next(self.assignments(group, need))
        return FlavoredMembers(assignment.members.members, need.absent_text, assignment.requests)

    def _suits(self, flavor: Flavor, pods: Sequence[PodRecord]) -> bool:
        """Return whether nodes of a flavor admit pods of each shape."""
        shapes = {pod.shape for pod in pods}
        limited = (shape.on_part(flavor.nodes) for shape in shapes)
        return not flavor.refuses(shapes) and all(self._nodes.suitable_rows(shape).any() for shape in limited)

    def counted_part(self, flavor: Flavor, requests: Resources) -> Resources:
        """Return the part of `requests` that counts for flavors on the nodes of `flavor`."""
        return self._shares.state.pool_rows.amounts_in_pools(flavor.nodes, requests)

    def why_above_ceiling(self, queue: str, requests: Resources) -> Cause | None:
        """Return why a ceiling prevents a queue from holding `requests` more; None if no ceiling does."""
        if not (excess_text := self._shares.ceiling_excess(queue, requests)):
            return None
        is_lasting = self._shares.never_fits(queue, requests)
        return (Reason.NEVER_FITS if is_lasting else Reason.QUEUE_CEILING), excess_text

    def order_by_lender(
        self, queue: str, flavors: Sequence[Flavor], used_amounts: Resources, requests: Resources
    ) -> Sequence[Flavor]:
        """Return the flavors in the order in which they are tried for `requests`.

        A flavor with a nearer lender of `used_amounts` and `requests` together is tried earlier. The queue
        itself is the nearest lender. Among flavors with equally near lenders, the order of the queue decides.
        """

        def steps(flavor: Flavor) -> int:
            new_amounts = total([used_amounts, self.counted_part(flavor, requests)])
            return self._shares.steps_to_lender(queue, new_amounts)

        return sorted(flavors, key=steps) if len(flavors) > 1 else flavors

    def is_above_share(self, queue: str, requests: Resources) -> bool:
        """Return whether a queue would hold more than its deserved amounts of flavors."""
        return self._shares.is_above_share(queue, requests)

    def first_within_limits(
        self, queue: str, flavor: Flavor, pods: Iterable[PodRecord], requests: dict[str, int], borrows: bool
    ) -> list[PodRecord]:
        """Return the pods up to the first pod that would bring the queue above its ceiling of a flavor.

        Unless `borrows`, the result also ends at the first pod that would bring the queue above its deserved
        amount of the flavor. `requests` are the amounts of flavors that other members request. The method
        adds the requests of the returned pods to `requests`.
        """
        admitted_pods: list[PodRecord] = []
        for pod in pods:
            new_amounts = total([requests, self.counted_part(flavor, pod.shape.requests)])
            if self._shares.ceiling_excess(queue, new_amounts):
                break
            if not borrows and self._shares.is_above_share(queue, new_amounts):
                break
            requests.update(new_amounts)
            admitted_pods.append(pod)
        return admitted_pods


# Equal for groups with equal members: by role, by shape, and by node of members that run.
NeedKey = Signature | frozenset[tuple[tuple[str, Shape, str], int]]


def role_of(group: GroupInfo, pod: PodRecord) -> str:
    """Return the role of a pod if minTaskMember counts the role; otherwise an empty text."""
    return pod.role if pod.role in _counted_roles(group) else ""


@computed_once
def _counted_roles(group: GroupInfo) -> frozenset[str]:
    return frozenset(role_minima(group.needs))


def by_role(group: GroupInfo, pods: Iterable[PodRecord]) -> dict[str, list[PodRecord]]:
    """Return pods by role, in the order of the role names."""
    roles: dict[str, list[PodRecord]] = {}
    for pod in pods:
        roles.setdefault(role_of(group, pod), []).append(pod)
    return dict(sorted(roles.items()))


@computed_once
def role_key(group: GroupInfo) -> NeedKey:
    """Count missing members by role and shape, and placed members by role, shape and node."""
    missing_counts = Counter((role_of(group, pod), pod.shape, "") for pod in missing(group).members)
    pods = (pod for pod in group.placed_pods if pod.holds_capacity)
    placed_counts = Counter((role_of(group, pod), pod.shape, pod.node) for pod in pods)
    return frozenset((missing_counts + placed_counts).items())


def limit_to_flavor(flavor: Flavor, pods: Iterable[PodRecord]) -> list[PodRecord]:
    """Return copies of `pods` that may only use the nodes of a flavor."""
    return [replace(pod, shape=pod.shape.on_part(flavor.nodes)) for pod in pods]


def flavors_in_use(flavors: Flavors, group: GroupInfo, plan: Mapping[Uid, str]) -> dict[str, Flavor]:
    """Return the flavor of each role whose members are on nodes or in `plan`."""
    if not flavors.flavors_of(group.queue):
        return {}
    pairs = [(pod, pod.node) for pod in group.placed_pods if pod.holds_capacity]
    planned_pods = ((pod, plan[pod.uid]) for pod in group.waiting_pods if pod.uid in plan)
    flavor_by_role: dict[str, Flavor] = {}
    for pod, node in (*pairs, *group.assumed_pods, *planned_pods):
        if (flavor := flavors.flavor_on(group.queue, node)) is not None:
            flavor_by_role.setdefault(role_of(group, pod), flavor)
    return flavor_by_role


CapacityCheck = Callable[[Missing], Cause | None]  # returns why members have no capacity; None if they have


def _always_fits(_: Missing) -> Cause | None:
    return None


# Reasons in the order of their distance from a start. If flavors have several reasons, the first counts.
_REASONS_NEAREST_FIRST = (
    *CAPACITY_REASONS,
    Reason.REFUSED_BY_SCHEDULER,
    Reason.QUEUE_SHARE,
    Reason.QUEUE_CEILING,
    Reason.NEVER_FITS,
    Reason.INVALID_SPEC,
)
_LASTING_REASONS = (Reason.NEVER_FITS, Reason.INVALID_SPEC)
_MAX_FURTHER_ATTEMPTS = 64  # further placements tried for one group, after one for each role and flavor
_MAX_ASSIGNMENTS = 16  # number of assignments for which victims of one group are searched
_MAX_LISTED = 8  # number of flavors in a sentence, so that statuses stay small


class FlavorObstacle(msgspec.Struct, frozen=True):
    """Flavor that does not fit a role, with the reason."""

    flavor: str
    reason: Reason
    detail: str
    is_amount: bool  # whether the amounts of the flavor are the obstacle, instead of nodes


class Choice(msgspec.Struct, frozen=True):
    """Choice of flavors.

    Attributes:
        need: The members, each of which may only use nodes of its flavor.
        flavor_by_role: The flavor of each role.
        requests: The amounts of flavors that these members request.
        role: The role for which no flavor was found, if any.
        obstacles: The flavors that did not fit `role`; empty if all roles have a flavor.
    """

    need: Missing
    flavor_by_role: dict[str, str]
    requests: Resources
    role: str = ""
    obstacles: tuple[FlavorObstacle, ...] = ()
    is_above_share: bool = False  # whether another choice may exist once capacity is lent

    @property
    def exceeds_queue(self) -> bool:
        """Return whether limits of the queue exclude every tried flavor for good.

        Then more nodes would not help.
        """
        return all(flavor.is_amount and flavor.reason in _LASTING_REASONS for flavor in self.obstacles)

    def cause(self) -> Cause:
        """Return the reason that is nearest to a start, and a text with the obstacle of each flavor."""
        reason = min((obstacle.reason for obstacle in self.obstacles), key=_REASONS_NEAREST_FIRST.index)
        texts = [f"flavor {o.flavor}: {o.reason} ({o.detail})" for o in self.obstacles[:_MAX_LISTED]]
        rest_texts = and_more(len(self.obstacles) - _MAX_LISTED)
        role_text = f"role {self.role}: " if self.role else ""
        return reason, role_text + "; ".join(texts + rest_texts)


_NO_CHOICE = Choice(Missing(()), {}, {})


def choose_flavors(
    queue_flavors: Flavors,
    group: GroupInfo,
    members: Sequence[PodRecord],
    plan: Mapping[Uid, str],
    borrows: bool,
    why_no_capacity: CapacityCheck,
    why_never_fits: CapacityCheck = _always_fits,
) -> Choice:
    """Return flavors for `members` of a group.

    Args:
        queue_flavors: The flavors of the queue, with their remaining amounts.
        group: The group of the members.
        members: The members to place.
        plan: The nodes of other members, which have a node already.
        borrows: Whether the queue may exceed its deserved amount of each flavor.
        why_no_capacity: Returns why members do not fit now.
        why_never_fits: Returns why members do not fit even if no pod runs.
    """
    used_flavors = flavors_in_use(queue_flavors, group, plan)
    roles = [
        (role, pods, (used_flavors[role],) if role in used_flavors else queue_flavors.flavors_of(group.queue))
        for role, pods in by_role(group, members).items()
    ]
    max_attempts = sum(len(flavors) for *_, flavors in roles) + _MAX_FURTHER_ATTEMPTS
    empty_search = _Search(queue_flavors, group.queue, True, why_never_fits, max_attempts)
    search = _Search(queue_flavors, group.queue, borrows, why_no_capacity, max_attempts, empty_search)
    if (choice := search.choose(roles, _NO_CHOICE)) is not None:
        return choice
    if not (search.dead_end.obstacles or search.is_above_share):  # no choice fits even on empty nodes
        search = _Search(queue_flavors, group.queue, True, why_never_fits, max_attempts)
        search.choose(roles, _NO_CHOICE)
    return replace(search.dead_end, is_above_share=search.is_above_share)


def with_flavors(all_flavors: Flavors, group: GroupInfo, need: Missing, names: Mapping[str, str]) -> Missing:
    """Return members that may only use nodes of the flavors that a decision names by role."""
    flavor_by_name = {flavor.name: flavor for flavor in all_flavors.flavors_of(group.queue)}
    members: list[PodRecord] = []
    for role, pods in by_role(group, need.members).items():
        flavor = flavor_by_name.get(names.get(role, ""))
        members += pods if flavor is None else limit_to_flavor(flavor, pods)
    return Missing(tuple(members), need.absent_text)


_Role = tuple[str, Sequence[PodRecord], Sequence[Flavor]]  # name, members and allowed flavors


class _Search(msgspec.Struct, eq=False):
    """Search for flavors, depth first, in the order of roles and flavors.

    In the first choice, each role gets the first flavor that has enough capacity after the earlier roles. If
    a later role finds no such flavor, other choices are tried, up to a limit of attempts. `empty` is the same
    search on nodes without pods, and is None in that search itself.
    """

    queue_flavors: Flavors
    queue: str
    borrows: bool
    why_no_capacity: CapacityCheck
    attempts_left: int
    empty: "_Search | None" = None
    is_above_share: bool = False
    dead_end: Choice = _NO_CHOICE  # first role without a flavor, and the reason
    lasting_obstacles: dict[tuple[str, ...], FlavorObstacle | None] = {}  # why a role can have no flavor

    def choose(self, roles: Sequence[_Role], base: Choice) -> Choice | None:
        """Return `base` with flavors for `roles`; None if there are none."""
        if not roles:
            return base
        _, pods, flavors = roles[0]
        requests = total(pod.shape.requests for pod in pods)
        tried_flavors: list[tuple[Flavor, FlavorObstacle | None]] = []
        for flavor in self.queue_flavors.order_by_lender(self.queue, flavors, base.requests, requests):
            obstacle, choice = self._try(flavor, roles[0], base)
            if obstacle is None and (full_choice := self.choose(roles[1:], choice)) is not None:
                return full_choice
            tried_flavors.append((flavor, obstacle))
        if not (self.dead_end.obstacles or self.is_above_share):
            self._record_dead_end(roles, base, tried_flavors)
        return None

    def _record_dead_end(
        self, roles: Sequence[_Role], choice: Choice, attempts: Sequence[tuple[Flavor, FlavorObstacle | None]]
    ) -> None:
        """Record why there is no flavor for the first of `roles`.

        If the role can never fit after the assignments in `choice`, nothing is recorded, since the earlier
        roles need other flavors in this case.
        """
        role, obstacles = roles[0][0], list[FlavorObstacle]()
        for flavor, obstacle in attempts:
            if self.empty is not None and (obstacle is None or obstacle.reason not in _LASTING_REASONS):
                obstacle = self.empty.why_never(flavor, roles, choice) or obstacle
            obstacles += [] if obstacle is None else [obstacle]
        if self.empty is None or any(obstacle.reason not in _LASTING_REASONS for obstacle in obstacles):
            full_flavors = [obstacle.flavor for obstacle in obstacles if obstacle.reason in CAPACITY_REASONS]
            flavors = choice.flavor_by_role | ({role: full_flavors[0]} if full_flavors else {})
            self.dead_end = replace(choice, flavor_by_role=flavors, role=role, obstacles=tuple(obstacles))

    def why_never(self, flavor: Flavor, roles: Sequence[_Role], base: Choice) -> FlavorObstacle | None:
        """Return why the first of `roles` can never have `flavor` after `base`.

        None means that the role can have the flavor with some choice for the later roles, or that there are
        too many choices to try.
        """
        key = (*base.flavor_by_role.values(), flavor.name)
        if key not in self.lasting_obstacles:
            obstacle, choice = self._try(flavor, roles[0], base)
            if obstacle is None and self.choose(roles[1:], choice) is None:
                detail = "no flavor remains for the other roles, even when empty"
                obstacle = FlavorObstacle(flavor.name, Reason.NEVER_FITS, detail, is_amount=False)
            self.lasting_obstacles[key] = obstacle if self.attempts_left >= 0 else None
        return self.lasting_obstacles[key]

    def _try(self, flavor: Flavor, role: _Role, base: Choice) -> tuple[FlavorObstacle | None, Choice]:
        """Return why a flavor does not fit a role (None if it fits), and the choice with that flavor."""
        name, pods, _ = role
        requests = total(pod.shape.requests for pod in pods)
        new_amounts = total([base.requests, self.queue_flavors.counted_part(flavor, requests)])
        need = Missing((*base.need.members, *limit_to_flavor(flavor, pods)))
        if (obstacle := self._refusal(flavor, pods) or self._exceeded_limit(flavor, new_amounts)) is None:
            self.attempts_left -= 1
            is_tried = self.attempts_left >= 0
            reason = self.why_no_capacity(need) if is_tried else (Reason.NO_ROOM, "not looked at any more")
            obstacle = None if reason is None else FlavorObstacle(flavor.name, *reason, is_amount=False)
        return obstacle, Choice(need, base.flavor_by_role | {name: flavor.name}, new_amounts)

    def _refusal(self, flavor: Flavor, pods: Sequence[PodRecord]) -> FlavorObstacle | None:
        """Return why a flavor never admits some pods; None if it can admit them."""
        if not (detail := flavor.refuses(pod.shape for pod in pods)):
            return None
        reason = Reason.INVALID_SPEC if flavor.is_missing else Reason.NEVER_FITS
        return FlavorObstacle(flavor.name, reason, detail, is_amount=True)

    def _exceeded_limit(self, flavor: Flavor, requests: Resources) -> FlavorObstacle | None:
        """Return the ceiling or share of a flavor that requests exceed; None if they exceed none.

        If they exceed a share, the search records that another choice may exist once capacity is lent.
        """
        excess = self.queue_flavors.why_above_ceiling(self.queue, requests)
        if excess is not None and (self.empty is not None or excess[0] in _LASTING_REASONS):
            return FlavorObstacle(flavor.name, *excess, is_amount=True)
        if self.borrows or not self.queue_flavors.is_above_share(self.queue, requests):
            return None
        self.is_above_share = True
        return FlavorObstacle(flavor.name, Reason.QUEUE_SHARE, "", is_amount=True)
