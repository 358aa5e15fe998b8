"""The pages of jobs: pending, starting, running and failed ones; and the page of one job with its reason."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from flask import g, redirect, request, url_for
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response as Answer

from extender.api.summaries import EventSummary, GroupDetails, GroupSummary, WaitSummary
from extender.api.units import instant
from extender.dashboard.actions import Button, buttons_on_group
from extender.dashboard.answers import Answers, Screen, address_with
from extender.dashboard.bars import shortfall_bar
from extender.dashboard.tables import Column, page, searched
from extender.dashboard.visible import VisibleOverview
from extender.dashboard.words import address_parts, named

_ROWS, _EVENTS = 50, 100  # rows of a page of jobs or pods; rows of events
_TOGETHER = 5  # seconds within which equal events are merged
_ORDER = {"Waiting": 0, "Starting": 1, "Running": 3, "Ended": 4}
_UNKNOWN = 2
_FAR = 1 << 31  # a position behind all others


def waited_since(group: GroupSummary) -> str:
    return (group.wait and group.wait.since) or group.created


def _position(group: GroupSummary) -> int:
    return (group.wait and group.wait.position) or _FAR


def is_running(group: GroupSummary) -> bool:
    return group.verdict == "Running" and bool(group.started)


def _run_seconds(group: GroupSummary) -> float:
    """Return the sort key of run times, without the current time."""
    return -instant(group.started) if is_running(group) else float("-inf")


def _by_position(groups: Sequence[GroupSummary]) -> list[GroupSummary]:
    """Return pending groups first, by position in their queue, then starting ones.

    The given groups are ordered by name; all others keep that order.
    """
    parts: dict[int, list[GroupSummary]] = defaultdict(list)
    for group in groups:
        parts[_ORDER.get(group.verdict, _UNKNOWN)].append(group)
    parts[0].sort(key=_position)  # and then by queue: faster than by both at once
    parts[0].sort(key=attrgetter("queue"))
    return [group for order in sorted(parts) for group in parts[order]]


GROUPS = (
    Column[GroupSummary]("state", "State", lambda it: _ORDER.get(it.verdict, _UNKNOWN)),
    Column[GroupSummary]("name", "Job", lambda it: (it.name, it.namespace)),
    Column[GroupSummary]("user", "Owner", lambda it: (it.user, it.key), "wide"),
    Column[GroupSummary]("queue", "Queue", lambda it: (it.queue, _position(it), it.key)),
    Column[GroupSummary]("priority", "Priority", lambda it: (-it.priority, it.key), "number wide"),
    Column[GroupSummary]("devices", "GPUs", lambda it: (-sum(it.devices.values()), it.key), "number"),
    Column[GroupSummary](
        "waited",
        "Waited",
        lambda it: -instant(waited_since(it)) if it.wait else float("-inf"),
        "number",
    ),
    Column[GroupSummary]("runs", "Running", _run_seconds, "number"),
    Column[GroupSummary](
        "start",
        "Expected start",
        lambda it: (it.wait and it.wait.estimate and it.wait.estimate.p50) or "~",
        "wide",
    ),
    Column[GroupSummary]("placed", "On nodes", lambda it: (it.placed, it.needed), "number"),
)


class JobIndex:
    """The visible groups, pending ones first, also by namespace and by queue."""

    def __init__(self, groups: Sequence[GroupSummary]) -> None:
        self.all = _by_position(groups)
        self.of_namespace: dict[str, list[GroupSummary]] = defaultdict(list)
        self.of_queue: dict[str, list[GroupSummary]] = defaultdict(list)
        for group in self.all:
            self.of_namespace[group.namespace].append(group)
            self.of_queue[group.queue].append(group)
        owned = [it for it in groups if "/" in it.called]
        owned.sort(key=lambda it: (it.verdict != "Ended", it.created))
        self._spoken = {it.key: it.spoken_name for it in owned}
        self._by_spoken = {it.spoken_name: it for it in owned}  # the newest, if a job followed another
        self.namespaces, self.queues = sorted(self.of_namespace), sorted(filter(None, self.of_queue))

    def spoken(self, key: str) -> str:
        """Return a name such as `team/pytorchjob/train` for the group of a PyTorchJob."""
        return self._spoken.get(key, key)

    def of_owner(self, namespace: str, kind: str, name: str) -> GroupSummary | None:
        """Return the group of an owner's pods."""
        return self._by_spoken.get(f"{namespace}/{kind}/{name}")

    def address(self, group: GroupSummary) -> Mapping[str, Any]:
        """Return the parts of the address of a group; older groups of one owner have their own names."""
        is_hidden = self._by_spoken.get(group.spoken_name, group).name != group.name
        parts = {} if is_hidden else address_parts(group.spoken_name)
        return parts or {"namespace": group.namespace, "name": group.name}


def job_index(answers: Answers, visible: VisibleOverview) -> JobIndex:
    return answers.derived(("lines", visible.state("groups")), lambda: JobIndex(visible.overview.groups))


def numbers(wait: WaitSummary) -> str:
    """Return the detail without the parts that pages show next to it."""
    parts = wait.detail.split("; ")
    return "; ".join(it for it in parts if it != wait.remedy and not it.startswith("position "))


class MergedEvent(NamedTuple):
    """Event, and the number of equal ones at about the same time, mostly of other pods."""

    event: EventSummary
    more: int


def merged(timeline: Sequence[EventSummary]) -> list[MergedEvent]:
    """Return the timeline with events of one reason within a few seconds as one."""
    found: list[MergedEvent] = []
    for event in timeline:
        last = found[-1] if found else None
        near = last and instant(event.at) - instant(last.event.at) <= _TOGETHER
        if last and near and last.event.reason == event.reason:
            found[-1] = MergedEvent(last.event, last.more + 1)
        else:
            found.append(MergedEvent(event, 0))
    return found


class JobPages:
    """The pages of jobs. `more_buttons`: further buttons on the page of a job."""

    def __init__(
        self, answers: Answers, more_buttons: Callable[[VisibleOverview, GroupSummary], Sequence[Button]]
    ) -> None:
        self._answers = answers
        self._more_buttons = more_buttons

    def jobs(self, namespace: str = "") -> Answer:
        if chosen := request.args.get("namespace"):
            return redirect(address_with(url_for("pages.jobs", namespace=chosen), namespace=""))
        visible = self._answers.see()
        crumbs = [("Jobs", url_for("pages.jobs"))] if namespace else []
        title = f"Jobs of {named(namespace)}" if namespace else "Jobs"
        state = visible.state("groups", "notes")
        screen = Screen(
            title, "jobs.html", "jobs", state, lambda: self._jobs(visible, namespace), crumbs, by_rights=True
        )
        return self._answers.page(visible, screen)

    def _jobs(self, visible: VisibleOverview, namespace: str) -> Mapping[str, Any]:
        known = job_index(self._answers, visible)
        queue, state = request.args.get("queue", ""), request.args.get("state", "")
        groups: Sequence[GroupSummary] = known.of_namespace.get(namespace, []) if namespace else known.all
        queues = sorted({it.queue for it in groups if it.queue}) if namespace else known.queues
        found = [it for it in groups if it.queue == queue] if queue else groups
        counts = Counter(it.verdict for it in found)
        counts["Failing"] = sum(it.failed > 0 for it in found)
        if state:
            found = [it for it in found if (it.failed if state == "Failing" else it.verdict == state)]
        found = searched(found, request.args, lambda it: f"{it.key} {it.called} {it.user}")
        return {
            "page": page(found, GROUPS, request.args, _ROWS),
            "columns": GROUPS,
            "counts": counts,
            "everything": len(groups),
            "namespace": namespace,
            "namespaces": [] if namespace else known.namespaces,
            "queues": queues,
            "notes": visible.overview.notes,
            "queue_seen": visible.rights.queues,
            "waited_since": waited_since,
            "is_running": is_running,
            "numbers": numbers,
        }

    def group(self, namespace: str, name: str, kind: str = "") -> Answer:
        """Return the page of a group. A group with an owner is addressed by the owner's kind and name."""
        visible = self._answers.see()
        known = job_index(self._answers, visible)
        details = found_details(self._answers, visible, namespace, name, kind)
        group = details.group
        if not kind and "kind" in (parts := known.address(group)):
            return redirect(address_with(url_for("pages.group", **parts)))

        def make() -> Mapping[str, Any]:
            return {
                "details": details,
                "group": group,
                "timeline": merged(details.timeline)[-_EVENTS:],
                "bars": [(lack, shortfall_bar(lack)) for lack in details.shortfall],
                "members": page(details.members, (), request.args, _ROWS),
                "on_nodes": visible.rights.nodes and any(it.node for it in details.members),
                "waited_since": waited_since(group),
                "seen": visible.rights.see_group,
                "spoken": known.spoken,
                "numbers": numbers(group.wait) if group.wait else "",
                "queue_seen": visible.rights.queues,
            }

        crumbs = [("Jobs", url_for("pages.jobs")), (namespace, url_for("pages.jobs", namespace=namespace))]
        state: Hashable = (visible.rights, hashlib.sha256(msgspec.json.encode(details)).digest())
        buttons = (*buttons_on_group(group, g.viewer), *self._more_buttons(visible, group))
        title = group.called or group.name
        return self._answers.page(
            visible, Screen(title, "group.html", "jobs", state, make, crumbs, group.verdict, buttons)
        )


def found_details(
    answers: Answers, visible: VisibleOverview, namespace: str, name: str, kind: str
) -> GroupDetails:
    """Return the details of a group, which may be newer than the overview.

    Raises:
        NotFound: The group does not exist, or the viewer may not see it.
    """
    if kind:
        group = job_index(answers, visible).of_owner(namespace, kind, name)
        own_name = group.name if group else ""
    else:
        own_name = name
    details = answers.overviews.details(namespace, own_name, g.viewer) if own_name else None
    if details is None:
        raise missing_group(namespace, name)
    return details


def missing_group(namespace: str, name: str) -> NotFound:
    return NotFound(f"There is no job {named(namespace)}/{named(name)}, or it is not yours to see.")
