"""The pods on nodes that are not ours: perhaps a hundred times as many, of which some move every second."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import chain
from math import inf
from zlib import crc32

from extender.domain.model.records import PodRecord, Uid

_PARTS = 1024
_NONE: Mapping[Uid, PodRecord] = {}


class OtherPods:
    """By UID. Never changed: `with_changes` copies only the few parts that differ."""

    def __init__(self) -> None:
        self.leaving: Mapping[Uid, PodRecord] = _NONE  # those that are being deleted
        self._parts: tuple[Mapping[Uid, PodRecord], ...] = (_NONE,) * _PARTS
        self._lowest: tuple[float, ...] = (inf,) * _PARTS

    def with_changes(self, changes: Mapping[Uid, PodRecord | None]) -> "OtherPods":
        """The same with other records of some pods; None for one that is gone."""
        later, parts, leaving = OtherPods(), list(self._parts), dict(self.leaving)
        copied: dict[int, dict[Uid, PodRecord]] = {}
        for uid, pod in changes.items():
            number = _part_of(uid)
            if number not in copied:
                parts[number] = copied[number] = dict(parts[number])
            copied[number].pop(uid, None)
            leaving.pop(uid, None)
            if pod is not None:
                copied[number][uid] = pod
            if pod is not None and pod.deleting:
                leaving[uid] = pod
        lowest = list(self._lowest)
        for number, part in copied.items():
            movable = (pod for pod in part.values() if pod.may_be_evicted and not pod.deleting)
            lowest[number] = min((pod.priority for pod in movable), default=inf)
        later.leaving, later._parts, later._lowest = leaving, tuple(parts), tuple(lowest)
        return later

    @cached_property
    def lowest_priority(self) -> float:
        """Of those that may be evicted; inf: there are none."""
        return min(self._lowest)

    def get(self, uid: Uid) -> PodRecord | None:
        return self._parts[_part_of(uid)].get(uid)

    def __contains__(self, uid: Uid) -> bool:
        return self.get(uid) is not None

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[PodRecord]:
        return chain.from_iterable(part.values() for part in self._parts)


def _part_of(uid: Uid) -> int:
    """The same in each process."""
    return crc32(uid.encode()) % _PARTS
