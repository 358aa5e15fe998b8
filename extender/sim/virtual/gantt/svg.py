"""A little SVG: shapes as text, colours by class, so that the reader's light or dark paper decides."""

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape

_LIGHT = ("#2563eb", "#ea580c", "#16a34a", "#9333ea", "#ca8a04", "#db2777", "#0891b2", "#57534e")
_DARK = ("#60a5fa", "#fb923c", "#4ade80", "#c084fc", "#facc15", "#f472b6", "#22d3ee", "#a8a29e")
COLOURS = len(_LIGHT)


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "") -> str:
    style = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{number(x)}" y="{number(y)}"{style}>{escape(content)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    place = f'x="{number(x)}" y="{number(y)}" width="{max(width, 0.3):.2f}" height="{max(height, 0.1):.2f}"'
    shown = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect class="{kind}" {place}>{shown}</rect>' if shown else f'<rect class="{kind}" {place}/>'


def boxes(kind: str, places: Iterable[tuple[float, float, float, float]]) -> str:
    """Many boxes as one shape: the text of a box is a fifth of that of `box`."""
    path = "".join(
        f"M{x:.1f} {y:.1f}h{max(width, 0.3):.2f}v{max(height, 0.1):.2f}h-{max(width, 0.3):.2f}z"
        for x, y, width, height in places
    )
    return f'<path class="{kind}" d="{path}"/>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<path class="{kind}" d="M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}"/>'


def steps(kind: str, left: float, width: float, tops: Sequence[float], bottoms: Sequence[float]) -> str:
    """An area between two lines that go in steps of one width."""
    there = "".join(f"V{top:.1f}h{width:.2f}" for top in tops)
    back = "".join(f"V{bottom:.1f}h-{width:.2f}" for bottom in reversed(bottoms))
    return f'<path class="{kind}" d="M{number(left)} {bottoms[0]:.1f}{there}{back}z"/>'


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
  .paper {{ fill: #fff; }} .room {{ fill: #f3f4f6; }} .wait {{ fill: #9ca3af; }} {_fills(_LIGHT)}
  .reserved {{ fill: #b45309; opacity: 0.55; }} .evicted {{ fill: #dc2626; }}
  .grid {{ stroke: #d1d5db; stroke-width: 0.5; fill: none; }}
  @media (prefers-color-scheme: dark) {{
    text {{ fill: #e5e7eb; }} .small {{ fill: #9ca3af; }} .inside {{ fill: #111827; }}
    .paper {{ fill: #0d1117; }} .room {{ fill: #1f2937; }} .grid {{ stroke: #374151; }}
    .wait {{ fill: #6b7280; }} {_fills(_DARK)}
    .reserved {{ fill: #fbbf24; }} .evicted {{ fill: #f87171; }}
  }}
</style>"""
