"""A viewer whose rights and patches are plain data, and a source with one overview."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from extender.api.summaries import GroupDetails, Overview
from extender.dashboard.source import LastHour


@dataclass
class SomeViewer:
    name: str = "ann"
    secret: str = "known to her browser"
    refused: set[tuple[str, ...]] = field(default_factory=set)  # (verb, plural, namespace)
    patched: list[tuple[str, str, str, Mapping[str, Any]]] = field(default_factory=list)
    fault: Exception | None = None  # of patches

    def may(self, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> bool:
        return (verb, resource, namespace) not in self.refused

    def where(self, verb: str, group: str, resource: str, namespaces: Collection[str]) -> frozenset[str]:
        return frozenset(it for it in namespaces if self.may(verb, group, resource, it))

    def patch(self, resource: str, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        if self.fault:
            raise self.fault
        self.patched.append((resource, namespace, name, patch))


@dataclass
class SomeSource:
    seen: Overview = field(default_factory=lambda: Overview(version="1", at="2026-01-01T00:00:00Z"))
    hour: LastHour = field(default_factory=LastHour)

    def overview(self) -> Overview:
        return self.seen

    def details(self, namespace: str, name: str) -> GroupDetails | None:
        found = next((it for it in self.seen.groups if (it.namespace, it.name) == (namespace, name)), None)
        return GroupDetails(found) if found else None

    def is_current(self, version: str) -> bool:
        return version == self.seen.version

    def again(self) -> float:
        return 1.5
