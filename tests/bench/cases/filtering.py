"""How long the scheduler's serial loop waits for a filter call, with nothing held and with a window full.

The scheduler is played here, over one kept-alive connection from this process (Python's http.client; the row
`http alone`, a verb that does nothing, shows what the wire and the client cost). The held calls are real
ones: a gang with one member more, which never comes.
"""

import json
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from tests.bench.fleet import Fleet, gang, pods
from tests.bench.line import Line
from tests.bench.load import create
from tests.bench.report import Row, say
from tests.bench.sizes import Bench
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import PODS
from tests.e2e.harness.waiting import wait_for

Json = dict[str, Any]
CALLS = 200
_SPARE = 100


def filter_case(bench: Bench) -> Iterator[Row]:
    held = bench.sizes.held
    with Fleet(bench.sizes.most_nodes) as fleet, ExitStack() as stack:
        namespace = fleet.namespace()
        muster = stack.enter_context(fleet.muster("--window", str(held + _SPARE)))
        calls = Calls(fleet, muster, namespace)
        calls.prepare()
        yield from calls.measured("pair", 0)
        calls.start("many", held + 1)
        stack.enter_context(hold(calls, "many", held))
        yield from calls.measured("many", held)
        say(f"still held: {muster.metric('muster_held_binds'):.0f}")


class Calls:
    """The scheduler's calls, and the pods that they are about."""

    def __init__(self, fleet: Fleet, muster: Muster, namespace: str) -> None:
        self.muster = muster
        self._fleet = fleet
        self._namespace = namespace
        self._names = [f"n{number}" for number in range(fleet.size)]
        self._line = Line.plain(muster.address)

    def prepare(self) -> None:
        """One pod that is not ours, one that is a group of its own, and a gang of two."""
        create(self._fleet.access, pods(self._namespace, "foreign", 1, scheduler="another"))
        create(self._fleet.access, pods(self._namespace, "alone", 1, gated=True))
        self.start("pair", 2)

    def start(self, name: str, size: int) -> None:
        create(self._fleet.access, gang(self._namespace, name, size, gated=True))
        wait_for(lambda: len(self.planned(name)) == size, 120, f"the gang {name} planned and its gates open")

    def planned(self, gang_name: str) -> dict[str, Json]:
        """The members whose gate is open, which is done after their node was written on them."""
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
        times, wrong = [], 0
        for _ in range(CALLS):
            started = time.perf_counter()
            _, answer = self._line.send("POST", path, body)
            times.append(1000 * (time.perf_counter() - started))
            wrong += not right(answer)
        times.sort()
        return {
            "p50 ms": times[CALLS // 2],
            "p99 ms": times[CALLS * 99 // 100],
            "max ms": times[-1],
            "wrong": wrong,
        }


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
    """Sent, and never read: the answer does not come while this is open."""
    meta, (host, _, port) = pod["metadata"], address.partition(":")
    args = {
        "PodName": meta["name"],
        "PodNamespace": meta["namespace"],
        "PodUID": meta["uid"],
        "Node": pod["status"]["nominatedNodeName"],
    }
    body = json.dumps(args).encode()
    head = f"POST /v1/bind HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


def _allow_many_connections() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _empty(answer: bytes) -> bool:
    return answer == b"[]"


def _all_of(names: list[str]) -> Callable[[bytes], bool]:
    return lambda answer: set(json.loads(answer)["NodeNames"]) == set(names)


def _some(answer: bytes) -> bool:
    return bool(json.loads(answer)["NodeNames"])
