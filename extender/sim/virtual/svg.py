"""SVG parts with CSS classes for light and dark pages, and a panel with two axes."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from extender.api.units import precise_duration

_LIGHT_COLOURS = ("#2563eb", "#ea580c", "#16a34a", "#9333ea", "#ca8a04", "#db2777", "#0891b2", "#57534e")
_DARK_COLOURS = ("#60a5fa", "#fb923c", "#4ade80", "#c084fc", "#facc15", "#f472b6", "#22d3ee", "#a8a29e")
COLOUR_COUNT = len(_LIGHT_COLOURS)


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, content: str, css_class: str = "", anchor: str = "") -> str:
    style = (f' class="{css_class}"' if css_class else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{number(x)}" y="{number(y)}"{style}>{escape(content)}</text>'


def box(x: float, y: float, width: float, height: float, css_class: str, title: str = "") -> str:
    shape = f'x="{number(x)}" y="{number(y)}" width="{max(width, 0.3):.2f}" height="{max(height, 0.1):.2f}"'
    if title:
        return f'<rect class="{css_class}" {shape}><title>{escape(title)}</title></rect>'
    return f'<rect class="{css_class}" {shape}/>'


def boxes(css_class: str, places: Iterable[tuple[float, float, float, float]]) -> str:
    """Return many boxes as one path, which has a fifth of the length of separate boxes."""
    path = "".join(
        f"M{x:.1f} {y:.1f}h{max(width, 0.3):.2f}v{max(height, 0.1):.2f}h-{max(width, 0.3):.2f}z"
        for x, y, width, height in places
    )
    return f'<path class="{css_class}" d="{path}"/>'


def line(x1: float, y1: float, x2: float, y2: float, css_class: str) -> str:
    return f'<path class="{css_class}" d="M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}"/>'


def steps(css_class: str, left: float, width: float, tops: Sequence[float], bottoms: Sequence[float]) -> str:
    """Return the area between two step lines. All steps have the same width."""
    upper = "".join(f"V{top:.1f}h{width:.2f}" for top in tops)
    lower = "".join(f"V{bottom:.1f}h-{width:.2f}" for bottom in reversed(bottoms))
    return f'<path class="{css_class}" d="M{number(left)} {bottoms[0]:.1f}{upper}{lower}z"/>'


def document(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    size = f'viewBox="0 0 {number(width)} {number(height)}" width="{number(width)}" height="{number(height)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">'
    body = "\n".join(parts)
    return f'{head}\n<title id="title">{escape(title)}</title>\n{_STYLE}\n{body}\n</svg>\n'


def _fills(colours: Sequence[str]) -> str:
    return " ".join(f".q{index} {{ fill: {colour}; }}" for index, colour in enumerate(colours))


_STYLE = f"""<style>
  text {{ font: 12px system-ui, sans-serif; fill: #1f2937; }}
  .head {{ font-weight: 600; font-size: 14px; }} .small {{ font-size: 11px; fill: #4b5563; }}
  .inside {{ font-size: 11px; fill: #fff; }}
  .paper {{ fill: #fff; }} .room {{ fill: #f3f4f6; }} .wait {{ fill: #9ca3af; }} {_fills(_LIGHT_COLOURS)}
  .reserved {{ fill: #b45309; opacity: 0.55; }} .evicted {{ fill: #dc2626; }}
  .grid {{ stroke: #d1d5db; stroke-width: 0.5; fill: none; }}
  @media (prefers-color-scheme: dark) {{
    text {{ fill: #e5e7eb; }} .small {{ fill: #9ca3af; }} .inside {{ fill: #111827; }}
    .paper {{ fill: #0d1117; }} .room {{ fill: #1f2937; }} .grid {{ stroke: #374151; }}
    .wait {{ fill: #6b7280; }} {_fills(_DARK_COLOURS)}
    .reserved {{ fill: #fbbf24; }} .evicted {{ fill: #f87171; }}
  }}
</style>"""


WIDTH, RIGHT_MARGIN = 960.0, 28.0
_TICK_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_MAX_TICKS = 10


class Panel(NamedTuple):
    """Rectangle of the chart, with time from left to right and an amount from bottom to top."""

    begin: float
    end: float
    left: float
    top: float
    height: float
    max_amount: float

    @property
    def width(self) -> float:
        return WIDTH - RIGHT_MARGIN - self.left

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def x(self, instant: float) -> float:
        return self.left + (instant - self.begin) / (self.end - self.begin) * self.width

    def y(self, amount: float) -> float:
        return self.bottom - amount / self.max_amount * self.height

    def frame(self, title: str) -> Iterator[str]:
        yield text(self.left, self.top - 8, title, "small")
        yield box(self.left, self.top, self.width, self.height, "room")

    def scale(self, show: Callable[[float], str]) -> Iterator[str]:
        """Yield the scale on the left, with lines at zero, half and all of the amount."""
        for part in (0.0, 0.5, 1.0):
            y = self.y(self.max_amount * part)
            yield line(self.left, y, self.left + self.width, y, "grid")
            yield text(self.left - 6, y + 4, show(self.max_amount * part), "small", "end")

    def time_axis(self, top: float) -> Iterator[str]:
        """Yield the time axis at the bottom, with vertical lines up to `top`."""
        span = self.end - self.begin
        day_step = 86400 * int(span // (86400 * _MAX_TICKS) + 1)
        step = next((tick for tick in _TICK_SECONDS if span / tick <= _MAX_TICKS), day_step)
        for index in range(int(span // step) + 1):
            x = self.x(self.begin + index * step)
            label = re.sub(r"(?<=[mhd])00[a-z]$", "", precise_duration(index * step))  # 30m, not 30m00s
            yield line(x, top, x, self.bottom, "grid")
            yield text(x, self.bottom + 16, label, "small", "middle")
