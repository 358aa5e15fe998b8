"""Debug port for administrators, which returns the state and the decisions as JSON and changes nothing.

Each view returns one of three results: data that msgspec can encode, a compressed file as bytes, or None if
the object does not exist.
"""

import re
import sys
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from flask import Flask, Response, request
from werkzeug.exceptions import BadRequest, HTTPException, NotFound

from extender import __version__
from extender.api.units import texts_by_name
from extender.ports.connection import error_as_json, indented_json

View = Callable[..., object]


class Endpoint(NamedTuple):
    path: str  # path below /debug/, with variables in angle brackets
    help: str  # text on /debug/ and in docs/reference/debug.md

    @property
    def view(self) -> str:
        """Return the name of the view: for example podgroups, or podgroup for a single group."""
        name, variables, _ = self.path.partition("/")
        return name.removesuffix("s") if variables else (name or "index")

    @property
    def takes_what_if(self) -> bool:
        return "?what-if=" in self.help

    @property
    def takes_limit(self) -> bool:
        return "?limit=" in self.help

    @property
    def takes_period(self) -> bool:
        return "?by=" in self.help


_PAGES = """
overview: queues, groups, nodes, reservations and the latest decisions, as the dashboard shows them
queues: weight, deserved, allocated, share and state of each queue
localqueues: queue, condition and admitted groups of each LocalQueue
flavors: the flavors of each queue, with the labels and taints of ResourceFlavors
topologies: the levels of each topology, and the nodes and capacity of each domain
podgroups: verdict, reason, position, estimate and flips (changes without an event) of each group
podgroups/<namespace>/<name>: one group: members, plan, reason
why/<namespace>/<name>: reason of one group, holders of the missing capacity, and the smallest change that
  would start it; ?what-if= takes terms of `muster why --what-if` and shows the decisions after these changes
nodes: free capacity and assumed pods of each node
pods/<namespace>/<name>: one pod: node, claim, and the decision on its group
held: bind calls that wait for the rest of their gang
quotas: queues of quotas, the namespaces that enter them, and faults of quotas
decisions: the latest changes of groups' verdicts and reasons; ?limit= of 1 to 1000, 100 by default
history: waits, starts, hours and evictions; ?by= queue, user or namespace, ?since= and ?until= as for
  `muster report`
watches: watched kinds, and kinds that the cluster does not serve
leadership: whether this replica leads, the holder of the scheduler's Lease, and whether Volcano runs
view: readers of the scheduler proxy, each with its start and its numbers of shown and hidden pods
bad-objects: unreadable objects, with the fault of each
version: the version of Muster and of what it runs on
config: the configuration in effect
dump: the output of `muster dump`, compressed; one request at a time
threads: the stack of each thread; equal stacks are counted together
"""
ENDPOINTS = tuple(Endpoint(path, help) for path, help in texts_by_name(_PAGES).items())


def create_debug_app(views: Mapping[str, View]) -> Flask:
    """Return the application of the debug port.

    `views` maps the view names of ENDPOINTS to views, which get path variables as keyword arguments.
    """
    app = Flask(__name__, static_folder=None)
    app.register_error_handler(HTTPException, error_as_json)  # also 404 and 405
    views = {"index": index, "version": version, "threads": threads, **views}
    for endpoint in (Endpoint("", "this list"), *ENDPOINTS):
        app.add_url_rule(
            f"/debug/{endpoint.path}",
            endpoint.view,
            _answer(endpoint, views.get(endpoint.view)),
            methods=["GET"],
            provide_automatic_options=False,
        )
    return app


def _answer(endpoint: Endpoint, view: View | None) -> Callable[..., Response]:
    """Return the handler of an endpoint, which reads the query and encodes the data of the view."""

    def answer(**names: str) -> Response:
        if view is None:
            raise NotFound("This part of Muster does not run here")
        parameters: dict[str, Any] = {}
        if endpoint.takes_what_if:
            parameters["terms"] = request.args.getlist("what-if")
        if endpoint.takes_limit:
            limit = request.args.get("limit", "100")
            if re.fullmatch("[1-9][0-9]{0,2}|1000", limit) is None:
                raise BadRequest(f"limit: invalid value {limit!r}: must be a whole number from 1 to 1000")
            parameters["limit"] = int(limit)
        if endpoint.takes_period:
            parameters = {name: request.args.get(name, "") for name in ("by", "since", "until")}
        data = view(**names, **parameters)
        if data is None:
            raise NotFound(f"Muster knows no {endpoint.view} {'/'.join(names.values())}".rstrip())
        if isinstance(data, bytes):
            return Response(data, mimetype="application/gzip")
        return Response(indented_json(data), mimetype="application/json")

    return answer


def index() -> dict[str, str]:
    return {f"/debug/{endpoint.path}": endpoint.help for endpoint in ENDPOINTS}


def version() -> dict[str, str]:
    return {"muster": __version__, "python": sys.version.split()[0]}


def threads() -> list[dict[str, Any]]:
    """Return the stacks of all threads. Threads with equal stacks are listed together."""
    name_by_thread = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for ident, frame in sys._current_frames().items():
        stack = (f"{call.filename}:{call.lineno} {call.name}" for call in traceback.extract_stack(frame))
        stacks[tuple(stack)].append(name_by_thread.get(ident, str(ident)))
    return [
        {"count": len(names), "threads": sorted(names), "stack": stack} for stack, names in stacks.items()
    ]
