"""Diagnosis of a queue, and the groups and queues that are ahead of a group that waits."""

from collections.abc import Iterable, Iterator
from operator import itemgetter

from extender.api.objects.base import Quantities, condition
from extender.api.objects.queues import QueuePreemption
from extender.api.summaries import HolderSummary
from extender.api.units import rounded
from extender.cli.output import amount, number, percent
from extender.cli.why.commands import Case, opening
from extender.cli.why.evidence import Evidence, held_by
from extender.cli.why.explanation import Blocker, Explanation, Offer, QueueFigures, Statement
from extender.domain.explain.observed import ObservedGroup, ObservedQueue
from extender.domain.model.reasons import FOR_ROOM, NOT_TAKEN_BACK, REMEDIES, Reason, Verdict
from extender.domain.queues.records import TAKE_AFTER, TAKE_AT_MOST, duration_of
from extender.terminal.text import many

_ENOUGH = 0.9995  # shares are written with three digits
_REMARKS = ("GuaranteeUnmet", "Valid", "FlavorNotFound")  # conditions whose message is shown while they hold


def explain_queue(evidence: Evidence, queue: ObservedQueue) -> Explanation:
    own = evidence.groups_in(queue.name)
    waiting = [group for group in own if group.verdict in (Verdict.WAITING, Verdict.UNKNOWN)]
    reasons = {group.scheduled.reason for group in waiting if group.scheduled}
    is_short = queue.counts["pending"] and queue.share < 1
    opened = condition(queue.status.conditions, "Open")
    by_parent = opened is not None and opened.reason == "ParentClosed"
    return Explanation(
        kind="Queue",
        name=queue.name,
        verdict=queue.state,
        sentence=[*_state(queue), *_share(queue)],
        queue=queue_figures(queue),
        waiting=that_wait(waiting),
        holders=list(_above_share(evidence, but=queue.name)) if is_short else [],
        remedies=[
            *([_message(opened.message)] if opened and by_parent else []),
            *(Statement("ReasonOfGroups", reason=reason) for reason in REMEDIES if reason in reasons),
        ],
        commands=_commands(evidence, queue),
        notes=evidence.notes,
    )


def queue_figures(queue: ObservedQueue | None) -> QueueFigures | None:
    if queue is None:
        return None
    spec, status, counts = queue.spec, queue.status, queue.counts
    held, deserved, most = (each or {} for each in (status.allocated, status.deserved, spec.capability))
    groups = (counts[name] for name in ("pending", "inqueue", "running"))
    return QueueFigures(queue.name, queue.state, spec.weight, status.share, held, deserved, most, *groups)


def _message(text: str) -> Statement:
    """Return the message of a condition as a sentence."""
    return Statement("Message", message=f"{text[:1].upper()}{text[1:]}")


def _state(queue: ObservedQueue) -> Iterator[Statement]:
    is_deleted = bool(queue.metadata.deletion_timestamp)
    if is_deleted:
        yield Statement("QueueDeleted")
    if queue.state in ("Closing", "Closed"):
        left = sum(queue.counts[name] for name in ("pending", "inqueue", "running"))
        yield Statement(f"Queue{queue.state}", left=left)
    elif queue.is_stopped and not is_deleted:
        yield Statement("QueueStopped", policy=queue.spec.stop_policy)
    else:
        yield Statement("QueueTakesNone" if is_deleted else "QueueOpen")
    for kind in _REMARKS:
        found = condition(queue.status.conditions, kind)
        if found is not None and found.status == "True" and found.message:
            yield Statement(f"Queue{kind}", message=found.message)


def _commands(evidence: Evidence, queue: ObservedQueue) -> list[Offer]:
    case = Case(evidence, queue=queue.name)
    if queue.metadata.deletion_timestamp:
        return []
    if queue.state in ("Closing", "Closed"):
        return [opening(case)]
    return [case.for_queue("ResumeQueue")] if queue.is_stopped else []


def _share(queue: ObservedQueue) -> Iterator[Statement]:
    if queue.status.share is None:
        yield Statement("ShareUnknown")
        return
    yield Statement("QueueUses", share=share_of(queue))
    if queue.share > 1:
        yield Statement("KeepsAbove" if queue.spec.reclaimable is False else "BorrowsAbove")
    elif queue.counts["pending"] and queue.share < _ENOUGH and not queue.is_stopped:
        yield Statement("HasClaim")


def share_of(queue: ObservedQueue) -> Statement:
    """Return the used part of what a queue deserves, with the resource of which it uses the largest part."""
    status = queue.status
    places = [(status.allocated or {}, status.deserved or {}, "")]
    places += [(it.allocated or {}, it.deserved or {}, it.name) for it in status.flavors or ()]
    parts = [
        (number(name, held.get(name)) / (number(name, due) or 1), name, held.get(name, 0), due, where)
        for held, deserved, where in places
        for name, due in sorted(deserved.items())
    ]
    used = percent(queue.share)
    if not parts:
        return Statement("Share", used=used)
    _, name, most, due, flavor = max(parts, key=itemgetter(0))
    figures = {"resource": name, "held": amount(name, most), "deserved": amount(name, due)}
    return Statement("ShareOfFlavor" if flavor else "ShareOfResource", used=used, flavor=flavor, **figures)


# ---- groups and queues that are ahead


def holders(evidence: Evidence, group: ObservedGroup) -> list[Blocker]:
    """Return what a group waits for by its reason; nothing if only the group itself could change that."""
    own = evidence.queue_of(group)
    if group.reason in FOR_ROOM:
        its_queues_first = sorted(evidence.groups, key=lambda other: evidence.queue_of(other) != own)
        return [*_above_share(evidence, but=own), *_that_hold(evidence, group, its_queues_first)]
    match group.reason:
        case Reason.QUEUE_CEILING:
            return list(_that_hold(evidence, group, evidence.groups_in(own)))
        case Reason.QUEUE_SHARE:
            mates = evidence.groups_in(own)
            return [*_claimants(evidence, own), *_that_hold(evidence, group, mates)]
        case Reason.BEHIND_OTHERS:
            return that_wait(_ahead(evidence, group))
        case Reason.RESERVED:
            keys = {f"{holder.namespace}/{holder.name}" for holder in group.waiting.holders}
            return that_wait(other for other in evidence.groups if other.key in keys)
        case Reason.WINDOW_FULL:
            starting = (other for other in evidence.groups if other.verdict is Verdict.STARTING)
            return list(_that_hold(evidence, group, starting))
    return []


def reclaiming(evidence: Evidence, group: ObservedGroup, ahead: Iterable[Blocker]) -> Iterator[Statement]:
    """Yield when its queue reclaims what queues ahead of a group hold above their shares, or why it never
    does."""
    if kept := [part for part in group.message.split("; ") if part.endswith(NOT_TAKEN_BACK)]:
        yield _message(kept[0])
        return
    queue = evidence.queue(evidence.queue_of(group))
    above = [evidence.queue(each.who.name) for each in ahead if each.who.kind == "Queue"]
    if queue is None or queue.share >= _ENOUGH or group.reason == Reason.RECLAIMING:
        return
    if any(each is not None and each.spec.reclaimable is not False for each in above):
        rules = queue.spec.preemption or QueuePreemption()
        after, at_most = duration_of(rules.after, TAKE_AFTER), duration_of(rules.at_most, TAKE_AT_MOST)
        yield Statement("Reclaims", after=rounded(int(after)), most=rounded(int(max(after, at_most))))


def that_wait(groups: Iterable[ObservedGroup]) -> list[Blocker]:
    return [_group(group, waits(group)) for group in groups]


def waits(group: ObservedGroup) -> Statement:
    """Return the reason of a group that waits, with its numbers."""
    if (scheduled := group.scheduled) is None:
        return Statement("WaitsUnseen")
    code = "WaitsWithNumbers" if scheduled.message else "Waits"
    return Statement(code, reason=scheduled.reason, message=scheduled.message)


def summary_of(group: ObservedGroup, pods: int = 0, holds: Quantities | None = None) -> HolderSummary:
    """Return a group by the kind and name that people know it by."""
    kind, name, of = group.called.kind, group.called.name, group.called.api_version
    return HolderSummary(kind, group.namespace, name, pods=pods, holds=holds or {}, api_version=of)


def _group(group: ObservedGroup, does: Statement, pods: int = 0, holds: Quantities | None = None) -> Blocker:
    return Blocker(**vars(does), who=summary_of(group, pods, holds))


def _that_hold(
    evidence: Evidence, group: ObservedGroup, others: Iterable[ObservedGroup]
) -> Iterator[Blocker]:
    """Yield the groups that run or start, without those whose members are known and hold nothing any more."""
    for other in others:
        if other.key == group.key or not other.is_holding:
            continue
        does = "starts" if other.verdict is Verdict.STARTING else "runs"
        members = evidence.members(other)
        if members is None:
            yield _group(other, Statement("Holds", does=does, needs=many(other.spec.min_member, "pod")))
        elif held := held_by(members):
            pods = sum(bool(pod.spec.node_name) for pod in members)
            yield _group(other, Statement("HoldsOnNodes", does=does, pods=many(pods, "pod")), pods, held)


def _above_share(evidence: Evidence, but: str = "") -> Iterator[Blocker]:
    """Yield the queues that hold more than they deserve."""
    for queue in (evidence.queues or {}).values():
        if queue.share > 1 and queue.name != but:
            who = HolderSummary("Queue", name=queue.name, holds=queue.status.allocated or {})
            yield Blocker("Uses", who=who, share=share_of(queue))


def _claimants(evidence: Evidence, but: str) -> Iterator[Blocker]:
    """Yield other queues whose groups wait although they use less than they deserve."""
    for queue in (evidence.queues or {}).values():
        pending = queue.counts["pending"]
        if queue.name != but and pending and queue.share < _ENOUGH:
            who = HolderSummary("Queue", name=queue.name)
            yield Blocker("HasPending", who=who, pending=pending, share=share_of(queue))


def _ahead(evidence: Evidence, group: ObservedGroup) -> list[ObservedGroup]:
    """Return the groups that its status names, else all that are older and wait."""
    mates = evidence.groups_in(evidence.queue_of(group))
    if named := [mate for mate in mates if mate.key in group.waiting.ahead]:
        return named
    place = next((n for n, mate in enumerate(mates) if mate.key == group.key), 0)
    return [mate for mate in mates[:place] if not mate.is_holding]
