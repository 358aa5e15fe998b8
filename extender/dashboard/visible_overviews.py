"""Visible overviews: the data that a viewer may see, which is the data that `kubectl get` would show.

All pages and all JSON get their data from here. A viewer needs the right to list:

- podgroups in a namespace, for its groups. A group's status also names others: groups ahead, holders.
- queues, for the queues.
- nodes, for the nodes.
- pods in a namespace, for the pods of its groups.
"""

import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from cachetools import LRUCache, TTLCache
from msgspec.structs import replace

from extender.api.summaries import CapacitySummary, GroupDetails, NodeSummary, Overview, capacity_summaries
from extender.dashboard.source import Source, Viewer

PODGROUPS = ("scheduling.volcano.sh", "podgroups")
QUEUES = ("scheduling.volcano.sh", "queues")
LOCAL_QUEUES = ("kube-muster.io", "localqueues")
_OBJECT_PARTS = ("queues", "local_queues", "groups", "nodes", "topologies")
PARTS = (*_OBJECT_PARTS, "reservations", "decisions", "notes")  # parts of an overview
HIDDEN_GROUP = "another group"  # replaces the name of a hidden group that a node is reserved for
_MAX_OVERVIEWS = 8  # maximum of overviews for different rights
_MAX_DETAILS, _DETAILS_TTL = 256, 1.0  # groups with cached details; seconds for which they are cached


@dataclass(frozen=True)
class Rights:
    """Rights of a viewer. Viewers with equal rights see the same.

    `namespaces` have visible groups, `local_queues` are the namespaces with visible LocalQueues. None means
    all.
    """

    sees_queues: bool
    sees_nodes: bool
    namespaces: frozenset[str] | None
    local_queues: frozenset[str] | None = None

    def may_see_groups_of(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces

    def may_see_group(self, key: str) -> bool:
        return self.may_see_groups_of(key.partition("/")[0])


@dataclass(frozen=True)
class VisibleOverview:
    """Overview for a viewer. `since` has the version in which each part changed last."""

    overview: Overview
    rights: Rights
    since: Mapping[str, str]

    def state(self, *parts: str) -> Hashable:
        """Return a value for some parts, such as `queues`. It changes when a part or the rights change."""
        return self.rights, tuple(self.since[part] for part in parts)

    def capacity(self) -> Sequence[CapacitySummary]:
        """Return the capacity of all nodes, with the demand of visible groups; empty if nodes are hidden."""
        nodes, groups = self.overview.nodes, self.overview.groups
        return capacity_summaries(nodes, groups) if nodes else ()


class VisibleOverviews:
    """Overviews for viewers. Viewers with equal rights share one. Thread-safe."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._namespaces: tuple[str, frozenset[str]] = ("", frozenset())  # a version and its namespaces
        self._shared_overviews: LRUCache[Hashable, Overview] = LRUCache(_MAX_OVERVIEWS)
        self._explanation_lock = threading.Lock()  # one explanation at a time, because each may be expensive
        self._details: TTLCache[tuple[str, str], GroupDetails | None] = TTLCache(_MAX_DETAILS, _DETAILS_TTL)
        self._last = Overview("", "")
        self._since: Mapping[str, str] = dict.fromkeys(PARTS, "")

    def visible_overview(self, viewer: Viewer) -> VisibleOverview:
        """Return the overview for a viewer.

        Raises:
            RightsUnknown: A right cannot be checked now.
        """
        overview = self._source.overview()
        rights = self._rights(viewer, overview)
        key = (overview.version, rights)
        with self._lock:
            visible, since = self._shared_overviews.get(key), self._versions_of_parts(overview)
        if visible is None:
            visible = visible_part(overview, rights)
            with self._lock:
                self._shared_overviews[key] = visible
        return VisibleOverview(visible, rights, since)

    def details(self, namespace: str, name: str, viewer: Viewer) -> GroupDetails | None:
        """Return the details of a group; None if it does not exist, or the viewer may not see its namespace.

        Raises:
            RightsUnknown: A right cannot be checked now.
        """
        if not viewer.may("list", *PODGROUPS, namespace):
            return None
        with self._explanation_lock:
            details = self._details.get((namespace, name))
            if details is None:
                details = self._details[namespace, name] = self._source.details(namespace, name)
        if details is None or viewer.may("list", "", "pods", namespace):
            return details
        return replace(details, members=(), notes=(*details.notes, f"You may not list pods in {namespace}."))

    def _versions_of_parts(self, overview: Overview) -> Mapping[str, str]:
        """Return, for each part of the overview, the version in which that part changed last."""
        if overview.version != self._last.version:
            last, since = self._last, self._since
            self._since = {
                part: since[part] if getattr(overview, part) == getattr(last, part) else overview.version
                for part in PARTS
            }
            self._last = overview
        return self._since

    def _rights(self, viewer: Viewer, overview: Overview) -> Rights:
        namespaces: frozenset[str] | None = None
        if not viewer.may("list", *PODGROUPS):
            namespaces = viewer.namespaces_with_right("list", *PODGROUPS, self._all_namespaces(overview))
        local_queues: frozenset[str] | None = None
        if overview.local_queues and not viewer.may("list", *LOCAL_QUEUES):
            candidates = frozenset(local.namespace for local in overview.local_queues)
            local_queues = viewer.namespaces_with_right("list", *LOCAL_QUEUES, candidates)
        queues, nodes = viewer.may("list", *QUEUES), viewer.may("list", "", "nodes")
        return Rights(queues, nodes, namespaces, local_queues)

    def _all_namespaces(self, overview: Overview) -> frozenset[str]:
        version, namespaces = self._namespaces
        if version != overview.version:
            namespaces = frozenset(group.namespace for group in overview.groups)
            self._namespaces = (overview.version, namespaces)
        return namespaces


def visible_part(overview: Overview, rights: Rights) -> Overview:
    if rights == Rights(sees_queues=True, sees_nodes=True, namespaces=None):
        return overview
    return replace(
        overview,
        queues=overview.queues if rights.sees_queues else (),
        local_queues=tuple(
            local
            for local in overview.local_queues
            if rights.local_queues is None or local.namespace in rights.local_queues
        ),
        groups=tuple(group for group in overview.groups if rights.may_see_groups_of(group.namespace)),
        nodes=tuple(_visible_node(node, rights) for node in overview.nodes) if rights.sees_nodes else (),
        reservations=tuple(
            reservation if rights.sees_nodes else replace(reservation, nodes=())
            for reservation in overview.reservations
            if rights.may_see_group(reservation.group)
        ),
        decisions=tuple(change for change in overview.decisions if rights.may_see_group(change.group)),
    )


def _visible_node(node: NodeSummary, rights: Rights) -> NodeSummary:
    is_hidden = bool(node.reserved_for) and not rights.may_see_group(node.reserved_for)
    return replace(
        node,
        reserved_for=HIDDEN_GROUP if is_hidden else node.reserved_for,
        groups=tuple(key for key in node.groups if rights.may_see_group(key)),
    )
