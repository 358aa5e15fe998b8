"""What an object belongs to: its owners, their owners, and so on up to what a person made.

A pod of a Deployment is a ReplicaSet's; one of a JobSet is a Job's; an executor of Spark is its driver's.
"""

from collections.abc import Iterator
from functools import cached_property

from extender.api.objects.base import Meta, OwnerReference
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.owner_objects import OwnerObjects
from extender.cli.lookup import ListedObject
from extender.cli.owner_kinds import OwnerKind, kind_of_owner

_HIGHEST = 8  # owners above each other; references may form a circle


class OwnerChain:
    """Each kind of owner is listed once, and only if something belongs to one of it."""

    def __init__(self, evidence: Evidence, objects: OwnerObjects) -> None:
        self._evidence = evidence
        self._objects = objects
        self._listed: dict[OwnerKind, dict[str, Meta]] = {}

    def above(self, meta: Meta, height: int = 0) -> Iterator[OwnerReference]:
        """The nearest first."""
        for owner in meta.owner_references or ():
            yield owner
            found = self._find(owner)
            if found is not None and height < _HIGHEST:
                yield from self.above(found, height + 1)

    def _find(self, owner: OwnerReference) -> Meta | None:
        if owner.kind == "Pod":
            return self._pods.get(owner.uid)
        kind = kind_of_owner(owner)
        return self._of_kind(kind).get(owner.uid) if kind else None

    @cached_property
    def _pods(self) -> dict[str, Meta]:
        return {pod.metadata.uid: pod.metadata for pod in self._evidence.pods or ()}

    def _of_kind(self, kind: OwnerKind) -> dict[str, Meta]:
        """By UID."""
        if kind not in self._listed:
            found = self._objects.all(kind, ListedObject)
            self._listed[kind] = {each.metadata.uid: each.metadata for each in found}
        return self._listed[kind]
