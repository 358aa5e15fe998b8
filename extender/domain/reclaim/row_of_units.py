"""The units with pods on one node, in the order in which they give their room."""

from collections.abc import Callable, Iterator

from extender.domain.reclaim.units import Unit


class RowOfUnits:
    """By tier, and in each tier by queue. Units are added in the order of `Unit.order`."""

    def __init__(self) -> None:
        self._tiers: dict[int, dict[str, list[Unit]]] = {}

    def add(self, unit: Unit) -> None:
        self._tiers.setdefault(unit.tier, {}).setdefault(unit.queue, []).append(unit)

    def in_turn(self, share: Callable[[str], float]) -> Iterator[Unit]:
        """Of the lowest tier first, each from the queue that is furthest above its share by then: `share` tells
        what a queue holds of what it deserves."""
        for queues in self._tiers.values():
            if len(queues) == 1:
                yield from next(iter(queues.values()))
                continue
            lines = {queue: list(reversed(units)) for queue, units in queues.items()}
            while lines:
                queue = min(lines, key=lambda each: (-share(each), lines[each][-1].order))
                yield lines[queue].pop()
                if not lines[queue]:
                    del lines[queue]
