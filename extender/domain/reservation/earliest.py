"""The earliest moment at which all missing members of a group find room, and where."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from extender.domain.lifecycle.quorum import Missing
from extender.domain.model.records import Uid
from extender.domain.placement.planner import Planner
from extender.domain.reservation.departures import Departures


class FutureStart(NamedTuple):
    at: float | None
    """When it is, on the ledger's clock; None: that is a guess."""
    nodes: Mapping[Uid, str]


def earliest(planner: Planner, departures: Departures, wanted: Missing, now: float) -> FutureStart | None:
    """None if the members find no room even once all groups that run have ended. `planner`: the room now; it
    is not changed."""
    moments = [now, *(moment for moment in departures.moments if moment > now)]
    future = _Future(planner, departures, wanted, moments)
    if future[len(moments) - 1] is None:
        return None
    first = bisect_left(future, True, key=lambda nodes: nodes is not None)
    nodes = future[first]
    if nodes is None:
        return None
    is_guess = departures.is_guess(frozenset(nodes.values()), moments[first])
    return FutureStart(None if is_guess else moments[first], nodes)


class _Future(Sequence[Mapping[Uid, str] | None]):
    """By moment: where the members find room then; None where they do not."""

    def __init__(
        self, planner: Planner, departures: Departures, wanted: Missing, moments: Sequence[float]
    ) -> None:
        self._planner, self._departures, self._wanted, self._moments = planner, departures, wanted, moments

    def __len__(self) -> int:
        return len(self._moments)

    def __getitem__(self, number: int) -> Mapping[Uid, str] | None:  # type: ignore[override]
        planner = self._planner.clone()
        self._departures.give_back(planner.capacity, self._moments[number])
        if planner.capacity.is_short_for(self._wanted.shapes):
            return None
        return planner.place(self._wanted.members)
