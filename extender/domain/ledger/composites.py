"""Composite groups of Kubernetes: trees of PodGroups that start together.

A composite binds its child groups to each other if they start as a gang, in one domain, or are evicted
together. The group of a pod is the topmost binding composite above its PodGroup. An invalid tree is held
back, with the fault recorded at its top.
"""

from collections import defaultdict
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from extender.api.units import listed
from extender.domain.model.records import GroupKey, GroupRecord, Origin
from extender.domain.model.topology import ChildGroup, PartRequest

_MAX_LEVELS = 4  # limit of levels in a tree, with the level of PodGroups, as in Kubernetes
_MAX_GROUPS = 1_000  # limit of groups in a tree
_MAX_NAMES = 4  # limit of names in one sentence


class Assignment(NamedTuple):
    """Group of the pods below a composite or PodGroup, and why they cannot start, for users."""

    group: GroupKey  # empty if each PodGroup below the composite starts by itself
    fault: str = ""


class Composites:
    """Composites, and the PodGroups that name a parent."""

    def __init__(self) -> None:
        self.portion_size = 250  # groups moved by one refresh, so that no tenant can make a cycle long
        self._records: dict[GroupKey, GroupRecord] = {}
        self._children: defaultdict[GroupKey, dict[GroupKey, None]] = defaultdict(dict)
        self._assigned: dict[GroupKey, Assignment] = {}
        self._stale: dict[GroupKey, int] = {}  # by changed group: levels, from the group down, that may move

    @property
    def are_stale(self) -> bool:
        return bool(self._stale)

    def put(self, record: GroupRecord) -> bool:
        """Record a composite, or a PodGroup with a parent. Return whether its group may have changed."""
        before = self._records.get(record.key)
        self._records[record.key] = record
        is_group = self._group_of(record.key) == record.key
        if before is not None and replace(before, last_reason=record.last_reason) == record and not is_group:
            return False
        moves = before is None or _decisive_fields(before) != _decisive_fields(record)
        self._stale[record.key] = max(_MAX_LEVELS + 1 if moves else 0, self._stale.get(record.key, 0))
        if moves:
            self._drop_child(before)
            if record.parent:
                self._children[record.parent][record.key] = None
        return True

    def drop(self, key: GroupKey) -> None:
        if (record := self._records.pop(key, None)) is not None:
            self._drop_child(record)
            self._stale[key] = _MAX_LEVELS + 1

    def _drop_child(self, record: GroupRecord | None) -> None:
        """Remove a composite or PodGroup from the children of its parent."""
        if record is not None and record.parent:
            del self._children[record.parent][record.key]
            if not self._children[record.parent]:
                del self._children[record.parent]

    def refresh(self) -> tuple[dict[GroupKey, GroupRecord | None], dict[GroupKey, GroupKey]]:
        """Process the next portion of the changes. `are_stale` tells whether more changes are left.

        Returns:
            - The records of groups; None for a composite or PodGroup that does not form a group itself.
            - The groups to which the pods of each PodGroup or composite belong.
        """
        affected: dict[GroupKey, None] = {}
        groups: dict[GroupKey, GroupKey] = {}
        while self._stale and len(affected) < self.portion_size:
            key = next(iter(self._stale))
            affected |= dict.fromkeys((key, self._group_of(key)))
            if levels := self._stale.pop(key):
                self._assign_again(key, levels)
                groups[key] = self._group_of(key)
        affected |= dict.fromkeys(groups.values())
        return {key: self._record_of(key) for key in affected if key in self._records}, groups

    def _assign_again(self, key: GroupKey, levels: int) -> None:
        """Assign the pods below a group again, and mark its children as changed.

        Args:
            key: The group.
            levels: The number of levels, from the group down, that may move.
        """
        self._assigned.pop(key, None)
        if key in self._records:
            self._assigned[key] = self._assign(self._records[key])
        if levels > 1:
            for child in self._children.get(key, ()):
                self._stale[child] = max(levels - 1, self._stale.get(child, 0))

    def parts_of(self, group: GroupKey) -> list[GroupRecord]:
        """Return the composites and PodGroups that are parts of a group."""
        below = self._below(group)
        return [self._records[key] for key in below if key != group and self._group_of(key) == group]

    def _group_of(self, key: GroupKey) -> GroupKey:
        """Return the group to which the pods below a composite or PodGroup belong."""
        return self._assigned[key].group if key in self._assigned else key

    def _below(self, top: GroupKey) -> list[GroupKey]:
        """Return a group and the groups below it, down to the limit of levels.

        The result has at most one group more than the limit of groups.
        """
        level, reached = [top], {top: None}
        for _ in range(_MAX_LEVELS):
            new = (child for key in level for child in self._children.get(key, ()) if child not in reached)
            level = list(islice(new, _MAX_GROUPS + 1 - len(reached)))
            reached |= dict.fromkeys(level)
        return list(reached)

    def _assign(self, record: GroupRecord) -> Assignment:
        """Return the group of the pods below a composite or PodGroup."""
        path, fault = [record], ""
        while path[-1].parent and not fault:
            above = self._records.get(path[-1].parent)
            if above is None:
                parent, child = _kind_and_name(path[-1].parent), _kind_and_name(path[-1].key)
                fault = f"{parent}, the parent of {child}, does not exist"
            elif above in path:
                fault = f"{_kind_and_name(above.key)} is below itself"
            elif len(path) == _MAX_LEVELS:
                fault = f"its groups are nested deeper than {_MAX_LEVELS} levels, that of PodGroups included"
            else:
                path.append(above)
        composites = [record for record in path if record.origin is Origin.COMPOSITE]
        workloads = sorted({record.workload for record in path})
        if not fault and len(workloads) > 1:
            fault = f"its groups belong to different Workloads: {listed(workloads, _MAX_NAMES, ' and ')}"
        if fault:
            return Assignment(composites[-1].key if composites else record.key, fault)
        alone = GroupKey("") if record in composites else record.key
        return Assignment(next((above.key for above in reversed(composites) if _binds(above)), alone))

    def _record_of(self, key: GroupKey) -> GroupRecord | None:
        """Return the record of a group; None if no pods belong to it, and none can belong to it."""
        record, below = self._records[key], self._below(key)
        placed = [each for each in below if each in self._assigned]
        if not any(self._assigned[each].group == key for each in placed):
            return None
        faults = (part.fault for each in placed for part in (self._assigned[each], self._records[each]))
        fault = next(filter(None, faults), "")
        if record.origin is not Origin.COMPOSITE:
            return replace(record, fault=fault)
        if len(below) > _MAX_GROUPS:
            fault = f"its tree has more than {_MAX_GROUPS:,} groups"
        tree = ChildGroup(record.name, 1, ()) if fault else self._tree(record)
        return replace(record, min_member=max(tree.min_pods, 1), composite=tree, fault=fault)

    def _tree(
        self, record: GroupRecord, requests: tuple[PartRequest, ...] = (), goes_whole: bool = False
    ) -> ChildGroup:
        """Return the tree of a group.

        Args:
            record: The group.
            requests: The topology requests of the composites above it, then its own request.
            goes_whole: Whether its pods are evicted together.
        """
        minimum = max(record.min_member, 1)
        if record.origin is not Origin.COMPOSITE:
            has_topology = any(any(topology) for _, topology in requests)
            return ChildGroup(record.name, minimum, None, goes_whole, requests if has_topology else ())
        children = []
        for child in (self._records[key] for key in self._children.get(record.key, ())):
            part = ("composite", child.name) if child.origin is Origin.COMPOSITE else (child.name,)
            with_own = (*requests, (part, child.topology))
            children.append(self._tree(child, with_own, goes_whole or child.is_evicted_whole))
        return ChildGroup(record.name, minimum, tuple(children))


def _decisive_fields(record: GroupRecord) -> tuple[object, ...]:
    """Return the fields that decide to which group the pods below belong."""
    return record.parent, record.workload, _binds(record)


def _binds(composite: GroupRecord) -> bool:
    """Return whether a composite binds its child groups to each other."""
    return composite.min_member > 0 or composite.is_evicted_whole or any(composite.topology)


def _kind_and_name(key: GroupKey) -> str:
    """Return the kind and name in the key of a group, for users."""
    _, kind, name = key.rpartition("/compositepodgroup/")
    return f"CompositePodGroup {name}" if kind else f"PodGroup {key.rpartition('/')[2]}"
