"""Stand-ins: a viewer with rights and recorded patches, and a source with one overview."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from extender.api.summaries import GroupDetails, Overview
from extender.dashboard.source import LastHour
from extender.kube.errors import NotFound
from extender.kube.resources import Resource


@dataclass
class SomeViewer:
    name: str = "ann"
    secret: str = "known to her browser"
    refused: set[tuple[str, ...]] = field(default_factory=set)  # (verb, plural, namespace)
    patched: list[tuple[str, str, str, Mapping[str, Any]]] = field(default_factory=list)
    fault: Exception | None = None  # raised by patches
    # By plural, namespace and name.
    objects: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)

    def may(self, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> bool:
        return (verb, resource, namespace) not in self.refused

    def namespaces_with_right(
        self, verb: str, group: str, resource: str, namespaces: Collection[str]
    ) -> frozenset[str]:
        return frozenset(name for name in namespaces if self.may(verb, group, resource, name))

    def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        try:
            return self.objects[resource.plural, namespace, name]
        except KeyError:
            raise NotFound(404, "NotFound", f"{name} not found") from None

    def patch(self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        if self.fault:
            raise self.fault
        self.patched.append((resource.plural, namespace, name, patch))

    def create(self, resource: Resource, namespace: str, obj: dict[str, Any]) -> None:
        self.patched.append((resource.plural, namespace, "", obj))


@dataclass
class SomeSource:
    seen: Overview = field(default_factory=lambda: Overview(version="1", at="2026-01-01T00:00:00Z"))
    shares: LastHour = field(default_factory=LastHour)
    usages: LastHour = field(default_factory=LastHour)

    def overview(self) -> Overview:
        return self.seen

    def details(self, namespace: str, name: str) -> GroupDetails | None:
        summary = next(
            (group for group in self.seen.groups if (group.namespace, group.name) == (namespace, name)), None
        )
        return GroupDetails(summary) if summary else None

    def is_current(self, version: str) -> bool:
        return version == self.seen.version

    def seconds_to_next_change(self) -> float:
        return 1.5
