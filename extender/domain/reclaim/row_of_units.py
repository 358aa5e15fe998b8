"""The units with pods on one node, in the order in which they give their room."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from extender.domain.reclaim.units import Unit


class RowOfUnits:
    """By tier, and in each tier by queue. Units are added in the order of `Unit.order`."""

    def __init__(self) -> None:
        self._tiers: dict[int, dict[str, list[Unit]]] = {}
        self.smallest = 0
        """How many pods the smallest unit has."""

    def add(self, unit: Unit) -> None:
        self._tiers.setdefault(unit.tier, {}).setdefault(unit.queue, []).append(unit)
        self.smallest = min(self.smallest or len(unit.pods), len(unit.pods))

    def first(self) -> Unit | None:
        """The unit that gives first; None where that depends on the shares of several queues."""
        queues = next(iter(self._tiers.values()))
        return next(iter(queues.values()))[0] if len(queues) == 1 else None

    def in_turn(self, share: Callable[[str], float]) -> Iterator[Unit]:
        """Of the lowest tier first, each from the queue furthest above its share by then: `share` tells
        what a queue holds of what it deserves."""
        for queues in self._tiers.values():
            if len(queues) == 1:
                yield from next(iter(queues.values()))
            else:
                yield from _of_queues(queues, share)


def _of_queues(queues: Mapping[str, Sequence[Unit]], share: Callable[[str], float]) -> Iterator[Unit]:
    passed = dict.fromkeys(queues, 0)
    while passed:
        queue = min(passed, key=lambda each: (-share(each), queues[each][passed[each]].order))
        yield queues[queue][passed[queue]]
        passed[queue] += 1
        if passed[queue] == len(queues[queue]):
            del passed[queue]
