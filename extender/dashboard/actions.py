"""Actions of a viewer: offered with the right, confirmed, and executed with the viewer's own credentials.

Groups are held, resumed and given a priority, queues opened, closed, held and resumed.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flask import Blueprint, g, redirect, render_template, request, url_for
from werkzeug.exceptions import BadRequest, Conflict, Forbidden, NotFound
from werkzeug.wrappers import Response

from extender.api.objects.queues import OF_GROUP, OF_QUEUE, Patch, priority_patch
from extender.api.setting_kinds import NAME
from extender.api.summaries import GroupSummary, QueueSummary
from extender.api.units import may_be_name
from extender.dashboard.source import RightsUnknown, Source, Viewer
from extender.kube.resources import POD_GROUPS, QUEUES, Resource

_GROUP_ACTIONS = {
    "hold": "It does not start until it is resumed. Running members continue, and no further members start.",
    "resume": "It may start when its turn comes.",
    "priority": "It gets another place in line.",
}
_QUEUE_ACTIONS = {
    "open": "It accepts new groups again.",
    "close": "It accepts no new groups. Its groups continue.",
    "hold": "It admits no groups. It still accepts new groups, which wait.",
    "resume": "It admits groups again.",
}


class Chosen(NamedTuple):
    resource: Resource
    namespace: str
    name: str
    page: str  # URL of the object's page

    @property
    def spoken_name(self) -> str:
        return f"queue {self.name}" if self.resource is QUEUES else f"group {self.namespace}/{self.name}"


def actions(source: Source) -> Blueprint:
    made = Blueprint("actions", __name__)

    @made.post("/groups/<namespace>/<name>/<any(hold, resume, priority):action>")
    def change_group(namespace: str, name: str, action: str) -> Response | str:
        chosen = Chosen(POD_GROUPS, namespace, name, url_for("pages.group", namespace=namespace, name=name))
        _check_right(chosen, g.viewer)
        fields: dict[str, str] = {}
        patch = OF_GROUP.get(action)
        if patch is None:
            fields["priority_class"] = _priority_class(source, chosen)
            patch = priority_patch(fields["priority_class"])
        return _confirmed_patch(chosen, action, _GROUP_ACTIONS[action], patch, fields)

    @made.post("/queues/<name>/<any(open, close, hold, resume):action>")
    def change_queue(name: str, action: str) -> Response | str:
        chosen = Chosen(QUEUES, "", name, url_for("pages.queue", name=name))
        _check_right(chosen, g.viewer)
        return _confirmed_patch(chosen, action, _QUEUE_ACTIONS[action], OF_QUEUE[action], {})

    return made


def _check_right(chosen: Chosen, viewer: Viewer) -> None:
    """Check the viewer's right, before they are asked to confirm. The API server checks it again.

    Raises:
        HTTPException: The right is missing.
    """
    for name in filter(None, (chosen.namespace, chosen.name)):
        if not may_be_name(name):
            raise NotFound(f"{name[:100]!r} is no name of an object")
    resource = chosen.resource
    if not viewer.may("patch", resource.group, resource.plural, chosen.namespace, chosen.name):
        where = f" in namespace {chosen.namespace}" if chosen.namespace else ""
        raise Forbidden(f"You may not patch {resource.plural}.{resource.group}{where}")


def _priority_class(source: Source, chosen: Chosen) -> str:
    """Return the priority class of the form.

    Raises:
        HTTPException: It does not exist.
    """
    key = f"{chosen.namespace}/{chosen.name}"
    group = next((group for group in source.overview().groups if group.key == key), None)
    if group is not None and group.is_job:
        raise Conflict(f"{chosen.spoken_name} stands for {group.called}, whose priority it has: change that")
    given = request.form.get("priority_class", "").strip()
    try:
        return NAME.read(given) if given else ""
    except ValueError:
        raise BadRequest(f"priority_class: invalid value {given[:100]!r}: must be {NAME.allowed}") from None


def _confirmed_patch(
    chosen: Chosen, action: str, sentence: str, patch: Patch, fields: Mapping[str, str]
) -> Response | str:
    if request.form.get("confirmed") == "yes":
        g.viewer.patch(chosen.resource.plural, chosen.namespace, chosen.name, patch)
        return redirect(chosen.page, 303)
    title = f"{action.capitalize()} {chosen.spoken_name}?"
    if "priority_class" in fields:
        title = f"Set the priority class of {chosen.spoken_name} to {fields['priority_class'] or 'none'}?"
    asked = {**fields, "confirmed": "yes"}
    here = f"{request.script_root}{request.path}"
    return render_template(
        "confirm.html", title=title, sentence=sentence, action=here, fields=asked, back=chosen.page
    )


# ---- what a viewer is offered: what they have the right to


class Button(NamedTuple):
    """Button of an action. `field`: the parameter to type, if any; `title`: its label."""

    label: str
    url: str
    field: str = ""
    title: str = ""


def buttons_on_group(group: GroupSummary, viewer: Viewer) -> Sequence[Button]:
    if group.verdict == "Ended" or not _is_offered(viewer, POD_GROUPS, group.namespace, group.name):
        return ()

    def leads_to(action: str) -> str:
        return url_for("actions.change_group", namespace=group.namespace, name=group.name, action=action)

    held = Button("Resume", leads_to("resume")) if group.held else Button("Hold", leads_to("hold"))
    if group.is_job:  # its priority is that of the job
        return (held,)
    return (held, Button("Change priority", leads_to("priority"), "priority_class", "Priority class"))


def buttons_on_queue(queue: QueueSummary, viewer: Viewer) -> Sequence[Button]:
    if not _is_offered(viewer, QUEUES, "", queue.name):
        return ()

    def leads_to(action: str) -> str:
        return url_for("actions.change_queue", name=queue.name, action=action)

    stopped = Button("Resume", leads_to("resume")) if queue.stop_policy else Button("Hold", leads_to("hold"))
    is_closed = queue.state.startswith("Clos")
    closed = Button("Open", leads_to("open")) if is_closed else Button("Close", leads_to("close"))
    return (stopped, closed)


def _is_offered(viewer: Viewer, resource: Resource, namespace: str, name: str) -> bool:
    try:
        return viewer.may("patch", resource.group, resource.plural, namespace, name)
    except RightsUnknown:
        return False
