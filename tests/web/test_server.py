"""The real gunicorn process, under the loads for which it is tuned."""

import os
import signal
import socket
from contextlib import ExitStack
from http.client import HTTPConnection
from itertools import product
from pathlib import Path

import msgspec
import pytest

from extender.web.server import SPARE_CONNECTIONS
from tests.e2e.harness.waiting import wait_for
from tests.rows import each_of
from tests.web.program import STOPPING_REASON, WINDOW
from tests.web.running import FILTER, Server, answer, ask_filter


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_every_held_call_is_answered_at_the_end(program: Server, number: signal.Signals) -> None:
    """A client that falls silent does not delay the end."""
    silent = program.connect()
    silent.putrequest("POST", "/v1/filter")
    silent.putheader("Content-Length", "1000")
    silent.endheaders(b"{")
    calls = program.hold(WINDOW)
    program.process.send_signal(number)
    assert [answer(call) for call in calls] == [{"Error": STOPPING_REASON}] * WINDOW
    assert program.ended() == 0


def test_a_closed_terminal_ends_both_parent_and_worker(program: Server) -> None:
    calls = program.hold(3)
    os.killpg(program.process.pid, signal.SIGHUP)
    assert [answer(call) for call in calls] == [{"Error": STOPPING_REASON}] * 3
    assert program.ended() == 0


def test_held_calls_are_answered_when_the_parent_is_killed(program: Server) -> None:
    calls = program.hold(3)
    program.process.kill()
    assert [answer(call) for call in calls] == [{"Error": STOPPING_REASON}] * 3
    assert program.ended() == -signal.SIGKILL


@pytest.mark.parametrize(
    "headers", [{"SCRIPT_NAME": "/v1/unheard"}, {"X-Forwarded-Proto": "https", "X-Forwarded-Ssl": "off"}]
)
def test_forwarded_headers_of_proxies_are_ignored(shared_program: Server, headers: dict[str, str]) -> None:
    """Ignore them: they would change the path, and contradict each other."""
    probe = shared_program.connect(shared_program.health_port)
    probe.request("GET", "/livez", headers=headers)
    assert probe.getresponse().read() == b"ok"
    connection = shared_program.connect()
    connection.request("POST", "/v1/filter", msgspec.json.encode(FILTER), headers)
    assert answer(connection)["NodeNames"] == ["a", "b"]


def test_filter_is_served_while_the_whole_window_is_held(shared_program: Server) -> None:
    calls = shared_program.hold(WINDOW)
    assert ask_filter(shared_program.connect())["NodeNames"] == ["a", "b"]
    shared_program.release(calls)


def test_an_event_loop_that_is_stuck_fails_the_probe(impatient_program: Server) -> None:
    program = impatient_program

    def live() -> tuple[int, bytes]:
        probe = program.connect(program.health_port)
        probe.request("GET", "/livez?verbose")
        response = probe.getresponse()
        return response.status, response.read()

    ask_filter(program.connect())
    assert live()[0] == 200
    stuck = program.connect()
    call = {**FILTER, "Pod": {"metadata": {"name": "stuck", "namespace": "n"}}}
    stuck.request("POST", "/v1/filter", msgspec.json.encode(call))
    wait_for(lambda: live()[0] == 500, what="the probe failing")
    assert b"[-]verbs failed: its event loop has been stuck" in live()[1]
    program.look("go/on")
    assert answer(stuck)["NodeNames"] == ["a", "b"]
    wait_for(lambda: live()[0] == 200, what="the probe well again")


def test_a_worker_that_is_killed_is_replaced(program: Server) -> None:
    [call] = program.hold(1)
    children = Path(f"/proc/{program.process.pid}/task/{program.process.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    with pytest.raises(OSError, match=r"closed|reset"):
        call.getresponse()
    assert ask_filter(program.connect())["NodeNames"] == ["a", "b"]


def test_a_program_that_cannot_start_ends_instead_of_retrying_for_ever() -> None:
    with ExitStack() as stack:
        assert Server(stack, "--broken").ended() == 3


def test_signals_that_would_start_a_second_worker_are_ignored(shared_program: Server) -> None:
    calls = shared_program.hold(1)
    for number in (signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR1, signal.SIGUSR2):
        shared_program.process.send_signal(number)
    shared_program.look("held/1")
    assert ask_filter(shared_program.connect())["NodeNames"] == ["a", "b"]
    shared_program.release(calls)


def test_many_connections_stay_alive(shared_program: Server) -> None:
    connections = [shared_program.connect() for _ in range(WINDOW)]
    for connection in connections:
        ask_filter(connection)
    used = [socket_of(connection) for connection in connections]
    for connection in connections:
        ask_filter(connection)
    assert [socket_of(connection) for connection in connections] == used


def test_idle_connections_are_closed_when_there_are_too_many(program: Server) -> None:
    idle = [program.connect() for _ in range(2 * (WINDOW + SPARE_CONNECTIONS))]
    for connection in idle:
        ask_filter(connection)
    assert ask_filter(program.connect())["NodeNames"] == ["a", "b"]


def socket_of(connection: HTTPConnection) -> socket.socket:
    assert isinstance(connection.sock, socket.socket)
    return connection.sock


def test_a_caller_that_hangs_up_is_seen(shared_program: Server) -> None:
    [call] = shared_program.hold(1)
    assert shared_program.look("seen/p0") == {"gone": False, "left": False}
    call.close()
    assert shared_program.look("left/p0") == {"gone": True, "left": True}


def test_a_waiting_caller_does_not_count_as_gone(shared_program: Server) -> None:
    [call] = shared_program.hold(1)
    socket_of(call).send(b"POST")  # unblocks the program, which has to distinguish a pause from the end
    for _ in range(3):
        ask_filter(shared_program.connect())
    assert shared_program.look("seen/p0") == {"gone": False, "left": False}
    shared_program.release([call])


@each_of(
    ("POST", "/v1/filter", b"{", 400),
    ("POST", "/v1/nothing", b"{}", 404),
    ("POST", "//v1/filter", b"{}", 404),
    ("GET", "/v1/filter", b"", 405),
    ("POST", "/v1/filter", b" " * (16 * 1024 * 1024 + 1), 413),
    ("POST", "/v1/filter", b" " * (48 * 1024 * 1024), 413),
)
def test_bad_calls_get_their_status(
    method: str, path: str, body: bytes, status: int, *, shared_program: Server
) -> None:
    connection = shared_program.connect()
    connection.request(method, path, body)
    response = connection.getresponse()
    assert response.status == status
    assert "error" in msgspec.json.decode(response.read())


def test_a_call_that_was_refused_leaves_the_connection_to_the_next(shared_program: Server) -> None:
    connection = shared_program.connect()
    connection.connect()
    used = connection.sock
    for path in ("/v1/filter", "/v1/nothing"):
        connection.request("POST", path, b"{")
        connection.getresponse().read()
    assert ask_filter(connection)["NodeNames"] == ["a", "b"]
    assert connection.sock is used


def test_a_body_without_a_length_is_not_read(shared_program: Server) -> None:
    connection = shared_program.connect()
    connection.request("POST", "/v1/filter", (b" " * 1024 * 1024 for _ in range(17)), encode_chunked=True)
    response = connection.getresponse()
    assert (response.status, b"Content-Length" in response.read()) == (411, True)


@each_of(
    *product(
        ["port", "debug_port", "health_port"],
        [
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Host": "evil.example"},  # a page whose own name was given the address of loopback
            {"Host": "127.0.0.1.evil.example:8281"},
            {"Host": "[::1"},
        ],
    )
)
def test_requests_of_web_pages_are_refused(
    port: str, headers: dict[str, str], *, shared_program: Server
) -> None:
    connection = shared_program.connect(getattr(shared_program, port))
    connection.request("POST", "/v1/filter", msgspec.json.encode(FILTER), headers)
    response = connection.getresponse()
    assert response.status == 403
    assert "error" in msgspec.json.decode(response.read())


@each_of("localhost:8281", "127.0.0.1", "[::1]:8281")
def test_the_names_of_loopback_are_answered(host: str, *, shared_program: Server) -> None:
    connection = shared_program.connect()
    connection.request("POST", "/v1/filter", msgspec.json.encode(FILTER), {"Host": host})
    assert answer(connection)["NodeNames"] == ["a", "b"]


def test_a_head_that_does_not_end_is_refused(shared_program: Server) -> None:
    with socket.create_connection(("127.0.0.1", shared_program.port), timeout=60) as caller:
        caller.sendall(b"GET / HTTP/1.1\r\n" + b"A: %b\r\n" % (b"b" * 1000) * 80)
        ask_filter(shared_program.connect())  # by now it has been read
        caller.sendall(b"A: b\r\n")
        assert caller.makefile("rb").read().split()[1] == b"431"


@each_of(
    (b"GARBAGE\r\n\r\n", 400),
    (b"\r\n\r\nGARBAGE\r\n\r\n", 400),  # RFC 9112: empty lines before a request are ignored
    (b"GET / HTTP/9.9\r\n\r\n", 400),
    (b"GET /\x00 HTTP/1.1\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n", 400),
    (b"GET /" + b"x" * 5000 + b" HTTP/1.1\r\n\r\n", 414),
    (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
)
def test_a_malformed_request_is_refused(sent: bytes, status: int, *, shared_program: Server) -> None:
    with socket.create_connection(("127.0.0.1", shared_program.port), timeout=60) as caller:
        caller.sendall(sent)
        answer = caller.makefile("rb").read()
    assert answer.split()[1] == b"%d" % status
    assert b'"error"' in answer
