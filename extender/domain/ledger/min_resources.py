"""Capacity for a PodGroup's minResources beyond its members, reserved until members use it or the group ends.

Operators like Spark's write minMember 1, for the driver, and minResources for the executors too, which the
driver creates once it runs. Volcano reserves as much in its enqueue action: otherwise drivers would use all
capacity, and no executor would start. The sizes of later pods are unknown: capacity is reserved as claims of
expected members of about the size of the existing ones. They are planned with the needed members, and a later
pod takes over the claims on one node.

Callers hold the ledger's lock.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from msgspec.structs import replace

from extender.domain.ledger.claims import Claim, ClaimEvent
from extender.domain.ledger.groups import Group
from extender.domain.ledger.state import Parts
from extender.domain.model.ownership import is_named_by_uid
from extender.domain.model.records import MIN_RESOURCES, GroupKey, GroupRecord, PodRecord, Uid
from extender.domain.model.resources import PODS, Resources
from extender.domain.model.shapes import Shape, Shapes, total_requests

_MOST = 256  # expected members of one group
_MOST_MISFITS = 16  # shapes of pods that cannot take over claims, until no further ones are tried
_PAUSE = 60.0  # seconds until a pod may take over claims again, if decisions have moved it


class MinResources:
    """Capacity for the minResources of PodGroups beyond their members.

    `most` limits the expected members of all groups of a namespace; beyond it, a group has one, as large as
    all of its own.
    """

    def __init__(self, parts: Parts, shapes: Shapes, most: int) -> None:
        self._parts, self._shapes = parts, shapes
        self._most = most
        self._expected: Counter[str] = Counter()  # by namespace
        self._with_expected: set[GroupKey] = set()  # groups with expected members
        self._used: dict[GroupKey, Resources] = {}  # by group: its minResources when members used all of it
        self._pause_until: dict[Uid, float] = {}  # by pod that has taken over claims: when it may do so again

    def sync(self) -> None:
        """Update the placeholder members of dirty groups from their PodGroups and pods."""
        now = self._parts.clock()
        self._pause_until = {uid: at for uid, at in self._pause_until.items() if at > now}
        for key in list(self._parts.registry.dirty):
            group = self._parts.registry.groups.get(key)
            record = group.record if group is not None else None
            reserves = record is not None and bool(record.min_resources) and not _made_by_muster(record)
            if group is not None and (reserves or key in self._with_expected):
                self._sync_group(group, record.min_resources if record is not None and reserves else {})
            if group is None or not reserves:
                self._used.pop(key, None)

    def _sync_group(self, group: Group, minimum: Resources) -> None:
        """Expect as many members as request the rest of minResources, and no more."""
        self._hand_over(group)
        members = self._members(group)
        lives = any(pod.phase != "Succeeded" for pod in members)
        used = self._used_by(members, group.needs.min_member)
        offered = self._parts.claims.capacity.columns.names  # Volcano writes names of quotas as well
        minimum = {name: n for name, n in minimum.items() if lives and name in offered and name != PODS}
        minimum = {} if self._is_used(group.key, members, minimum) else minimum
        lacking = {name: n - used.get(name, 0) for name, n in minimum.items()}
        for pod in list(_reserved(group)):
            requests = pod.shape.requests
            has_place = self._parts.claims.get(pod.uid) is not None
            is_needed = any(n > 0 for n in lacking.values())
            # Without a node it may request at most the rest: otherwise it could keep the gang from fitting.
            if is_needed and (has_place or all(n <= lacking.get(name, n) for name, n in requests.items())):
                lacking = {name: n - requests.get(name, 0) for name, n in lacking.items()}
            else:
                self._remove_expected(group, pod)
        if not any(_reserved(group)):
            self._with_expected.discard(group.key)
        if lives and any(n > 0 for n in lacking.values()) and group.job is None:
            self._expect(group, members[0], {name: n for name, n in lacking.items() if n > 0})

    def _is_used(self, key: GroupKey, members: Iterable[PodRecord], requests: Resources) -> bool:
        """Return whether members on nodes have used all of the minResources at any time since the start.

        What lost members used is not reserved here: their places are reserved for a while.
        """
        held = total_requests([pod.shape for pod in members if pod.placed])
        if not held:
            self._used.pop(key, None)
        elif all(n <= held.get(name, 0) for name, n in requests.items()):
            self._used[key] = requests
        return self._used.get(key) == requests

    def _members(self, group: Group) -> list[PodRecord]:
        """Return the members with capacity or, before any has a node, all waiting members.

        Once one is on its way, these are the members that the start needs.
        """
        members = [pod for pod in group.pods.values() if not pod.expected and (pod.placed or pod.waiting)]
        members.sort(key=lambda pod: (pod.waiting and self._parts.claims.get(pod.uid) is None, pod.sort_key))
        have = sum(pod.placed or self._parts.claims.get(pod.uid) is not None for pod in members)
        return members[: max(have, group.needs.min_member)] if self._is_under_way(members) else members

    def _used_by(self, members: Sequence[PodRecord], needed: int) -> Resources:
        """Return what members use; before any has a node, the least that `needed` members ask for.

        The plan depends on the reservation, so the reservation must not depend on the plan.
        """
        if self._is_under_way(members):
            return total_requests([pod.shape for pod in members])
        names = {name for pod in members for name in pod.shape.requests}
        amounts = {name: sorted(pod.shape.requests.get(name, 0) for pod in members) for name in names}
        return {name: sum(each[:needed]) for name, each in amounts.items()}

    def _is_under_way(self, members: Sequence[PodRecord]) -> bool:
        claims = (self._parts.claims.get(pod.uid) for pod in members)
        return any(
            pod.placed or (claim and claim.is_fixed) for pod, claim in zip(members, claims, strict=True)
        )

    def _hand_over(self, group: Group) -> None:
        """Let new pods take over claims of the same amounts.

        A pod does so again only after a pause, since decisions may move it.
        """
        reserved = [
            claim for each in _reserved(group) if (claim := self._parts.claims.get(each.uid)) is not None
        ]
        misfits = set[Shape]()
        for pod in list(group.pods.values()) if reserved else ():
            if not pod.waiting or pod.expected or pod.foreign_gates or pod.shape in misfits:
                continue
            if self._parts.claims.get(pod.uid) is not None or pod.uid in self._pause_until:
                continue
            if (node := self._node_for(pod, reserved)) is None:
                misfits.add(pod.shape)
                if len(misfits) == _MOST_MISFITS:
                    break
                continue
            self._pause_until[pod.uid] = self._parts.clock() + _PAUSE
            reserved = self._take_over(pod, node, reserved)

    def _node_for(self, pod: PodRecord, reserved: Iterable[Claim]) -> str | None:
        """Return a node with capacity for a pod once claims on it are removed."""
        capacity, on_nodes = self._parts.claims.capacity, defaultdict[str, Counter[str]](Counter)
        for claim in reserved:
            on_nodes[claim.node].update(claim.pod.shape.requests)
        together = sum(on_nodes.values(), Counter[str]())
        if any(n > together.get(name, n) for name, n in pod.shape.requests.items()):
            return None
        for node, free in sorted(on_nodes.items(), key=itemgetter(0)):
            free.update(capacity.idle(node))
            if pod.shape.asks_at_most(free) and capacity.is_suitable(pod, node):
                return node
        return None

    def _take_over(self, pod: PodRecord, node: str, reserved: Sequence[Claim]) -> list[Claim]:
        """Replace claims of equal amounts by a pod, those on its node first; return the other claims.

        The pod may request more than they do: decisions check the ceilings for the rest.
        """
        remaining, freed = deque(sorted(reserved, key=lambda claim: claim.node != node)), Counter[str]()
        names = {name for claim in reserved for name in claim.pod.shape.requests}
        requests = {name: n for name, n in pod.shape.requests.items() if name in names}
        while remaining and not (freed >= Counter(requests) and self._parts.claims.fits(pod, node)):
            freed.update(remaining[0].pod.shape.requests)
            self._remove_expected(self._parts.registry.group(pod.group), remaining.popleft().pod)
        if self._parts.claims.fits(pod, node):
            self._parts.moves.put(pod, ClaimEvent.PLAN, node)
        return list(remaining)

    def _expect(self, group: Group, template: PodRecord, lacking: Resources) -> None:
        """Expect members that request `lacking` together, each about as much as `template`."""
        size = template.shape.requests
        count = max(-(-n // size[name]) if size.get(name) else n for name, n in lacking.items())
        count = max(min(count, _MOST, self._most - self._expected[group.namespace]), 1)
        self._expected[group.namespace] += count
        self._with_expected.add(group.key)
        existing = {pod.uid for pod in _reserved(group)}
        numbers = (number for number in range(_MOST + count) if _uid(group, number) not in existing)
        for part, number in zip(range(count), numbers, strict=False):
            requests = {name: n * (part + 1) // count - n * part // count for name, n in lacking.items()}
            shape = self._shapes.with_requests(
                template.shape, {name: n for name, n in requests.items() if n} | {PODS: 1}
            )
            member = replace(
                template,
                uid=_uid(group, number),
                name=f"{MIN_RESOURCES}-{number}",
                shape=shape,
                node="",
                phase="Pending",
                expected=True,
                reserved_for=MIN_RESOURCES,
                deleting=False,
                started=False,
                running_since="",
                nominated="",
            )
            group.pods[member.uid] = member
        self._parts.registry.mark_dirty(group.key)
        self._parts.changes.notify()

    def _remove_expected(self, group: Group, member: PodRecord) -> None:
        """Remove an expected member, with its claim."""
        if self._parts.claims.get(member.uid) is not None:
            self._parts.moves.end(member, ClaimEvent.WITHDRAW)
        group.forget(member.uid)
        self._expected[group.namespace] -= 1
        if not self._expected[group.namespace]:
            del self._expected[group.namespace]
        self._parts.registry.mark_dirty(group.key)
        self._parts.changes.notify()


def _made_by_muster(record: GroupRecord) -> bool:
    """Return whether Muster made a PodGroup, also for an owner that is gone while its pods are left."""
    return bool(record.stands_for) or is_named_by_uid(record.name)


def _reserved(group: Group) -> Iterator[PodRecord]:
    return (pod for pod in group.pods.values() if pod.is_for_min_resources)


def _uid(group: Group, number: int) -> Uid:
    return Uid(f"{group.key}/{MIN_RESOURCES}/{number}")
