"""The pages: jobs, why one of them waits, queues, nodes; and the JSON of each.

Each is made once for all who may see the same, and again when something changed. A browser that has it
already is told so by its ETag, which costs no making.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from cachetools import LRUCache
from flask import Blueprint, Response, g, make_response, redirect, render_template, request, url_for
from markupsafe import Markup
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response as Answer

from extender.api.summaries import VERSION, GroupSummary, NodeSummary, QueueSummary
from extender.api.units import moment
from extender.dashboard import words
from extender.dashboard.bars import line, main_resource, node_bar, share_bar, shortfall_bar
from extender.dashboard.buttons import Button, buttons_on_group, buttons_on_queue
from extender.dashboard.pools import free, fullness, pools
from extender.dashboard.samples import SPAN, LastHour
from extender.dashboard.seen import Eyes, Sight
from extender.dashboard.source import Source
from extender.dashboard.tables import Column, page, searched

_TICK = 15  # seconds after which a page is made anew for its ages alone
_KEPT = 128  # bodies of pages
_JOBS, _QUEUES, _NODES, _MEMBERS = 50, 40, 50, 50  # rows of a page
_ORDER = {"Waiting": 0, "Starting": 1, "Unknown": 2, "Running": 3, "Ended": 4}
_FAR = 1 << 31  # a position behind all others


@dataclass(frozen=True)
class Screen:
    """`make` is asked for what the template shows if its body is not kept. `state` is equal while nothing
    that it shows has changed."""

    title: str
    template: str
    state: Hashable
    make: Callable[[], Mapping[str, Any]]
    section: str
    crumbs: Sequence[tuple[str, str]] = ()
    badge: str = ""
    actions: Sequence[Button] = field(default=())


def _waited_since(group: GroupSummary) -> str:
    return (group.wait and group.wait.since) or group.created


def _by_state(group: GroupSummary) -> tuple[int, str, int, str]:
    """Who waits comes first, in line."""
    place = (group.wait and group.wait.position) or _FAR
    return _ORDER.get(group.verdict, 2), group.queue if group.wait else "", place, group.key


def _resource_of(node: NodeSummary) -> str:
    return main_resource([node.allocatable])


GROUPS = (
    Column[GroupSummary]("state", "State", _by_state),
    Column[GroupSummary]("name", "Job", lambda it: (it.name, it.namespace)),
    Column[GroupSummary]("queue", "Queue", lambda it: (it.queue, it.key)),
    Column[GroupSummary](
        "position", "Position", lambda it: (it.wait and it.wait.position) or _FAR, "number wide"
    ),
    Column[GroupSummary](
        "waited", "Waited", lambda it: -moment(_waited_since(it)) if it.wait else float("-inf"), "number"
    ),
    Column[GroupSummary](
        "start",
        "Expected start",
        lambda it: (it.wait and it.wait.estimate and it.wait.estimate.p50) or "~",
        "wide",
    ),
    Column[GroupSummary]("placed", "On nodes", lambda it: (it.placed, it.needed), "number"),
)
QUEUES = (
    Column[QueueSummary]("name", "Queue"),
    Column[QueueSummary]("shares", "What it holds"),
    Column[QueueSummary]("hour", "Last hour", kind="wide"),
    Column[QueueSummary]("waiting", "Waiting", lambda it: it.waiting, "number"),
    Column[QueueSummary]("starting", "Starting", lambda it: it.starting, "number wide"),
    Column[QueueSummary]("running", "Running", lambda it: it.running, "number wide"),
)


NODES = (
    Column[NodeSummary]("name", "Node", lambda it: it.name),
    Column[NodeSummary]("full", "In use", lambda it: fullness(it, _resource_of(it))),
    Column[NodeSummary]("free", "Free", lambda it: free(it, _resource_of(it)), "number"),
    Column[NodeSummary]("groups", "Jobs on it or on their way", lambda it: len(it.groups)),
)


class Pages:
    def __init__(self, source: Source, clock: Callable[[], float]) -> None:
        self._eyes = Eyes(source)
        self._clock = clock
        self._hour = LastHour()
        self._lock = threading.Lock()
        self._bodies: LRUCache[Hashable, Markup] = LRUCache(_KEPT)

    # ---- how an answer is made

    def _see(self) -> Sight:
        sight = self._eyes.see(g.viewer)
        if sight.rights.queues:
            self._hour.note(sight.overview, self._clock())
        return sight

    def _show(self, sight: Sight, screen: Screen) -> Answer:
        key = (screen.state, sight.state, int(self._clock() // _TICK), request.full_path)
        seen_by = (g.viewer.name, g.viewer.secret, screen.actions, screen.badge)  # its forms are made of it
        answer = self._unchanged((key, seen_by))
        if answer is None:
            body = self._body(key, screen)
            answer = make_response(
                render_template(
                    "layout.html", screen=screen, body=body, viewer=g.viewer, overview=sight.overview
                )
            )
        return self._marked(answer, (key, seen_by))

    def _body(self, key: Hashable, screen: Screen) -> Markup:
        with self._lock:
            body = self._bodies.get(key)
        if body is None:
            body = Markup(render_template(screen.template, link=_link, **screen.make()))
            with self._lock:
                self._bodies[key] = body
        return body

    def _json(self, state: Hashable, make: Callable[[], Any]) -> Answer:
        answer = self._unchanged((state, request.full_path))
        if answer is None:
            answer = Response(msgspec.json.encode(make()), mimetype="application/json")
        return self._marked(answer, (state, request.full_path))

    def _unchanged(self, key: Hashable) -> Answer | None:
        return Response(status=304) if request.if_none_match.contains_weak(_etag(key)) else None

    def _marked(self, answer: Answer, key: Hashable) -> Answer:
        answer.set_etag(_etag(key), weak=True)
        answer.headers["Cache-Control"] = "private, no-cache"
        return answer

    # ---- jobs

    def jobs(self, namespace: str = "") -> Answer:
        if chosen := request.args.get("namespace"):
            return redirect(url_for("pages.jobs", namespace=chosen, **_asked(namespace="")))
        sight = self._see()
        crumbs = [("Jobs", url_for("pages.jobs"))] if namespace else []
        title = f"Jobs of {words.named(namespace)}" if namespace else "Jobs"
        return self._show(
            sight, Screen(title, "jobs.html", (), lambda: self._jobs(sight, namespace), "jobs", crumbs)
        )

    def _jobs(self, sight: Sight, namespace: str) -> Mapping[str, Any]:
        everybody = sight.overview.groups
        groups = [it for it in everybody if it.namespace == namespace] if namespace else everybody
        queue, state = request.args.get("queue", ""), request.args.get("state", "")
        found = [it for it in groups if not queue or it.queue == queue]
        counts = Counter(it.verdict for it in found)
        counts["Failing"] = sum(it.failed > 0 for it in found)
        if state == "Failing":
            found = [it for it in found if it.failed]
        elif state:
            found = [it for it in found if it.verdict == state]
        found = list(searched(found, request.args, lambda it: f"{it.key} {it.called} {it.user}"))
        return {
            "page": page(found, GROUPS, request.args, _JOBS, "state"),
            "columns": GROUPS,
            "counts": counts,
            "everything": len(groups),
            "namespace": namespace,
            "namespaces": sorted({it.namespace for it in everybody}),
            "queues": sorted({it.queue for it in groups if it.queue}),
            "notes": sight.overview.notes,
            "waited_since": _waited_since,
        }

    def group(self, namespace: str, name: str) -> Answer:
        sight = self._see()
        details = self._eyes.details(namespace, name, g.viewer)
        if details is None:
            raise NotFound(f"There is no job {namespace}/{name}, or it is not yours to see.")
        group = details.group
        crumbs = [("Jobs", url_for("pages.jobs")), (namespace, url_for("pages.jobs", namespace=namespace))]

        def make() -> Mapping[str, Any]:
            nodes = [it for it in sight.overview.nodes if group.key in it.groups]
            return {
                "details": details,
                "group": group,
                "bars": [(lack, shortfall_bar(lack)) for lack in details.shortfall],
                "members": page(details.members, (), request.args, _MEMBERS),
                "nodes": nodes,
                "waited_since": _waited_since(group),
                "seen": sight.rights.see_group,
                "queue_seen": sight.rights.queues,
            }

        state = hash(msgspec.json.encode(details))
        actions = buttons_on_group(group, g.viewer)
        title = group.called or group.name
        return self._show(
            sight, Screen(title, "group.html", state, make, "jobs", crumbs, group.verdict, actions)
        )

    # ---- queues

    def queues(self) -> Answer:
        sight = self._see()
        return self._show(sight, Screen("Queues", "queues.html", (), lambda: self._queues(sight), "queues"))

    def _queues(self, sight: Sight) -> Mapping[str, Any]:
        queues = sight.overview.queues
        return {
            "page": page(searched(queues, request.args, lambda it: it.name), QUEUES, request.args, _QUEUES),
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
            raise NotFound(f"There is no queue {name}, or you may not list queues.")

        def make() -> Mapping[str, Any]:
            waiting = [it for it in sight.overview.groups if it.queue == name and it.wait]
            return {
                "queue": queue,
                "below": [it for it in sight.overview.queues if it.parent == name],
                "share_bar": share_bar,
                "hour": self._line_of_hour,
                "line": sorted(waiting, key=_by_state)[:20],
                "waiting": len(waiting),
                "waited_since": _waited_since,
            }

        crumbs = [("Queues", url_for("pages.queues"))]
        if queue.parent and queue.parent != "root":
            crumbs.append((queue.parent, url_for("pages.queue", name=queue.parent)))
        actions = buttons_on_queue(queue, g.viewer)
        return self._show(sight, Screen(name, "queue.html", (), make, "queues", crumbs, queue.state, actions))

    def _line_of_hour(self, queue: str) -> Mapping[str, Any] | None:
        """None until there are two samples to draw a line through."""
        now = self._clock()
        samples = self._hour.of(queue, now)
        if len(samples) < 2:
            return None
        shares = [share for _, share in samples]
        top = max(1.0, *shares)
        return {
            "points": line(samples, now - SPAN, now, top),
            "whole": 100 - 100 / top,
            "now": shares[-1],
            "least": min(shares),
            "most": max(shares),
        }

    # ---- nodes

    def nodes(self) -> Answer:
        sight = self._see()
        return self._show(sight, Screen("Nodes", "nodes.html", (), lambda: self._nodes(sight), "nodes"))

    def _nodes(self, sight: Sight) -> Mapping[str, Any]:
        nodes, chosen = sight.overview.nodes, request.args.get("group", "")
        found = [it for it in nodes if chosen in it.groups] if chosen else nodes
        found = searched(
            found, request.args, lambda it: f"{it.name} {' '.join(it.flavors)} {' '.join(it.groups)}"
        )
        return {
            "pools": pools(nodes, chosen),
            "page": page(found, NODES, request.args, _NODES),
            "columns": NODES,
            "resource_of": _resource_of,
            "chosen": chosen,
            "everything": len(nodes),
            "allowed": sight.rights.nodes,
            "node_bar": node_bar,
            "free": free,
            "seen": sight.rights.see_group,
            "reservations": sight.overview.reservations,
        }

    # ---- the same as JSON

    def overview_json(self) -> Answer:
        sight = self._see()
        return self._json(sight.state, lambda: sight.overview)

    def group_json(self, namespace: str, name: str) -> Answer:
        details = self._eyes.details(namespace, name, g.viewer)
        if details is None:
            raise NotFound(f"There is no job {namespace}/{name}, or it is not yours to see.")
        text = msgspec.json.encode(details)
        return self._json(text, lambda: {"apiVersion": VERSION, **msgspec.json.decode(text)})

    def items_json(self, kind: str) -> Answer:
        sight = self._see()
        items: Sequence[Any] = getattr(sight.overview, kind)
        namespace = request.args.get("namespace")
        if kind == "groups" and namespace:
            items = [it for it in sight.overview.groups if it.namespace == namespace]
        return self._json(
            sight.state, lambda: {"apiVersion": VERSION, "version": sight.overview.version, "items": items}
        )


def pages(source: Source, clock: Callable[[], float] = time.time) -> Blueprint:
    made = Blueprint("pages", __name__)
    words.install(made, clock)
    views = Pages(source, clock)
    routes: Mapping[str, Callable[..., Answer]] = {
        "/": views.jobs,
        "/namespaces/<namespace>": views.jobs,
        "/groups/<namespace>/<name>": views.group,
        "/queues": views.queues,
        "/queues/<name>": views.queue,
        "/nodes": views.nodes,
        "/api/v1/overview": views.overview_json,
        "/api/v1/<any(groups, queues, nodes, reservations, decisions):kind>": views.items_json,
        "/api/v1/groups/<namespace>/<name>": views.group_json,
    }
    for path, view in routes.items():
        made.add_url_rule(path, view.__name__, view)
    return made


def _etag(key: Hashable) -> str:
    return f"{hash(key) & (1 << 64) - 1:016x}"


def _asked(**changes: str | int) -> dict[str, Any]:
    """The parameters of the address with changes; empty ones are left out."""
    return {key: value for key, value in {**request.args.to_dict(), **changes}.items() if value != ""}


def _link(**changes: str | int) -> str:
    """This page with other parameters."""
    return url_for(request.endpoint or "", **{**(request.view_args or {}), **_asked(**changes)})
