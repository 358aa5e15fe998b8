"""All pages by their addresses, and the same as JSON."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from flask import Blueprint, g, request
from werkzeug.wrappers import Response as Answer

from extender.api.summaries import VERSION
from extender.dashboard import words
from extender.dashboard.answers import Answers, OpenPages
from extender.dashboard.history_page import History, HistoryPage
from extender.dashboard.job_pages import JobPages, missing_group
from extender.dashboard.node_pages import NodePages
from extender.dashboard.queue_pages import QueuePages
from extender.dashboard.seen import PARTS, Eyes
from extender.dashboard.source import Source
from extender.dashboard.what_if_page import Supposing, WhatIfPage


class JsonPages:
    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def overview_json(self) -> Answer:
        sight = self._answers.see()
        state = (sight.state(*PARTS), sight.overview.silent_since)
        return self._answers.json(sight, state, lambda: sight.overview)

    def group_json(self, namespace: str, name: str) -> Answer:
        sight, details = self._answers.see(), self._answers.eyes.details(namespace, name, g.viewer)
        if details is None:
            raise missing_group(namespace, name)
        text = msgspec.json.encode(details)
        return self._answers.json(sight, text, lambda: {"apiVersion": VERSION, **msgspec.json.decode(text)})

    def items_json(self, part: str) -> Answer:
        sight = self._answers.see()
        items: Sequence[Any] = getattr(sight.overview, part)
        namespace = request.args.get("namespace")
        if part == "groups" and namespace:
            items = [it for it in sight.overview.groups if it.namespace == namespace]
        return self._answers.json(
            sight,
            sight.state(part),
            lambda: {"apiVersion": VERSION, "version": sight.since[part], "items": items},
        )


def pages(
    source: Source,
    history: History | None = None,
    clock: Callable[[], float] = time.time,
    supposing: Supposing | None = None,
    open_pages: OpenPages | None = None,
) -> Blueprint:
    """Without `history`, there is no page of it; without `supposing`, nobody is asked what if."""
    made = Blueprint("pages", __name__)
    words.install(made, clock)
    answers = Answers(Eyes(source), clock, open_pages)
    made.app_context_processor(lambda: {"has_history": history is not None})
    tries = WhatIfPage(answers, supposing)
    jobs, queues = JobPages(answers, tries.buttons), QueuePages(answers, source.hour)
    nodes, past, as_json = NodePages(answers), HistoryPage(answers, history), JsonPages(answers)
    routes: Mapping[str, Callable[..., Answer]] = {
        "/": jobs.jobs,
        "/namespaces/<namespace>": jobs.jobs,
        "/groups/<namespace>/<name>": jobs.group,
        "/queues": queues.queues,
        "/queues/<name>": queues.queue,
        "/nodes": nodes.nodes,
        "/history": past.history,
        "/api/v1/history": past.history_json,
        "/api/v1/overview": as_json.overview_json,
        "/api/v1/<any(groups, queues, nodes, reservations, decisions):part>": as_json.items_json,
        "/api/v1/groups/<namespace>/<name>": as_json.group_json,
    }
    for path, view in routes.items():
        made.add_url_rule(path, view.__name__, view)
    made.add_url_rule("/groups/<namespace>/<name>/what-if", "what_if", tries.what_if, methods=["POST"])
    return made
