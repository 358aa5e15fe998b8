"""Suppositions: decisions after changes (`muster why --what-if`), and starts of new objects (`muster plan`).

The decisions are computed here from the API server's objects. Nothing is written.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from extender.api.keys import RUN_TIME
from extender.api.objects.base import Wire
from extender.api.units import and_more, human_duration, listed, timestamp_at
from extender.api.workloads.table import WORKLOADS
from extender.apimachinery.admission import FIRST_OBJECTS
from extender.apimachinery.kinds import (
    LOCAL_QUEUES,
    NAMESPACES,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    ResourceKind,
)
from extender.cli.access import ClusterAccess, Flags, open_access
from extender.cli.kinds import POD_GROUP, Target, owner_kind
from extender.cli.live import ClockAdvance, LiveCluster
from extender.cli.output import PHRASES, InvalidContent, Json, echo, show_document, wrap
from extender.cli.why.answers import answers
from extender.cli.why.evidence import Evidence
from extender.cli.why.explanation import Explanation
from extender.cli.why.rendering import join_texts
from extender.domain.explain.explain import explain_group
from extender.domain.explain.what_if import (
    BadTerm,
    Outlook,
    Supposition,
    WhatIf,
    changed_groups,
    future,
    suppositions,
    what_if,
)
from extender.domain.model.evictions import ReclaimVictim
from extender.domain.model.ownership import display_group_name, group_name, group_owner_of
from extender.domain.model.reasons import REASONS_ENDED_BY_OTHERS, Verdict, sentence
from extender.domain.model.records import GroupKey, Uid
from extender.domain.scheduling.decide import decide
from extender.files.manifests import InvalidManifests, Manifest, Manifests, load, namespace_of
from extender.files.unmanaged_objects import UnmanagedObject
from extender.kube import resources
from extender.kube.access import right_to
from extender.kube.errors import Forbidden, NotFound
from extender.kube.requests import Reader
from extender.kube.resources import Resource, resource_of
from extender.sim.virtual.manifest_workload import from_manifests
from extender.sim.virtual.report import NOT_ASKED
from extender.sim.virtual.workload import InvalidWorkload, VirtualWorkload
from extender.terminal.text import counted

_INDENT = "  "


def show_what_if(flags: Flags, target: Target, texts: Sequence[str], output: str) -> None:
    """Show the decisions that would follow from the changes in `texts`."""
    try:
        terms = suppositions(texts)
    except BadTerm as fault:
        raise click.UsageError(f"--what-if: {fault}") from fault
    try:
        with open_access(flags) as access:
            explanations = answers(access, target)
            live = live_cluster(access, "--what-if")
            snapshot = live.ledger.snapshot()
            group_key = _group_of(live, target, explanations)
            if group_key not in snapshot.groups:
                raise click.ClickException(f"Muster knows no group {group_key}")
            result = what_if(snapshot, [_with_group(live, access, term) for term in terms], group_key)
    except BadTerm as fault:
        raise InvalidContent(f"--what-if: {fault}") from fault
    if output == "text":
        echo(join_texts(*paragraphs(result), "\n".join(wrap(remark) for remark in live.notes)))
    else:
        show_document({**msgspec.to_builtins(result), "notes": live.notes}, output)


def _with_group(live: LiveCluster, access: ClusterAccess, term: Supposition) -> Supposition:
    """Return the term. If it deletes a workload, the group of the workload's pods replaces the workload."""
    kind, _, name = term.value.partition("/")
    if term.field != "delete" or owner_kind(kind) is None or "/" in name:
        return term
    with suppress(click.ClickException):
        keys = {_key_of(live, answer) for answer in answers(access, Target(kind, name))} - {""}
        return term._replace(value=f"{POD_GROUP}/{keys.pop()}") if len(keys) == 1 else term
    return term


def live_cluster(access: ClusterAccess, command: str) -> LiveCluster:
    """Return the live cluster. The command ends if a required read is refused."""
    try:
        return LiveCluster(access)
    except Forbidden as fault:
        rights = "the right to list nodes, namespaces, priorityclasses, queues, podgroups and pods everywhere"
        raise click.ClickException(f"not allowed: {fault.message}\n{command} takes {rights}.") from fault


def _group_of(live: LiveCluster, target: Target, explanations: Sequence[Explanation]) -> GroupKey:
    keys = list(dict.fromkeys(key for answer in explanations if (key := _key_of(live, answer))))
    if len(keys) == 1:
        return keys[0]
    title = f"{target.kind}/{target.name}" if target.kind else target.name
    problem = f"means several groups: {listed(keys)}" if keys else "is no group, and in none"
    raise click.UsageError(f"--what-if: {title} {problem}: must be one group, or a pod or workload of it")


def _key_of(live: LiveCluster, answer: Explanation) -> GroupKey:
    """Return the key of the group of an answer; empty for other objects and pods without a group."""
    if answer.kind == "PodGroup" or answer.group:
        return GroupKey(f"{answer.namespace}/{answer.group or answer.name}")
    pod = live.ledger.pods.find(answer.namespace, answer.name) if answer.kind == "Pod" else None
    return pod.group if pod else GroupKey("")


def paragraphs(result: WhatIf) -> Iterator[str]:
    condition, heading = f"If {' and '.join(result.terms)}", "Of others"
    if result.group is not None:
        yield wrap(f"{condition}, {result.group.called} {future(result.group)}")
        yield "\n".join(_outlook(result.group.after))
    else:
        heading = condition
    texts = (f"{group.called} {future(group)}" for group in result.others)
    other_lines = [wrap(text, _INDENT, hanging=_INDENT) for text in texts] + and_more(result.more_others)
    lines = [click.style(f"{heading}:", dim=True), *other_lines]
    yield "\n".join(lines) if other_lines else f"{heading}, nothing changes."


def _outlook(outlook: Outlook) -> Iterator[str]:
    """Yield the reason and the numbers of a group that would still wait."""
    if outlook.verdict is Verdict.WAITING:
        yield wrap(sentence(outlook.reason), _INDENT)
        yield wrap(outlook.message, _INDENT)


# ---- objects that are not submitted yet


NOW, LATER, UNKNOWN, NEVER = "Now", "Later", "Unknown", "Never"


class PlannedStart(Wire, frozen=True):
    """Planned start of a group: whether and when it would start.

    Attributes:
        after: The seconds until the start.
        method: The cause of the start, a key of METHODS.
        paid_by: The evicted groups and pods, by their names for users.
    """

    name: str
    group: str
    queue: str
    pods: int
    start: str
    after: float | None = None
    at: str = ""
    method: str = ""
    paid_by: list[str] = []
    reason: str = ""
    detail: str = ""
    not_before: str = ""  # timestamp of the simulation limit, if it was reached
    endless: list[str] = []  # holders of missing capacity whose end is unknown
    remedy: str = ""


COSTLY_CHANGES = ("no longer starts", "gives up capacity")
_REFERRED_KINDS = (
    (resources.NAMESPACES, NAMESPACES),
    (resources.PRIORITY_CLASSES, PRIORITY_CLASSES),
    (resources.QUEUES, QUEUES),
    (resources.LOCAL_QUEUES, LOCAL_QUEUES),
)
_Name = tuple[ResourceKind | None, str, str]  # kind, namespace, name


def show_plan(flags: Flags, files: Sequence[Path], output: str) -> bool:
    """Show the plan. Return whether all objects would start at some time, as far as is known."""
    try:
        manifests = load(files, create_namespaces=True)
        with open_access(flags) as access:
            live = live_cluster(access, "muster plan")
            workload, refused = _startable(access, from_manifests(_in_cluster(access, manifests), seed=0))
            in_files = {_name_of(manifest) for manifest in manifests.objects}
    except (InvalidManifests, InvalidWorkload) as fault:
        raise InvalidContent(str(fault)) from fault
    old_decisions = decide(live.ledger.snapshot())
    titles = _submit(live, workload, in_files)
    snapshot = live.ledger.snapshot()
    changes = changed_groups(snapshot, old_decisions, decide(snapshot))
    affected = [change for change in changes if change.change in COSTLY_CHANGES]
    unmanaged_objects = [obj for obj in workload.unmanaged_objects if obj.suspended]
    planned_starts = [*_planned_starts(live, titles), *refused, *map(_unmanaged_start, unmanaged_objects)]
    reported_texts = [obj.note for obj in unmanaged_objects]
    notes = [*(remark for remark in workload.notes if remark not in reported_texts), *live.notes]
    if output == "text":
        costs = [wrap(f"{group.called} {future(group)}", _INDENT, hanging=_INDENT) for group in affected]
        heading = click.style("For that, of others:", dim=True)
        costs_text = "\n".join([heading, *costs]) if costs else ""
        echo(join_texts(*map(_start_text, planned_starts), costs_text, "\n".join(map(wrap, notes))))
    else:
        starts, costs_of_others = (msgspec.to_builtins(items) for items in (planned_starts, affected))
        show_document({"starts": starts, "others": costs_of_others, "notes": notes}, output)
    return all(entry.start != NEVER for entry in planned_starts)


def _in_cluster(access: ClusterAccess, manifests: Manifests) -> Manifests:
    """Return the manifests together with the objects in the cluster to which manifests can refer.

    These kinds of objects are namespaces, priority classes, queues and LocalQueues.

    Raises:
        InvalidManifests: A namespace does not exist.
    """
    existing_objects = [
        Manifest(kind, _outline(obj, kind), "the cluster")
        for resource, kind in _REFERRED_KINDS
        for obj in _objects_of(access.reader, resource)
    ]
    from_files = [item._replace(object=_with_namespace(item, access.namespace)) for item in manifests.objects]
    file_places = {item.where for item in from_files if item.kind is not NAMESPACES}
    # Leave out the namespaces that `load` added for other objects: the cluster must have these.
    from_files = [item for item in from_files if not (item.kind is NAMESPACES and item.where in file_places)]
    namespaces = {item.name for item in (*existing_objects, *from_files) if item.kind is NAMESPACES}
    places = {name: item.where for item in reversed(from_files) if (name := namespace_of(item.object))}
    missing_names = [name for name in places if name not in namespaces]
    if missing_names:
        faults = (f'{places[name]}: namespaces "{name}" not found' for name in missing_names)
        raise InvalidManifests("\n".join(faults))
    preset_names = {(kind, obj["metadata"]["name"]) for kind, obj in FIRST_OBJECTS}
    names_in_files = {_name_of(item) for item in from_files}
    added_objects = [item for item in existing_objects if _name_of(item) not in names_in_files]
    added_objects = [item for item in added_objects if (item.kind, item.name) not in preset_names]
    return manifests._replace(objects=[*added_objects, *from_files])


def _name_of(manifest: Manifest) -> _Name:
    return manifest.kind, namespace_of(manifest.object), manifest.name


def _objects_of(reader: Reader, resource: Resource) -> list[Json]:
    try:
        return reader.list(resource, "", Json)
    except (NotFound, Forbidden):  # a note reports it
        return []


def _outline(obj: Json, kind: ResourceKind) -> Json:
    """Return the fields of an object that other objects depend on."""
    other_fields = ("name", "namespace", "annotations", "labels")
    meta = {name: obj["metadata"][name] for name in other_fields if name in obj["metadata"]}
    parts = ("value", "globalDefault", "preemptionPolicy", "spec" if kind is LOCAL_QUEUES else "")
    head = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta}
    return {**head, **{name: obj[name] for name in parts if name in obj}}


def _with_namespace(manifest: Manifest, namespace: str) -> Json:
    """Return the object of a manifest.

    An object without a namespace gets the command's namespace, unless its kind is cluster-scoped.
    """
    obj, meta = manifest.object, manifest.object["metadata"]
    if meta.get("namespace") or (manifest.kind is not None and not manifest.kind.namespaced):
        return obj
    return {**obj, "metadata": {**meta, "namespace": namespace or "default"}}


def _startable(access: ClusterAccess, work: VirtualWorkload) -> tuple[VirtualWorkload, list[PlannedStart]]:
    """Return the workload without jobs that Muster's account may not change, and entries for these jobs."""
    evidence, refused_starts = Evidence(access, access.namespace), list[PlannedStart]()
    rows = {kind: WORKLOADS[kind] for kind in dict.fromkeys(job.kind for job in work.jobs)}
    without_right = {
        kind: f"{row.plural}.{row.group}"
        for kind, row in rows.items()
        if not evidence.muster_may(right_to("patch", resource_of(row)))
    }
    for job in work.jobs:
        if job.kind in without_right:
            kinds = without_right[job.kind]
            reason = f"Muster's account may not change {kinds}: docs/reference/jobs.md#the-rights"
            meta = job.object["metadata"]
            name = f"{meta['namespace']}/{rows[job.kind].prefix}/{meta['name']}"
            refused_starts.append(PlannedStart(name, "", "", 0, NEVER, reason=NOT_ASKED, detail=f"{reason}."))
    startable_jobs = tuple(job for job in work.jobs if job.kind not in without_right)
    return replace(work, jobs=startable_jobs), refused_starts


def _submit(live: LiveCluster, workload: VirtualWorkload, names_in_files: Set[_Name]) -> dict[GroupKey, str]:
    """Add the new objects to the ledger. Return their groups, each with its name for users.

    Args:
        live: The cluster.
        workload: All objects.
        names_in_files: The names of the objects in files. Other objects are in the cluster already.

    Raises:
        UsageError: A group exists in the cluster already.
    """
    intake = live.ledger.intake
    existing_names = {group.display_name for group in live.ledger.snapshot().groups.values()}
    _add_cluster_objects(live, workload, names_in_files)
    podgroups = [*workload.groups, *(job.podgroup for job in workload.jobs)]
    for number, podgroup in enumerate(podgroups):  # one second apart, to preserve their order
        meta = replace(podgroup.group.metadata, creation_timestamp=timestamp_at(live.read_at + number))
        intake.set_group(replace(podgroup.group, metadata=meta))
    for job in workload.jobs:
        if job.runtime is not None:
            intake.set_runtime(*job.runtime)
        intake.set_job(job.kind, job.waiting)
    titles = {podgroup.key: "" for podgroup in podgroups}
    for arrival in workload.members:
        meta = replace(arrival.pod.metadata, creation_timestamp=timestamp_at(live.read_at))
        live.ledger.pods.set_pod(replace(arrival.pod, metadata=meta))
        record = live.ledger.pods.get(Uid(meta.uid))
        if record is not None and record.group:
            controller = None if group_name(arrival.pod) else group_owner_of(arrival.pod)
            name = controller.display_name if controller else display_group_name(arrival.pod)
            titles.setdefault(record.group, f"{meta.namespace}/{name}")
    groups = live.ledger.snapshot().groups
    titles = {key: title or groups[key].display_name for key, title in titles.items() if key in groups}
    if duplicates := sorted(existing_names.intersection(titles.values())):
        message = f"{listed(duplicates)} {'is' if len(duplicates) == 1 else 'are'} in the cluster already"
        raise click.UsageError(f"{message}; about what waits there, ask muster why")
    return titles


def _add_cluster_objects(live: LiveCluster, workload: VirtualWorkload, names_in_files: Set[_Name]) -> None:
    """Add all new objects except groups and pods to the ledger."""
    intake = live.ledger.intake
    for node in workload.nodes:
        intake.set_node(node)
    for device in workload.devices:
        live.inventory.add(device)
    kinds: Sequence[tuple[ResourceKind, Iterable[Any], Callable[[Any], object]]] = (
        (NAMESPACES, workload.namespaces, intake.set_namespace),
        (PRIORITY_CLASSES, workload.priority_classes, intake.set_priority_class),
        (RESOURCE_FLAVORS, workload.flavors, intake.set_flavor),
        (TOPOLOGIES, workload.topologies, intake.set_topology),
        (QUEUES, workload.queues, intake.set_queue),
        (LOCAL_QUEUES, workload.local_queues, intake.set_local_queue),
    )
    for kind, objects, set_object in kinds:
        for obj in objects:
            if (kind, obj.metadata.namespace, obj.metadata.name) in names_in_files:
                set_object(obj)
    for owner in workload.owners:
        intake.set_owner(owner)
    for name, controller in workload.controllers:
        intake.set_controller(name, controller)


def _planned_starts(live: LiveCluster, titles: Mapping[GroupKey, str]) -> list[PlannedStart]:
    groups = live.ledger.snapshot().groups
    starts = [
        PlannedStart(title, key, groups[key].queue, len(groups[key].waiting_pods), NOW)
        for key, title in titles.items()
    ]
    clock_advance = live.advance(titles.keys())
    return [_start_of(live, clock_advance, start, titles) for start in starts]


def _evicted_names(live: LiveCluster, victims: Sequence[ReclaimVictim]) -> list[str]:
    """Return the names of evicted groups with their numbers of pods, and of evicted pods without a group."""
    groups = live.ledger.snapshot().groups
    infos = ((pod, groups.get(pod.group)) for pod in victims)
    counts = Counter(info.display_name if info else f"{pod.namespace}/{pod.name}" for pod, info in infos)
    return [f"{name} ({counted(count, 'pod')})" for name, count in sorted(counts.items())]


def _start_of(
    live: LiveCluster, advance: ClockAdvance, start: PlannedStart, titles: Mapping[GroupKey, str]
) -> PlannedStart:
    """Return a planned start, completed by the result of the simulation."""
    key = GroupKey(start.group)
    future = advance.future
    if (started_at := future.starts.get(key)) is not None:
        after, at = round(started_at - future.began_at), future.snapshot.timestamp(started_at)
        if not after:
            return start
        method, names = str(future.start_method(key)), _evicted_names(live, future.victims.get(key, ()))
        return replace(start, start=LATER, after=after, at=at, method=method, paid_by=names)
    decisions, endless = future.decisions, future.endless_groups
    # Without a complete simulation, search no remedy, because the group might start later anyway.
    answer = explain_group(decisions, key, 0) if advance.reached_limit else explain_group(decisions, key)
    if answer is None:
        return replace(start, start=UNKNOWN)
    may_start = answer.reason in REASONS_ENDED_BY_OTHERS and (advance.reached_limit or bool(endless))
    holders = [holder for holder in answer.holders if may_start and holder.group in endless]
    return replace(
        start,
        start=UNKNOWN if may_start else NEVER,
        reason=answer.reason,
        detail=answer.message,
        not_before=advance.timestamp if may_start and advance.reached_limit else "",
        endless=[titles.get(holder.group, holder.called) for holder in holders],
        remedy=answer.change.sentence if answer.change else "",
    )


def _unmanaged_start(obj: UnmanagedObject) -> PlannedStart:
    return PlannedStart(obj.title, "", "", 0, NEVER, reason=NOT_ASKED, detail=obj.sentence)


def _start_text(start: PlannedStart) -> str:
    size_text = f" ({counted(start.pods, 'pod')}, queue {start.queue})" if start.queue else ""
    not_before = f" until {start.not_before} at least" if start.not_before else ""
    texts = {
        NOW: "would start now.",
        LATER: (
            f"would start in about {human_duration(int(start.after or 0))}, at {start.at},"
            f" {PHRASES.get(start.method, start.method)}."
        ),
        UNKNOWN: f"would wait{not_before}, and it is not known for how long: {start.reason}.",
        NEVER: f"would never start as things are: {start.reason}.",
    }
    lines = [wrap(f"{start.name}{size_text} {texts[start.start]}")]
    sentences = [sentence(start.reason) if start.reason != NOT_ASKED else "", start.detail]
    if start.paid_by:
        sentences.append(f"These give up capacity for it: {listed(start.paid_by)}.")
    if start.not_before:
        sentences.append("The simulation limit was reached before the group started.")
    elif start.endless:
        holders = f"{listed(start.endless)} {'holds' if len(start.endless) == 1 else 'hold'} what it lacks"
        sentences.append(f"{holders}, and nothing says for how long (annotation {RUN_TIME}).")
    if start.remedy:
        sentences.append(f"{start.remedy[0].upper()}{start.remedy[1:]}.")
    return "\n".join([*lines, *(wrap(text, _INDENT) for text in sentences if text)])
