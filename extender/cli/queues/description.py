"""All about one queue, in paragraphs: what it is, what it uses, its groups and what blocks them."""

from collections.abc import Iterator, Mapping

import msgspec

from extender.api.conditions import condition
from extender.api.objects.queues import QueueReservation
from extender.cli.access import ClusterAccess
from extender.cli.events import conditions, events
from extender.cli.explain.blockers import holders, waits
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.explanation import Blocker, QueueFigures, queue_figures_of
from extender.cli.explain.queues import explain_queue
from extender.cli.explain.rendering import joined, paragraphs, resource_rows
from extender.cli.explain.share_bars import bars
from extender.cli.formatting import NOTHING, age, amounts
from extender.cli.lookup import fetch
from extender.cli.observed import ObservedGroup, ObservedQueue
from extender.cli.output import Json, fields, folded, section
from extender.kube.resources import QUEUES

_MOST = 10  # groups of one verdict, nodes or namespaces that are named
_INDENT = "  "
_HEADINGS: Mapping[str, str] = {
    "Pending": "Groups that wait",
    "Inqueue": "Groups that start",
    "Running": "Groups that run",
    "Completed": "Groups that have ended",
    "Unknown": "Groups that are unclear",
}


def description(place: ClusterAccess, name: str) -> str:
    found = fetch(place.reader, QUEUES, "", name, Json)
    queue = msgspec.convert(found, ObservedQueue)
    evidence = Evidence(place, "")
    answer = explain_queue(evidence, queue)
    bare = msgspec.structs.replace(answer, queue=None, waiting=[])
    heading, verdict, *rest = paragraphs(bare)
    return joined(
        heading,
        fields(_spec(found, queue)),
        verdict,
        section("Shares:", _shares(queue_figures_of(queue))),
        section("Flavors:", _flavors(queue)),
        section("LocalQueues:", list(_local_queues(evidence, name))),
        *_groups(evidence, name),
        *rest,
        section("Conditions:", conditions(queue.status.conditions)),
        section("Events:", events(place.reader, "Queue", "", name)),
    )


_TIMES = {
    "reserveAfter": "Reserves after",
    "startTimeout": "Jobs get going within",
    "maxRunTime": "Jobs run at most",
}


def _spec(found: Json, queue: ObservedQueue) -> Iterator[tuple[str, object]]:
    spec = found.get("spec") or {}
    yield "Weight", queue.spec.weight
    yield "Priority", queue.spec.priority
    yield "Parent", queue.spec.parent or NOTHING
    if queue.quota:
        yield "Made from", queue.quota
    if queue.entering:
        yield "Namespaces", ", ".join(queue.entering[:_MOST]) + _more(len(queue.entering))
    yield "Order", queue.spec.dequeue_strategy or "traverse"
    yield from ((title, spec[field]) for field, title in _TIMES.items() if spec.get(field))
    yield "Reclaimable", _yes(spec.get("reclaimable") is not False)
    yield "Restricted", _yes(spec.get("restricted") is True)
    if spec.get("namespaceSelector") is not None:
        yield "Namespaces", _selector(spec["namespaceSelector"])
    for title, written in (("Deserved", "deserved"), ("Capability", "capability")):
        if spec.get(written):
            yield title, amounts(spec[written])
    if queue.spec.guarantee and queue.spec.guarantee.resource:
        yield "Guarantee", amounts(queue.spec.guarantee.resource)
    if queue.status.reservation:
        yield "Reserved", _reserved(queue.status.reservation)
    yield "Age", age(queue.metadata.creation_timestamp)


def _reserved(reservation: QueueReservation) -> str:
    nodes = reservation.nodes or []
    return f"{amounts(reservation.resource)} on {', '.join(nodes[:_MOST])}{_more(len(nodes))}"


def _more(count: int) -> str:
    return f" and {count - _MOST} more" if count > _MOST else ""


def _selector(written: Json) -> str:
    """As kubectl writes selectors."""
    labels = [f"{key}={value}" for key, value in sorted((written.get("matchLabels") or {}).items())]
    for each in written.get("matchExpressions") or ():
        values = f" ({', '.join(each['values'])})" if each.get("values") else ""
        labels.append(f"{each['key']} {each['operator']}{values}")
    return ", ".join(labels) or "all"


def _yes(truth: bool) -> str:
    return "yes" if truth else "no"


def _shares(queue: QueueFigures) -> list[str]:
    return bars(queue) or resource_rows(queue)


def _flavors(queue: ObservedQueue) -> list[str]:
    """What is held of each, and the most that may be."""
    held = {each.name: each.allocated for each in queue.status.flavors or ()}
    return [
        f"{each.name}: holds {amounts(held.get(each.name))}"
        + (f" of {amounts(each.capability)}" if each.capability else "")
        for each in queue.spec.flavors or ()
    ]


def _local_queues(evidence: Evidence, queue: str) -> Iterator[str]:
    """Those that lead into it."""
    keys = sorted(key for key, each in evidence.local_queues.items() if each.spec.queue == queue)
    for key in keys[:_MOST]:
        status = evidence.local_queues[key].status
        active = condition(status.conditions, "Active")
        activity = f", not active: {active.reason}" if active is not None and active.status == "False" else ""
        yield f"{key}: {status.waiting or 0} waiting, {status.admitted or 0} admitted{activity}"
    if len(keys) > _MOST:
        yield f"and {len(keys) - _MOST} more"


# ---- groups


def _groups(evidence: Evidence, queue: str) -> Iterator[str]:
    """A paragraph for each phase that occurs."""
    found = [each for each in evidence.groups if evidence.queue_of(each) == queue]
    for phase, heading in _HEADINGS.items():
        of_phase = [each for each in found if (each.course or "Pending") == phase]
        lines = [line for each in of_phase[:_MOST] for line in _group(evidence, each, phase)]
        more = len(of_phase) - _MOST
        lines += [f"{_INDENT}and {more} more"] if more > 0 else []
        yield section(f"{heading} ({len(of_phase)}):", lines, indent="")


def _group(evidence: Evidence, group: ObservedGroup, phase: str) -> Iterator[str]:
    placement = waits(group).removeprefix("waits: ") if phase == "Pending" else _stands(group)
    yield folded(f"podgroup/{group.key}: {placement}", _INDENT, hanging=_INDENT)
    if phase == "Pending" and (condition := group.scheduled):
        others = [_name(each) for each in holders(evidence, group, condition.reason)]
        if others:
            yield folded(f"behind {', '.join(others)}", _INDENT * 2, hanging=_INDENT)


def _stands(group: ObservedGroup) -> str:
    since = group.scheduled
    needs = f"needs {group.spec.min_member}"
    return f"{needs}, for {age(since.last_transition_time)}" if since else needs


def _name(other: Blocker) -> str:
    return "/".join(filter(None, (other.kind.lower(), other.namespace, other.name)))
