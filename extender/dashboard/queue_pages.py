"""The pages of queues: the tree of queues, and one queue."""

from collections.abc import Mapping
from typing import Any

from flask import g, request, url_for
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response as Answer

from extender.api.summaries import QueueSummary
from extender.api.units import timestamp_at
from extender.dashboard.actions import buttons_on_queue
from extender.dashboard.answers import Answers, Screen
from extender.dashboard.bars import line, share_bar
from extender.dashboard.job_pages import job_index, waited_since
from extender.dashboard.source import HOUR, STEP, LastHour
from extender.dashboard.tables import Column, page, searched
from extender.dashboard.visible import VisibleOverview
from extender.dashboard.words import named

_ROWS, _NEXT = 40, 20  # rows of a page; rows of pending groups

QUEUES = (
    Column[QueueSummary]("name", "Queue"),
    Column[QueueSummary]("shares", "What it holds"),
    Column[QueueSummary]("hour", "Last hour", kind="wide"),
    Column[QueueSummary]("waiting", "Waiting", lambda it: it.waiting, "number"),
    Column[QueueSummary]("starting", "Starting", lambda it: it.starting, "number wide"),
    Column[QueueSummary]("running", "Running", lambda it: it.running, "number wide"),
)


class QueuePages:
    def __init__(self, answers: Answers, hour: LastHour) -> None:
        self._answers = answers
        self._hour = hour

    def queues(self) -> Answer:
        visible = self._answers.see()
        state = (visible.state("queues"), self._minute())
        return self._answers.page(
            visible,
            Screen("Queues", "queues.html", "queues", state, lambda: self._queues(visible), by_rights=True),
        )

    def _queues(self, visible: VisibleOverview) -> Mapping[str, Any]:
        queues = visible.overview.queues
        shown = page(searched(queues, request.args, lambda it: it.name), QUEUES, request.args, _ROWS)
        return {
            "page": shown,
            "columns": QUEUES,
            "allowed": visible.rights.queues,
            "everything": len(queues),
            "share_bar": share_bar,
            "hours": [self._hour_chart(it) for it in shown.rows],
        }

    def queue(self, name: str) -> Answer:
        visible = self._answers.see()
        queue = next((it for it in visible.overview.queues if it.name == name), None)
        if queue is None:
            raise NotFound(f"There is no queue {named(name)}, or you may not list queues.")

        def make() -> Mapping[str, Any]:
            waiting = [it for it in job_index(self._answers, visible).of_queue.get(name, ()) if it.wait]
            return {
                "queue": queue,
                "below": [it for it in visible.overview.queues if it.parent == name],
                "share_bar": share_bar,
                "hour": self._hour_chart(queue),
                "line": waiting[:_NEXT],
                "waiting": len(waiting),
                "waited_since": waited_since,
                "spoken": job_index(self._answers, visible).spoken,
            }

        crumbs = [("Queues", url_for("pages.queues"))]
        if queue.parent and queue.parent != "root":
            crumbs.append((queue.parent, url_for("pages.queue", name=queue.parent)))
        state = (visible.state("queues", "groups"), self._minute())
        buttons = buttons_on_queue(queue, g.viewer)
        return self._answers.page(
            visible, Screen(name, "queue.html", "queues", state, make, crumbs, queue.state, buttons)
        )

    def _minute(self) -> float:
        return self._answers.clock() // STEP

    def _hour_chart(self, queue: QueueSummary) -> Mapping[str, Any] | None:
        """Return the line of the last hour; None until it has two samples.

        `since`: the first sample, if that is less than an hour ago. The line is drawn again each minute.
        """
        now = self._answers.clock()
        samples = self._hour.of(queue.name, now)
        if len(samples) < 2 or queue.share is None:
            return None
        now -= (now - samples[-1][0]) % STEP
        samples = [*samples, (now, queue.share)]
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
