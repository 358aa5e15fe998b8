"""The objects that own pods, as the cluster serves them: it may lack a kind, and it chooses the version."""

from functools import cached_property
from typing import TypeVar

from extender.cli.explain.evidence import Evidence
from extender.cli.owner_kinds import OwnerKind, ServedGroups
from extender.kube.resources import API_GROUPS, Resource

T = TypeVar("T")


class OwnerObjects:
    """Those of one namespace."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def resource_of(self, kind: OwnerKind) -> Resource | None:
        """None where the cluster does not serve its API group."""
        version = self._versions.get(kind.group)
        return Resource(f"/apis/{kind.group}/{version}", kind.plural) if version else None

    def all(self, kind: OwnerKind, form: type[T]) -> list[T]:
        """None where they may not be read."""
        resource = self.resource_of(kind)
        return self._evidence.all_of(resource, form) if resource else []

    def find(self, kind: OwnerKind, name: str, form: type[T]) -> T | None:
        resource = self.resource_of(kind)
        return self._evidence.find(resource, name, form) if resource else None

    @cached_property
    def _versions(self) -> dict[str, str]:
        """The version of each API group that the cluster prefers."""
        served = self._evidence.find(API_GROUPS, "", ServedGroups)
        return served.versions if served else {}
