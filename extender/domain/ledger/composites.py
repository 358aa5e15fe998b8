"""Composite groups of Kubernetes: trees of PodGroups that start together.

The group of a pod is the topmost composite above its PodGroup that binds its child groups to each other, as a
gang, in one domain, or in evictions. A tree that is invalid is held back, with the reason on its top.
"""

from collections import defaultdict
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from extender.api.units import listed
from extender.domain.model.records import GroupKey, GroupRecord, Origin
from extender.domain.model.topology import ChildGroup, PartRequest

_DEEPEST = 4  # levels of a tree, that of the PodGroups included, as in Kubernetes
_MOST = 1_000  # groups in a tree
_FEW = 4  # names in one sentence


class Placing(NamedTuple):
    """Group that the pods below a composite or PodGroup belong to, and why they cannot start, for users."""

    group: GroupKey  # empty: each PodGroup below the composite starts by itself
    fault: str = ""


class Composites:
    """Composites, and the PodGroups that name a parent."""

    def __init__(self) -> None:
        self.portion = 250  # groups that one refresh moves, so that no change of a tenant makes a cycle long
        self._records: dict[GroupKey, GroupRecord] = {}
        self._children: defaultdict[GroupKey, dict[GroupKey, None]] = defaultdict(dict)
        self._placings: dict[GroupKey, Placing] = {}
        self._stale: dict[GroupKey, int] = {}  # changes: levels, from each group downwards, that may move

    @property
    def are_stale(self) -> bool:
        return bool(self._stale)

    def put(self, record: GroupRecord) -> bool:
        """Record a composite, or a PodGroup with a parent; return whether its group may have changed."""
        before = self._records.get(record.key)
        self._records[record.key] = record
        is_group = self._group_of(record.key) == record.key
        if before is not None and replace(before, last_reason=record.last_reason) == record and not is_group:
            return False
        moves = before is None or _terms(before) != _terms(record)
        self._stale[record.key] = max(_DEEPEST + 1 if moves else 0, self._stale.get(record.key, 0))
        if moves:
            self._drop_child(before)
            if record.parent:
                self._children[record.parent][record.key] = None
        return True

    def drop(self, key: GroupKey) -> None:
        if (record := self._records.pop(key, None)) is not None:
            self._drop_child(record)
            self._stale[key] = _DEEPEST + 1

    def _drop_child(self, record: GroupRecord | None) -> None:
        if record is not None and record.parent:
            del self._children[record.parent][record.key]
            if not self._children[record.parent]:
                del self._children[record.parent]

    def refresh(self) -> tuple[dict[GroupKey, GroupRecord | None], dict[GroupKey, GroupKey]]:
        """Return the next portion of the changes: `are_stale` says whether more are left.

        Returns:
            Records of groups, None for a composite or PodGroup that is no group of its own; and the group of
            the pods of each PodGroup or composite.
        """
        affected: dict[GroupKey, None] = {}
        groups: dict[GroupKey, GroupKey] = {}
        while self._stale and len(affected) < self.portion:
            key = next(iter(self._stale))
            affected |= dict.fromkeys((key, self._group_of(key)))
            if levels := self._stale.pop(key):
                self._place_again(key, levels)
                groups[key] = self._group_of(key)
        affected |= dict.fromkeys(groups.values())
        return {key: self._record_of(key) for key in affected if key in self._records}, groups

    def _place_again(self, key: GroupKey, levels: int) -> None:
        self._placings.pop(key, None)
        if key in self._records:
            self._placings[key] = self._place(self._records[key])
        if levels > 1:
            for child in self._children.get(key, ()):
                self._stale[child] = max(levels - 1, self._stale.get(child, 0))

    def below(self, group: GroupKey) -> list[GroupRecord]:
        """Return the composites and PodGroups that are parts of a group."""
        below = self._below(group)
        return [self._records[key] for key in below if key != group and self._group_of(key) == group]

    def _group_of(self, key: GroupKey) -> GroupKey:
        return self._placings[key].group if key in self._placings else key

    def _below(self, top: GroupKey) -> list[GroupKey]:
        """Return a group and those below it, as deep as trees are, and no more than one above their limit."""
        level, found = [top], {top: None}
        for _ in range(_DEEPEST):
            new = (child for key in level for child in self._children.get(key, ()) if child not in found)
            level = list(islice(new, _MOST + 1 - len(found)))
            found |= dict.fromkeys(level)
        return list(found)

    def _place(self, record: GroupRecord) -> Placing:
        path, fault = [record], ""
        while path[-1].parent and not fault:
            above = self._records.get(path[-1].parent)
            if above is None:
                parent, child = _kind_and_name(path[-1].parent), _kind_and_name(path[-1].key)
                fault = f"{parent}, the parent of {child}, does not exist"
            elif above in path:
                fault = f"{_kind_and_name(above.key)} is below itself"
            elif len(path) == _DEEPEST:
                fault = f"its groups are nested deeper than {_DEEPEST} levels, that of PodGroups included"
            else:
                path.append(above)
        composites = [record for record in path if record.origin is Origin.COMPOSITE]
        workloads = sorted({record.workload for record in path})
        if not fault and len(workloads) > 1:
            fault = f"its groups belong to different Workloads: {listed(workloads, _FEW, ' and ')}"
        if fault:
            return Placing(composites[-1].key if composites else record.key, fault)
        alone = GroupKey("") if record in composites else record.key
        return Placing(next((above.key for above in reversed(composites) if _binds(above)), alone))

    def _record_of(self, key: GroupKey) -> GroupRecord | None:
        """Return the record of a group; None if no pods belong to it, or could do so."""
        own, below = self._records[key], self._below(key)
        placed = [each for each in below if each in self._placings]
        if not any(self._placings[each].group == key for each in placed):
            return None
        faults = (part.fault for each in placed for part in (self._placings[each], self._records[each]))
        fault = next(filter(None, faults), "")
        if own.origin is not Origin.COMPOSITE:
            return replace(own, fault=fault)
        if len(below) > _MOST:
            fault = f"its tree has more than {_MOST:,} groups"
        tree = ChildGroup(own.name, 1, ()) if fault else self._tree(own)
        return replace(own, min_member=max(tree.fewest, 1), composite=tree, fault=fault)

    def _tree(
        self, record: GroupRecord, requests: tuple[PartRequest, ...] = (), goes_whole: bool = False
    ) -> ChildGroup:
        """Return the tree of a group. `requests`: its own, after those of the composites above it."""
        minimum = max(record.min_member, 1)
        if record.origin is not Origin.COMPOSITE:
            has_topology = any(any(topology) for _, topology in requests)
            return ChildGroup(record.name, minimum, None, goes_whole, requests if has_topology else ())
        children = []
        for child in (self._records[key] for key in self._children.get(record.key, ())):
            part = ("composite", child.name) if child.origin is Origin.COMPOSITE else (child.name,)
            with_own = (*requests, (part, child.topology))
            children.append(self._tree(child, with_own, goes_whole or child.goes_whole))
        return ChildGroup(record.name, minimum, tuple(children))


def _terms(record: GroupRecord) -> tuple[object, ...]:
    """Return the fields on which the group of pods below depends."""
    return record.parent, record.workload, _binds(record)


def _binds(composite: GroupRecord) -> bool:
    """Return whether a composite binds its child groups to each other."""
    return composite.min_member > 0 or composite.goes_whole or any(composite.topology)


def _kind_and_name(key: GroupKey) -> str:
    _, kind, name = key.rpartition("/compositepodgroup/")
    return f"CompositePodGroup {name}" if kind else f"PodGroup {key.rpartition('/')[2]}"
