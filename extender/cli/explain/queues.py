"""How a queue stands, and what stands in the way of a group: other groups, and queues above their share."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from extender.api.objects.base import condition
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.explanation import Blocker, Explanation, OfferedCommand, held_by, queue_figures_of
from extender.cli.explain.offers import offered, opening
from extender.cli.observed import ObservedGroup, ObservedQueue
from extender.cli.output import amount, number, percent
from extender.domain.explain.remedies import REMEDIES, remedy
from extender.domain.model.reasons import Reason
from extender.terminal.text import many

# ---- What stands in the way of a group that waits, as far as objects show: other groups, and queues
# above their share. What to look for follows from the reason.

_HOLDING = ("Running", "Inqueue")
_ENOUGH = 0.9995  # shares are written with three digits

Find = Callable[[Evidence, ObservedGroup], Iterator[Blocker]]


def holders(evidence: Evidence, group: ObservedGroup, reason: str) -> list[Blocker]:
    """`group` waits for `reason`. Empty if only the group itself could change it."""
    finders = _FINDERS.get(reason, ())
    return [other for find in finders for other in find(evidence, group)]


def queues_above_share(evidence: Evidence, but: str = "") -> Iterator[Blocker]:
    for queue in (evidence.queues or {}).values():
        if queue.share > 1 and queue.name != but:
            yield Blocker(
                "Queue", queue.name, does=f"uses {share_of(queue)}", holds=queue.status.allocated or {}
            )


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


def waiting_groups(evidence: Evidence, queue: str) -> Iterator[Blocker]:
    for group in _of_queue(evidence, queue):
        if group.course not in (*_HOLDING, "Completed"):
            yield Blocker("PodGroup", group.name, group.namespace, waits(group))


def waits(group: ObservedGroup) -> str:
    """`waits: NoRoom (cpu: 8 needed, 2 left on suitable nodes)`."""
    scheduled = group.scheduled
    if scheduled is None:
        return "waits, not looked at yet"
    message = f" ({scheduled.message})" if scheduled.message else ""
    return f"waits: {scheduled.reason}{message}"


# ---- what to look for


def _queue_mates(evidence: Evidence, group: ObservedGroup) -> Iterator[Blocker]:
    """Groups of the same queue that hold room."""
    yield from _that_hold(evidence, group, _of_queue(evidence, evidence.queue_of(group)))


def _all_that_hold(evidence: Evidence, group: ObservedGroup) -> Iterator[Blocker]:
    """Its queue's first."""
    own = evidence.queue_of(group)
    yield from _that_hold(
        evidence, group, sorted(evidence.groups, key=lambda other: evidence.queue_of(other) != own)
    )


def _that_hold(
    evidence: Evidence, group: ObservedGroup, others: Iterable[ObservedGroup]
) -> Iterator[Blocker]:
    for other in others:
        if other.key != group.key and other.course in _HOLDING:
            yield from _as_holder(evidence, other)


def _as_holder(evidence: Evidence, group: ObservedGroup) -> Iterator[Blocker]:
    """Nothing where its members are known and hold nothing any more."""
    does = "starts" if group.course == "Inqueue" else "runs"
    members = evidence.members(group)
    if members is None:
        yield Blocker(
            "PodGroup", group.name, group.namespace, f"{does}, needs {many(group.spec.min_member, 'pod')}"
        )
    elif held := held_by(members):
        on_nodes = sum(bool(pod.spec.node_name) for pod in members)
        yield Blocker(
            "PodGroup", group.name, group.namespace, f"{does}, {many(on_nodes, 'pod')} on nodes", held
        )


def _starting(evidence: Evidence, group: ObservedGroup) -> Iterator[Blocker]:
    starting = [group for group in evidence.groups if group.course == "Inqueue"]
    yield from _that_hold(evidence, group, starting)


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
    """The one that the condition names, else all that are older and wait."""
    mates = list(_of_queue(evidence, evidence.queue_of(group)))
    message = group.scheduled.message if group.scheduled else ""
    named = [mate for mate in mates if message.startswith(f"{mate.key} ")]
    older = mates[: next((n for n, mate in enumerate(mates) if mate.key == group.key), 0)]
    for other in named or [older_one for older_one in older if older_one.course not in _HOLDING]:
        yield Blocker("PodGroup", other.name, other.namespace, waits(other))


def _reserving(evidence: Evidence, group: ObservedGroup) -> Iterator[Blocker]:
    """The groups that the condition names, for which room is reserved."""
    message = group.scheduled.message if group.scheduled else ""
    for other in evidence.groups:
        if f"{other.key}: nodes " in message:
            yield Blocker("PodGroup", other.name, other.namespace, waits(other))


def _of_queue(evidence: Evidence, queue: str) -> Iterator[ObservedGroup]:
    return (group for group in evidence.groups if evidence.queue_of(group) == queue)


_FOR_ROOM: tuple[Find, ...] = (_other_queues_above_share, _all_that_hold)
_FINDERS: Mapping[str, tuple[Find, ...]] = {
    Reason.QUEUE_CEILING: (_queue_mates,),
    Reason.QUEUE_SHARE: (_claimants, _queue_mates),
    Reason.BEHIND_OTHERS: (_ahead,),
    Reason.NO_ROOM: _FOR_ROOM,
    Reason.FRAGMENTED: _FOR_ROOM,
    Reason.RESERVED: (_reserving,),
    Reason.RECLAIMING: _FOR_ROOM,
    Reason.WINDOW_FULL: (_starting,),
}


# ---- How a queue stands: whether it takes new groups, what it uses of its share, which of its groups
# wait.


def explain_queue(evidence: Evidence, queue: ObservedQueue) -> Explanation:
    waiting = list(waiting_groups(evidence, queue.name))
    short = queue.counts["pending"] and queue.share < 1
    return Explanation(
        kind="Queue",
        name=queue.name,
        verdict=queue.state,
        sentence=" ".join((_of_state(queue), _of_share(queue))),
        queue=queue_figures_of(queue),
        waiting=waiting,
        holders=list(queues_above_share(evidence, but=queue.name)) if short else [],
        remedies=[*_shut_by_parent(queue), *_remedies(evidence.groups, waiting)],
        commands=_opening(evidence, queue),
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


def _shut_by_parent(queue: ObservedQueue) -> Iterator[str]:
    found = condition(queue.status.conditions, "Open")
    if found is not None and found.reason == "ParentClosed":
        yield f"{found.message[0].upper()}{found.message[1:]}."


def _opening(evidence: Evidence, queue: ObservedQueue) -> list[OfferedCommand]:
    if queue.state not in ("Closing", "Closed"):
        return []
    found = condition(queue.status.conditions, "Open")
    return [offered(evidence, opening(queue.name, found.message if found else ""))]


def _remedies(groups: Iterable[ObservedGroup], waiting: Iterable[Blocker]) -> Iterator[str]:
    """For each reason that occurs among the groups that wait."""
    names = {(other.namespace, other.name) for other in waiting}
    found = (group.scheduled for group in groups if (group.namespace, group.name) in names)
    reasons = {condition.reason for condition in found if condition}
    return (f"{reason}: {remedy(reason)}" for reason in REMEDIES if reason in reasons)
