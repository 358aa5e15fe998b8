"""The room that a PodGroup's minResources asks for beyond its members: kept until these use it, or it ends.

Operators like Spark's write minMember 1, for the driver, and minResources for the executors too, which the
driver makes once it runs. Volcano keeps that much in its enqueue action, or drivers would take all room, and
no executor would start. Nobody knows the sizes of later pods, so room is kept as claims of expected members
of about the size of those that are there. They are planned with the needed ones, and a later pod takes over
the claims on one node.

Callers hold the ledger's lock."""

from collections import Counter
from collections.abc import Iterator

from msgspec.structs import replace

from extender.domain.ledger.claims import ClaimEvent
from extender.domain.ledger.groups import Group
from extender.domain.ledger.state import Parts
from extender.domain.model.records import MIN_RESOURCES, GroupKey, PodRecord, Uid
from extender.domain.model.resources import PODS, Resources
from extender.domain.model.shapes import Shapes, asked_by

_MOST = 256  # expected members of one group


class MinResources:
    """`most`: how many expected members there are of all groups of one namespace; of each group beyond that
    there is one, as large as all of them."""

    def __init__(self, parts: Parts, shapes: Shapes, most: int) -> None:
        self._parts, self._shapes = parts, shapes
        self._most = most
        self._expected: Counter[str] = Counter()  # by namespace
        self._keeping: set[GroupKey] = set()  # groups with expected members

    def settle(self) -> None:
        """Bring what is kept for touched groups in line with their PodGroups and pods."""
        for key in list(self._parts.registry.touched):
            group = self._parts.registry.groups.get(key)
            record = group.record if group is not None else None
            asks = record is not None and bool(record.min_resources) and not record.stands_for
            if group is not None and (asks or key in self._keeping):
                self._settle(group, record.min_resources if record is not None and asks else {})

    def _settle(self, group: Group, asked: Resources) -> None:
        self._hand_over(group)
        there = self._members(group)
        lives = any(pod.phase != "Succeeded" for pod in there)
        used = asked_by([pod.shape for pod in there])
        offered = self._parts.claims.capacity.columns.names  # Volcano writes names of quotas as well
        asked = {name: n for name, n in asked.items() if name in offered and name != PODS} if lives else {}
        left = {name: n - used.get(name, 0) for name, n in asked.items()}
        for pod in list(_kept(group)):
            if any(n > 0 for n in left.values()):
                left = {name: n - pod.shape.requests.get(name, 0) for name, n in left.items()}
            else:
                self._dismiss(group, pod)
        if not any(_kept(group)):
            self._keeping.discard(group.key)
        if lives and any(n > 0 for n in left.values()) and group.job is None:
            self._expect(group, there[0], {name: n for name, n in left.items() if n > 0})

    def _members(self, group: Group) -> list[PodRecord]:
        """Return those that have room, or that the start needs."""
        members = [pod for pod in group.pods.values() if not pod.to_be and (pod.placed or pod.waiting)]
        members.sort(key=lambda pod: (pod.waiting and self._parts.claims.get(pod.uid) is None, pod.place))
        have = sum(pod.placed or self._parts.claims.get(pod.uid) is not None for pod in members)
        return members[: max(have, group.needs.min_member)]

    def _hand_over(self, group: Group) -> None:
        """Let pods that have come take over the claims on a node with room enough for them."""
        claims = self._parts.claims
        for pod in [pod for pod in group.pods.values() if pod.waiting and not pod.to_be]:
            kept = [claim for each in _kept(group) if (claim := claims.get(each.uid)) is not None]
            if claims.get(pod.uid) is not None or not kept:
                continue
            for node in sorted({claim.node for claim in kept}):
                on_node = [claim.pod for claim in kept if claim.node == node]
                if not self._has_room(pod, node, on_node):
                    continue
                while on_node and not claims.fits(pod, node):
                    self._dismiss(group, on_node.pop())
                if claims.fits(pod, node):
                    self._parts.moves.put(pod, ClaimEvent.PLAN, node)
                    break

    def _has_room(self, pod: PodRecord, node: str, without: list[PodRecord]) -> bool:
        """Return whether a pod would find room on a node once these are gone."""
        room = Counter(self._parts.claims.capacity.idle(node))
        for other in without:
            room.update(other.shape.requests)
        return all(n <= room[name] for name, n in pod.shape.requests.items())

    def _expect(self, group: Group, like: PodRecord, left: Resources) -> None:
        """Expect members that ask for `left` together, each for about as much as `like`."""
        size = like.shape.requests
        count = max(-(-n // size[name]) if size.get(name) else n for name, n in left.items())
        count = max(min(count, _MOST, self._most - self._expected[group.namespace]), 1)
        self._expected[group.namespace] += count
        self._keeping.add(group.key)
        taken = {pod.uid for pod in _kept(group)}
        numbers = (number for number in range(_MOST + count) if _uid(group, number) not in taken)
        for part, number in zip(range(count), numbers, strict=False):
            asks = {name: n * (part + 1) // count - n * part // count for name, n in left.items()}
            shape = self._shapes.sized(like.shape, {name: n for name, n in asks.items() if n} | {PODS: 1})
            member = replace(
                like,
                uid=_uid(group, number),
                name=f"{MIN_RESOURCES}-{number}",
                shape=shape,
                node="",
                phase="Pending",
                to_be=True,
                kept_for=MIN_RESOURCES,
                deleting=False,
                started=False,
                running_since="",
                nominated="",
            )
            group.pods[member.uid] = member
        self._parts.registry.touch(group.key)
        self._parts.changes.mark()

    def _dismiss(self, group: Group, member: PodRecord) -> None:
        if self._parts.claims.get(member.uid) is not None:
            self._parts.moves.end(member, ClaimEvent.WITHDRAW)
        group.forget(member.uid)
        self._expected[group.namespace] -= 1
        if not self._expected[group.namespace]:
            del self._expected[group.namespace]
        self._parts.registry.touch(group.key)
        self._parts.changes.mark()


def _kept(group: Group) -> Iterator[PodRecord]:
    return (pod for pod in group.pods.values() if pod.keeps_room)


def _uid(group: Group, number: int) -> Uid:
    return Uid(f"{group.key}/{MIN_RESOURCES}/{number}")
