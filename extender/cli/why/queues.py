"""How a queue stands, and who stands in the way of a group that waits: other groups, and queues above their
share. Whom to look for follows from the reason.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from extender.api.objects.base import condition
from extender.cli.observed import ObservedGroup, ObservedQueue
from extender.cli.output import amount, number, percent
from extender.cli.why.evidence import Evidence
from extender.cli.why.explanation import Blocker, Explanation, held_by, queue_figures_of
from extender.cli.why.offers import offered, opening
from extender.domain.explain.remedies import FOR_ROOM, REMEDIES, remedy
from extender.domain.model.reasons import Reason
from extender.terminal.text import many

_HOLDING = ("Running", "Inqueue")
_ENOUGH = 0.9995  # shares are written with three digits

Find = Callable[[Evidence, ObservedGroup], Iterator[Blocker]]


def explain_queue(evidence: Evidence, queue: ObservedQueue) -> Explanation:
    waiting = [
        group for group in _of_queue(evidence, queue.name) if group.course not in (*_HOLDING, "Completed")
    ]
    reasons = {group.scheduled.reason for group in waiting if group.scheduled}
    short = queue.counts["pending"] and queue.share < 1
    above = list(queues_above_share(evidence, but=queue.name)) if short else []
    opened = condition(queue.status.conditions, "Open")
    remedies = [f"{reason}: {remedy(reason)}" for reason in REMEDIES if reason in reasons]
    if opened is not None and opened.reason == "ParentClosed":
        remedies.insert(0, f"{opened.message[0].upper()}{opened.message[1:]}.")
    offers = []
    if queue.state in ("Closing", "Closed"):
        offers = [offered(evidence, opening(queue.name, evidence.closed_above(queue.name)))]
    return Explanation(
        kind="Queue",
        name=queue.name,
        verdict=queue.state,
        sentence=f"{_of_state(queue)} {_of_share(queue)}",
        queue=queue_figures_of(queue),
        waiting=[Blocker("PodGroup", group.name, group.namespace, waits(group)) for group in waiting],
        holders=above,
        remedies=remedies,
        commands=offers,
        notes=evidence.notes,
    )


def _of_state(queue: ObservedQueue) -> str:
    left = sum(queue.counts[name] for name in ("pending", "inqueue", "running"))
    match queue.state:
        case "Closing":
            return f"It takes no new groups; {left} that came before are still in it, and go on."
        case "Closed":
            return "It is closed: it takes no new groups."
    return "It takes new groups."


def _of_share(queue: ObservedQueue) -> str:
    if queue.status.share is None:
        return "Muster has not written yet what it holds and deserves."
    used = f"It uses {share_of(queue)}."
    if queue.share > 1:
        return f"{used} What is above is lent to it while others do not want it."
    if queue.counts["pending"]:
        return f"{used} Groups that wait have a claim on the rest."
    return used


# ---- who stands in the way


def holders(evidence: Evidence, group: ObservedGroup, reason: str) -> list[Blocker]:
    """`group` waits for `reason`. Empty if only the group itself could change it."""
    finders = _FINDERS.get(reason, ())
    return [other for find in finders for other in find(evidence, group)]


def queues_above_share(evidence: Evidence, but: str = "") -> Iterator[Blocker]:
    for queue in (evidence.queues or {}).values():
        if queue.share > 1 and queue.name != but:
            held = queue.status.allocated or {}
            yield Blocker("Queue", queue.name, does=f"uses {share_of(queue)}", holds=held)


def share_of(queue: ObservedQueue) -> str:
    """`150% of what it deserves (cpu 12 of 8)`."""
    deserved, held = queue.status.deserved or {}, queue.status.allocated or {}

    def part(name: str) -> float:
        return number(name, held.get(name)) / (number(name, deserved[name]) or 1)

    most = max(sorted(deserved), key=part, default="")
    used = f"{percent(queue.share)} of what it deserves"
    if not most:
        return used
    return f"{used} ({most} {amount(most, held.get(most, 0))} of {amount(most, deserved[most])})"


def waits(group: ObservedGroup) -> str:
    """`waits: NoRoom (cpu: 8 needed, 2 left on suitable nodes)`."""
    scheduled = group.scheduled
    if scheduled is None:
        return "waits, not looked at yet"
    message = f" ({scheduled.message})" if scheduled.message else ""
    return f"waits: {scheduled.reason}{message}"


# ---- whom to look for


def _of_queue(evidence: Evidence, queue: str) -> Iterator[ObservedGroup]:
    return (group for group in evidence.groups if evidence.queue_of(group) == queue)


def _queue_mates(evidence: Evidence, group: ObservedGroup) -> Iterator[Blocker]:
    """Groups of the same queue that hold room."""
    yield from _that_hold(evidence, group, _of_queue(evidence, evidence.queue_of(group)))


def _all_that_hold(evidence: Evidence, group: ObservedGroup) -> Iterator[Blocker]:
    """Its queue's first."""
    own = evidence.queue_of(group)
    others = sorted(evidence.groups, key=lambda other: evidence.queue_of(other) != own)
    yield from _that_hold(evidence, group, others)


def _starting(evidence: Evidence, group: ObservedGroup) -> Iterator[Blocker]:
    yield from _that_hold(evidence, group, (other for other in evidence.groups if other.course == "Inqueue"))


def _that_hold(
    evidence: Evidence, group: ObservedGroup, others: Iterable[ObservedGroup]
) -> Iterator[Blocker]:
    """Without those whose members are known and hold nothing any more."""
    for other in others:
        if other.key == group.key or other.course not in _HOLDING:
            continue
        does = "starts" if other.course == "Inqueue" else "runs"
        members = evidence.members(other)
        if members is None:
            needs = f"{does}, needs {many(other.spec.min_member, 'pod')}"
            yield Blocker("PodGroup", other.name, other.namespace, needs)
        elif held := held_by(members):
            on_nodes = many(sum(bool(pod.spec.node_name) for pod in members), "pod")
            yield Blocker("PodGroup", other.name, other.namespace, f"{does}, {on_nodes} on nodes", held)


def _other_queues_above_share(evidence: Evidence, group: ObservedGroup) -> Iterator[Blocker]:
    yield from queues_above_share(evidence, but=evidence.queue_of(group))


def _claimants(evidence: Evidence, group: ObservedGroup) -> Iterator[Blocker]:
    """Queues whose groups wait although they use less than they deserve."""
    for queue in (evidence.queues or {}).values():
        pending = queue.counts["pending"]
        if queue.name != evidence.queue_of(group) and pending and queue.share < _ENOUGH:
            does = f"{pending} of its groups wait, uses {share_of(queue)}"
            yield Blocker("Queue", queue.name, does=does)


def _ahead(evidence: Evidence, group: ObservedGroup) -> Iterator[Blocker]:
    """Those that its status names, else all that are older and wait."""
    mates = list(_of_queue(evidence, evidence.queue_of(group)))
    others = [mate for mate in mates if mate.key in group.waiting.ahead]
    if not others:
        place = next((n for n, mate in enumerate(mates) if mate.key == group.key), 0)
        others = [mate for mate in mates[:place] if mate.course not in _HOLDING]
    for other in others:
        yield Blocker("PodGroup", other.name, other.namespace, waits(other))


def _reserving(evidence: Evidence, group: ObservedGroup) -> Iterator[Blocker]:
    """The groups for which room is reserved."""
    keys = {f"{holder.namespace}/{holder.name}" for holder in group.waiting.holders}
    for other in evidence.groups:
        if other.key in keys:
            yield Blocker("PodGroup", other.name, other.namespace, waits(other))


_FINDERS: Mapping[str, tuple[Find, ...]] = {
    **dict.fromkeys(FOR_ROOM, (_other_queues_above_share, _all_that_hold)),
    Reason.QUEUE_CEILING: (_queue_mates,),
    Reason.QUEUE_SHARE: (_claimants, _queue_mates),
    Reason.BEHIND_OTHERS: (_ahead,),
    Reason.RESERVED: (_reserving,),
    Reason.WINDOW_FULL: (_starting,),
}
