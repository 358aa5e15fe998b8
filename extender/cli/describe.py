"""Description of a job, group or queue: the paragraphs of `muster why`, with spec, pods and events."""

from collections.abc import Iterable, Iterator

import msgspec

from extender.api.objects.base import Condition, condition
from extender.api.objects.cluster import Event
from extender.api.units import and_more, listed
from extender.cli.access import ClusterAccess
from extender.cli.kinds import Target, owner_kind
from extender.cli.lookup import fetch
from extender.cli.observed_jobs import ObservedJob, find_job
from extender.cli.output import NOTHING, Json, age, amounts, fields, percent, section, wrap
from extender.cli.why.answers import explain_workload, find_group
from extender.cli.why.diagnosis import blockers, explain_group, explain_queue, figures_of, summary_of, wait_of
from extender.cli.why.evidence import Evidence, is_gated
from extender.cli.why.rendering import bars, join_texts, paragraphs, resource_rows
from extender.domain.explain.observed_objects import ObservedGroup, ObservedQueue
from extender.domain.model.reasons import Verdict
from extender.domain.model.resources import quantities
from extender.domain.snapshot.job_start_and_suspension import min_resources
from extender.kube.errors import Forbidden, NotFound
from extender.kube.requests import Reader
from extender.kube.resources import EVENTS, QUEUES
from extender.terminal.text import columns, counted

_MAX_LISTED = 10  # maximum of listed groups of a verdict, nodes or namespaces
_INDENT = "  "
_HEADINGS = {
    Verdict.WAITING: "Groups that wait",
    Verdict.STARTING: "Groups that start",
    Verdict.RUNNING: "Groups that run",
    Verdict.ENDED: "Groups that have ended",
    Verdict.UNKNOWN: "Groups whose state is unknown",
}
_PLAIN_TITLES = {  # titles of fields in a queue's spec that are shown as they are
    "fairShare": "Order below it",
    "placement": "Placement",
    "oversell": "Oversell",
    "stopPolicy": "Stop policy",
    "reserveAfter": "Reserves after",
    "startTimeout": "Jobs get going within",
    "maxRunTime": "Jobs run at most",
}
_AMOUNT_TITLES = {
    "deserved": "Deserved",
    "capability": "Capability",
    "borrowingLimit": "Borrows at most",
    "lendingLimit": "Lends at most",
}
_NESTED_TITLES = {"limits": "Limits", "preemption": "Preemption"}


def job_description(access: ClusterAccess, target: Target) -> str:
    evidence = Evidence(access, access.namespace)
    job = find_job(evidence, target)
    kind = owner_kind(f"{job.row.kind}.{job.row.group}")
    assert kind is not None, "it was found by its kind"
    answer, *_ = explain_workload(evidence, kind, job.meta.name)
    heading, *other_paragraphs = paragraphs(answer)
    reader, namespace, podgroup, record = access.reader, access.namespace, job.podgroup, job.record()
    pods_to_make = [record.fault] if record and record.fault else []
    if record and record.pods and not record.fault:
        rows = (
            (pods.role or NOTHING, pods.count, amounts(quantities(pods.pod.shape.requests)))
            for pods in record.pods
        )
        pods_to_make = columns(("ROLE", "COUNT", "REQUESTS OF EACH"), rows)
    return join_texts(
        heading,
        fields(_job_facts(job, evidence)),
        *other_paragraphs,
        section("Pods that it makes:", pods_to_make),
        section("Conditions of its PodGroup:", conditions(podgroup.status.conditions) if podgroup else ()),
        section("Events:", events(reader, job.row.kind, namespace, job.meta.name)),
        section(
            "Events of its PodGroup:",
            events(reader, "PodGroup", namespace, podgroup.name) if podgroup else (),
        ),
    )


def _job_facts(job: ObservedJob, evidence: Evidence) -> Iterator[tuple[str, object]]:
    podgroup = job.podgroup
    yield "State", job.state if podgroup else "not managed"
    if podgroup:
        yield "Queue", evidence.queue_of(podgroup)
        yield "Needs", counted(podgroup.spec.min_member, "pod")
        record = job.record() if job.partial_start else None  # the PodGroup has the requested numbers
        yield "Resources", amounts(min_resources(record) if record else podgroup.spec.min_resources)
        yield "Position", job.position or NOTHING
        yield "Priority", podgroup.spec.priority_class_name or NOTHING
    yield "Admitted", f"{age(job.admitted_at)} ago" if job.admitted_at else NOTHING
    if job.partial_start:
        start = job.partial_start
        yield "Started with", f"{start.started_count} of {counted(start.requested_count, 'pod')}"
    yield "Start timeouts", f"{job.start_timeouts} in a row" if job.start_timeouts else "none"
    yield "Age", age(job.meta.creation_timestamp)


def group_description(access: ClusterAccess, target: Target) -> str:
    group = find_group(access, target)
    evidence = Evidence(access, access.namespace)
    heading, *other_paragraphs = paragraphs(explain_group(evidence, group))
    rows = []
    for pod in evidence.members(group) or ():
        status = "Gated" if is_gated(pod) else pod.status.phase or NOTHING
        deleted_at = pod.metadata.deletion_timestamp
        rows.append((pod.metadata.name, "Ending" if deleted_at else status, pod.spec.node_name or NOTHING))
    return join_texts(
        heading,
        fields(_group_facts(group, evidence)),
        *other_paragraphs,
        section("Pods:", columns(("NAME", "STATUS", "NODE"), sorted(rows)) if rows else ()),
        section("Conditions:", conditions(group.status.conditions)),
        section("Events:", events(access.reader, "PodGroup", access.namespace, group.name)),
    )


def _group_facts(group: ObservedGroup, evidence: Evidence) -> Iterator[tuple[str, object]]:
    spec = group.spec
    roles = ", ".join(f"{role} {count}" for role, count in sorted((spec.min_task_member or {}).items()))
    yield "Queue", evidence.queue_of(group)
    yield "Needs", counted(spec.min_member, "pod") + (f", of these {roles}" if roles else "")
    if spec.min_resources:
        yield "Resources", amounts(spec.min_resources)
    yield "Priority", spec.priority_class_name or NOTHING
    yield "Phase", group.status.phase or NOTHING
    yield "Age", age(group.metadata.creation_timestamp)


def queue_description(access: ClusterAccess, name: str) -> str:
    document = fetch(access.reader, QUEUES, "", name, Json)
    queue = msgspec.convert(document, ObservedQueue)
    evidence = Evidence(access, "")
    answer = msgspec.structs.replace(explain_queue(evidence, queue), queue=None, waiting=[])
    heading, verdict, *other_paragraphs = paragraphs(answer)
    figures = figures_of(queue)
    limits = {flavor.name: flavor.capability for flavor in queue.spec.flavors or ()}
    flavors = [
        f"{flavor.name}: holds {amounts(flavor.allocated)}"
        + (f" of {amounts(limits[flavor.name])}" if limits.get(flavor.name) else "")
        + (f", deserves {amounts(flavor.deserved)}" if flavor.deserved else "")
        + (f", borrows {amounts(flavor.borrowed)}" if flavor.borrowed else "")
        for flavor in queue.status.flavors or ()
    ]
    return join_texts(
        heading,
        fields(_queue_facts(document.get("spec") or {}, queue)),
        verdict,
        section("Shares:", bars(figures) or resource_rows(figures)),
        section("Flavors:", flavors),
        section("Held lately, of the cluster:", list(_usage_lines(queue))),
        section("LocalQueues:", list(_local_queue_lines(evidence, name))),
        *_group_paragraphs(evidence, name),
        *other_paragraphs,
        section("Conditions:", conditions(queue.status.conditions)),
        section("Events:", events(access.reader, "Queue", "", name)),
    )


def _queue_facts(spec: Json, queue: ObservedQueue) -> Iterator[tuple[str, object]]:
    yield "Weight", queue.spec.weight
    yield "Priority", queue.spec.priority
    yield "Parent", queue.spec.parent or NOTHING
    if queue.quota:
        yield "Made from", queue.quota
    if queue.entering_namespaces:
        yield "Namespaces", listed(queue.entering_namespaces, _MAX_LISTED)
    yield "Order", queue.spec.dequeue_strategy or "traverse"
    yield from ((title, spec[field]) for field, title in _PLAIN_TITLES.items() if spec.get(field))
    yield "Reclaimable", "no" if spec.get("reclaimable") is False else "yes"
    yield "Restricted", "yes" if spec.get("restricted") is True else "no"
    if spec.get("namespaceSelector") is not None:
        yield "Namespaces", _selector(spec["namespaceSelector"])
    yield from ((title, amounts(spec[field])) for field, title in _AMOUNT_TITLES.items() if spec.get(field))
    if queue.spec.guarantee and queue.spec.guarantee.resource:
        yield "Guarantee", amounts(queue.spec.guarantee.resource)
    nested = ((title, list(_settings(spec.get(field) or {}))) for field, title in _NESTED_TITLES.items())
    yield from ((title, ", ".join(settings)) for title, settings in nested if settings)
    if reserved := queue.status.reservation:
        yield "Reserved", f"{amounts(reserved.resource)} on {listed(reserved.nodes or [], _MAX_LISTED)}"
    counts = queue.counts
    parts = ", ".join(f"{count} {column}" for column, count in counts.items() if count)
    yield "Groups", f"{sum(counts.values())} in all" + (f": {parts}" if parts else "")
    yield "Age", age(queue.metadata.creation_timestamp)


def _settings(nested: Json, prefix: str = "") -> Iterator[str]:
    """Yield the settings in a mapping, such as `after=5m` or `borrowWithinCohort.policy=LowerPriority`."""
    for name, value in nested.items():
        if isinstance(value, dict):
            yield from _settings(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}={value}"


def _selector(selector: Json) -> str:
    """Return a selector in the notation of kubectl."""
    labels = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or ():
        values = f" ({', '.join(expression['values'])})" if expression.get("values") else ""
        labels.append(f"{expression['key']} {expression['operator']}{values}")
    return ", ".join(labels) or "all"


def _usage_lines(queue: ObservedQueue) -> Iterator[str]:
    """Yield the recent usage of the queue's own groups, and of the users and namespaces that made them."""
    if usage := queue.status.usage:
        yield f"the queue: {percent(usage.share)}"
        for kind, parts in (("user", usage.users or []), ("namespace", usage.namespaces or [])):
            yield from (f"{kind} {part.name}: {percent(part.share)}" for part in parts[:_MAX_LISTED])
            yield from and_more(len(parts) - _MAX_LISTED)


def _local_queue_lines(evidence: Evidence, queue: str) -> Iterator[str]:
    """Yield a line for each LocalQueue that leads to a queue."""
    all_local = evidence.local_queues.items()
    keys = sorted(key for key, local_queue in all_local if local_queue.spec.queue == queue)
    for key in keys[:_MAX_LISTED]:
        status = evidence.local_queues[key].status
        active = condition(status.conditions, "Active")
        activity = f", not active: {active.reason}" if active is not None and active.status == "False" else ""
        yield f"{key}: {status.waiting or 0} waiting, {status.admitted or 0} admitted{activity}"
    yield from and_more(len(keys) - _MAX_LISTED)


def _group_paragraphs(evidence: Evidence, queue: str) -> Iterator[str]:
    """Yield a paragraph about the queue's groups for each verdict."""
    groups = evidence.groups_in(queue)
    for verdict, heading in _HEADINGS.items():
        matching_groups, lines = [group for group in groups if group.verdict is verdict], []
        for group in matching_groups[:_MAX_LISTED]:
            scheduled, ahead = group.scheduled, []
            if verdict is Verdict.WAITING or scheduled is None:
                state = wait_of(group).text.removeprefix("waits: ")
                ahead = blockers(evidence, group)
            else:
                since = f", for {age(scheduled.last_transition_time)}" if scheduled else ""
                state = f"needs {group.spec.min_member}{since}"
            name = summary_of(group).display_name
            lines.append(wrap(f"{name}: {state}", _INDENT, hanging=_INDENT))
            if ahead:
                names = ", ".join(other.holder.display_name for other in ahead)
                lines.append(wrap(f"behind {names}", _INDENT * 2, hanging=_INDENT))
        lines += (f"{_INDENT}{text}" for text in and_more(len(matching_groups) - _MAX_LISTED))
        yield section(f"{heading} ({len(matching_groups)}):", lines, indent="")


# ---- conditions and events, as rows

_MAX_EVENTS = 12


def conditions(objects: Iterable[Condition] | None) -> list[str]:
    head = ("TYPE", "STATUS", "REASON", "AGE", "MESSAGE")
    rows = []
    for entry in objects or ():
        reason, message = entry.reason or NOTHING, entry.message or NOTHING
        rows.append((entry.type, entry.status, reason, age(entry.last_transition_time), message))
    return columns(head, rows) if rows else []


def events(reader: Reader, kind: str, namespace: str, name: str) -> list[str]:
    """Return the latest events in chronological order. Events of a queue are in namespace `default`."""
    selector = f"involvedObject.kind={kind},involvedObject.name={name}"
    try:
        listed_events = reader.list(EVENTS, namespace or "default", Event, fields=selector)
    except (Forbidden, NotFound):
        return ["not shown: you may not list events"]
    rows = []
    for event in sorted(listed_events, key=lambda event: event.at)[-_MAX_EVENTS:]:
        repetition = f" ({event.times} times)" if event.times > 1 else ""
        rows.append((event.type, event.reason, f"{age(event.at or None)}{repetition}", event.message))
    return columns(("TYPE", "REASON", "AGE", "MESSAGE"), rows) if rows else []
