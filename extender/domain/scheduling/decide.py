"""decide(): which pods may start and where, and why each other group waits.

A pure function of the snapshot; `previous` only saves work:

    nothing has changed ──────────────────────────► the same
    room changed, and nothing can start with it ──► carry_over: the same, with other numbers
    few groups changed ───────────────────────────► partial_round: a round without those that only wait
    all else ─────────────────────────────────────► a round
"""

from msgspec.structs import replace

from extender.domain.scheduling.carry_over import carry_over, partial_round
from extender.domain.scheduling.memory import memory_of
from extender.domain.scheduling.results import decisions_of, positions_of
from extender.domain.scheduling.round import Round
from extender.domain.scheduling.steps import judge_all
from extender.domain.snapshot.decisions import Decisions
from extender.domain.snapshot.snapshot import Snapshot


def decide(snapshot: Snapshot, previous: Decisions | None = None) -> Decisions:
    memory = memory_of(previous)
    if previous is None or memory is None:
        return _decide(Round(snapshot), previous)
    if memory.holds(snapshot, previous):
        return replace(previous, serial=previous.serial + 1, turned=())
    if (carried := carry_over(snapshot, previous, memory)) is not None:
        return carried
    if (decided := partial_round(snapshot, previous, memory)) is not None:
        return decided
    return _decide(Round(snapshot, memory.totals, memory.shares), previous)


def _decide(round_: Round, previous: Decisions | None) -> Decisions:
    judged = judge_all(round_)
    return decisions_of(judged, previous, positions_of(judged))
