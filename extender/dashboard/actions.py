"""Actions of a viewer on groups and queues.

An action is offered only to viewers who have the right to it. Muster asks for confirmation, and executes the
action with the viewer's own credentials. Groups can be held, resumed and given a priority. Queues can be
opened, closed, held and resumed.
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
from extender.api.objects.queues import GROUP_PATCHES, QUEUE_PATCHES, Patch, new_command, priority_patch
from extender.api.setting_kinds import NAME
from extender.api.summaries import GroupSummary, QueueSummary
from extender.api.units import may_be_name, timestamp_at
from extender.api.workloads.shape import Json, Kinds, WorkloadRow
from extender.dashboard.source import RightsUnknown, Source, Viewer
from extender.dashboard.texts import address_parts
from extender.domain.snapshot.jobs import JobChange, is_unsuspended_by_muster, resume_change, stop_change
from extender.kube.errors import NotFound as Missing
from extender.kube.resources import COMMANDS, POD_GROUPS, QUEUES, Resource, resource_of

# Paths of a group's page: with the name of the group, or with the kind and name of its owner.
GROUP_PATHS = ("/groups/<namespace>/<name>", "/namespaces/<namespace>/<kind>/<name>")
KINDS = "KINDS"  # key of the application's setting that has all kinds of jobs
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
_MAX_YAML_BYTES = 65_536  # bytes of JSON; more would take over 0.1 s of processor time


class ActionTarget(NamedTuple):
    """Object that an action changes, with the URL of its page. `group` is its group, if it exists."""

    resource: Resource
    namespace: str
    name: str
    page: str
    display_name: str
    group: GroupSummary | None = None


def actions(source: Source) -> Blueprint:
    blueprint = Blueprint("actions", __name__)

    def change_group(namespace: str, name: str, action: str, kind: str = "") -> Response | str:
        target = _group_target(source, namespace, name, kind)
        _check_right("list" if action == "stop" else "patch", target, g.viewer)
        group = target.group
        if group is not None and (action == "stop" or (action == "resume" and group.stopped)):
            return _change_job(group, target, action)
        fields: dict[str, str] = {}
        patch = GROUP_PATCHES.get(action)
        if patch is None:
            fields["priority_class"] = _priority_class(target)
            patch = priority_patch(fields["priority_class"])
        return _confirm_and_patch(target, action, _GROUP_ACTIONS[action], patch, fields)

    def show_yaml(namespace: str, name: str, kind: str = "") -> str:
        target = _group_target(source, namespace, name, kind)
        _check_right("get", target, g.viewer)
        objects = [g.viewer.get(POD_GROUPS, target.namespace, target.name)]
        job = _read_job(target.group) if target.group is not None else None
        if job is not None:
            _, obj = job
            objects.insert(0, obj)
        objects = [_without_managed_fields(obj) for obj in objects]
        if sum(len(msgspec.json.encode(obj)) for obj in objects) > _MAX_YAML_BYTES:
            raise Conflict(f"{target.display_name} is too large for a page: use kubectl get -o yaml")
        try:
            text = yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True)
        except RecursionError as fault:
            raise Conflict(f"{target.display_name} is nested too deeply: use kubectl get -o yaml") from fault
        return render_template("yaml.html", title=target.display_name, text=text, back=target.page)

    for path in GROUP_PATHS:
        blueprint.add_url_rule(f"{path}/yaml", "show_yaml", show_yaml)
        change_path = f"{path}/<any(hold, resume, stop, priority):action>"
        blueprint.add_url_rule(change_path, "change_group", change_group, methods=["POST"])

    @blueprint.post("/queues/<name>/<any(open, close, hold, resume):action>")
    def change_queue(name: str, action: str) -> Response | str:
        target = ActionTarget(QUEUES, "", name, url_for("pages.queue", name=name), f"queue {name}")
        _check_right("patch", target, g.viewer)
        suffix = " So do all other queues, which are below it." if name == ROOT_QUEUE else ""
        return _confirm_and_patch(target, action, _QUEUE_ACTIONS[action] + suffix, QUEUE_PATCHES[action], {})

    return blueprint


def _group_target(source: Source, namespace: str, name: str, kind: str) -> ActionTarget:
    """Return the target that a URL names. Its name is empty if the group of an owner does not exist."""
    owner_name = f"{kind}/{name}" if kind else name
    groups = [group for group in source.overview().groups if group.namespace == namespace]
    candidates = [group for group in groups if (group.called == owner_name if kind else group.name == name)]
    newest_group = max(candidates, key=lambda group: (group.verdict != "Ended", group.created), default=None)
    address: dict[str, Any] = {"namespace": namespace, "name": name} | ({"kind": kind} if kind else {})
    page = url_for("pages.group", **address)
    group_name = newest_group.name if newest_group else ""
    display_name = f"{owner_name} in namespace {namespace}" if kind else f"group {namespace}/{name}"
    return ActionTarget(POD_GROUPS, namespace, group_name if kind else name, page, display_name, newest_group)


def _check_right(verb: str, target: ActionTarget, viewer: Viewer) -> None:
    """Check the viewer's right before the page of confirmation is shown.

    The API server checks the right again when the action is executed.

    Raises:
        HTTPException: The viewer does not have the right, or the name is invalid.
    """
    for name in filter(None, (target.namespace, target.name)):
        if not may_be_name(name):
            raise NotFound(f"{name[:100]!r} is no name of an object")
    resource = target.resource
    if not viewer.may(verb, resource.group, resource.plural, target.namespace, target.name):
        suffix = f" in namespace {target.namespace}" if target.namespace else ""
        raise Forbidden(f"You may not {verb} {resource.plural}.{resource.group}{suffix}")
    if not target.name:
        raise NotFound(f"There is no {target.display_name}")


def _priority_class(target: ActionTarget) -> str:
    """Return the priority class from the form.

    Raises:
        HTTPException: The name is invalid, or the group gets its priority from a job.
    """
    if target.group is not None and _is_job(target.group):
        raise Conflict(f"{target.group.called} has the priority of its pods: change that")
    name = request.form.get("priority_class", "").strip()
    try:
        return NAME.parse(name) if name else ""
    except ValueError:
        text = f"priority_class: invalid value {name[:100]!r}: must be {NAME.allowed_values}"
        raise BadRequest(text) from None


def _confirm_and_patch(
    target: ActionTarget, action: str, sentence: str, patch: Patch, fields: Mapping[str, str]
) -> Response | str:
    def write() -> None:
        g.viewer.patch(target.resource, target.namespace, target.name, patch)

    return _confirm_and_write(target, action, sentence, write, fields)


def _confirm_and_write(
    target: ActionTarget, action: str, sentence: str, write: Callable[[], None], fields: Mapping[str, str]
) -> Response | str:
    """Write if the request is confirmed; otherwise return the page that asks for confirmation."""
    if request.form.get("confirmed") == "yes":
        write()
        return redirect(target.page, 303)
    title = f"{action.capitalize()} {target.display_name}?"
    if "priority_class" in fields:
        title = f"Set the priority class of {target.display_name} to {fields['priority_class'] or 'none'}?"
    form = {**fields, "confirmed": "yes"}
    url = f"{request.script_root}{request.path}"
    return render_template(
        "confirm.html", title=title, sentence=sentence, action=url, fields=form, back=target.page
    )


# ---- jobs


def _kind_rows(group: GroupSummary) -> Iterator[WorkloadRow]:
    """Yield the table rows of the job that owns a group, one for each version of its kind.

    A group without a job has no row.
    """
    kind, slash, _ = group.called.rpartition("/")
    kinds: Kinds = current_app.config[KINDS]
    return (row for row in kinds.values() if slash and row.manageable and row.prefix == kind)


def _is_job(group: GroupSummary) -> bool:
    """Return whether a job makes the pods of a group.

    The job may also have been created without `suspend`.
    """
    return any(_kind_rows(group))


def _read_job(group: GroupSummary) -> tuple[WorkloadRow, Json] | None:
    """Return the job that owns a group, read with the viewer's credentials; None if no job can be read."""
    name = group.called.rpartition("/")[2]
    for row in _kind_rows(group):
        resource = resource_of(row)
        if g.viewer.may("get", resource.group, resource.plural, group.namespace, name):
            try:
                return row, g.viewer.get(resource, group.namespace, name)
            except Missing:  # the cluster serves another version of the kind
                continue
    return None


def _change_job(group: GroupSummary, target: ActionTarget, action: str) -> Response | str:
    job = _read_job(group)
    if job is None:
        raise Conflict(f"{target.display_name} cannot be read, or is no job with a field that suspends it")
    row, obj = job
    if not _may_suspend(g.viewer, group):
        raise Forbidden(f"You may not {action} {target.display_name}")
    if action == "stop":
        change = stop_change(row, obj, timestamp_at(time.time()))
    else:
        change = resume_change(row, obj, is_unsuspended_by_muster(row, obj))

    def write() -> None:
        _write(group, row, obj, change)

    return _confirm_and_write(target, action, _GROUP_ACTIONS[action], write, {})


def _write(group: GroupSummary, row: WorkloadRow, obj: Json, change: JobChange) -> None:
    """Write a change to a job and its group.

    Raises:
        Conflict: The job has changed since it was read.
    """
    meta = obj["metadata"]
    if change.podgroup:
        annotations = {"metadata": {"annotations": change.podgroup}}
        g.viewer.patch(POD_GROUPS, group.namespace, group.name, annotations)
    if change.job:
        preconditions = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        patch = {**change.job, "metadata": {**change.job.get("metadata", {}), **preconditions}}
        g.viewer.patch(resource_of(row), group.namespace, meta["name"], patch)
    if change.command:
        owner = OwnerReference(*row.key, meta["name"], meta["uid"], controller=True)
        g.viewer.create(COMMANDS, group.namespace, new_command(owner, change.command))


def _without_managed_fields(obj: Json) -> Json:
    """Return an object without its managed fields, as kubectl shows objects."""
    meta = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": meta}


# ---- buttons: the actions that a viewer has the right to


class Button(NamedTuple):
    """Button of an action. If the user must type a value, `field` is its parameter and `title` its label."""

    label: str
    url: str
    field: str = ""
    title: str = ""
    menu: Sequence[tuple[str, str]] = ()  # options of a menu: values and their labels
    is_link: bool = False  # whether the button only opens a page


def group_address(group: GroupSummary) -> Mapping[str, Any]:
    """Return the parts of the URL of a group's page."""
    return address_parts(group.display_name) or {"namespace": group.namespace, "name": group.name}


def buttons_on_group(group: GroupSummary, viewer: Viewer) -> Sequence[Button]:
    parts = group_address(group)
    buttons: list[Button] = []
    may_patch = _has_right(viewer, POD_GROUPS, group.namespace, group.name)
    if may_patch and not group.stopped and group.verdict != "Ended":
        buttons.append(_button("resume" if group.held else "hold", parts))
        if not _is_job(group):  # a job determines the priority of its group
            url = url_for("actions.change_group", action="priority", **parts)
            buttons.append(Button("Change priority", url, field="priority_class", title="Priority class"))
    has_started = group.verdict in ("Starting", "Running")
    can_stop_or_resume = may_patch if group.stopped else has_started
    if can_stop_or_resume and _may_suspend(viewer, group):
        buttons.append(_button("resume" if group.stopped else "stop", parts))
    if _has_right(viewer, POD_GROUPS, group.namespace, group.name, "get"):
        buttons.append(Button("Show YAML", url_for("actions.show_yaml", **parts), is_link=True))
    return tuple(buttons)


def _button(action: str, parts: Mapping[str, Any]) -> Button:
    return Button(action.capitalize(), url_for("actions.change_group", action=action, **parts))


def _may_suspend(viewer: Viewer, group: GroupSummary) -> bool:
    """Return whether the viewer may suspend and resume the job of a group."""
    row = next(_kind_rows(group), None)
    if row is None:
        return False
    if row.commanded:
        return _has_right(viewer, COMMANDS, group.namespace, "", "create")
    return _has_right(viewer, resource_of(row), group.namespace, group.called.rpartition("/")[2])


def buttons_on_queue(queue: QueueSummary, viewer: Viewer) -> Sequence[Button]:
    if not _has_right(viewer, QUEUES, "", queue.name):
        return ()

    def url(action: str) -> str:
        return url_for("actions.change_queue", name=queue.name, action=action)

    hold_or_resume = "resume" if queue.stop_policy else "hold"
    is_closed = queue.state in ("Closed", "Closing")
    open_or_close = "open" if is_closed else "close"
    return tuple(Button(action.capitalize(), url(action)) for action in (hold_or_resume, open_or_close))


def _has_right(viewer: Viewer, resource: Resource, namespace: str, name: str, verb: str = "patch") -> bool:
    try:
        return viewer.may(verb, resource.group, resource.plural, namespace, name)
    except RightsUnknown:
        return False
