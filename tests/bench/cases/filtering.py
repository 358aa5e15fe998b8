"""Time for which the scheduler's serial loop waits for a filter call.

It is measured with nothing held and with a full window, with the cost of a call for Muster's process; also
that of bind calls of pods that are groups of their own. The scheduler is simulated here, over one kept-alive
connection from this process (Python's http.client; the row `http alone`, a verb that does nothing, shows the
cost of the connection and the client). The held calls are real ones: a gang with one member more, which never
comes.
"""

import json
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle
from typing import Any

from tests.bench.fleet import Fleet, gang, pods
from tests.bench.line import Line
from tests.bench.load import create
from tests.bench.meters import cpu_microseconds, megabytes, thread_count
from tests.bench.report import Row
from tests.bench.sizes import Bench
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import PODS
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
CALLS = 1000
_BINDS = 200  # of each kind
_SPARE = 100
_INSTANT = 0.5  # seconds
_CALM = 50_000.0  # microseconds of its processor time in a second


def filter_case(bench: Bench) -> Iterator[Row]:
    held = bench.sizes.held
    with Fleet(bench.sizes.most_nodes) as fleet, ExitStack() as stack:
        namespace = fleet.namespace()
        most = max(held, 2 * _BINDS) + _SPARE  # pods that may be starting at once
        muster = stack.enter_context(fleet.muster("--window", str(most)))
        calls = Calls(fleet, muster, namespace)
        calls.prepare()
        yield from calls.measured("pair", 0)
        yield from calls.bound()
        calls.start("many", held + 1)
        stack.enter_context(hold(calls, "many", held))
        yield from calls.measured("many", held)
        still, pid = muster.metric("muster_held_binds"), muster.process.pid
        yield {"held": still, "call": "none", "threads": thread_count(pid), "MB": megabytes(pid)}


class Calls:
    """The scheduler's calls, and the pods that they are about."""

    def __init__(self, fleet: Fleet, muster: Muster, namespace: str) -> None:
        self.muster = muster
        self._fleet = fleet
        self._namespace = namespace
        self._names = [f"n{number}" for number in range(fleet.size)]
        self._line = Line.plain(muster.address)

    def prepare(self) -> None:
        """Create a pod that is not ours, one that is a group of its own, and a gang of two."""
        create(self._fleet.access, pods(self._namespace, "foreign", 1, scheduler="another"))
        create(self._fleet.access, pods(self._namespace, "alone", 1, gated=True))
        self.start("pair", 2)

    def start(self, name: str, size: int) -> None:
        create(self._fleet.access, gang(self._namespace, name, size, gated=True))
        wait_for(lambda: len(self.planned(name)) == size, 120, f"the gang {name} planned and its gates open")

    def planned(self, gang_name: str) -> dict[str, Json]:
        """Return the members whose gate is open, which happens after their node was written on them."""
        found = self._fleet.cluster.admin.items(PODS, self._namespace)
        return {
            pod["metadata"]["name"]: pod
            for pod in found
            if pod["metadata"]["name"].startswith(f"{gang_name}-") and not pod["spec"].get("schedulingGates")
        }

    def measured(self, gang_name: str, held: int) -> Iterator[Row]:
        member = self.planned(gang_name)[f"{gang_name}-0"]
        node = member["status"]["nominatedNodeName"]
        nothing = json.dumps({"Pod": self._pod("foreign-0"), "Nodes": None, "NodeNames": None}).encode()
        yield {"held": held, "call": "http alone", **self._times("/v1/prioritize", nothing, _empty)}
        yield from (
            {"held": held, "call": call, "names": len(names), **self._filter(pod, names, right)}
            for call, pod, names, right in (
                ("not ours", self._pod("foreign-0"), self._names, _all_of(self._names)),
                ("gang member, planned node", member, [node], _all_of([node])),
                ("group of one", self._pod("alone-0"), self._names, _some),
            )
        )

    def _pod(self, name: str) -> Json:
        return self._fleet.cluster.admin.get(PODS, name, self._namespace)

    def _filter(self, pod: Json, names: list[str], right: Callable[[bytes], bool]) -> Row:
        body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
        return self._times("/v1/filter", body, right)

    def _times(self, path: str, body: bytes, right: Callable[[bytes], bool]) -> Row:
        self._line.send("POST", path, body)
        return self._called(lambda _: self._line.send("POST", path, body)[1], right, CALLS)

    def bound(self) -> Iterator[Row]:
        """Bind calls, over one connection and over a new one for each, as a scheduler makes most of its."""
        bound = pods(
            self._namespace, "bound", 2 * _BINDS, cpu="10m", gated=True
        )  # every node has room for its part
        create(self._fleet.access, bound)
        wait_for(lambda: len(self.planned("bound")) == 2 * _BINDS, 120, "pods whose gate is open")
        found = self.planned("bound").values()
        bodies = [_binding(pod, node) for pod, node in zip(found, cycle(self._names), strict=False)]

        def on_a_new_line(number: int) -> bytes:
            line = Line.plain(self.muster.address)
            try:
                return line.send("POST", "/v1/bind", bodies[_BINDS + number])[1]
            finally:
                line.close()

        reserved = self._called(
            lambda n: self._line.send("POST", "/v1/bind", bodies[n])[1], _no_error, _BINDS
        )
        yield {"held": 0, "call": "bind, connection kept", "names": 1, **reserved}
        new = self._called(on_a_new_line, _no_error, _BINDS)
        yield {"held": 0, "call": "bind, new connection", "names": 1, **new}

    def _called(self, call: Callable[[int], bytes], right: Callable[[bytes], bool], count: int) -> Row:
        self._wait_calm()
        times, wrong, cpu = [], 0, cpu_microseconds(self.muster.process.pid)
        for number in range(count):
            started = time.perf_counter()
            answer = call(number)
            times.append(1000 * (time.perf_counter() - started))
            wrong += not right(answer)
        cpu = cpu_microseconds(self.muster.process.pid) - cpu
        times.sort()
        return {
            "p50 ms": times[count // 2],
            "p99 ms": times[count * 99 // 100],
            "max ms": times[-1],
            "cpu µs": cpu / count,
            "wrong": wrong,
        }

    def _wait_calm(self) -> None:
        """Wait until Muster is idle, so that the measured time is that of the calls."""

        def calm() -> bool:
            before = cpu_microseconds(self.muster.process.pid)
            time.sleep(_INSTANT)
            return cpu_microseconds(self.muster.process.pid) - before < _INSTANT * _CALM

        wait_for(calm, 120, "a quiet Muster")


def hold(calls: Calls, gang_name: str, count: int) -> ExitStack:
    """Bind calls of all members but the first, and the connections on which they wait."""
    _allow_many_connections()
    stack = ExitStack()
    members = [pod for name, pod in calls.planned(gang_name).items() if name != f"{gang_name}-0"]
    for pod in members[:count]:
        stack.enter_context(_bind_call(calls.muster.address, pod))
    wait_for(lambda: calls.muster.metric("muster_held_binds") == count, what=f"{count} binds held")
    return stack


def _bind_call(address: str, pod: Json) -> socket.socket:
    """Send a bind call and never read it: the answer does not come while the socket is open."""
    host, _, port = address.partition(":")
    body = _binding(pod, pod["status"]["nominatedNodeName"])
    head = f"POST /v1/bind HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


def _binding(pod: Json, otherwise: str) -> bytes:
    """Return the call that binds a pod to its nominated node, else to `otherwise`."""
    meta = pod["metadata"]
    args = {
        "PodName": meta["name"],
        "PodNamespace": meta["namespace"],
        "PodUID": meta["uid"],
        "Node": pod["status"].get("nominatedNodeName") or otherwise,
    }
    return json.dumps(args).encode()


def _allow_many_connections() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _empty(answer: bytes) -> bool:
    return answer == b"[]"


def _no_error(answer: bytes) -> bool:
    return bool(json.loads(answer) == {"Error": ""})


def _all_of(names: list[str]) -> Callable[[bytes], bool]:
    return lambda answer: set(json.loads(answer)["NodeNames"]) == set(names)


def _some(answer: bytes) -> bool:
    return bool(json.loads(answer)["NodeNames"])
