"""Turns of a reservation that cannot say when its group starts: its room is kept for a while, then lent for
as long; and each time for twice as long as before.

Services that never end would keep the rest of their nodes idle otherwise, and without growing turns a stream
of groups that run longer than one turn would keep the reserved group waiting without end.
"""

from math import floor, log2
from typing import NamedTuple


class RoomTurn(NamedTuple):
    """It ends at `until`, a moment on the ledger's clock."""

    is_kept: bool
    until: float


def turn_at(now: float, since: float, first: float) -> RoomTurn:
    """`since`: when turns begin; the room is kept until then. `first`: the seconds of the first one."""
    if now < since:
        return RoomTurn(True, since)
    number = floor(log2((now - since) / first / 2.0 + 1.0))
    begin, length = since + 2.0 * first * (2.0**number - 1.0), first * 2.0**number
    return RoomTurn(True, begin + length) if now < begin + length else RoomTurn(False, begin + 2.0 * length)
