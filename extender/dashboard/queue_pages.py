"""The pages of queues: the tree of all queues, the LocalQueues, and one queue."""

from collections.abc import Mapping
from typing import Any

from flask import g, request, url_for
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response as BaseResponse

from extender.api.summaries import CapacitySummary, LocalQueueSummary, QueueSummary
from extender.api.units import timestamp_at
from extender.dashboard.actions import buttons_on_queue
from extender.dashboard.bars import capacity_bar, line, scales_of, share_bars
from extender.dashboard.job_pages import job_index, waited_since
from extender.dashboard.rendering import Renderer, Screen
from extender.dashboard.source import HOUR, STEP, LastHour
from extender.dashboard.tables import Column, matching_rows, page
from extender.dashboard.texts import shortened_name
from extender.dashboard.visible_overviews import VisibleOverview

_MAX_ROWS, _MAX_NEXT, _MAX_CHILDREN = 40, 20, 100  # limits: rows, pending groups, child queues

QUEUES = (
    Column[QueueSummary]("name", "Queue"),
    Column[QueueSummary]("shares", "Usage"),
    Column[QueueSummary]("hour", "Last hour", kind="wide"),
    Column[QueueSummary]("waiting", "Waiting", lambda row: row.waiting, "number"),
    Column[QueueSummary]("starting", "Starting", lambda row: row.starting, "number wide"),
    Column[QueueSummary]("running", "Running", lambda row: row.running, "number wide"),
)


LOCAL_QUEUES = (
    Column[LocalQueueSummary]("name", "Local queue", lambda row: (row.name, row.namespace)),
    Column[LocalQueueSummary]("namespace", "Namespace", lambda row: row.key),
    Column[LocalQueueSummary]("queue", "Queue", lambda row: (row.queue, row.key)),
    Column[LocalQueueSummary]("waiting", "Waiting", lambda row: row.waiting, "number"),
    Column[LocalQueueSummary]("admitted", "Admitted", lambda row: row.admitted, "number"),
    Column[LocalQueueSummary]("holds", "Holds"),
)


class QueuePages:
    """The pages of queues.

    `shares` has the shares of queues in the last hour, `usages` the used part of each resource of the
    cluster.
    """

    def __init__(self, renderer: Renderer, shares: LastHour, usages: LastHour) -> None:
        self._renderer = renderer
        self._shares, self._usage = shares, usages

    def queues(self) -> BaseResponse:
        visible = self._renderer.visible_overview()
        state = (visible.state("queues", "local_queues", "groups", "nodes"), self._minute())
        screen = Screen(
            "Queues", "queues.html", "queues", state, lambda: self._queues(visible), is_shared=True
        )
        return self._renderer.page(visible, screen)

    def _queues(self, visible: VisibleOverview) -> Mapping[str, Any]:
        queues = visible.overview.queues
        key = ("capacity", visible.state("nodes", "groups"))
        capacity = self._renderer.derive(key, visible.capacity)
        scale = self._renderer.derive(("scales", visible.state("queues")), lambda: scales_of(queues))
        listed_queues = matching_rows(queues, request.args, lambda queue: queue.name)
        rows = page(listed_queues, QUEUES, request.args, _MAX_ROWS)
        return {
            "page": rows,
            "columns": QUEUES,
            "may_list": visible.rights.sees_queues,
            "unfiltered_count": len(queues),
            "local_queue_count": len(visible.overview.local_queues),
            "capacities": [
                (summary, capacity_bar(summary), self._chart(self._usage, summary.resource, _in_use(summary)))
                for summary in capacity
                if "/" in summary.resource or summary.resource in ("cpu", "memory")
            ],
            "bars": [share_bars(queue, scale) for queue in rows.rows],
            "hours": [self._chart(self._shares, queue.name, queue.share) for queue in rows.rows],
        }

    def local_queues(self) -> BaseResponse:
        visible = self._renderer.visible_overview()

        def make() -> Mapping[str, Any]:
            local_queues = visible.overview.local_queues
            listed_queues = matching_rows(local_queues, request.args, lambda row: f"{row.key} {row.queue}")
            return {
                "page": page(listed_queues, LOCAL_QUEUES, request.args, _MAX_ROWS),
                "columns": LOCAL_QUEUES,
                "unfiltered_count": len(local_queues),
                "may_see_queues": visible.rights.sees_queues,
            }

        crumbs = [("Queues", url_for("pages.queues"))]
        state = visible.state("local_queues")
        screen = Screen("Local queues", "local_queues.html", "queues", state, make, crumbs, is_shared=True)
        return self._renderer.page(visible, screen)

    def queue(self, name: str) -> BaseResponse:
        visible = self._renderer.visible_overview()
        queue = next((listed for listed in visible.overview.queues if listed.name == name), None)
        if queue is None:
            raise NotFound(f"There is no queue {shortened_name(name)}, or you may not list queues.")

        def make() -> Mapping[str, Any]:
            groups = job_index(self._renderer, visible).by_queue.get(name, ())
            waiting_groups = [group for group in groups if group.wait]
            children = [child for child in visible.overview.queues if child.parent == name]
            with_parent = [shown for shown in visible.overview.queues if shown.name in (name, queue.parent)]
            child_scales = scales_of([queue, *children])
            local_queues = [local for local in visible.overview.local_queues if local.queue == name]
            return {
                "queue": queue,
                "bars": share_bars(queue, scales_of(with_parent)),
                "below": [(child, share_bars(child, child_scales)) for child in children[:_MAX_CHILDREN]],
                "more_below": len(children[_MAX_CHILDREN:]),
                "local_queues": local_queues[:_MAX_CHILDREN],
                "more_local": len(local_queues[_MAX_CHILDREN:]),
                "hour": self._chart(self._shares, name, queue.share),
                "next_groups": waiting_groups[:_MAX_NEXT],
                "waiting_count": len(waiting_groups),
                "waited_since": waited_since,
            }

        crumbs = [("Queues", url_for("pages.queues"))]
        if queue.parent and queue.parent != "root":
            crumbs.append((queue.parent, url_for("pages.queue", name=queue.parent)))
        state = (visible.state("queues", "local_queues", "groups"), self._minute())
        buttons = buttons_on_queue(queue, g.viewer)
        screen = Screen(name, "queue.html", "queues", state, make, crumbs, badge=queue.state, buttons=buttons)
        return self._renderer.page(visible, screen)

    def _minute(self) -> float:
        return self._renderer.clock() // STEP

    def _chart(self, last_hour: LastHour, name: str, latest: float | None) -> Mapping[str, Any] | None:
        """Return the chart of the last hour; None if there are fewer than two samples.

        The value `since` is the time of the first sample, or empty if the samples cover the hour. Charts are
        cached for a minute.
        """
        now = self._renderer.clock()
        samples = last_hour.samples_of(name, now)
        if len(samples) < 2 or latest is None:
            return None
        now -= (now - samples[-1][0]) % STEP
        samples = [*samples, (now, latest)]
        since, shares = samples[0][0], [share for _, share in samples]
        top = max(1.0, *shares)
        return {
            "points": line(samples, now - HOUR, now, top),
            "whole": 100 - 100 / top,
            "now": shares[-1],
            "since": timestamp_at(since) if since > now - HOUR + 2 * STEP else "",
            "least": min(shares),
            "most": max(shares),
        }


def _in_use(capacity: CapacitySummary) -> float | None:
    return (capacity.used + capacity.claimed) / capacity.total if capacity.total else None
