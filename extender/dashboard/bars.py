"""Bars of amounts, in percent of their width, and lines over time.

Templates draw bars and lines as SVG. The numbers stand next to them as text.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from extender.api.summaries import (
    CapacitySummary,
    QueueSummary,
    ShareSummary,
    ShortfallSummary,
    resource_order,
)

Scales = Mapping[tuple[str, str], float]  # amount at the full width of bars, by resource and flavor


class BarPart(NamedTuple):
    """Part of a bar, in percent of the width. A tick is a part without width."""

    kind: str
    start: float
    width: float = 0.0


class AmountBar(NamedTuple):
    """Bar with its parts and ticks. `reach` is the limit up to which parts can fill it, in percent."""

    parts: Sequence[BarPart]
    ticks: Sequence[BarPart] = ()
    reach: float = 100.0


def scales_of(queues: Sequence[QueueSummary]) -> Scales:
    """Return the scales that the bars of all queues share, by resource and flavor.

    A scale is the sum over the topmost queues, or the largest amount of one queue if that is larger.
    """
    sizes: dict[str, dict[tuple[str, str], float]] = {}
    for queue in queues:
        shares = {(share.resource, share.flavor): share for share in queue.shares}
        sizes[queue.name] = {
            key: max(share.allocated, share.deserved, share.guarantee) for key, share in shares.items()
        }
    sums, maxima = defaultdict[tuple[str, str], float](float), defaultdict[tuple[str, str], float](float)
    for queue in queues:
        for key, size in sizes[queue.name].items():
            maxima[key] = max(maxima[key], size)
            if key not in sizes.get(queue.parent, {}):
                sums[key] += size
    return {key: max(size, maxima[key]) for key, size in sums.items()}


def share_bars(queue: QueueSummary, scales: Scales) -> list[tuple[ShareSummary, AmountBar]]:
    """Return the shares of a queue with their bars. Devices come first; empty shares are left out."""
    shares = [
        share
        for share in queue.shares
        if share.allocated or share.deserved or share.guarantee or share.ceiling
    ]
    shares.sort(key=lambda share: (resource_order(share.resource), share.flavor))
    return [(share, share_bar(share, scales)) for share in shares]


def share_bar(share: ShareSummary, scales: Scales) -> AmountBar:
    """Return the bar of a queue's usage and lending, with ticks at its deserved share and limits.

    The parts can fill the bar up to the ceiling, so the bar of a queue at its ceiling looks full.
    """
    scale = scales.get((share.resource, share.flavor), 0.0)
    ceiling = scale if share.ceiling is None else min(share.ceiling, scale)
    own_usage = share.allocated - share.borrowed
    deserved_part = BarPart("own", 0.0, _percent(min(share.deserved, ceiling), scale))
    parts = _parts(scale, held=own_usage, borrowed=share.borrowed, lent=share.lent)
    limit = share.ceiling if share.ceiling is not None and share.ceiling <= scale else 0.0
    ticks = {"ceiling": limit, "deserved": share.deserved, "guarantee": share.guarantee}
    tick_parts = [BarPart(kind, _percent(value, scale)) for kind, value in ticks.items() if value > 0]
    return AmountBar([deserved_part, *parts], tick_parts, _percent(ceiling, scale))


def shortfall_bar(shortfall: ShortfallSummary) -> AmountBar:
    """Return the bar of a request, with its free and its lacking part.

    The kinds are classes of the style sheet.
    """
    request, scale = shortfall.asked, max(shortfall.asked, shortfall.free)
    free = min(shortfall.free, request)
    parts = _parts(scale, there=free, lacks=request - free)
    return AmountBar(parts, [BarPart("asked", _percent(request, scale))])


def capacity_bar(capacity: CapacitySummary) -> AmountBar:
    """Return the bar of nodes, with running pods, assumed pods and reservations."""
    held, claimed, reserved = capacity.used, capacity.claimed, capacity.reserved
    return AmountBar(_parts(capacity.total, held=held, claimed=claimed, reserved=reserved))


def line(samples: Sequence[tuple[float, float]], start: float, end: float, top: float) -> str:
    """Return the points of an SVG polyline in a box of 100 by 100, through samples of (time, value)."""
    return " ".join(
        f"{_percent(at - start, end - start)},{100 - _percent(value, top):.4g}" for at, value in samples
    )


def _parts(scale: float, **lengths: float) -> list[BarPart]:
    """Return the parts of a bar, one after the other. `lengths` has the length of each kind."""
    parts, start = [], 0.0
    for kind, length in lengths.items():
        if length > 0:
            parts.append(BarPart(kind, _percent(start, scale), _percent(length, scale)))
            start += length
    return parts


def _percent(value: float, whole: float) -> float:
    return round(min(max(value / whole, 0.0), 1.0) * 100, 2) if whole > 0 else 0.0


def main_resource(nodes: Sequence[Mapping[str, float]]) -> str:
    """Return the resource that limits gangs most: the most common device of the nodes, else cpu."""
    devices: dict[str, int] = {}
    for amounts in nodes:
        for name, value in amounts.items():
            if "/" in name and value > 0:
                devices[name] = devices.get(name, 0) + 1
    return max(devices, key=lambda name: (devices[name], name.endswith("/gpu"), name), default="cpu")
