"""The webhook port: TLS, persistent connections, malformed bodies, certificates that change."""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPSConnection
from pathlib import Path
from threading import Event, Thread

import pytest

from extender.api.setting_kinds import Address
from extender.web.side_ports import MAX_REVIEW_BYTES, WebhookServer
from extender.web.sockets import Identity, listen
from extender.webhooks.certificates import Pair, make_mutual, make_pair
from extender.webhooks.reviews import Malformed, Reviewer, ReviewOutcome
from extender.webhooks.reviews import Path as ReviewPath

PATIENCE = 10
Pairs = tuple[Pair, Pair]


class Echo(Reviewer):
    """App that answers with the request; `slow` waits until the test lets it go on, `broken` raises."""

    def __init__(self) -> None:
        nothing = ReviewPath(lambda request: ReviewOutcome(), ())
        super().__init__(dict.fromkeys(("/echo", "/slow", "/broken"), nothing), lambda: True)
        self.begun, self.go_on = Event(), Event()

    def answer(self, path: str, body: bytes) -> bytes:
        if path == "/broken":
            raise RuntimeError("an unforeseen error")
        if path == "/slow":
            self.begun.set()
            assert self.go_on.wait(PATIENCE)
        if body == b"bad":
            raise Malformed("no review at $.request")
        return body


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    first, second = (make_pair(["127.0.0.1"], 3600, time.time()) for _ in range(2))
    return first, second


@pytest.fixture
def identity(pairs: Pairs) -> Identity:
    made = Identity("webhooks")
    made.use(pairs[0].certificate, pairs[0].key)
    return made


def test_a_file_without_a_ca_admits_no_caller(pairs: Pairs, tmp_path: Path) -> None:
    made, callers = Identity("webhooks"), tmp_path / "ca.crt"
    with pytest.raises(OSError, match="No such file"):
        made.use_for(callers, pairs[0].certificate, pairs[0].key)
    callers.touch()
    with pytest.raises(ValueError, match="Empty"):
        made.use_for(callers, pairs[0].certificate, pairs[0].key)
    assert made.context is None


def test_other_callers_are_admitted_once_their_ca_is_in_the_file(
    server: WebhookServer, identity: Identity, pairs: Pairs, tmp_path: Path
) -> None:
    """The certificate stays the same: it is renewed far less often."""
    callers = tmp_path / "ca.crt"
    of_both = [make_mutual([], 3600, time.time())[1] for _ in range(2)]

    def let_in() -> list[bool]:
        identity.use_for(callers, pairs[0].certificate, pairs[0].key)
        return [is_answered(server, pairs[0], each, tmp_path) for each in of_both]

    callers.write_bytes(of_both[0].authority)
    assert let_in() == [True, False]
    before = identity.context
    assert let_in() == [True, False]
    assert identity.context is before
    callers.write_bytes(of_both[1].authority)
    assert let_in() == [False, True]


def is_answered(server: WebhookServer, pair: Pair, caller: Pair, folder: Path) -> bool:
    (folder / "caller.pem").write_bytes(caller.certificate + caller.key)
    with connect(server, pair, folder / "caller.pem") as connection:
        try:
            return post(connection, "/echo", b"x") == (200, b"x")
        except OSError:
            return False


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def server(echo: Echo, identity: Identity) -> Iterator[WebhookServer]:
    running = WebhookServer(listen("--webhook-listen", Address("127.0.0.1", 0)), echo, identity)
    yield running
    echo.go_on.set()
    running.stop()


@contextmanager
def connect(server: WebhookServer, pair: Pair, own: Path | None = None) -> Iterator[HTTPSConnection]:
    """Yield a client that trusts only the CA of this pair.

    `own`: the file with its own certificate and key.
    """
    context = ssl.create_default_context(cadata=pair.authority.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13
    if own is not None:
        context.load_cert_chain(own)
    with closing(
        HTTPSConnection("127.0.0.1", server.address.port, context=context, timeout=PATIENCE)
    ) as cluster:
        yield cluster


def ask(server: WebhookServer, pair: Pair, path: str, body: bytes) -> tuple[int, bytes]:
    """Return the answer to a request over its own connection."""
    with connect(server, pair) as connection:
        return post(connection, path, body)


def post(connection: HTTPSConnection, path: str, body: bytes) -> tuple[int, bytes]:
    connection.request("POST", path, body)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_many_reviews_go_over_one_connection(server: WebhookServer, pairs: Pairs) -> None:
    with connect(server, pairs[0]) as connection:
        connection.connect()
        sock = connection.sock
        for number in range(3):
            body = b"x" * number * 100_000
            assert post(connection, "/echo?timeout=5s", body) == (200, body)
        assert connection.sock is sock


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "/echo", b"bad", 400, b"no review at $.request"),
        ("POST", "/nowhere", b"", 404, b"/broken, /echo, /slow"),
        ("GET", "/echo", b"", 405, b"POST"),
        ("POST", "/echo", b" " * (MAX_REVIEW_BYTES + 1), 413, b"41943040 bytes"),
        ("POST", "/broken", b"", 500, b"its log says why"),
    ],
)
def test_malformed_reviews_are_refused(
    method: str,
    path: str,
    body: bytes,
    status: int,
    message: bytes,
    server: WebhookServer,
    pairs: Pairs,
) -> None:
    with connect(server, pairs[0]) as connection:
        connection.request(method, path, body)
        answer = connection.getresponse()
        assert answer.status == status
        assert message in answer.read()
    assert ask(server, pairs[0], "/echo", b"fine") == (200, b"fine")


def test_a_body_of_unknown_length_is_not_read(server: WebhookServer, pairs: Pairs) -> None:
    with connect(server, pairs[0]) as connection:
        connection.request("POST", "/echo", iter([b"x"]), encode_chunked=True)
        answer = connection.getresponse()
        assert (answer.status, b"Content-Length" in answer.read()) == (411, True)


def test_a_silent_caller_delays_no_other_caller(server: WebhookServer, pairs: Pairs) -> None:
    with socket.create_connection(("127.0.0.1", server.address.port)):  # and no handshake
        assert ask(server, pairs[0], "/echo", b"x") == (200, b"x")


def test_a_caller_without_tls_is_dropped(server: WebhookServer, pairs: Pairs) -> None:
    with socket.create_connection(("127.0.0.1", server.address.port), timeout=PATIENCE) as plain:
        plain.sendall(b"POST /echo HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        with suppress(ConnectionResetError):
            assert b"HTTP" not in plain.recv(1000)
    assert ask(server, pairs[0], "/echo", b"x") == (200, b"x")


def test_a_new_certificate_is_for_new_connections(
    server: WebhookServer, identity: Identity, pairs: Pairs
) -> None:
    with connect(server, pairs[0]) as open_one:
        assert post(open_one, "/echo", b"1") == (200, b"1")
        identity.use(pairs[1].certificate, pairs[1].key)
        assert post(open_one, "/echo", b"2") == (200, b"2")
    assert ask(server, pairs[1], "/echo", b"3") == (200, b"3")
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(server, pairs[0], "/echo", b"4")


def test_without_a_certificate_connections_are_closed(echo: Echo, pairs: Pairs) -> None:
    running = WebhookServer(listen("--webhook-listen", Address("127.0.0.1", 0)), echo, Identity("webhooks"))
    with pytest.raises((ConnectionError, ssl.SSLError)):
        ask(running, pairs[0], "/echo", b"x")
    running.stop()


def test_a_stop_answers_pending_requests(server: WebhookServer, echo: Echo, pairs: Pairs) -> None:
    answers: list[tuple[int, bytes]] = []
    asking = Thread(target=lambda: answers.append(ask(server, pairs[0], "/slow", b"x")))
    asking.start()
    assert echo.begun.wait(PATIENCE)
    stopping = Thread(target=server.stop)
    stopping.start()
    echo.go_on.set()
    stopping.join(PATIENCE)
    asking.join(PATIENCE)
    assert answers == [(200, b"x")]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.address.port), timeout=PATIENCE).close()


def test_the_certificate_is_not_left_on_disk(
    pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    Identity("webhooks").use(pairs[0].certificate, pairs[0].key)
    assert list(tmp_path.iterdir()) == []
