"""Priority classes: the value of each, and how much of it counts for a group.

A user who may create a PodGroup may write any class into it, while the API server lets pods have only
classes that their quota allows. So a group's priority is at most the highest that one of its pods was
admitted with. A class with the annotation for PodGroups, which only an administrator can write, counts
whatever the pods have; Kubernetes' own classes never do.
"""

from collections.abc import Iterable

import msgspec

from extender.api import keys
from extender.api.objects.cluster import PriorityClass

_OF_KUBERNETES = "system-"  # prefix of names that no other class may have


class _Class(msgspec.Struct, frozen=True):
    value: int
    is_default: bool  # globalDefault
    preempts: bool  # its preemptionPolicy is not Never
    for_groups: bool  # it counts for PodGroups whatever their pods have


class Priorities:
    def __init__(self) -> None:
        self._classes: dict[str, _Class] = {}
        self._default = 0

    def put(self, priority: PriorityClass) -> bool:
        """True if anything changed."""
        name, annotations = priority.metadata.name, priority.metadata.annotations or {}
        open_to_groups = annotations.get(keys.FOR_POD_GROUPS) == "true"
        for_groups = open_to_groups and not name.startswith(_OF_KUBERNETES)
        now = _Class(
            priority.value, priority.global_default, priority.preemption_policy != keys.NEVER, for_groups
        )
        before, self._classes[name] = self._classes.get(name), now
        return before != now and self._settle_default()

    def drop(self, name: str) -> bool:
        """True if it existed."""
        return self._classes.pop(name, None) is not None and self._settle_default()

    def preempts(self, name: str) -> bool:
        """Whether groups that name this class may take the room of others."""
        return self._classes.get(name, _MISSING).preempts

    def _settle_default(self) -> bool:
        """If several classes are the default, the lowest counts, as for pods."""
        self._default = min((each.value for each in self._classes.values() if each.is_default), default=0)
        return True

    def of_group(self, name: str, pods: Iterable[int]) -> int:
        """The priority of a group whose PodGroup names the class `name`, or none (""), and whose pods have
        the priorities `pods`. Without a class it is the highest of the pods; without pods either, that of
        the default class. A class that does not exist counts as 0."""
        highest = max(pods, default=None)
        if not name:
            return self._default if highest is None else highest
        found = self._classes.get(name, _MISSING)
        if found.for_groups:
            return found.value
        return min(found.value, self._default if highest is None else highest)


_MISSING = _Class(0, is_default=False, preempts=True, for_groups=False)
