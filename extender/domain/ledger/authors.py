"""The authors of jobs and of other owners of pods: users, by the notes of admission on these objects.

An owner without a note has the author of its own controller, such as a ReplicaSet that of its Deployment.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from extender.api.objects.base import Meta
from extender.domain.ledger.jobs import take_out
from extender.domain.model.ownership import controller_of
from extender.domain.model.queue_of_group import noted_author
from extender.domain.model.records import GroupKey, group_of_owner

_MOST_OWNERS = 8  # controllers above each other; references may form a loop


class Owner(NamedTuple):
    key: GroupKey  # of the group that its pods form
    kind: str = ""  # "apps/v1/Deployment"; empty: not known


class _Origin(NamedTuple):
    author: str  # empty: no note names one
    controller: Owner | None  # of an owner without an author


class Authors:
    """Authors by owner. Owners and pods come by different watches: groups whose author is unknown are
    reported once an owner comes."""

    def __init__(self) -> None:
        self.are_read: Callable[[str], bool] = lambda _: False  # whether all owners of a kind are known
        self._origins: dict[GroupKey, _Origin] = {}
        self._awaiting: defaultdict[GroupKey, set[GroupKey]] = defaultdict(set)  # groups by owner
        self._awaited: dict[GroupKey, Collection[GroupKey]] = {}  # owners by group

    def put(self, kind: str, meta: Meta) -> Collection[GroupKey]:
        """Note an owner. Return the groups whose author may be known now."""
        key, author = group_of_owner(meta.namespace, meta.uid), noted_author(meta, kind)
        controller, above = controller_of(meta.owner_references) if not author else None, None
        if controller is not None:
            of = f"{controller.api_version}/{controller.kind}"
            above = Owner(group_of_owner(meta.namespace, controller.uid), of)
        origin = _Origin(author, above)
        if self._origins.get(key) == origin:
            return ()
        self._origins[key] = origin
        return tuple(self._awaiting.get(key, ()))

    def drop(self, namespace: str, uid: str) -> None:
        self._origins.pop(group_of_owner(namespace, uid), None)

    def of(self, owners: Iterable[Owner], group: GroupKey) -> str:
        """Return the author of the first owner that has one; empty if none has."""
        ends: set[GroupKey] = set()
        for owner in owners:
            author, end = self.nearest(owner)
            if author:
                self.forget(group)
                return author
            ends.add(end.key)
        if ends != self._awaited.get(group, set()):
            self.forget(group)
            self._awaited[group] = ends
            for key in ends:
                self._awaiting[key].add(group)
        return ""

    def are_coming(self, owners: Iterable[Owner]) -> bool:
        """Whether no author is known, and an owner is of a kind that is watched and has not come yet."""
        found = [self.nearest(owner) for owner in owners]
        missing = (end.key not in self._origins and self.are_read(end.kind) for _, end in found)
        return not any(author for author, _ in found) and any(missing)

    def forget(self, group: GroupKey) -> None:
        """The group awaits no author."""
        for owner in self._awaited.pop(group, ()):
            take_out(self._awaiting, owner, group)

    def nearest(self, owner: Owner) -> tuple[str, Owner]:
        """Return the author of an owner, or of the nearest one above it, and the last owner looked up."""
        for _ in range(_MOST_OWNERS):
            origin = self._origins.get(owner.key)
            if origin is None or origin.controller is None:
                return origin.author if origin is not None else "", owner
            owner = origin.controller
        return "", owner
