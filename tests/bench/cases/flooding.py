"""Cost of a flood of connections for the scheduler's filter calls during the flood.

A separate process opens the connections as fast as possible, sends half of a request on each connection, and
keeps all connections open. Meanwhile, this process sends filter calls one by one over one kept-alive
connection. The calls continue until the time limit of the last connection has passed.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.bench.api_connection import ApiConnection
from tests.bench.fleet import Fleet, pods
from tests.bench.load import create
from tests.bench.report import Row, show
from tests.bench.sizes import Bench
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.resources import PODS

CONNECTIONS = 5000
_FLOOD_SECONDS = 12.0  # seconds of a flood, longer than Muster waits for the rest of a request
_CALM_SECONDS = 5.0  # seconds of the measurement without a flood
_PROGRAM = """
import sys, time
from tests.flood import PARTIAL_REQUESTS, flood, many_files
name, port, count, lasts = sys.argv[1], *map(int, sys.argv[2:])
with many_files(), flood(port, PARTIAL_REQUESTS[name], count):
    print(time.monotonic(), flush=True)
    time.sleep(lasts)
"""


def flood_case(bench: Bench) -> Iterator[Row]:
    """Yield a row without a flood, and a row for a flood of each port of Muster."""
    nodes = bench.sizes.most_nodes
    with Fleet(nodes) as fleet, fleet.muster() as muster:
        namespace = fleet.namespace()
        create(fleet.access, pods(namespace, "foreign", 1, scheduler="another"))
        pod = fleet.cluster.admin.get(PODS, "foreign-0", namespace)
        names = [f"n{number}" for number in range(nodes)]
        body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
        yield _row("none", 0, nodes, _call_times(muster, body, _CALM_SECONDS))
        for port in ("verbs", "health", "debug"):
            show(f"{CONNECTIONS} connections to the port of {port}")
            with _start_flood(muster, port):
                yield _row(port, CONNECTIONS, nodes, _call_times(muster, body, _FLOOD_SECONDS))


def _start_flood(muster: Muster, port: str) -> subprocess.Popen[bytes]:
    """Start a process that floods a port of Muster. The process ends by itself."""
    arguments = (port, str(muster.ports[port]), str(CONNECTIONS), str(int(_FLOOD_SECONDS)))
    return subprocess.Popen([sys.executable, "-c", _PROGRAM, *arguments], stdout=subprocess.DEVNULL)


def _call_times(muster: Muster, body: bytes, seconds: float) -> list[float]:
    """Send filter calls for some seconds, and return the sorted milliseconds of the calls."""
    connection, times = ApiConnection.plain(muster.address), []
    connection.expect_success("POST", "/v1/filter", body)
    end = time.perf_counter() + seconds
    while (started_at := time.perf_counter()) < end:
        connection.expect_success("POST", "/v1/filter", body)
        times.append(1000 * (time.perf_counter() - started_at))
    connection.close()
    return sorted(times)


def _row(flooded_port: str, connections: int, nodes: int, times: list[float]) -> Row:
    return {
        "flooded": flooded_port,
        "connections": connections,
        "nodes": nodes,
        "calls": len(times),
        "p50 ms": times[len(times) // 2],
        "p99 ms": times[len(times) * 99 // 100],
        "max ms": times[-1],
    }
