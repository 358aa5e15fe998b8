"""How a queue stands, and who stands in the way of a group that waits: other groups, and queues above
share."""

from collections.abc import Iterable, Iterator
from operator import itemgetter

from extender.api.keys import STOP_NONE
from extender.api.objects.base import condition
from extender.api.objects.queues import QueuePreemption
from extender.api.summaries import HolderSummary
from extender.api.units import rounded
from extender.cli.output import amount, number, percent
from extender.cli.why.evidence import Evidence
from extender.cli.why.explanation import Explanation, held_by, in_the_way, queue_figures_of
from extender.cli.why.offers import offered, opening, resuming
from extender.domain.explain.observed import ObservedGroup, ObservedQueue
from extender.domain.model.reasons import FOR_ROOM, NOT_TAKEN_BACK, REMEDIES, Reason, Verdict, remedy
from extender.domain.queues.records import TAKE_AFTER, TAKE_AT_MOST, duration_of
from extender.terminal.text import many

_ENOUGH = 0.9995  # shares are written with three digits


def explain_queue(evidence: Evidence, queue: ObservedQueue) -> Explanation:
    own = evidence.groups_in(queue.name)
    waiting = [group for group in own if group.verdict in (Verdict.WAITING, Verdict.UNKNOWN)]
    reasons = {group.scheduled.reason for group in waiting if group.scheduled}
    short = queue.counts["pending"] and queue.share < 1
    above = list(queues_above_share(evidence, but=queue.name)) if short else []
    opened = condition(queue.status.conditions, "Open")
    remedies = [f"{reason}: {remedy(reason)}" for reason in REMEDIES if reason in reasons]
    if opened is not None and opened.reason == "ParentClosed":
        remedies.insert(0, f"{opened.message[0].upper()}{opened.message[1:]}.")
    offers, takes = [], "It takes new groups."
    deleting = bool(queue.metadata.deletion_timestamp)
    if queue.state in ("Closing", "Closed") and not deleting:
        offers = [offered(evidence, opening(queue.name, evidence.closed_above(queue.name)))]
    if queue.state == "Closing":
        left = sum(queue.counts[name] for name in ("pending", "inqueue", "running"))
        takes = f"It takes no new groups; {left} that came before are still in it, and go on."
    elif queue.state == "Closed":
        takes = "It is closed: it takes no new groups."
    elif deleting:
        takes = "It takes no new groups."
    elif _is_stopped(queue):
        takes = f"It takes new groups, and starts none: its spec.stopPolicy is {queue.spec.stop_policy}."
        offers = [offered(evidence, resuming(queue.name))]
    takes = f"It is being deleted. {takes}" if deleting else takes
    unmet = condition(queue.status.conditions, "GuaranteeUnmet")
    if unmet is not None and unmet.status == "True":
        takes = f"{takes} Its guarantee is not met in full: {unmet.message}."
    valid = condition(queue.status.conditions, "Valid")
    if valid is not None and valid.status == "True" and valid.message:
        takes = f"{takes} But {valid.message}."
    lacking = condition(queue.status.conditions, "FlavorNotFound")
    if lacking is not None and lacking.status == "True":
        takes = f"{takes} But {lacking.message}."
    return Explanation(
        kind="Queue",
        name=queue.name,
        verdict=queue.state,
        sentence=f"{takes} {_of_share(queue)}",
        queue=queue_figures_of(queue),
        waiting=_that_wait(waiting),
        holders=above,
        remedies=remedies,
        commands=offers,
        notes=evidence.notes,
    )


def _of_share(queue: ObservedQueue) -> str:
    if queue.status.share is None:
        return "Muster has not written yet what it holds and deserves."
    used = f"It uses {share_of(queue)}."
    if queue.share > 1:
        kept = "it keeps" if queue.spec.reclaimable is False else "is lent to it until others take it back"
        return f"{used} What is above {kept}."
    if queue.counts["pending"] and queue.share < _ENOUGH and not _is_stopped(queue):
        return f"{used} Groups that wait have a claim on the rest."
    return used


def _is_stopped(queue: ObservedQueue) -> bool:
    return queue.spec.stop_policy not in ("", STOP_NONE)


# ---- who stands in the way


def holders(evidence: Evidence, group: ObservedGroup, reason: str) -> list[HolderSummary]:
    """`group` waits for `reason`. Empty if only the group itself could change it."""
    own = evidence.queue_of(group)
    if reason in FOR_ROOM:
        its_queues_first = sorted(evidence.groups, key=lambda other: evidence.queue_of(other) != own)
        above = queues_above_share(evidence, but=own)
        return [*above, *_that_hold(evidence, group, its_queues_first)]
    match reason:
        case Reason.QUEUE_CEILING:
            return list(_that_hold(evidence, group, evidence.groups_in(own)))
        case Reason.QUEUE_SHARE:
            mates = evidence.groups_in(own)
            return [*_claimants(evidence, own), *_that_hold(evidence, group, mates)]
        case Reason.BEHIND_OTHERS:
            return _that_wait(_ahead(evidence, group))
        case Reason.RESERVED:
            keys = {f"{holder.namespace}/{holder.name}" for holder in group.waiting.holders}
            return _that_wait(other for other in evidence.groups if other.key in keys)
        case Reason.WINDOW_FULL:
            starting = (other for other in evidence.groups if other.verdict is Verdict.STARTING)
            return list(_that_hold(evidence, group, starting))
    return []


def queues_above_share(evidence: Evidence, but: str = "") -> Iterator[HolderSummary]:
    for queue in (evidence.queues or {}).values():
        if queue.share > 1 and queue.name != but:
            held = queue.status.allocated or {}
            yield HolderSummary("Queue", name=queue.name, does=f"uses {share_of(queue)}", holds=held)


def taking_back(evidence: Evidence, group: ObservedGroup, ahead: Iterable[HolderSummary]) -> Iterator[str]:
    """When its queue takes back what queues ahead of a group that lacks room hold above their shares, or why
    it never does."""
    if kept := [part for part in group.message.split("; ") if part.endswith(NOT_TAKEN_BACK)]:
        yield f"{kept[0][0].upper()}{kept[0][1:]}."
        return
    queue = evidence.queue(evidence.queue_of(group))
    above = [evidence.queue(each.name) for each in ahead if each.kind == "Queue"]
    if queue is None or queue.share >= _ENOUGH or group.reason == Reason.RECLAIMING:
        return
    if any(each is not None and each.spec.reclaimable is not False for each in above):
        rules = queue.spec.preemption or QueuePreemption()
        after, at_most = duration_of(rules.after, TAKE_AFTER), duration_of(rules.at_most, TAKE_AT_MOST)
        yield (
            "What other queues hold above their shares is taken back for groups with which this queue stays"
            f" within its own: after {rounded(int(after))} if that loses little work, after"
            f" {rounded(int(max(after, at_most)))} whatever it loses, unless disruption budgets keep it"
            " (spec.preemption of the queues)."
        )


def share_of(queue: ObservedQueue) -> str:
    """`150% of what it deserves (cpu 12 of 8)`; of a flavor `(cpu 12 of 8 on spot)`."""
    status = queue.status
    places = [(status.allocated or {}, status.deserved or {}, "")]
    places += [(it.allocated or {}, it.deserved or {}, f" on {it.name}") for it in status.flavors or ()]
    parts = [
        (number(name, held.get(name)) / (number(name, due) or 1), name, held.get(name, 0), due, where)
        for held, deserved, where in places
        for name, due in sorted(deserved.items())
    ]
    used = f"{percent(queue.share)} of what it deserves"
    if not parts:
        return used
    _, name, most, due, where = max(parts, key=itemgetter(0))
    return f"{used} ({name} {amount(name, most)} of {amount(name, due)}{where})"


def waits(group: ObservedGroup) -> str:
    """`waits: NoRoom (cpu: 8 needed, 2 left on suitable nodes)`."""
    scheduled = group.scheduled
    if scheduled is None:
        return "waits, not looked at yet"
    message = f" ({scheduled.message})" if scheduled.message else ""
    return f"waits: {scheduled.reason}{message}"


def _that_hold(
    evidence: Evidence, group: ObservedGroup, others: Iterable[ObservedGroup]
) -> Iterator[HolderSummary]:
    """Without those whose members are known and hold nothing any more."""
    for other in others:
        if other.key == group.key or not other.is_holding:
            continue
        does = "starts" if other.verdict is Verdict.STARTING else "runs"
        members = evidence.members(other)
        if members is None:
            needs = f"{does}, needs {many(other.spec.min_member, 'pod')}"
            yield in_the_way(other, needs)
        elif held := held_by(members):
            pods = sum(bool(pod.spec.node_name) for pod in members)
            yield in_the_way(other, f"{does}, {many(pods, 'pod')} on nodes", pods, held)


def _claimants(evidence: Evidence, but: str) -> Iterator[HolderSummary]:
    """Other queues whose groups wait although they use less than they deserve."""
    for queue in (evidence.queues or {}).values():
        pending = queue.counts["pending"]
        if queue.name != but and pending and queue.share < _ENOUGH:
            does = f"{pending} of its groups wait, uses {share_of(queue)}"
            yield HolderSummary("Queue", name=queue.name, does=does)


def _ahead(evidence: Evidence, group: ObservedGroup) -> list[ObservedGroup]:
    """Those that its status names, else all that are older and wait."""
    mates = evidence.groups_in(evidence.queue_of(group))
    if named := [mate for mate in mates if mate.key in group.waiting.ahead]:
        return named
    place = next((n for n, mate in enumerate(mates) if mate.key == group.key), 0)
    return [mate for mate in mates[:place] if not mate.is_holding]


def _that_wait(groups: Iterable[ObservedGroup]) -> list[HolderSummary]:
    return [in_the_way(group, waits(group)) for group in groups]
