"""All that is known of why one group waits, worked out when somebody asks: never for all groups."""

from contextlib import suppress

import msgspec

from extender.domain.explain.changes import smallest_change
from extender.domain.explain.holders import Holder, StartChange, WaitingCase
from extender.domain.model.reasons import Verdict
from extender.domain.model.records import GroupKey
from extender.domain.scheduling.memory import notes_of
from extender.domain.snapshot.decisions import Decisions, message_of

_MOST_HOLDERS = 20
_MOST_AHEAD = 5
_WORK = 40_000  # one to two seconds on the largest clusters
_LOOKS = 20  # at a node for a term of affinity take about as long as all that is done for one node


class WhyGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a group waits, and what would start it."""

    group: GroupKey
    queue: str
    verdict: Verdict  # whether it waits at all
    reason: str = ""  # a Reason; empty: no member waits
    sentence: str = ""  # what the reason means
    message: str = ""  # the numbers behind it and its position, as its condition says
    position: int = 0  # its place in line; 0: it is not in line
    waiting: int = 0  # how many groups of its queue are in line
    ahead: tuple[GroupKey, ...] = ()  # the first of those in front of it
    holders: tuple[Holder, ...] = ()  # who holds what it lacks, the largest first
    more_holders: int = 0  # how many others do
    change: StartChange | None = None  # the smallest change found that would start it; None: none is known


def work_of(decisions: Decisions) -> int:
    """What one round goes through: groups and nodes, and what judging those with affinity takes. That is what
    it took in the last round, in which all of them were judged."""
    if (memory := notes_of(decisions)) is None:
        return 0
    snapshot, looks = memory.snapshot, memory.judged.round_.effort_spent
    return len(snapshot.groups) + len(snapshot.nodes.nodes) + 1 + round(looks / _LOOKS)


def explain_group(decisions: Decisions, key: GroupKey, work: int = _WORK) -> WhyGroup | None:
    """None for a group without a decision. `work`: what all rounds may go through, as `work_of` counts it."""
    decision, memory = decisions.groups.get(key), notes_of(decisions)
    if decision is None:
        return None
    queue = decisions.queues.get(decision.queue)
    reason = decision.reason
    why = WhyGroup(
        group=key,
        queue=decision.queue,
        verdict=decision.verdict,
        reason=str(reason or ""),
        sentence=reason.meaning if reason else "",
        message=message_of(decision),
        position=decision.position,
        waiting=queue.waiting if queue else 0,
    )
    group = memory.snapshot.groups.get(key) if memory is not None else None
    if memory is None or group is None or reason is None or decision.verdict is not Verdict.WAITING:
        return why
    case = WaitingCase(memory.snapshot, decisions, group, work // work_of(decisions))
    holders = case.holders(reason)
    change: StartChange | None = None
    with suppress(Exception):  # whatever a group says: it is only left without an explanation
        change = smallest_change(case)
    return msgspec.structs.replace(
        why,
        ahead=case.ahead(_MOST_AHEAD),
        holders=tuple(holders[:_MOST_HOLDERS]),
        more_holders=max(len(holders) - _MOST_HOLDERS, 0),
        change=change,
    )
