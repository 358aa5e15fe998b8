"""The pages of jobs: a list of pending, starting, running and failed jobs, and the page of one job."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from flask import g, redirect, request, url_for
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response as BaseResponse

from extender.api.summaries import EventSummary, GroupDetails, GroupSummary, WaitSummary
from extender.api.units import unix_seconds
from extender.dashboard.actions import Button, buttons_on_group
from extender.dashboard.bars import shortfall_bar
from extender.dashboard.rendering import Renderer, Screen, address_with
from extender.dashboard.tables import Column, matching_rows, page
from extender.dashboard.texts import address_parts, shortened_name
from extender.dashboard.visible_overviews import VisibleOverview

_MAX_ROWS, _MAX_EVENTS = 50, 100  # rows of a page of jobs or pods; rows of a timeline
_MERGE_SECONDS = 5  # seconds within which equal events are merged
_ORDER_BY_VERDICT = {"Waiting": 0, "Starting": 1, "Running": 3, "Ended": 4}
_UNKNOWN = 2  # order of any other verdict
_LAST_POSITION = 1 << 31  # sort key behind all positions

MoreButtons = Callable[[VisibleOverview, GroupSummary], Sequence[Button]]


def waited_since(group: GroupSummary) -> str:
    return group.wait.since if group.wait and group.wait.since else group.created


def _position(group: GroupSummary) -> int:
    return group.wait.position if group.wait and group.wait.position else _LAST_POSITION


def is_running(group: GroupSummary) -> bool:
    return group.verdict == "Running" and bool(group.started)


def _run_time_key(group: GroupSummary) -> float:
    """Return the sort key of a group's run time: its negative start time, which needs no current time."""
    return -unix_seconds(group.started) if is_running(group) else float("-inf")


def _sort_by_position(groups: Sequence[GroupSummary]) -> list[GroupSummary]:
    """Return the groups in the order of the page.

    Pending groups come first, by position in their queue, then starting groups. All other groups keep the
    order of the arguments, which are sorted by name.
    """
    groups_by_order: dict[int, list[GroupSummary]] = defaultdict(list)
    for group in groups:
        groups_by_order[_ORDER_BY_VERDICT.get(group.verdict, _UNKNOWN)].append(group)
    groups_by_order[0].sort(key=_position)  # two sorts by one key are faster than one sort by two keys
    groups_by_order[0].sort(key=attrgetter("queue"))
    return [group for order in sorted(groups_by_order) for group in groups_by_order[order]]


GROUPS = (
    Column[GroupSummary]("state", "State", lambda group: _ORDER_BY_VERDICT.get(group.verdict, _UNKNOWN)),
    Column[GroupSummary]("name", "Job", lambda group: (group.name, group.namespace)),
    Column[GroupSummary]("user", "Owner", lambda group: (group.user, group.key), "wide"),
    Column[GroupSummary]("queue", "Queue", lambda group: (group.queue, _position(group), group.key)),
    Column[GroupSummary]("priority", "Priority", lambda group: (-group.priority, group.key), "number wide"),
    Column[GroupSummary](
        "devices", "GPUs", lambda group: (-sum(group.devices.values()), group.key), "number"
    ),
    Column[GroupSummary](
        "waited",
        "Waited",
        lambda group: -unix_seconds(waited_since(group)) if group.wait else float("-inf"),
        "number",
    ),
    Column[GroupSummary]("runs", "Running", _run_time_key, "number"),
    Column[GroupSummary](
        "start",
        "Expected start",
        lambda group: (group.wait and group.wait.estimate and group.wait.estimate.p50) or "~",
        "wide",
    ),
    Column[GroupSummary]("placed", "On nodes", lambda group: (group.placed, group.needed), "number"),
)


class JobIndex:
    """Index of the visible groups: all groups in the order of the page, also by namespace and by queue."""

    def __init__(self, groups: Sequence[GroupSummary]) -> None:
        self.all = _sort_by_position(groups)
        self.by_namespace: dict[str, list[GroupSummary]] = defaultdict(list)
        self.by_queue: dict[str, list[GroupSummary]] = defaultdict(list)
        for group in self.all:
            self.by_namespace[group.namespace].append(group)
            self.by_queue[group.queue].append(group)
        owned_groups = [group for group in groups if "/" in group.called]
        owned_groups.sort(key=lambda group: (group.verdict != "Ended", group.created))
        self._display_names = {group.key: group.display_name for group in owned_groups}
        # If several groups have the same display name, the newest group counts; ended groups count less.
        self._group_by_display_name = {group.display_name: group for group in owned_groups}
        self.namespaces, self.queues = sorted(self.by_namespace), sorted(filter(None, self.by_queue))

    def display_name(self, key: str) -> str:
        """Return the name of a group for users, such as `team/pytorchjob/train`."""
        return self._display_names.get(key, key)

    def of_owner(self, namespace: str, kind: str, name: str) -> GroupSummary | None:
        """Return the group of an owner's pods; None if there is none."""
        return self._group_by_display_name.get(f"{namespace}/{kind}/{name}")

    def address(self, group: GroupSummary) -> Mapping[str, Any]:
        """Return the parts of a group's address.

        The address names the owner of the group. If another group stands for this owner,
        for example a newer group, the address names the group itself.
        """
        is_replaced = self._group_by_display_name.get(group.display_name, group).name != group.name
        parts = {} if is_replaced else address_parts(group.display_name)
        return parts or {"namespace": group.namespace, "name": group.name}


def job_index(renderer: Renderer, visible: VisibleOverview) -> JobIndex:
    return renderer.derive(("job index", visible.state("groups")), lambda: JobIndex(visible.overview.groups))


def detail_of(wait: WaitSummary) -> str:
    """Return the detail of a wait without its remedy and position, which the page shows separately."""
    parts = wait.detail.split("; ")
    return "; ".join(part for part in parts if part != wait.remedy and not part.startswith("position "))


class MergedEvent(NamedTuple):
    """Event with the number of further events that have the same reason at about the same time."""

    event: EventSummary
    more: int


def merge_events(timeline: Sequence[EventSummary]) -> list[MergedEvent]:
    """Return a timeline in which events of one reason within a few seconds are merged."""
    events: list[MergedEvent] = []
    for event in timeline:
        last = events[-1] if events else None
        is_near = last and unix_seconds(event.at) - unix_seconds(last.event.at) <= _MERGE_SECONDS
        if last and is_near and last.event.reason == event.reason:
            events[-1] = MergedEvent(last.event, last.more + 1)
        else:
            events.append(MergedEvent(event, 0))
    return events


class JobPages:
    """The pages of jobs. `more_buttons` returns further buttons for the page of a job."""

    def __init__(self, renderer: Renderer, more_buttons: MoreButtons) -> None:
        self._renderer = renderer
        self._more_buttons = more_buttons

    def jobs(self, namespace: str = "") -> BaseResponse:
        selected_namespace = request.args.get("namespace")
        if selected_namespace:
            return redirect(address_with(url_for("pages.jobs", namespace=selected_namespace), namespace=""))
        visible = self._renderer.visible_overview()
        crumbs = [("Jobs", url_for("pages.jobs"))] if namespace else []
        title = f"Jobs of {shortened_name(namespace)}" if namespace else "Jobs"
        state = visible.state("groups", "notes")
        screen = Screen(
            title, "jobs.html", "jobs", state, lambda: self._jobs(visible, namespace), crumbs, is_shared=True
        )
        return self._renderer.page(visible, screen)

    def _jobs(self, visible: VisibleOverview, namespace: str) -> Mapping[str, Any]:
        index = job_index(self._renderer, visible)
        queue, state = request.args.get("queue", ""), request.args.get("state", "")
        groups: Sequence[GroupSummary] = index.by_namespace.get(namespace, []) if namespace else index.all
        queues = sorted({row.queue for row in groups if row.queue}) if namespace else index.queues
        rows = [row for row in groups if row.queue == queue] if queue else groups
        counts = Counter(row.verdict for row in rows)
        counts["Failing"] = sum(row.failed > 0 for row in rows)
        if state:
            rows = [row for row in rows if (row.failed if state == "Failing" else row.verdict == state)]
        rows = matching_rows(rows, request.args, lambda row: f"{row.key} {row.called} {row.user}")
        return {
            "page": page(rows, GROUPS, request.args, _MAX_ROWS),
            "columns": GROUPS,
            "counts": counts,
            "unfiltered_count": len(groups),
            "namespace": namespace,
            "namespaces": [] if namespace else index.namespaces,
            "queues": queues,
            "notes": visible.overview.notes,
            "may_see_queues": visible.rights.sees_queues,
            "waited_since": waited_since,
            "is_running": is_running,
            "detail_of": detail_of,
        }

    def group(self, namespace: str, name: str, kind: str = "") -> BaseResponse:
        """Return the page of a group. A group with an owner is addressed by the owner's kind and name."""
        visible = self._renderer.visible_overview()
        index = job_index(self._renderer, visible)
        details = find_details(self._renderer, visible, namespace, name, kind)
        group = details.group
        parts = index.address(group)
        if not kind and "kind" in parts:
            return redirect(address_with(url_for("pages.group", **parts)))

        def make() -> Mapping[str, Any]:
            return {
                "details": details,
                "group": group,
                "timeline": merge_events(details.timeline)[-_MAX_EVENTS:],
                "bars": [(shortfall, shortfall_bar(shortfall)) for shortfall in details.shortfall],
                "members": page(details.members, (), request.args, _MAX_ROWS),
                "on_nodes": visible.rights.sees_nodes and any(member.node for member in details.members),
                "waited_since": waited_since(group),
                "may_see": visible.rights.may_see_group,
                "display_name": index.display_name,
                "detail": detail_of(group.wait) if group.wait else "",
                "may_see_queues": visible.rights.sees_queues,
            }

        crumbs = [("Jobs", url_for("pages.jobs")), (namespace, url_for("pages.jobs", namespace=namespace))]
        state: Hashable = (visible.rights, hashlib.sha256(msgspec.json.encode(details)).digest())
        buttons = (*buttons_on_group(group, g.viewer), *self._more_buttons(visible, group))
        title = group.called or group.name
        screen = Screen(title, "group.html", "jobs", state, make, crumbs, group.verdict, buttons)
        return self._renderer.page(visible, screen)


def find_details(
    renderer: Renderer, visible: VisibleOverview, namespace: str, name: str, kind: str
) -> GroupDetails:
    """Return the details of a group. The group may be newer than the overview.

    Raises:
        NotFound: The group does not exist, or the viewer may not see it.
    """
    if kind:
        group = job_index(renderer, visible).of_owner(namespace, kind, name)
        own_name = group.name if group else ""
    else:
        own_name = name
    details = renderer.overviews.details(namespace, own_name, g.viewer) if own_name else None
    if details is None:
        raise missing_group(namespace, name)
    return details


def missing_group(namespace: str, name: str) -> NotFound:
    job = f"{shortened_name(namespace)}/{shortened_name(name)}"
    return NotFound(f"There is no job {job}, or it is not yours to see.")
