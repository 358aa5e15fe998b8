"""What a viewer is offered to do to a group or a queue: what they have the right to. Each leads to a page
that asks whether it is meant."""

from collections.abc import Sequence
from typing import NamedTuple

from flask import current_app, url_for

from extender.api.summaries import GroupSummary, QueueSummary
from extender.dashboard.seen import PODGROUPS, QUEUES
from extender.dashboard.source import Unsure, Viewer


class Button(NamedTuple):
    """`field`: what has to be typed, or nothing."""

    label: str
    url: str
    field: str = ""


def buttons_on_group(group: GroupSummary, viewer: Viewer) -> Sequence[Button]:
    if group.verdict == "Ended" or not _may_patch(viewer, PODGROUPS, group.namespace, group.name):
        return ()

    def leads_to(action: str) -> str:
        return url_for("actions.change_group", namespace=group.namespace, name=group.name, action=action)

    held = Button("Resume", leads_to("resume")) if group.held else Button("Hold", leads_to("hold"))
    if group.is_job:  # its priority is that of the job
        return (held,)
    return (held, Button("Change priority", leads_to("priority"), "priority_class"))


def buttons_on_queue(queue: QueueSummary, viewer: Viewer) -> Sequence[Button]:
    if not _may_patch(viewer, QUEUES, "", queue.name):
        return ()

    def leads_to(action: str) -> str:
        return url_for("actions.change_queue", name=queue.name, action=action)

    stopped = Button("Resume", leads_to("resume")) if queue.stop_policy else Button("Hold", leads_to("hold"))
    is_closed = queue.state.startswith("Clos")
    closed = Button("Open", leads_to("open")) if is_closed else Button("Close", leads_to("close"))
    return (stopped, closed)


def _may_patch(viewer: Viewer, kind: tuple[str, str], namespace: str, name: str) -> bool:
    try:
        return "actions" in current_app.blueprints and viewer.may("patch", *kind, namespace, name)
    except Unsure:
        return False
