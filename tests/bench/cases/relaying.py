"""Cost and additional delay of events that the scheduler proxy relays for pods of other schedulers.

The API server is simulated and only sends events (tests/bench/upstream.py), so that the CPU is free for the
measured work. One process watches all pods twice: directly at the API server, and through the scheduler
proxy. The events arrive in the same order on both watches. The delay of an event is the difference between
its two arrivals. The cost of Muster's own watch of pods is measured before, without a watch through the
proxy.
"""

import http.client
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.bench.api_connection import ApiConnection
from tests.bench.fleet import STOCK, Fleet, pods
from tests.bench.load import create
from tests.bench.meters import cpu_seconds
from tests.bench.report import Row, show
from tests.bench.sizes import Bench
from tests.bench.upstream import CODECS, PODS
from tests.e2e.harness.access import ADMIN
from tests.e2e.harness.client import Access
from tests.e2e.harness.muster import Muster
from tests.e2e.harness.process import Process, free_ports
from tests.e2e.harness.view_client import ViewClient
from tests.e2e.harness.waiting import wait_for

RATE, SECONDS = 1000, 10  # events per second, and seconds of a measurement
_SAMPLE_FILES = ("pod.json", "pod.protobuf")
_WATCH_PATH = f"{PODS}?watch=1&resourceVersion=999&timeoutSeconds=600"
_CONTENT_TYPES = {"json": "application/json", "protobuf": "application/vnd.kubernetes.protobuf"}


def view_case(bench: Bench) -> Iterator[Row]:
    """Yield a row for each encoding. The sizes of the benchmark have no effect."""
    with Fleet(1) as fleet:
        samples = _sample_pods(fleet)
        with _simulated_api_server(fleet, samples) as access:
            kubeconfig = fleet.cluster.kubeconfig(ADMIN, access.server)
            with Muster(fleet.cluster, kubeconfig, view=True) as muster:
                yield from (_measure(muster, access, name) for name in _CONTENT_TYPES)


def _measure(muster: Muster, access: Access, encoding: str) -> Row:
    """Measure the cost and the delay of events in one encoding."""
    show(f"{RATE} events a second for {SECONDS} s, twice: {encoding}")
    time_without_proxy = _cpu_seconds_during_events(muster, access)
    accept = _CONTENT_TYPES[encoding]
    assert muster.view_kubeconfig is not None
    view = ViewClient(muster.view_kubeconfig)
    direct_arrivals = Arrivals(ApiConnection.to(access).connection, _WATCH_PATH, accept, access.token)
    proxied_arrivals = Arrivals(
        http.client.HTTPConnection(view.proxy), f"{view.server}{_WATCH_PATH}", accept, ""
    )
    with direct_arrivals, proxied_arrivals:
        time_with_proxy = _cpu_seconds_during_events(muster, access)
        wait_for(lambda: len(proxied_arrivals.times) >= RATE * SECONDS, what="all events through the proxy")
    added_delays = sorted(
        proxied_at - direct_at
        for direct_at, proxied_at in zip(direct_arrivals.times, proxied_arrivals.times, strict=True)
    )
    events = RATE * SECONDS
    return {
        "encoding": encoding,
        "events": len(proxied_arrivals.times),
        "events/s": (events - 1) / (direct_arrivals.times[-1] - direct_arrivals.times[0]),
        "muster us/event": 1e6 * time_with_proxy / events,
        "of that the proxy's us": 1e6 * (time_with_proxy - time_without_proxy) / events,
        "added p50 ms": 1e3 * added_delays[events // 2],
        "added p99 ms": 1e3 * added_delays[events * 99 // 100],
        "added max ms": 1e3 * added_delays[-1],
    }


def _cpu_seconds_during_events(muster: Muster, access: Access) -> float:
    """Let the API server send all events, and return the CPU seconds of Muster meanwhile."""
    connection = ApiConnection.to(access)
    seconds_before = cpu_seconds(muster.process.pid)
    connection.expect_success("POST", f"/go?rate={RATE}&seconds={SECONDS}")
    connection.close()
    time.sleep(1)
    return cpu_seconds(muster.process.pid) - seconds_before


class Arrivals:
    """Times at which the events of one watch have arrived completely."""

    def __init__(self, connection: http.client.HTTPConnection, url: str, accept: str, token: str) -> None:
        self.times: list[float] = []
        self._is_length_prefixed = "protobuf" in accept
        self._connection = connection
        connection.request("GET", url, headers={"Accept": accept, "Authorization": f"Bearer {token}"})
        self._answer = connection.getresponse()
        assert self._answer.status == 200, f"{url}: {self._answer.status} {self._answer.read()[:500]!r}"
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)

    def __enter__(self) -> "Arrivals":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection.sock:
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._connection.close()

    def _run(self) -> None:
        with suppress(OSError, ValueError, http.client.HTTPException):
            while self._read_event():
                self.times.append(time.perf_counter())

    def _read_event(self) -> bytes:
        """Return the bytes of the next event, or b"" at the end of the watch."""
        if self._is_length_prefixed:
            return self._answer.read(int.from_bytes(self._answer.read(4), "big"))
        return self._answer.readline()


def _sample_pods(fleet: Fleet) -> Sequence[Path]:
    """Return files with a running pod of another scheduler, as a real API server encodes the pod.

    There is one file for each encoding.
    """
    namespace = fleet.namespace()
    create(fleet.access, pods(namespace, "foreign", 1, scheduler=STOCK, nodeName="n0"))
    paths = [fleet.cluster.folder / name for name in _SAMPLE_FILES]
    for path, codec, accept in zip(paths, CODECS, _CONTENT_TYPES.values(), strict=True):
        _, encoded_list = fleet.cluster.admin.exchange("GET", PODS, None, "application/json", accept)
        path.write_bytes(codec.page(encoded_list).pods[0].pod)
    return paths


@contextmanager
def _simulated_api_server(fleet: Fleet, samples: Sequence[Path]) -> Iterator[Access]:
    """Start the simulated API server, and yield the address and token to access it."""
    cluster = fleet.cluster
    (port,) = free_ports(1)
    arguments = [str(argument) for argument in (port, cluster.certificate, cluster.key, *samples)]
    command = [sys.executable, "-m", "tests.bench.upstream", *arguments]
    process = Process("upstream", command, cluster.folder / "upstream.log")
    process.start()
    access = cluster.access(ADMIN, f"https://127.0.0.1:{port}")
    try:
        wait_for(lambda: _listens(process, port), what="the upstream listens")
        yield access
    finally:
        if process.alive():
            process.kill()


def _listens(process: Process, port: int) -> bool:
    """Return whether the port accepts connections. Raise RuntimeError if the process has ended."""
    process.require_alive()
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
