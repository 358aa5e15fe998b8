"""Capacity for minResources of a PodGroup beyond its members, until members use it or the group ends.

Operators such as Spark's write minMember 1 for the driver, and minResources that include the executors, which
the driver creates once it runs. Volcano reserves this capacity in its enqueue action: otherwise drivers would
use all capacity, and no executor would start.

The sizes of later pods are unknown. Therefore, capacity is reserved by claims of placeholder members, which
have about the size of existing members. Placeholders are planned together with the needed members. A later
pod takes over the claims of placeholders on one node.

Callers hold the ledger's lock.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from msgspec.structs import replace

from extender.domain.ledger.claims import Claim, ClaimEvent
from extender.domain.ledger.groups import Group
from extender.domain.ledger.state import Core
from extender.domain.model.ownership import is_named_by_uid
from extender.domain.model.records import MIN_RESOURCES_UID, GroupKey, GroupRecord, PodRecord, Uid
from extender.domain.model.resources import PODS, Resources
from extender.domain.model.shapes import Shape, Shapes, total_requests

_MAX_PLACEHOLDERS = 256  # limit of placeholders per group
_MAX_MISFITS = 16  # after so many shapes of pods that cannot take over claims, no further pods are tried
_PAUSE_SECONDS = 60.0  # seconds until a pod may take over claims again, if decisions have moved the pod


class MinResources:
    """Placeholder members for the minResources of PodGroups beyond their members.

    Args:
        core: The objects that all parts of the ledger share.
        shapes: The interned shapes.
        max_count: The limit of placeholders of all groups of a namespace. Beyond this limit, a group gets a
            single placeholder, which requests as much as all its placeholders would.
    """

    def __init__(self, core: Core, shapes: Shapes, max_count: int) -> None:
        self._core, self._shapes = core, shapes
        self._max_count = max_count
        self._counts: Counter[str] = Counter()  # number of placeholders by namespace
        self._groups_with_placeholders: set[GroupKey] = set()  # groups that have placeholders
        self._used_resources: dict[GroupKey, Resources] = {}  # minResources that members have used up
        self._pause_until: dict[Uid, float] = {}  # by pod: when it may take over claims again

    def sync(self) -> None:
        """Update the placeholders of dirty groups from their PodGroups and pods."""
        now = self._core.clock()
        self._pause_until = {uid: at for uid, at in self._pause_until.items() if at > now}
        for key in list(self._core.registry.dirty_groups):
            group = self._core.registry.groups.get(key)
            record = group.record if group is not None else None
            has_request = record is not None and bool(record.min_resources) and not _is_made_by_muster(record)
            if group is not None and (has_request or key in self._groups_with_placeholders):
                self._sync_group(group, record.min_resources if record is not None and has_request else {})
            if group is None or not has_request:
                self._used_resources.pop(key, None)

    def _sync_group(self, group: Group, minimum: Resources) -> None:
        """Update the placeholders so that they request the unused part of minResources."""
        self._hand_over(group)
        members = self._members(group)
        is_alive = any(pod.phase != "Succeeded" for pod in members)
        used_amounts = self._used_amounts(members, group.needs.min_member)
        offered = self._core.claims.capacity.columns.names  # Volcano also writes names of quotas
        minimum = {name: n for name, n in minimum.items() if is_alive and name in offered and name != PODS}
        minimum = {} if self._has_used(group.key, members, minimum) else minimum
        amounts = {name: n - used_amounts.get(name, 0) for name, n in minimum.items()}
        for pod in list(_placeholders_of(group)):
            requests = pod.shape.requests
            has_node = self._core.claims.get(pod.uid) is not None
            is_needed = any(n > 0 for n in amounts.values())
            # Without a node, a placeholder requests at most the lacking amounts, or the gang might not fit.
            if is_needed and (has_node or all(n <= amounts.get(name, n) for name, n in requests.items())):
                amounts = {name: n - requests.get(name, 0) for name, n in amounts.items()}
            else:
                self._remove_placeholder(group, pod)
        if not any(_placeholders_of(group)):
            self._groups_with_placeholders.discard(group.key)
        if is_alive and any(n > 0 for n in amounts.values()) and group.job is None:
            self._add_placeholders(group, members[0], {name: n for name, n in amounts.items() if n > 0})

    def _has_used(self, key: GroupKey, members: Iterable[PodRecord], requests: Resources) -> bool:
        """Return whether members on nodes have at any time since the start used all of the minResources.

        From then on, no placeholders are added for lost members, because the nodes of lost members are
        reserved for a while anyway.
        """
        used_amounts = total_requests([pod.shape for pod in members if pod.is_placed])
        if not used_amounts:
            self._used_resources.pop(key, None)
        elif all(n <= used_amounts.get(name, 0) for name, n in requests.items()):
            self._used_resources[key] = requests
        return self._used_resources.get(key) == requests

    def _members(self, group: Group) -> list[PodRecord]:
        """Return the members that use the minResources of their PodGroup.

        Before any member has a node, these are all waiting members. From then on, they are the members with
        capacity. If fewer members have capacity than the start needs, waiting members count, too.
        """
        members = [p for p in group.pods.values() if not p.is_expected and (p.is_placed or p.is_waiting)]
        members.sort(key=lambda p: (p.is_waiting and self._core.claims.get(p.uid) is None, p.sort_key))
        claim_count = sum(pod.is_placed or self._core.claims.get(pod.uid) is not None for pod in members)
        return members[: max(claim_count, group.needs.min_member)] if self._is_under_way(members) else members

    def _used_amounts(self, members: Sequence[PodRecord], needed_count: int) -> Resources:
        """Return the amounts that members use.

        Before any member has a node, the result is the least that any `needed_count` of the members request.
        The plan depends on the reservation, so the reservation must not depend on the plan.
        """
        if self._is_under_way(members):
            return total_requests([pod.shape for pod in members])
        names = {name for pod in members for name in pod.shape.requests}
        amounts = {name: sorted(pod.shape.requests.get(name, 0) for pod in members) for name in names}
        return {name: sum(each[:needed_count]) for name, each in amounts.items()}

    def _is_under_way(self, members: Sequence[PodRecord]) -> bool:
        """Return whether any member has a node, or is assumed on a node."""
        claims = (self._core.claims.get(pod.uid) for pod in members)
        return any(
            pod.is_placed or (claim and claim.is_fixed) for pod, claim in zip(members, claims, strict=True)
        )

    def _hand_over(self, group: Group) -> None:
        """Let new pods take over the claims of placeholders.

        A pod that has taken over claims may do so again only after a pause, because decisions may move the
        pod.
        """
        reserved_claims = [
            claim for pod in _placeholders_of(group) if (claim := self._core.claims.get(pod.uid)) is not None
        ]
        misfit_shapes = set[Shape]()
        for pod in list(group.pods.values()) if reserved_claims else ():
            if not pod.is_waiting or pod.is_expected or pod.has_foreign_gates or pod.shape in misfit_shapes:
                continue
            if self._core.claims.get(pod.uid) is not None or pod.uid in self._pause_until:
                continue
            if (node := self._node_for(pod, reserved_claims)) is None:
                misfit_shapes.add(pod.shape)
                if len(misfit_shapes) == _MAX_MISFITS:
                    break
                continue
            self._pause_until[pod.uid] = self._core.clock() + _PAUSE_SECONDS
            reserved_claims = self._take_over(pod, node, reserved_claims)

    def _node_for(self, pod: PodRecord, reserved_claims: Iterable[Claim]) -> str | None:
        """Return a node that has capacity for a pod once claims of placeholders on the node are removed."""
        capacity, amounts_by_node = self._core.claims.capacity, defaultdict[str, Counter[str]](Counter)
        for claim in reserved_claims:
            amounts_by_node[claim.node].update(claim.pod.shape.requests)
        total_amounts = sum(amounts_by_node.values(), Counter[str]())
        if any(n > total_amounts.get(name, n) for name, n in pod.shape.requests.items()):
            return None
        for node, free_amounts in sorted(amounts_by_node.items(), key=itemgetter(0)):
            free_amounts.update(capacity.idle(node))
            if pod.shape.requests_at_most(free_amounts) and capacity.is_suitable(pod, node):
                return node
        return None

    def _take_over(self, pod: PodRecord, node: str, reserved_claims: Sequence[Claim]) -> list[Claim]:
        """Replace claims of placeholders by the claim of a pod. Return the claims of placeholders that stay.

        Claims on the node of the pod are replaced first. The pod may request more than the replaced claims:
        decisions check the ceilings for the difference.
        """
        claims, freed_amounts = deque(sorted(reserved_claims, key=lambda c: c.node != node)), Counter[str]()
        names = {name for claim in reserved_claims for name in claim.pod.shape.requests}
        requests = {name: n for name, n in pod.shape.requests.items() if name in names}
        while claims and not (freed_amounts >= Counter(requests) and self._core.claims.fits(pod, node)):
            freed_amounts.update(claims[0].pod.shape.requests)
            self._remove_placeholder(self._core.registry.group(pod.group), claims.popleft().pod)
        if self._core.claims.fits(pod, node):
            self._core.transitions.put(pod, ClaimEvent.PLAN, node)
        return list(claims)

    def _add_placeholders(self, group: Group, template: PodRecord, amounts: Resources) -> None:
        """Add placeholders that request these amounts together, each about as much as `template`."""
        sizes = template.shape.requests
        count = max(-(-n // sizes[name]) if sizes.get(name) else n for name, n in amounts.items())
        count = max(min(count, _MAX_PLACEHOLDERS, self._max_count - self._counts[group.namespace]), 1)
        self._counts[group.namespace] += count
        self._groups_with_placeholders.add(group.key)
        uids = {pod.uid for pod in _placeholders_of(group)}
        numbers = (n for n in range(_MAX_PLACEHOLDERS + count) if _placeholder_uid(group, n) not in uids)
        for part, number in zip(range(count), numbers, strict=False):
            requests = {name: n * (part + 1) // count - n * part // count for name, n in amounts.items()}
            shape = self._shapes.with_requests(
                template.shape, {name: n for name, n in requests.items() if n} | {PODS: 1}
            )
            member = replace(
                template,
                uid=_placeholder_uid(group, number),
                name=f"{MIN_RESOURCES_UID}-{number}",
                shape=shape,
                node="",
                phase="Pending",
                is_expected=True,
                reserved_for=MIN_RESOURCES_UID,
                deleting=False,
                has_started=False,
                running_since="",
                nominated_node="",
            )
            group.pods[member.uid] = member
        self._core.registry.mark_dirty(group.key)
        self._core.changes.notify()

    def _remove_placeholder(self, group: Group, member: PodRecord) -> None:
        """Remove a placeholder with its claim."""
        if self._core.claims.get(member.uid) is not None:
            self._core.transitions.end(member, ClaimEvent.WITHDRAW)
        group.forget(member.uid)
        self._counts[group.namespace] -= 1
        if not self._counts[group.namespace]:
            del self._counts[group.namespace]
        self._core.registry.mark_dirty(group.key)
        self._core.changes.notify()


def _is_made_by_muster(record: GroupRecord) -> bool:
    """Return whether Muster made a PodGroup, even if its owner is gone while pods are left."""
    return bool(record.stands_for) or is_named_by_uid(record.name)


def _placeholders_of(group: Group) -> Iterator[PodRecord]:
    """Return the placeholder members of a group."""
    return (pod for pod in group.pods.values() if pod.is_for_min_resources)


def _placeholder_uid(group: Group, number: int) -> Uid:
    """Return the UID of a placeholder, by its number in the group."""
    return Uid(f"{group.key}/{MIN_RESOURCES_UID}/{number}")
