"""All about one job, group or queue, in paragraphs: those of `muster why`, with spec, pods and events."""

from collections.abc import Iterator, Mapping

import msgspec

from extender.api.keys import GATE
from extender.api.objects.base import condition
from extender.api.objects.pods import Pod
from extender.api.objects.queues import QueueReservation
from extender.cli.access import ClusterAccess
from extender.cli.explain.evidence import Evidence
from extender.cli.explain.explanation import Blocker, QueueFigures, has_gate, queue_figures_of
from extender.cli.explain.groups import explain_group
from extender.cli.explain.queues import explain_queue, holders, waits
from extender.cli.explain.rendering import bars, joined, paragraphs, resource_rows
from extender.cli.explain.workloads import Workloads
from extender.cli.kinds import Target, owner_kind
from extender.cli.lookup import fetch
from extender.cli.observed import ObservedGroup, ObservedQueue, conditions, events
from extender.cli.observed_jobs import ObservedJob, find_job
from extender.cli.output import NOTHING, Json, age, amounts, fields, folded, section
from extender.domain.model.resources import quantities
from extender.kube.resources import POD_GROUPS, QUEUES
from extender.terminal.text import columns, many

# ---- All about one job, in paragraphs: those of `muster why`, with what it asks for, its pods and its
# events.


def job_description(place: ClusterAccess, target: Target) -> str:
    evidence = Evidence(place, place.namespace)
    job = find_job(evidence, target)
    kind = owner_kind(f"{job.row.kind}.{job.row.group}")
    assert kind is not None, "it was found by its kind"
    answer, *_ = Workloads(evidence).explain(kind, job.meta.name)
    heading, *rest = paragraphs(answer)
    return joined(
        heading,
        fields(_facts(job, evidence)),
        *rest,
        section("Pods that it makes:", _pod_sets(job)),
        section("Conditions of its PodGroup:", conditions(job.unit.status.conditions) if job.unit else ()),
        section("Events:", events(place.reader, job.row.kind, place.namespace, job.meta.name)),
        section("Events of its PodGroup:", _of_unit(place, job)),
    )


def _facts(job: ObservedJob, evidence: Evidence) -> Iterator[tuple[str, object]]:
    unit = job.unit
    yield "State", job.state if unit else "not managed"
    if unit:
        yield "Queue", evidence.queue_of(unit)
        yield "Needs", many(unit.spec.min_member, "pod")
        yield "Resources", amounts(unit.spec.min_resources)
        yield "Position", job.position or NOTHING
        yield "Priority", unit.spec.priority_class_name or NOTHING
    yield "Let go", f"{age(job.was_let_go)} ago" if job.was_let_go else NOTHING
    if job.partial_start:
        yield "Started with", f"{job.partial_start.given} of {many(job.partial_start.asked, 'pod')}"
    yield "Start timeouts", f"{job.start_timeouts} in a row" if job.start_timeouts else "none"
    yield "Age", age(job.meta.creation_timestamp)


def _pod_sets(job: ObservedJob) -> list[str]:
    record = job.record
    if record is None or record.fault:
        return [record.fault] if record else []
    sets = ((pods, quantities(pods.pod.shape.requests)) for pods in record.pods)
    rows = [(pods.role or NOTHING, pods.count, amounts(asked)) for pods, asked in sets]
    return columns(("ROLE", "COUNT", "REQUESTS OF EACH"), rows) if rows else []


def _of_unit(place: ClusterAccess, job: ObservedJob) -> list[str]:
    return events(place.reader, "PodGroup", place.namespace, job.unit.name) if job.unit else []


# ---- All about one group, in paragraphs: those of `muster why`, with spec, members, conditions and
# events.


def group_description(place: ClusterAccess, name: str) -> str:
    group = fetch(place.reader, POD_GROUPS, place.namespace, name, ObservedGroup)
    evidence = Evidence(place, place.namespace)
    heading, *rest = paragraphs(explain_group(evidence, group))
    return joined(
        heading,
        fields(_group_spec(group, evidence)),
        *rest,
        section("Pods:", _members(evidence.members(group) or [])),
        section("Conditions:", conditions(group.status.conditions)),
        section("Events:", events(place.reader, "PodGroup", place.namespace, name)),
    )


def _group_spec(group: ObservedGroup, evidence: Evidence) -> Iterator[tuple[str, object]]:
    spec = group.spec
    roles = ", ".join(f"{role} {count}" for role, count in sorted((spec.min_task_member or {}).items()))
    yield "Queue", evidence.queue_of(group)
    yield "Needs", many(spec.min_member, "pod") + (f", of these {roles}" if roles else "")
    if spec.min_resources:
        yield "Resources", amounts(spec.min_resources)
    yield "Priority", spec.priority_class_name or NOTHING
    yield "Phase", group.status.phase or NOTHING
    yield "Age", age(group.metadata.creation_timestamp)


def _members(pods: list[Pod]) -> list[str]:
    rows = [(pod.metadata.name, _group_stands(pod), pod.spec.node_name or NOTHING) for pod in pods]
    return columns(("NAME", "STATUS", "NODE"), sorted(rows)) if rows else []


def _group_stands(pod: Pod) -> str:
    if pod.metadata.deletion_timestamp:
        return "Ending"
    return "Gated" if has_gate(pod, GATE) else pod.status.phase or NOTHING


# ---- All about one queue, in paragraphs: what it is, what it uses, its groups and what blocks them.

_MOST = 10  # groups of one verdict, nodes or namespaces that are named
_INDENT = "  "
_HEADINGS: Mapping[str, str] = {
    "Pending": "Groups that wait",
    "Inqueue": "Groups that start",
    "Running": "Groups that run",
    "Completed": "Groups that have ended",
    "Unknown": "Groups that are unclear",
}


def queue_description(place: ClusterAccess, name: str) -> str:
    found = fetch(place.reader, QUEUES, "", name, Json)
    queue = msgspec.convert(found, ObservedQueue)
    evidence = Evidence(place, "")
    answer = explain_queue(evidence, queue)
    bare = msgspec.structs.replace(answer, queue=None, waiting=[])
    heading, verdict, *rest = paragraphs(bare)
    return joined(
        heading,
        fields(_queue_spec(found, queue)),
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


def _queue_spec(found: Json, queue: ObservedQueue) -> Iterator[tuple[str, object]]:
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
    for expression in written.get("matchExpressions") or ():
        values = f" ({', '.join(expression['values'])})" if expression.get("values") else ""
        labels.append(f"{expression['key']} {expression['operator']}{values}")
    return ", ".join(labels) or "all"


def _yes(truth: bool) -> str:
    return "yes" if truth else "no"


def _shares(queue: QueueFigures) -> list[str]:
    return bars(queue) or resource_rows(queue)


def _flavors(queue: ObservedQueue) -> list[str]:
    """What is held of each, and the most that may be."""
    held = {flavor.name: flavor.allocated for flavor in queue.status.flavors or ()}
    return [
        f"{flavor.name}: holds {amounts(held.get(flavor.name))}"
        + (f" of {amounts(flavor.capability)}" if flavor.capability else "")
        for flavor in queue.spec.flavors or ()
    ]


def _local_queues(evidence: Evidence, queue: str) -> Iterator[str]:
    """Those that lead into it."""
    keys = sorted(
        key for key, local_queue in evidence.local_queues.items() if local_queue.spec.queue == queue
    )
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
    found = [group for group in evidence.groups if evidence.queue_of(group) == queue]
    for phase, heading in _HEADINGS.items():
        of_phase = [group for group in found if (group.course or "Pending") == phase]
        lines = [line for group in of_phase[:_MOST] for line in _group(evidence, group, phase)]
        more = len(of_phase) - _MOST
        lines += [f"{_INDENT}and {more} more"] if more > 0 else []
        yield section(f"{heading} ({len(of_phase)}):", lines, indent="")


def _group(evidence: Evidence, group: ObservedGroup, phase: str) -> Iterator[str]:
    placement = waits(group).removeprefix("waits: ") if phase == "Pending" else _queue_stands(group)
    yield folded(f"podgroup/{group.key}: {placement}", _INDENT, hanging=_INDENT)
    if phase == "Pending" and (condition := group.scheduled):
        others = [_name(other) for other in holders(evidence, group, condition.reason)]
        if others:
            yield folded(f"behind {', '.join(others)}", _INDENT * 2, hanging=_INDENT)


def _queue_stands(group: ObservedGroup) -> str:
    since = group.scheduled
    needs = f"needs {group.spec.min_member}"
    return f"{needs}, for {age(since.last_transition_time)}" if since else needs


def _name(other: Blocker) -> str:
    return "/".join(filter(None, (other.kind.lower(), other.namespace, other.name)))
