"""Composite groups of Kubernetes: trees of PodGroups that start together.

A composite binds its child groups to each other in three cases: the child groups start as a gang, share a
topology domain, or are evicted together.

The group of a pod is the topmost binding composite above its PodGroup. An invalid tree is held
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
        self._assignments: dict[GroupKey, Assignment] = {}
        # by changed group: number of levels, from the group down, that may move
        self._depths: dict[GroupKey, int] = {}

    @property
    def are_stale(self) -> bool:
        return bool(self._depths)

    def put(self, record: GroupRecord) -> bool:
        """Record a composite, or a PodGroup with a parent. Return whether its group may have changed."""
        old = self._records.get(record.key)
        self._records[record.key] = record
        is_group = self._group_of(record.key) == record.key
        if old is not None and replace(old, last_reason=record.last_reason) == record and not is_group:
            return False
        may_move = old is None or _decisive_fields(old) != _decisive_fields(record)
        self._depths[record.key] = max(_MAX_LEVELS + 1 if may_move else 0, self._depths.get(record.key, 0))
        if may_move:
            self._drop_child(old)
            if record.parent:
                self._children[record.parent][record.key] = None
        return True

    def drop(self, key: GroupKey) -> None:
        if (record := self._records.pop(key, None)) is not None:
            self._drop_child(record)
            self._depths[key] = _MAX_LEVELS + 1

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
        affected_keys: dict[GroupKey, None] = {}
        groups: dict[GroupKey, GroupKey] = {}
        while self._depths and len(affected_keys) < self.portion_size:
            key = next(iter(self._depths))
            affected_keys |= dict.fromkeys((key, self._group_of(key)))
            if levels := self._depths.pop(key):
                self._assign_again(key, levels)
                groups[key] = self._group_of(key)
        affected_keys |= dict.fromkeys(groups.values())
        return {key: self._record_of(key) for key in affected_keys if key in self._records}, groups

    def _assign_again(self, key: GroupKey, level_count: int) -> None:
        """Assign the pods below a group again, and record its children as changed.

        Args:
            key: The group.
            level_count: The number of levels, from the group down, that may move.
        """
        self._assignments.pop(key, None)
        if key in self._records:
            self._assignments[key] = self._assignment_of(self._records[key])
        if level_count > 1:
            for child in self._children.get(key, ()):
                self._depths[child] = max(level_count - 1, self._depths.get(child, 0))

    def parts_of(self, group: GroupKey) -> list[GroupRecord]:
        """Return the composites and PodGroups that are parts of a group."""
        keys_below = self._keys_from(group)
        return [self._records[key] for key in keys_below if key != group and self._group_of(key) == group]

    def _group_of(self, key: GroupKey) -> GroupKey:
        """Return the group to which the pods below a composite or PodGroup belong."""
        return self._assignments[key].group if key in self._assignments else key

    def _keys_from(self, top_key: GroupKey) -> list[GroupKey]:
        """Return a group and the groups below it, down to the limit of levels.

        The result has at most one group more than the limit of groups.
        """
        level, keys = [top_key], {top_key: None}
        for _ in range(_MAX_LEVELS):
            children = (child for key in level for child in self._children.get(key, ()) if child not in keys)
            level = list(islice(children, _MAX_GROUPS + 1 - len(keys)))
            keys |= dict.fromkeys(level)
        return list(keys)

    def _assignment_of(self, record: GroupRecord) -> Assignment:
        """Return the group to which the pods of a composite or PodGroup belong, and its fault."""
        path, fault = [record], ""
        while path[-1].parent and not fault:
            upper = self._records.get(path[-1].parent)
            if upper is None:
                parent, child = _kind_and_name(path[-1].parent), _kind_and_name(path[-1].key)
                fault = f"{parent}, the parent of {child}, does not exist"
            elif upper in path:
                fault = f"{_kind_and_name(upper.key)} is below itself"
            elif len(path) == _MAX_LEVELS:
                fault = f"its groups are nested deeper than {_MAX_LEVELS} levels, that of PodGroups included"
            else:
                path.append(upper)
        composites = [record for record in path if record.origin is Origin.COMPOSITE]
        workloads = sorted({record.workload for record in path})
        if not fault and len(workloads) > 1:
            fault = f"its groups belong to different Workloads: {listed(workloads, _MAX_NAMES, ' and ')}"
        if fault:
            return Assignment(composites[-1].key if composites else record.key, fault)
        own_key = GroupKey("") if record in composites else record.key
        return Assignment(next((upper.key for upper in reversed(composites) if _is_binding(upper)), own_key))

    def _record_of(self, key: GroupKey) -> GroupRecord | None:
        """Return the record of a group; None if no pods belong to it, and none can belong to it."""
        record, keys_below = self._records[key], self._keys_from(key)
        children = [each for each in keys_below if each in self._assignments]
        if not any(self._assignments[each].group == key for each in children):
            return None
        faults = (part.fault for each in children for part in (self._assignments[each], self._records[each]))
        fault = next(filter(None, faults), "")
        if record.origin is not Origin.COMPOSITE:
            return replace(record, fault=fault)
        if len(keys_below) > _MAX_GROUPS:
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
            child_requests = (*requests, (part, child.topology))
            children.append(self._tree(child, child_requests, goes_whole or child.is_evicted_whole))
        return ChildGroup(record.name, minimum, tuple(children))


def _decisive_fields(record: GroupRecord) -> tuple[object, ...]:
    """Return the fields that decide to which group the pods below belong."""
    return record.parent, record.workload, _is_binding(record)


def _is_binding(composite: GroupRecord) -> bool:
    """Return whether a composite binds its child groups to each other."""
    return composite.min_member > 0 or composite.is_evicted_whole or any(composite.topology)


def _kind_and_name(key: GroupKey) -> str:
    """Return the kind and name in the key of a group, for users."""
    _, kind, name = key.rpartition("/compositepodgroup/")
    return f"CompositePodGroup {name}" if kind else f"PodGroup {key.rpartition('/')[2]}"
