"""The parts of the ledger with which all others work."""

from collections.abc import Callable
from typing import NamedTuple

from extender.domain.cache.attendance import Attendance
from extender.domain.cache.changes import Changes
from extender.domain.cache.claim_moves import ClaimMoves
from extender.domain.cache.claims import Claims
from extender.domain.cache.refusals import Refusals
from extender.domain.cache.registry import Registry
from extender.domain.cache.releases import Releases
from extender.domain.snapshot.limits import Limits


class Parts(NamedTuple):
    registry: Registry
    claims: Claims
    moves: ClaimMoves
    releases: Releases
    changes: Changes
    attendance: Attendance
    refusals: Refusals
    clock: Callable[[], float]

    @classmethod
    def of(
        cls,
        limits: Limits,
        clock: Callable[[], float],
        on_change: Callable[[], None],
        on_shown: Callable[[], None] | None,
    ) -> "Parts":
        """Those of a new ledger; arguments as there."""
        registry, claims = Registry(), Claims()
        changes, releases = Changes(on_change, clock), Releases(on_shown, clock)
        moves = ClaimMoves(claims, registry, releases, changes, clock)
        attendance = Attendance(limits.asking_pause, clock)
        return cls(registry, claims, moves, releases, changes, attendance, Refusals(claims), clock)
