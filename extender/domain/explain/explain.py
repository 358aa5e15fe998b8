"""Explanation of one pending group. It is computed on request, never for all groups."""

from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from extender.api.objects.queues import Estimate
from extender.api.units import listed
from extender.domain.explain.changes import smallest_change
from extender.domain.explain.holders import Holder, StartChange, WaitingCase, queue_path
from extender.domain.model.evictions import EvictionCause, ReclaimVictim
from extender.domain.model.reasons import CAPACITY_REASONS, NOT_RECLAIMED_TEXT, Verdict
from extender.domain.model.records import GroupKey
from extender.domain.placement.eviction_units import Disruptions
from extender.domain.scheduling.cycle import Cycle
from extender.domain.scheduling.memory import read_facts
from extender.domain.snapshot.decisions import Decisions, message_of
from extender.domain.snapshot.snapshot import Snapshot
from extender.domain.snapshot.wholeness import ready_since

_MAX_HOLDERS = 20
_MAX_LISTED_GROUPS = 5
_MAX_LISTED_NAMES = 3  # number of names in one sentence
_MAX_WORK = 40_000  # limit of work; takes one to two seconds on the largest clusters
_LOOKS_PER_NODE = 20  # number of looks at a node for a term that cost as much as the evaluation of a node


class WhyGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reason why a group waits, and the change that would start it."""

    group: GroupKey
    queue: str
    verdict: Verdict  # whether the group waits at all
    reason: str = ""  # a Reason; empty if no member waits
    sentence: str = ""  # meaning of the reason
    message: str = ""  # numbers and position, as in the group's condition
    position: int = 0  # position in line; 0 if the group is not in line
    waiting: int = 0  # number of groups of its queue in line
    ahead: tuple[GroupKey, ...] = ()  # first groups ahead of the group
    holders: tuple[Holder, ...] = ()  # holders of lacking resources, the largest first
    more_holders: int = 0  # number of further holders
    why_not_reclaimed: str = msgspec.field(default="", name="kept")  # why nothing is reclaimed for the group
    change: StartChange | None = None  # smallest known change that would start the group
    estimate: Estimate | None = None  # expected start; None if it is not computed yet

    @property
    def outlook(self) -> str:
        """Return the change that would start the group, as text for users.

        The text begins with the reason why no capacity is reclaimed for the group, if there is one.
        """
        return "; ".join(filter(None, (self.why_not_reclaimed, self.change.sentence if self.change else "")))


def cycle_work(decisions: Decisions) -> int:
    """Return the work of one cycle that evaluates all groups.

    The work is the number of groups and nodes, plus the looks for affinity terms in the last cycle.
    """
    if (facts := read_facts(decisions)) is None:
        return 0
    snapshot, looks = facts.snapshot, facts.evaluation.cycle.spent_effort
    return len(snapshot.groups) + len(snapshot.nodes.nodes) + 1 + round(looks / _LOOKS_PER_NODE)


def explain_group(decisions: Decisions, key: GroupKey, limit: int = _MAX_WORK) -> WhyGroup | None:
    """Return the explanation of a group. None means that there is no decision on the group.

    `limit` limits the work of all trial cycles together, in the unit of `cycle_work`.
    """
    decision, facts = decisions.groups.get(key), read_facts(decisions)
    if decision is None:
        return None
    queue = decisions.queues.get(decision.queue)
    reason = decision.reason
    explanation = WhyGroup(
        group=key,
        queue=decision.queue,
        verdict=decision.verdict,
        reason=str(reason or ""),
        sentence=reason.meaning if reason else "",
        message=message_of(decision),
        position=decision.position,
        waiting=queue.waiting if queue else 0,
    )
    group = facts.snapshot.groups.get(key) if facts is not None else None
    if facts is None or group is None or reason is None or decision.verdict is not Verdict.WAITING:
        return explanation
    case = WaitingCase(facts.snapshot, decisions, group, limit // cycle_work(decisions))
    holders = case.holders(reason)
    change, why_not = None, ""
    with suppress(Exception):  # after an error, the explanation has fewer parts
        why_not = _why_not_reclaimed(case, facts.evaluation.cycle) if reason in CAPACITY_REASONS else ""
        change = smallest_change(case)
    return replace(
        explanation,
        ahead=case.groups_ahead(_MAX_LISTED_GROUPS),
        holders=tuple(holders[:_MAX_HOLDERS]),
        more_holders=max(len(holders) - _MAX_HOLDERS, 0),
        why_not_reclaimed=why_not,
        change=change,
    )


def _why_not_reclaimed(case: WaitingCase, cycle: Cycle) -> str:
    """Return why no capacity is reclaimed for a group from queues above their shares.

    There are two reasons: its queue would be above its own share, or disruption budgets protect the victims.
    """
    snapshot, group, shares = case.snapshot, case.group, cycle.budget.shares
    ancestors = queue_path(case.decisions, group.queue)
    borrowers = {name for name, decision in case.decisions.queues.items() if decision.borrowed} - {*ancestors}
    infos = (snapshot.queues[name] for name in borrowers & snapshot.queues.keys())
    if case.queue is None or not any(info.record.is_reclaimable for info in infos):
        return ""
    excess_texts = [
        shares.share_excess_text(group.queue, requests)
        for requests in cycle.budget.flavors.requests_by_assignment(group)
    ]
    is_above_share = bool(excess_texts) and all(excess_texts)
    if not (is_above_share or snapshot.disruption_budgets):
        return ""
    rules, ready_at = case.queue.preemption, ready_since(group)
    instant = snapshot.instant(ready_at) + max(rules.after, rules.at_most) if ready_at else snapshot.now
    later = replace(snapshot, now=max(instant, snapshot.now))  # the losses of victims no longer count by then
    decision = case.trial.decision(later)
    if decision is None or decision.verdict is not Verdict.WAITING or decision.reclaim is not None:
        return ""
    if is_above_share:
        return f"queue {group.queue} would hold {excess_texts[0]} that it deserves, {NOT_RECLAIMED_TEXT}"
    decision = case.trial.decision(replace(later, disruption_budgets={}))
    return _protecting_budgets(snapshot, decision.reclaim.victims) if decision and decision.reclaim else ""


def _protecting_budgets(snapshot: Snapshot, victims: Sequence[ReclaimVictim]) -> str:
    """Return a text about the budgets that protect the victims; empty if there are none."""
    groups = {victim.group: snapshot.groups[victim.group] for victim in victims if victim.group}
    other_pods = (snapshot.other_pods.get(victim.uid) for victim in victims if not victim.group)
    pods = [*(pod for group in groups.values() for pod in group.placed_pods), *filter(None, other_pods)]
    protected_uids = {
        victim.uid
        for victim in victims
        if victim.cause is not EvictionCause.RECLAIM
        or snapshot.queues[victim.queue].protection.honours_budgets
    }
    protected_pods = [pod for pod in pods if pod.uid in protected_uids]
    if not (budget_names := Disruptions(snapshot.disruption_budgets).refusing_budgets(protected_pods)):
        return ""
    victim_names = {group.display_name for group in groups.values()}
    victim_names |= {f"{pod.namespace}/{pod.name}" for pod in victims if not pod.group}
    budgets_text = (
        f"disruption budget {budget_names[0]} keeps"
        if len(budget_names) == 1
        else f"disruption budgets {listed(budget_names)} keep"
    )
    return f"{budgets_text} {listed(sorted(victim_names), _MAX_LISTED_NAMES)}, {NOT_RECLAIMED_TEXT}"
