"""The real gunicorn process, under the loads that it is tuned for."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec
import pytest

from extender.web.server import SPARE_THREADS
from tests.web.program import STOPPED, WINDOW

ROOT = Path(__file__).parents[2]
FILTER = {"Pod": {"metadata": {"name": "p", "namespace": "n"}}, "NodeNames": ["a", "b"]}


class Server:
    """A running tests.web.program."""

    def __init__(self, stack: ExitStack, *arguments: str) -> None:
        self._stack = stack
        self.process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "tests.web.program", *arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        )
        stack.callback(self._kill)
        assert self.process.stdout is not None
        self._output = self.process.stdout
        self.port, self.debug_port = map(int, self._output.readline().split())

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def connect(self, port: int | None = None) -> HTTPConnection:
        connection = HTTPConnection("127.0.0.1", port or self.port, timeout=60)
        return self._stack.enter_context(closing(connection))

    def hold(self, count: int) -> list[HTTPConnection]:
        """So many bind calls, all of them in the hands of the program."""
        calls = [self.connect() for _ in range(count)]
        for number, call in enumerate(calls):
            binding = {"PodName": f"p{number}", "PodNamespace": "n", "PodUID": "u", "Node": "a"}
            call.request("POST", "/v1/bind", msgspec.json.encode(binding))
        self.look(f"held/{count}")
        return calls

    def look(self, what: str) -> Any:
        connection = self.connect(self.debug_port)
        connection.request("GET", f"/debug/pods/{what}")
        return answer(connection)

    def ended(self) -> int:
        """The status, once every process that could write to our pipe is gone."""
        self._output.read()
        return self.process.wait()


def answer(connection: HTTPConnection) -> Any:
    response = connection.getresponse()
    assert response.status == 200
    return msgspec.json.decode(response.read())


def ask_filter(connection: HTTPConnection) -> Any:
    connection.request("POST", "/v1/filter", msgspec.json.encode(FILTER))
    return answer(connection)


@pytest.fixture
def server() -> Iterator[Server]:
    with ExitStack() as stack:
        yield Server(stack)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_every_held_call_is_answered_at_the_end(server: Server, number: signal.Signals) -> None:
    calls = server.hold(WINDOW)
    server.process.send_signal(number)
    assert [answer(call) for call in calls] == [{"Error": STOPPED}] * WINDOW
    assert server.ended() == 0


def test_a_closed_terminal_ends_parent_and_worker_alike(server: Server) -> None:
    calls = server.hold(3)
    os.killpg(server.process.pid, signal.SIGHUP)
    assert [answer(call) for call in calls] == [{"Error": STOPPED}] * 3
    assert server.ended() == 0


def test_held_calls_are_answered_when_the_parent_is_killed(server: Server) -> None:
    calls = server.hold(3)
    server.process.kill()
    assert [answer(call) for call in calls] == [{"Error": STOPPED}] * 3
    assert server.ended() == -signal.SIGKILL


def test_a_client_that_falls_silent_does_not_delay_the_end(server: Server) -> None:
    silent = server.connect()
    silent.putrequest("POST", "/v1/filter")
    silent.putheader("Content-Length", "1000")
    silent.endheaders(b"{")
    ask_filter(server.connect())
    server.process.terminate()
    assert server.ended() == 0


@pytest.mark.parametrize(
    "headers", [{"SCRIPT_NAME": "/v1/unheard"}, {"X-Forwarded-Proto": "https", "X-Forwarded-Ssl": "off"}]
)
def test_headers_of_proxies_mean_nothing(server: Server, headers: dict[str, str]) -> None:
    """Trusted ones would change the path, and contradict each other."""
    connection = server.connect()
    connection.request("POST", "/v1/filter", msgspec.json.encode(FILTER), headers)
    assert answer(connection)["NodeNames"] == ["a", "b"]


def test_filter_is_served_while_the_whole_window_is_held(server: Server) -> None:
    server.hold(WINDOW)
    assert ask_filter(server.connect())["NodeNames"] == ["a", "b"]


def test_a_worker_that_is_killed_is_replaced(server: Server) -> None:
    [call] = server.hold(1)
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    with pytest.raises(OSError, match=r"closed|reset"):
        call.getresponse()
    assert ask_filter(server.connect())["NodeNames"] == ["a", "b"]


def test_a_program_that_cannot_start_ends_instead_of_trying_for_ever() -> None:
    with ExitStack() as stack:
        assert Server(stack, "--broken").ended() == 3


def test_signals_that_would_start_a_second_worker_are_ignored(server: Server) -> None:
    server.hold(1)
    for number in (signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR1, signal.SIGUSR2):
        server.process.send_signal(number)
    server.look("held/1")
    assert ask_filter(server.connect())["NodeNames"] == ["a", "b"]


def test_connections_are_kept_alive_also_when_there_are_many(server: Server) -> None:
    connections = [server.connect() for _ in range(WINDOW)]
    for connection in connections:
        ask_filter(connection)
    used = [socket_of(connection) for connection in connections]
    for connection in connections:
        ask_filter(connection)
    assert [socket_of(connection) for connection in connections] == used


def test_idle_connections_make_room_when_they_hold_every_thread(server: Server) -> None:
    idle = [server.connect() for _ in range(WINDOW + SPARE_THREADS)]
    for connection in idle:
        ask_filter(connection)
    assert ask_filter(server.connect())["NodeNames"] == ["a", "b"]


def socket_of(connection: HTTPConnection) -> socket.socket:
    assert isinstance(connection.sock, socket.socket)
    return connection.sock


def test_a_caller_that_hangs_up_is_seen(server: Server) -> None:
    [call] = server.hold(1)
    watching = server.connect(server.debug_port)
    watching.request("GET", "/debug/pods/gone/p0")
    call.close()
    assert answer(watching)["after"] is True


def test_a_caller_that_waits_is_not_taken_for_gone(server: Server) -> None:
    [call] = server.hold(1)
    watching = server.connect(server.debug_port)
    watching.request("GET", "/debug/pods/gone/p0")
    socket_of(call).send(b"POST")  # wakes the program, which has to tell more to come from nothing to come
    assert answer(watching) == {"before": False, "after": False}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/filter", b"{", 400),
        ("POST", "/v1/nothing", b"{}", 404),
        ("GET", "/v1/filter", b"", 405),
        ("POST", "/v1/filter", b" " * (16 * 1024 * 1024 + 1), 413),
        ("POST", "/v1/filter", b" " * (48 * 1024 * 1024), 413),
    ],
)
def test_bad_calls_get_their_status(server: Server, method: str, path: str, body: bytes, status: int) -> None:
    connection = server.connect()
    connection.request(method, path, body)
    response = connection.getresponse()
    assert response.status == status
    assert "error" in msgspec.json.decode(response.read())


def test_a_body_without_a_length_is_limited_too(server: Server) -> None:
    connection = server.connect()
    connection.request("POST", "/v1/filter", (b" " * 1024 * 1024 for _ in range(17)), encode_chunked=True)
    assert connection.getresponse().status == 413
