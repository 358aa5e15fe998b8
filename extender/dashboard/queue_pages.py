"""The pages of queues: their tree, and one of them."""

import threading
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any

from flask import g, request, url_for
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response as Answer

from extender.api.summaries import Overview, QueueSummary
from extender.dashboard.actions import buttons_on_queue
from extender.dashboard.answers import Answers, Screen
from extender.dashboard.bars import line, share_bar
from extender.dashboard.job_pages import job_index, waited_since
from extender.dashboard.seen import Sight
from extender.dashboard.tables import Column, page, searched
from extender.dashboard.words import named

_ROWS, _NEXT = 40, 20  # of a page; of those in line
_SPAN, _STEP = 3600, 30  # seconds

QUEUES = (
    Column[QueueSummary]("name", "Queue"),
    Column[QueueSummary]("shares", "What it holds"),
    Column[QueueSummary]("hour", "Last hour", kind="wide"),
    Column[QueueSummary]("waiting", "Waiting", lambda it: it.waiting, "number"),
    Column[QueueSummary]("starting", "Starting", lambda it: it.starting, "number wide"),
    Column[QueueSummary]("running", "Running", lambda it: it.running, "number wide"),
)


class LastHour:
    """What part of its deserved amounts each queue held, as far as somebody looked: kept in this process, a
    sample each half minute."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shares: dict[str, deque[tuple[float, float]]] = {}
        self._last = float("-inf")

    def note(self, overview: Overview, now: float) -> None:
        """Queues that are gone are forgotten."""
        with self._lock:
            if now - self._last < _STEP:
                return
            self._last = now
            shares = defaultdict(lambda: deque[tuple[float, float]](maxlen=_SPAN // _STEP), self._shares)
            for queue in overview.queues:
                if queue.share is not None:
                    shares[queue.name].append((now, queue.share))
            self._shares = {
                queue.name: shares[queue.name] for queue in overview.queues if queue.name in shares
            }

    def of(self, queue: str, now: float) -> Sequence[tuple[float, float]]:
        """Moments and shares."""
        with self._lock:
            return [it for it in self._shares.get(queue, ()) if it[0] >= now - _SPAN]


class QueuePages:
    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._hour = LastHour()

    def queues(self) -> Answer:
        sight = self._see()
        return self._answers.page(
            sight,
            Screen("Queues", "queues.html", "queues", sight.state("queues"), lambda: self._queues(sight)),
        )

    def _queues(self, sight: Sight) -> Mapping[str, Any]:
        queues = sight.overview.queues
        return {
            "page": page(searched(queues, request.args, lambda it: it.name), QUEUES, request.args, _ROWS),
            "columns": QUEUES,
            "allowed": sight.rights.queues,
            "everything": len(queues),
            "share_bar": share_bar,
            "hour": self._line_of_hour,
        }

    def queue(self, name: str) -> Answer:
        sight = self._see()
        queue = next((it for it in sight.overview.queues if it.name == name), None)
        if queue is None:
            raise NotFound(f"There is no queue {named(name)}, or you may not list queues.")

        def make() -> Mapping[str, Any]:
            waiting = [it for it in job_index(self._answers, sight).of_queue.get(name, ()) if it.wait]
            return {
                "queue": queue,
                "below": [it for it in sight.overview.queues if it.parent == name],
                "share_bar": share_bar,
                "hour": self._line_of_hour,
                "line": waiting[:_NEXT],
                "waiting": len(waiting),
                "waited_since": waited_since,
                "spoken": job_index(self._answers, sight).spoken,
            }

        crumbs = [("Queues", url_for("pages.queues"))]
        if queue.parent and queue.parent != "root":
            crumbs.append((queue.parent, url_for("pages.queue", name=queue.parent)))
        state = sight.state("queues", "groups")
        buttons = buttons_on_queue(queue, g.viewer)
        return self._answers.page(
            sight, Screen(name, "queue.html", "queues", state, make, crumbs, queue.state, buttons)
        )

    def _see(self) -> Sight:
        sight = self._answers.see()
        if sight.rights.queues:
            self._hour.note(sight.overview, self._answers.clock())
        return sight

    def _line_of_hour(self, queue: str) -> Mapping[str, Any] | None:
        """None until there are two samples to draw a line through."""
        now = self._answers.clock()
        samples = self._hour.of(queue, now)
        if len(samples) < 2:
            return None
        shares = [share for _, share in samples]
        top = max(1.0, *shares)
        return {
            "points": line(samples, now - _SPAN, now, top),
            "whole": 100 - 100 / top,
            "now": shares[-1],
            "least": min(shares),
            "most": max(shares),
        }
