"""How a queue stands: whether it takes new groups, what it uses of its share, which of its groups wait."""

from collections.abc import Iterable, Iterator

from extender.api.conditions import condition
from extender.cli.explain.blockers import queues_above_share, share_of, waiting_groups
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.explanation import Blocker, Explanation, OfferedCommand, queue_figures_of
from extender.cli.explain.offers import offered, opening
from extender.cli.explain.remedies import REMEDIES, remedy
from extender.cli.observed import ObservedGroup, ObservedQueue


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
    names = {(each.namespace, each.name) for each in waiting}
    found = (each.scheduled for each in groups if (each.namespace, each.name) in names)
    reasons = {condition.reason for condition in found if condition}
    return (f"{reason}: {remedy(reason)}" for reason in REMEDIES if reason in reasons)
