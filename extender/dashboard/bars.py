"""Bars of amounts, in per cent of their width, and lines over time.

Templates draw them as SVG; the numbers stand next to them as text.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from extender.api.summaries import NodeSummary, ShareSummary, ShortfallSummary

_CAPACITY = 1.25  # end of the scale, where a ceiling is too far away to be drawn
_FAR = 4  # times the largest other amount


class BarPart(NamedTuple):
    """Part of a bar, in per cent. A mark has no width."""

    kind: str
    start: float
    width: float = 0.0


class AmountBar(NamedTuple):
    parts: Sequence[BarPart]
    ticks: Sequence[BarPart] = ()


def share_bar(share: ShareSummary) -> AmountBar:
    """Return the bar of a queue's usage and lending, with lines at its deserved share and limits."""
    near = max(share.allocated, share.deserved, share.guarantee, share.allocated + share.lent)
    ceiling = share.ceiling if share.ceiling is not None and share.ceiling <= near * _FAR else None
    scale = max(near * (1 if ceiling is not None else _CAPACITY), ceiling or 0)
    own = share.allocated - share.borrowed
    parts = _parts(scale, held=own, borrowed=share.borrowed, lent=share.lent)
    ticks = {"guarantee": share.guarantee, "deserved": share.deserved, "ceiling": ceiling or 0}
    return AmountBar(parts, [BarPart(kind, _percent(at, scale)) for kind, at in ticks.items() if at > 0])


def shortfall_bar(lack: ShortfallSummary) -> AmountBar:
    there = min(lack.free, lack.asked)
    parts = _parts(max(lack.asked, lack.free), there=there, lacks=lack.asked - there)
    return AmountBar(parts, [BarPart("asked", _percent(lack.asked, max(lack.asked, lack.free)))])


def usage_bar(stands: float, claimed: float, reserved: float, of: float) -> AmountBar:
    """Return the bar of nodes: running pods, assumed pods, and reservations."""
    return AmountBar(_parts(of, held=stands, claimed=claimed, reserved=reserved))


def node_bar(node: NodeSummary, resource: str) -> AmountBar:
    stands, claimed, of = (it.get(resource, 0.0) for it in (node.used, node.claimed, node.allocatable))
    return usage_bar(stands, claimed, max(of - stands - claimed, 0) if node.reserved_for else 0.0, of)


def line(samples: Sequence[tuple[float, float]], start: float, end: float, top: float) -> str:
    """Return the points of an SVG polyline of 100 by 100 through (time, value)."""
    return " ".join(
        f"{_percent(at - start, end - start)},{100 - _percent(value, top):.4g}" for at, value in samples
    )


def _parts(scale: float, **lengths: float) -> list[BarPart]:
    """Return the parts, one after the other."""
    parts, start = [], 0.0
    for kind, length in lengths.items():
        if length > 0:
            parts.append(BarPart(kind, _percent(start, scale), _percent(length, scale)))
            start += length
    return parts


def _percent(value: float, of: float) -> float:
    return round(min(max(value / of, 0.0), 1.0) * 100, 2) if of > 0 else 0.0


def main_resource(nodes: Sequence[Mapping[str, float]]) -> str:
    """Return the resource that decides where gangs fit: the most common device, else cpu."""
    devices: dict[str, int] = {}
    for amounts in nodes:
        for name, value in amounts.items():
            if "/" in name and value > 0:
                devices[name] = devices.get(name, 0) + 1
    return max(devices, key=lambda name: (devices[name], name), default="cpu")
