"""The proxy's port: how many may come, how slowly, what it opens upstream, and how it ends."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPResponse
from pathlib import Path
from unittest.mock import ANY

import pytest

from extender.proxy import upstream
from extender.proxy.server import LIMITS
from extender.proxy.upstream import _new_socket
from extender.telemetry import metrics
from extender.webhooks.certificates import make_pair
from tests.e2e.harness.waiting import wait_for
from tests.flood import flood
from tests.kube.server import Lines, Reply, Server
from tests.proxy.conftest import SECRET, ProxyBench, Start
from tests.proxy.raw import CHUNKED, RawConnection, RawServer, dial, event

NODES = f"/{SECRET}/api/v1/nodes"
EVENTS = f"/{SECRET}/apis/events.k8s.io/v1/namespaces/a/events"
LEASE = f"/{SECRET}/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/muster-scheduler"
WATCH = f"GET {NODES}?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
POOL, EVENTS_OF_POOL = 32, 24


def post(bench: ProxyBench, count: int) -> list[int]:
    """Post `count` Events over separate connections."""
    with closing(dial(bench.port)) as client:
        return [_reported(client)[0] for _ in range(count)]


def test_events_posted_in_parallel_share_the_pool(server: Server, bench: ProxyBench) -> None:
    """A dial for each doubled Muster's CPU."""
    server.script.extend([Reply(201)] * 300)
    before = metrics.view_dials._value.get()
    with ThreadPoolExecutor(60) as clients:
        statuses = list(clients.map(lambda _: post(bench, 5), range(60)))
    assert statuses == [[201] * 5] * 60
    dialled = metrics.view_dials._value.get
    wait_for(lambda: dialled() - before == len(server.connections), what="the last one is accepted")
    assert len(server.connections) <= EVENTS_OF_POOL


def test_a_dead_api_server_is_noticed_by_tcp() -> None:
    """The pings of HTTP/2, with which client-go would notice it, reach no further than the proxy."""
    with closing(_new_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1)))) as sock:
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 45_000


def test_watches_do_not_fill_the_pool(server: Server, bench: ProxyBench) -> None:
    server.script.extend([Lines([b"event"], "silence")] * (POOL + 8))
    for _ in range(POOL + 8):
        bench.dial(WATCH, b"event")
    server.script.append(Reply())
    assert post(bench, 1) == [200]


@pytest.mark.parametrize(("lately", "again"), [(0.0, None), (3600.0, "1")], ids=["hangs", "is busy"])
def test_waiting_events_delay_no_other_request(
    server: Server, bench: ProxyBench, monkeypatch: pytest.MonkeyPatch, lately: float, again: str | None
) -> None:
    """Limit Events to half of the port's connections.

    For further ones, the scheduler learns that they are lost, or may come again if the API server
    answered others lately.
    """
    monkeypatch.setattr(upstream, "_HANG_TIME", lately)
    server.script.append(Reply(201))
    assert post(bench, 1) == [201]
    server.requests.clear()
    server.script.extend([Lines([], "silence")] * EVENTS_OF_POOL)
    shed = metrics.view_requests.labels("shed")
    before = shed._value.get()
    for _ in range(LIMITS.max_connections // 2 + 1):
        bench.dial(event(EVENTS))
    wait_for(lambda: shed._value.get() == before + 1, what="all but one wait")
    wait_for(lambda: len(server.requests) == EVENTS_OF_POOL, what="all connections for Events are taken")
    further = bench.dial()
    assert _reported(further) == (429, again)
    server.script.extend([Reply()] * 2)
    for path in (LEASE, NODES):
        further.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        further.read_until(b"{}")


def _reported(client: RawConnection) -> tuple[int, str | None]:
    """Return the answer to one more Event: the status, and when to come again."""
    client.send(event(EVENTS))
    answer = HTTPResponse(client.sock)
    answer.begin()
    answer.read()
    return answer.status, answer.headers["Retry-After"]


def test_the_debug_page_shows_who_reads(server: Server, bench: ProxyBench) -> None:
    server.script.append(Lines([b"event"], "silence"))
    client = bench.dial(WATCH.replace(b"Host: x", b"Host: x\r\nUser-Agent: me"), b"event")
    assert bench.view.debug_state() == {
        "listen": f"127.0.0.1:{bench.port}",
        "connections": 1,
        "watches": [{"path": "/api/v1/nodes", "client": "me", "seconds": ANY}],
    }
    assert metrics.view_streams._value.get() == 1
    client.close()
    wait_for(lambda: bench.view.debug_state()["watches"] == [], what="the watch has ended")


def test_the_number_of_connections_is_limited(server: Server, start: Start) -> None:
    server.script.extend([*[Lines([b"event"], "silence")] * 3, *[Reply()] * 10])
    bench = start(server.url, LIMITS._replace(max_connections=3))
    dropped = metrics.connections_dropped.labels("view", "full")
    before = dropped._value.get()
    first, *_ = [bench.dial(WATCH, b"event") for _ in range(3)]
    assert bench.dial().read_to_end() == b""
    assert dropped._value.get() == before + 1
    first.close()
    wait_for(lambda: _is_served(bench), what="there is a free place again")


def _is_served(bench: ProxyBench) -> bool:
    with closing(dial(bench.port)) as client:
        client.send(f"GET {NODES} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        with suppress(EOFError, ConnectionError):
            return b"200 OK" in client.read_until(b"{}")
        return False


def test_silent_connections_up_to_the_limit_shut_out_no_client(server: Server, bench: ProxyBench) -> None:
    """Close the first silent connection, and neither a new caller's nor the scheduler's."""
    server.script.extend([Reply()] * 3)
    scheduler = bench.client()
    scheduler.request("GET", LEASE)
    assert scheduler.getresponse().read() == b"{}"
    used = scheduler.sock
    with flood(bench.port, b"", LIMITS.max_connections) as silent:
        assert _is_served(bench)
        assert silent[0].recv(1) == b""
        scheduler.request("GET", LEASE)
        assert scheduler.getresponse().read() == b"{}"
        assert scheduler.sock is used


def test_a_watch_without_a_reader_keeps_its_place(server: Server, start: Start) -> None:
    """The scheduler may be busy: who comes meanwhile closes others."""
    server.script.append(Lines((b"x" * 65536 for _ in range(400)), "end"))
    bench = start(server.url, LIMITS._replace(max_connections=2))
    busy, other = bench.dial(WATCH, b"xxxx"), bench.dial()
    for _ in range(3):
        further = bench.dial()
        assert other.read_to_end() == b""
        other = further
    busy.read_until(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize("begun", [b"G", b"GET / HTTP/1.1\r\nHost:", b"GET / HTTP/1.1\r\nA: b\r\n"])
def test_a_missing_request_head_ends_the_connection(server: Server, start: Start, begun: bytes) -> None:
    bench = start(server.url, LIMITS._replace(timeouts=LIMITS.timeouts._replace(head=0.05)))
    assert bench.dial(begun).read_to_end() == b""


def test_a_watch_outlives_the_time_for_a_head(raw: RawServer, start: Start) -> None:
    bench = start(raw.url, LIMITS._replace(timeouts=LIMITS.timeouts._replace(head=0.01)))
    client, late = bench.dial(WATCH), bench.dial()
    upstream = raw.accept(b"\r\n\r\n")
    late.send(b"G")
    assert late.read_to_end() == b""
    upstream.send(CHUNKED + b"4\r\nlive\r\n")
    client.read_until(b"live")


def test_an_idle_connection_is_closed_before_the_api_server_would(
    raw: RawServer, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Close it first: otherwise a request might cross with its end."""
    monkeypatch.setattr("extender.proxy.upstream.MAX_IDLE", 0.05)
    client = start(raw.url).client()
    client.request("GET", NODES)
    upstream = raw.accept(b"\r\n\r\n")
    upstream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    assert client.getresponse().read() == b"{}"
    assert upstream.read_to_end() == b""


def test_stopping_ends_streams(server: Server, start: Start) -> None:
    server.script.extend([Lines([b"event"], "silence")] * 3)
    bench = start(server.url)
    clients = [bench.dial(WATCH, b"event") for _ in range(3)]
    bench.view.stop()
    assert bench.view.fault()
    for client in clients:
        assert b"0\r\n\r\n" not in client.read_to_end()


def test_stopping_ends_streams_without_a_reader(server: Server, start: Start) -> None:
    server.script.append(Lines((b"x" * 65536 for _ in range(1000)), "silence"))
    bench = start(server.url)
    client = bench.dial(WATCH, b"xxxx")
    bench.view.stop()
    assert bench.view.fault()
    client.read_to_end()


def test_connections_wait_while_the_worker_restarts(server: Server, start: Start) -> None:
    """The parent of the worker keeps the socket."""
    server.script.append(Reply())
    bench = start(server.url)
    bench.view.stop()
    client = bench.dial(f"GET {NODES} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    bench.start(LIMITS)
    client.read_until(b"{}")


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Server]:
    pair = make_pair(["127.0.0.1"], 3600, time.time())
    (tmp_path / "cert").write_bytes(pair.certificate)
    (tmp_path / "key").write_bytes(pair.key)
    (tmp_path / "ca").write_bytes(pair.authority)
    with Server(tmp_path / "cert", tmp_path / "key") as server:
        yield server


def test_the_api_server_is_asked_over_tls(secure: Server, start: Start, tmp_path: Path) -> None:
    secure.script.extend([Reply(201)] * 5)
    bench = start(secure.url, authority=tmp_path / "ca")
    assert post(bench, 5) == [201] * 5
    assert len(secure.connections) == 1


def test_an_api_server_with_another_certificate_is_not_asked(secure: Server, start: Start) -> None:
    bench = start(secure.url)
    assert post(bench, 1) == [429]
    assert not secure.requests
