"""A rectangle of the chart in which x is time and y an amount, and what is drawn around it."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from extender.api.durations import two_units
from extender.sim.virtual.gantt import svg

WIDTH, RIGHT = 960.0, 28.0
_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_MOST_TICKS = 10


class Panel(NamedTuple):
    begin: float
    end: float
    left: float
    top: float
    height: float
    most: float

    @property
    def width(self) -> float:
        return WIDTH - RIGHT - self.left

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def x(self, moment: float) -> float:
        return self.left + (moment - self.begin) / (self.end - self.begin) * self.width

    def y(self, amount: float) -> float:
        return self.bottom - amount / self.most * self.height

    def frame(self, title: str) -> Iterator[str]:
        yield svg.text(self.left, self.top - 8, title, "small")
        yield svg.box(self.left, self.top, self.width, self.height, "room")

    def scale(self, show: Callable[[float], str]) -> Iterator[str]:
        """Nothing, half and all of the amount, on the left."""
        for part in (0.0, 0.5, 1.0):
            y = self.y(self.most * part)
            yield svg.line(self.left, y, self.left + self.width, y, "grid")
            yield svg.text(self.left - 6, y + 4, show(self.most * part), "small", "end")

    def moments(self, top: float) -> Iterator[str]:
        """The axis of time below, with lines up to `top`."""
        span = self.end - self.begin
        step = next((tick for tick in _TICKS if span / tick <= _MOST_TICKS), _days(span))
        for number in range(int(span // step) + 1):
            x = self.x(self.begin + number * step)
            yield svg.line(x, top, x, self.bottom, "grid")
            yield svg.text(x, self.bottom + 16, _mark(number * step), "small", "middle")


def _mark(seconds: float) -> str:
    """30m, not 30m00s."""
    return re.sub(r"(?<=[mhd])00[a-z]$", "", two_units(seconds))


def _days(span: float) -> int:
    return 86400 * int(span // (86400 * _MOST_TICKS) + 1)
