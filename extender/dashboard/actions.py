"""Actions of a viewer: offered with the right, confirmed, and executed with the viewer's own credentials.

Groups are held, resumed and given a priority, queues opened, closed, held and resumed.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import yaml
from flask import Blueprint, current_app, g, redirect, render_template, request, url_for
from werkzeug.exceptions import BadRequest, Conflict, Forbidden, NotFound
from werkzeug.wrappers import Response

from extender.api.keys import ROOT_QUEUE
from extender.api.objects.base import OwnerReference
from extender.api.objects.queues import OF_GROUP, OF_QUEUE, Patch, new_command, priority_patch
from extender.api.setting_kinds import NAME
from extender.api.summaries import GroupSummary, QueueSummary
from extender.api.units import may_be_name, timestamp_at
from extender.api.workloads.shape import Json, Kinds, WorkloadRow
from extender.dashboard.source import RightsUnknown, Source, Viewer
from extender.dashboard.words import address_parts
from extender.domain.snapshot.jobs import JobChange, is_unsuspended_by_muster, resuming, stopping
from extender.kube.errors import NotFound as Missing
from extender.kube.resources import COMMANDS, POD_GROUPS, QUEUES, Resource, resource_of

# A group, by its own name and by the kind and name of its owner.
GROUP_PATHS = ("/groups/<namespace>/<name>", "/namespaces/<namespace>/<kind>/<name>")
KINDS = "KINDS"  # setting of the application: kinds of jobs, also those of a configuration file
_GROUP_ACTIONS = {
    "hold": "It does not start until it is resumed. Running members continue, and no further members start.",
    "resume": "It may start when its turn comes.",
    "priority": "It gets another place in line.",
    "stop": "It is suspended until it is resumed. Its pods end.",
}
_QUEUE_ACTIONS = {
    "open": "It accepts new groups again.",
    "close": "It accepts no new groups. Its groups continue.",
    "hold": "It admits no groups. It still accepts new groups, which wait.",
    "resume": "It admits groups again.",
}
_MOST_YAML = 65_536  # bytes of JSON, which take 0.1 s of this process


class Chosen(NamedTuple):
    """Object of an action. `group`: a group that exists; `page`: URL of the object's page."""

    resource: Resource
    namespace: str
    name: str
    page: str
    spoken_name: str
    group: GroupSummary | None = None


def actions(source: Source) -> Blueprint:
    made = Blueprint("actions", __name__)

    def change_group(namespace: str, name: str, action: str, kind: str = "") -> Response | str:
        chosen = _chosen_group(source, namespace, name, kind)
        _check_right("list" if action == "stop" else "patch", chosen, g.viewer)
        group = chosen.group
        if group is not None and (action == "stop" or (action == "resume" and group.stopped)):
            return _changed_job(group, chosen, action)
        fields: dict[str, str] = {}
        patch = OF_GROUP.get(action)
        if patch is None:
            fields["priority_class"] = _priority_class(chosen)
            patch = priority_patch(fields["priority_class"])
        return _confirmed_patch(chosen, action, _GROUP_ACTIONS[action], patch, fields)

    def show_yaml(namespace: str, name: str, kind: str = "") -> str:
        chosen = _chosen_group(source, namespace, name, kind)
        _check_right("get", chosen, g.viewer)
        found = [g.viewer.get(POD_GROUPS, chosen.namespace, chosen.name)]
        if chosen.group is not None and (job := _job(chosen.group)):
            found.insert(0, job[1])
        shown = [_without_noise(it) for it in found]
        if sum(len(msgspec.json.encode(it)) for it in shown) > _MOST_YAML:
            raise Conflict(f"{chosen.spoken_name} is too large for a page: use kubectl get -o yaml")
        try:
            text = yaml.safe_dump_all(shown, sort_keys=False, allow_unicode=True)
        except RecursionError as fault:
            raise Conflict(f"{chosen.spoken_name} is nested too deeply: use kubectl get -o yaml") from fault
        return render_template("yaml.html", title=chosen.spoken_name, text=text, back=chosen.page)

    for path in GROUP_PATHS:
        made.add_url_rule(f"{path}/yaml", "show_yaml", show_yaml)
        change = f"{path}/<any(hold, resume, stop, priority):action>"
        made.add_url_rule(change, "change_group", change_group, methods=["POST"])

    @made.post("/queues/<name>/<any(open, close, hold, resume):action>")
    def change_queue(name: str, action: str) -> Response | str:
        chosen = Chosen(QUEUES, "", name, url_for("pages.queue", name=name), f"queue {name}")
        _check_right("patch", chosen, g.viewer)
        below = " So do all other queues, which are below it." if name == ROOT_QUEUE else ""
        return _confirmed_patch(chosen, action, _QUEUE_ACTIONS[action] + below, OF_QUEUE[action], {})

    return made


def _chosen_group(source: Source, namespace: str, name: str, kind: str) -> Chosen:
    """Return the group of an address; if it does not exist, an owner's group has no name."""
    called = f"{kind}/{name}" if kind else name
    groups = [it for it in source.overview().groups if it.namespace == namespace]
    found = [it for it in groups if (it.called == called if kind else it.name == name)]
    group = max(found, key=lambda it: (it.verdict != "Ended", it.created), default=None)
    parts: dict[str, Any] = {"namespace": namespace, "name": name} | ({"kind": kind} if kind else {})
    page = url_for("pages.group", **parts)
    own_name = name if not kind else group.name if group else ""
    spoken = f"{called} in namespace {namespace}" if kind else f"group {namespace}/{name}"
    return Chosen(POD_GROUPS, namespace, own_name, page, spoken, group)


def _check_right(verb: str, chosen: Chosen, viewer: Viewer) -> None:
    """Check the viewer's right, before they are asked to confirm. The API server checks it again.

    Raises:
        HTTPException: The right is missing.
    """
    for name in filter(None, (chosen.namespace, chosen.name)):
        if not may_be_name(name):
            raise NotFound(f"{name[:100]!r} is no name of an object")
    resource = chosen.resource
    if not viewer.may(verb, resource.group, resource.plural, chosen.namespace, chosen.name):
        where = f" in namespace {chosen.namespace}" if chosen.namespace else ""
        raise Forbidden(f"You may not {verb} {resource.plural}.{resource.group}{where}")
    if not chosen.name:
        raise NotFound(f"There is no {chosen.spoken_name}")


def _priority_class(chosen: Chosen) -> str:
    """Return the priority class of the form.

    Raises:
        HTTPException: It is invalid, or the priority is that of a job.
    """
    if chosen.group is not None and _is_job(chosen.group):
        raise Conflict(f"{chosen.group.called} has the priority of its pods: change that")
    given = request.form.get("priority_class", "").strip()
    try:
        return NAME.read(given) if given else ""
    except ValueError:
        raise BadRequest(f"priority_class: invalid value {given[:100]!r}: must be {NAME.allowed}") from None


def _confirmed_patch(
    chosen: Chosen, action: str, sentence: str, patch: Patch, fields: Mapping[str, str]
) -> Response | str:
    def write() -> None:
        g.viewer.patch(chosen.resource, chosen.namespace, chosen.name, patch)

    return _confirmed(chosen, action, sentence, write, fields)


def _confirmed(
    chosen: Chosen, action: str, sentence: str, write: Callable[[], None], fields: Mapping[str, str]
) -> Response | str:
    if request.form.get("confirmed") == "yes":
        write()
        return redirect(chosen.page, 303)
    title = f"{action.capitalize()} {chosen.spoken_name}?"
    if "priority_class" in fields:
        title = f"Set the priority class of {chosen.spoken_name} to {fields['priority_class'] or 'none'}?"
    asked = {**fields, "confirmed": "yes"}
    here = f"{request.script_root}{request.path}"
    return render_template(
        "confirm.html", title=title, sentence=sentence, action=here, fields=asked, back=chosen.page
    )


# ---- jobs


def _rows(group: GroupSummary) -> Iterator[WorkloadRow]:
    """Yield the possible kinds of a group's owner: one kind, in several versions."""
    kind, slash, _ = group.called.rpartition("/")
    known: Kinds = current_app.config[KINDS]
    return (row for row in known.values() if slash and row.manageable and row.spoken == kind)


def _is_job(group: GroupSummary) -> bool:
    """Return whether a job makes the pods, also one that was created unsuspended."""
    return any(_rows(group))


def _job(group: GroupSummary) -> tuple[WorkloadRow, Json] | None:
    """Return the job that a group stands for, read with the viewer's credentials."""
    name = group.called.rpartition("/")[2]
    for row in _rows(group):
        resource = resource_of(row)
        if g.viewer.may("get", resource.group, resource.plural, group.namespace, name):
            try:
                return row, g.viewer.get(resource, group.namespace, name)
            except Missing:  # the cluster has another version
                continue
    return None


def _changed_job(group: GroupSummary, chosen: Chosen, action: str) -> Response | str:
    found = _job(group)
    if found is None:
        raise Conflict(f"{chosen.spoken_name} cannot be read, or is no job with a field that suspends it")
    row, obj = found
    if not _may_suspend(g.viewer, group):
        raise Forbidden(f"You may not {action} {chosen.spoken_name}")
    if action == "stop":
        change = stopping(row, obj, timestamp_at(time.time()))
    else:
        change = resuming(row, obj, is_unsuspended_by_muster(row, obj))

    def write() -> None:
        _write(group, row, obj, change)

    return _confirmed(chosen, action, _GROUP_ACTIONS[action], write, {})


def _write(group: GroupSummary, row: WorkloadRow, obj: Json, change: JobChange) -> None:
    """Write a change to a job as it was read; a concurrent change is a conflict."""
    meta = obj["metadata"]
    if change.podgroup:
        annotations = {"metadata": {"annotations": change.podgroup}}
        g.viewer.patch(POD_GROUPS, group.namespace, group.name, annotations)
    if change.job:
        seen = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        patch = {**change.job, "metadata": {**change.job.get("metadata", {}), **seen}}
        g.viewer.patch(resource_of(row), group.namespace, meta["name"], patch)
    if change.command:
        owner = OwnerReference(*row.key, meta["name"], meta["uid"], controller=True)
        g.viewer.create(COMMANDS, group.namespace, new_command(owner, change.command))


def _without_noise(obj: Json) -> Json:
    """Return an object as kubectl shows it: without managedFields."""
    return {**obj, "metadata": {key: it for key, it in obj["metadata"].items() if key != "managedFields"}}


# ---- buttons: the actions that a viewer has the right to


class Button(NamedTuple):
    """Button of an action. `field`: the parameter to type, if any, with its label `title`."""

    label: str
    url: str
    field: str = ""
    title: str = ""
    menu: Sequence[tuple[str, str]] = ()  # terms to choose from, with their labels
    is_link: bool = False  # it only shows something


def group_address(group: GroupSummary) -> Mapping[str, Any]:
    """Return the parts of the address of a group's page."""
    return address_parts(group.spoken_name) or {"namespace": group.namespace, "name": group.name}


def buttons_on_group(group: GroupSummary, viewer: Viewer) -> Sequence[Button]:
    parts = group_address(group)
    shown: list[Button] = []
    may_patch = _is_offered(viewer, POD_GROUPS, group.namespace, group.name)
    if may_patch and not group.stopped and group.verdict != "Ended":
        shown.append(_button("resume" if group.held else "hold", parts))
        if not _is_job(group):  # its priority is that of the job
            url = url_for("actions.change_group", action="priority", **parts)
            shown.append(Button("Change priority", url, "priority_class", "Priority class"))
    is_started = group.verdict in ("Starting", "Running")
    may_change = may_patch if group.stopped else is_started
    if may_change and _may_suspend(viewer, group):
        shown.append(_button("resume" if group.stopped else "stop", parts))
    if _is_offered(viewer, POD_GROUPS, group.namespace, group.name, "get"):
        shown.append(Button("Show YAML", url_for("actions.show_yaml", **parts), is_link=True))
    return tuple(shown)


def _button(action: str, parts: Mapping[str, Any]) -> Button:
    return Button(action.capitalize(), url_for("actions.change_group", action=action, **parts))


def _may_suspend(viewer: Viewer, group: GroupSummary) -> bool:
    """Return whether the viewer may suspend and unsuspend the job of a group."""
    row = next(_rows(group), None)
    if row is None:
        return False
    if row.commanded:
        return _is_offered(viewer, COMMANDS, group.namespace, "", "create")
    return _is_offered(viewer, resource_of(row), group.namespace, group.called.rpartition("/")[2])


def buttons_on_queue(queue: QueueSummary, viewer: Viewer) -> Sequence[Button]:
    if not _is_offered(viewer, QUEUES, "", queue.name):
        return ()

    def url(action: str) -> str:
        return url_for("actions.change_queue", name=queue.name, action=action)

    stopping = Button("Resume", url("resume")) if queue.stop_policy else Button("Hold", url("hold"))
    is_closed = queue.state.startswith("Clos")
    closing = Button("Open", url("open")) if is_closed else Button("Close", url("close"))
    return (stopping, closing)


def _is_offered(viewer: Viewer, resource: Resource, namespace: str, name: str, verb: str = "patch") -> bool:
    try:
        return viewer.may(verb, resource.group, resource.plural, namespace, name)
    except RightsUnknown:
        return False
