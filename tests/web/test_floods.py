"""Callers that open connections and send nothing, or half a request, at each port of the real process."""

import select
import socket
import ssl
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPSConnection

import msgspec
import pytest

from extender.ports.connections import TIMEOUTS
from extender.web import server
from extender.web.side_ports import LIMITS
from tests.e2e.harness.waiting import wait_for
from tests.flood import PARTIAL_BODY, PARTIAL_HANDSHAKE, PARTIAL_HEAD, PATIENCE, flood, many_files
from tests.web.program import STOPPING_REASON, WINDOW
from tests.web.running import FILTER, Server, answer, ask_filter

MANY = 2000
LONG = msgspec.json.encode({**FILTER, "NodeNames": ["a" * 60_000]})
LONG_ANSWERS = (
    b"POST /v1/filter HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(LONG), LONG) * 3
)


@pytest.fixture(autouse=True)
def all_files() -> Iterator[None]:
    with many_files():
        yield


def check_ports(program: Server) -> None:
    """Check that every port answers on a new connection."""
    assert ask_filter(program.connect())["NodeNames"] == ["a", "b"]
    assert get(program.connect(program.health_port), "/livez") == b"ok"
    assert b"muster" in get(program.connect(program.debug_port), "/debug/version")
    assert review(program, b"x") == b"x"


def get(caller: HTTPConnection, path: str) -> bytes:
    caller.request("GET", path)
    return caller.getresponse().read()


def ended(callers: list[socket.socket]) -> list[int]:
    """Return the sockets on which something can be read.

    Since no request is answered, that is the end of the connection.
    """
    poll = select.poll()
    for caller in callers:
        poll.register(caller, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(0)]


def review(program: Server, body: bytes) -> bytes:
    context = ssl._create_unverified_context()
    caller = HTTPSConnection("127.0.0.1", program.webhook_port, context=context, timeout=PATIENCE)
    caller.request("POST", "/echo", body)
    answer = caller.getresponse().read()
    caller.close()
    return answer


def threads(program: Server) -> int:
    pages = program.get(program.debug_port, "/debug/threads")
    return sum(stack["count"] for stack in pages)


def test_half_open_requests_at_the_health_port_block_no_other_caller(shared_program: Server) -> None:
    check_ports(shared_program)
    before = threads(shared_program)
    with flood(shared_program.health_port, PARTIAL_HEAD, MANY):
        check_ports(shared_program)
        assert threads(shared_program) <= before + 8
    check_ports(shared_program)


def test_unfinished_bodies_at_the_verbs_port_block_no_other_caller(shared_program: Server) -> None:
    """More connections than there are threads, while calls stay held."""
    calls = shared_program.hold(10)
    with flood(shared_program.port, PARTIAL_BODY, MANY):
        check_ports(shared_program)
        shared_program.look("held/10")
        assert threads(shared_program) < WINDOW
    shared_program.release(calls)
    check_ports(shared_program)


def test_a_flood_at_the_webhook_port_blocks_no_other_caller(shared_program: Server) -> None:
    with (
        flood(shared_program.webhook_port, PARTIAL_HANDSHAKE, MANY),
        flood(shared_program.webhook_port, b"", MANY),
    ):
        check_ports(shared_program)
        assert threads(shared_program) < WINDOW


@pytest.mark.parametrize("port", ["port", "health_port"])
@pytest.mark.parametrize("data", [PARTIAL_HEAD, PARTIAL_BODY.replace(b"1000", b"9")])
def test_a_stalled_request_is_closed(impatient_program: Server, port: str, data: bytes) -> None:
    with flood(getattr(impatient_program, port), data, 3) as callers:
        assert [caller.recv(1) for caller in callers] == [b""] * 3


@pytest.mark.parametrize(("data", "reason"), [(PARTIAL_HEAD, "head"), (PARTIAL_BODY, "body")])
def test_a_stalled_request_over_tls_is_closed(impatient_program: Server, data: bytes, reason: str) -> None:
    before = impatient_program.dropped("webhooks", reason)
    plain = socket.create_connection(("127.0.0.1", impatient_program.webhook_port), timeout=PATIENCE)
    with ssl._create_unverified_context().wrap_socket(plain) as caller:
        caller.sendall(data)
        assert caller.recv(1) == b""
    assert impatient_program.dropped("webhooks", reason) == before + 1


@pytest.mark.parametrize(
    ("port", "name", "most"),
    [
        ("port", "verbs", 2 * (WINDOW + server.SPARE_CONNECTIONS)),
        ("health_port", "health", LIMITS.max_connections),
    ],
)
def test_the_number_of_connections_never_exceeds_its_limit(
    shared_program: Server, port: str, name: str, most: int
) -> None:
    before = shared_program.dropped(name, "full")
    with flood(getattr(shared_program, port), b"", most + 5) as callers:
        wait_for(lambda: len(ended(callers)) >= 5, what="as many closed as were too many")
        assert shared_program.dropped(name, "full") >= before + 5


def test_calls_stay_held_in_a_flood(program: Server) -> None:
    """Connections whose call is being answered are none of those that are closed to free places."""
    calls = program.hold(3)
    with flood(program.port, b"", 2 * (WINDOW + server.SPARE_CONNECTIONS) + 50):
        wait_for(lambda: program.dropped("verbs", "full") >= 50, what="connections closed")
        check_ports(program)
    program.process.terminate()
    assert [answer(call) for call in calls] == [{"Error": STOPPING_REASON}] * 3


def test_a_caller_that_sends_more_during_a_held_call_is_closed(shared_program: Server) -> None:
    """Close the connection: otherwise each held call could have as many bytes kept as its caller likes."""
    before = shared_program.dropped("verbs", "memory")
    [call] = shared_program.hold(1)
    assert isinstance(call.sock, socket.socket)
    with pytest.raises(ConnectionError):
        call.sock.sendall(PARTIAL_BODY + b" " * 50_000_000)
    assert shared_program.look("left/p0") == {"gone": True, "left": True}
    assert shared_program.dropped("verbs", "memory") == before + 1
    check_ports(shared_program)


def test_callers_that_were_answered_before_stay_connected_in_a_flood(shared_program: Server) -> None:
    regular = shared_program.connect(shared_program.health_port)
    get(regular, "/livez")
    used = regular.sock
    with flood(shared_program.health_port, PARTIAL_HEAD, MANY):
        assert get(regular, "/livez") == b"ok"
        assert regular.sock is used


@pytest.mark.parametrize("port", ["port", "health_port"])
def test_callers_that_read_no_answer_block_no_other_caller(shared_program: Server, port: str) -> None:
    """They send request after request and read no answer, until the buffers between the two are full."""
    asked = {"health_port": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300, "port": LONG_ANSWERS}[
        port
    ]
    with flood(getattr(shared_program, port), asked, 40):
        check_ports(shared_program)
        assert threads(shared_program) < WINDOW


def test_unfinished_bodies_do_not_fill_the_memory(shared_program: Server) -> None:
    """The largest of them are closed, so that other callers can still send their requests."""
    large = (
        b"POST /v1/filter HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16777216\r\n\r\n" + b" " * 15_000_000
    )
    before = shared_program.dropped("verbs", "memory")
    with flood(shared_program.port, large, 6):
        check_ports(shared_program)
        assert shared_program.dropped("verbs", "memory") > before


def test_the_limits_are_the_documented_ones() -> None:
    """docs/explanation/failures.md names them."""
    assert (TIMEOUTS.head, TIMEOUTS.body, TIMEOUTS.handshake) == (5, 10, 5)
    assert server.SPARE_CONNECTIONS == 64


def test_over_tls_any_name_is_answered(shared_program: Server) -> None:
    """Accept a certificate for another name: the API server calls webhooks by the name of their Service."""
    caller = HTTPSConnection(
        "127.0.0.1", shared_program.webhook_port, context=ssl._create_unverified_context()
    )
    caller.request("POST", "/echo", b"x", {"Host": "muster-webhooks.kube-muster.svc"})
    assert caller.getresponse().read() == b"x"
    caller.close()
