"""Cost of a flood of connections for the filter calls that the scheduler makes meanwhile.

The flood comes from its own process: as many connections as fast as they can be made, each with half of
a request, all kept open. Filter calls go one after the other over one kept-alive connection, while
the flood lasts and until the time of its last connection is over.
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
_LASTS = 12.0  # seconds: longer than a head or a body may take to arrive
_CALM = 5.0  # seconds without a flood
_PROGRAM = """
import sys, time
from tests.flood import PARTIAL_REQUESTS, flood, many_files
name, port, count, lasts = sys.argv[1], *map(int, sys.argv[2:])
with many_files(), flood(port, PARTIAL_REQUESTS[name], count):
    print(time.monotonic(), flush=True)
    time.sleep(lasts)
"""


def flood_case(bench: Bench) -> Iterator[Row]:
    nodes = bench.sizes.most_nodes
    with Fleet(nodes) as fleet, fleet.muster() as muster:
        namespace = fleet.namespace()
        create(fleet.access, pods(namespace, "foreign", 1, scheduler="another"))
        pod = fleet.cluster.admin.get(PODS, "foreign-0", namespace)
        names = [f"n{number}" for number in range(nodes)]
        body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
        yield _row("none", 0, nodes, _call_times(muster, body, _CALM))
        for port in ("verbs", "health", "debug"):
            show(f"{CONNECTIONS} connections to the port of {port}")
            with _start_flood(muster, port):
                yield _row(port, CONNECTIONS, nodes, _call_times(muster, body, _LASTS))


def _start_flood(muster: Muster, port: str) -> subprocess.Popen[bytes]:
    arguments = (port, str(muster.ports[port]), str(CONNECTIONS), str(int(_LASTS)))
    return subprocess.Popen([sys.executable, "-c", _PROGRAM, *arguments], stdout=subprocess.DEVNULL)


def _call_times(muster: Muster, body: bytes, seconds: float) -> list[float]:
    """Return the milliseconds of each call."""
    connection, times = ApiConnection.plain(muster.address), []
    connection.expect_success("POST", "/v1/filter", body)
    end = time.perf_counter() + seconds
    while (started := time.perf_counter()) < end:
        connection.expect_success("POST", "/v1/filter", body)
        times.append(1000 * (time.perf_counter() - started))
    connection.close()
    return sorted(times)


def _row(flooded: str, connections: int, nodes: int, times: list[float]) -> Row:
    return {
        "flooded": flooded,
        "connections": connections,
        "nodes": nodes,
        "calls": len(times),
        "p50 ms": times[len(times) // 2],
        "p99 ms": times[len(times) * 99 // 100],
        "max ms": times[-1],
    }
