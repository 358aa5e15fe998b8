"""Priority classes: what a name stands for, and what of it counts for a group.

A user who may create a PodGroup may write any class into it, while the API server lets pods have only classes
that their quota allows. So a group is at most as high as the highest of its pods was admitted with. A class
that says so itself (its annotation, which only an administrator can write) counts whatever the pods have;
Kubernetes' own classes never do.
"""

from collections.abc import Iterable

import msgspec

from extender.api import keys
from extender.api.objects import PriorityClass

_OF_KUBERNETES = "system-"  # prefix of names that no other class may have


class _Class(msgspec.Struct, frozen=True):
    """`for_groups`: PodGroups may have it without their pods."""

    value: int
    is_default: bool
    for_groups: bool


class Priorities:
    def __init__(self) -> None:
        self._classes: dict[str, _Class] = {}
        self._default = 0

    def put(self, priority: PriorityClass) -> bool:
        """True when it says something new."""
        name, annotations = priority.metadata.name, priority.metadata.annotations or {}
        open_to_groups = annotations.get(keys.FOR_POD_GROUPS) == "true"
        for_groups = open_to_groups and not name.startswith(_OF_KUBERNETES)
        now = _Class(priority.value, priority.global_default, for_groups)
        before, self._classes[name] = self._classes.get(name), now
        return before != now and self._settle_default()

    def drop(self, name: str) -> bool:
        """True when it was there."""
        return self._classes.pop(name, None) is not None and self._settle_default()

    def _settle_default(self) -> bool:
        """Of several default classes the lowest counts, as for pods."""
        self._default = min((each.value for each in self._classes.values() if each.is_default), default=0)
        return True

    def of_group(self, name: str, pods: Iterable[int]) -> int:
        """The priority of a group whose PodGroup names the class `name`, or none (""), and whose pods have
        these. Without a class it is the highest of the pods; without pods too, that of the default class.
        A class that is not there stands for 0."""
        highest = max(pods, default=None)
        if not name:
            return self._default if highest is None else highest
        found = self._classes.get(name, _NOT_THERE)
        if found.for_groups:
            return found.value
        return min(found.value, self._default if highest is None else highest)


_NOT_THERE = _Class(0, is_default=False, for_groups=False)
