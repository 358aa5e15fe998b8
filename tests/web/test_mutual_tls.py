"""The verbs over TLS: only callers with a certificate of the CA are served."""

import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from extender.webhooks.certificates import Pair, make_mutual, make_pair
from tests.e2e.harness.waiting import wait_for
from tests.flood import PARTIAL_HANDSHAKE, flood
from tests.web.running import Server, ask_filter

Mutual = tuple[Pair, Pair]


@pytest.fixture(scope="module")
def mutual() -> Mutual:
    return make_mutual(["127.0.0.1"], 3600, time.time())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, mutual: Mutual) -> Path:
    made = tmp_path_factory.mktemp("tls")
    write(made, mutual[0])
    return made


@pytest.fixture(scope="module")
def program(folder: Path, mutual: Mutual) -> Iterator[Server]:
    """Yield a program that is ready for callers with a certificate."""
    with ExitStack() as stack:
        yield ready(stack, folder, mutual)


def ready(stack: ExitStack, folder: Path, mutual: Mutual, *arguments: str) -> Server:
    made = Server(stack, "--tls", str(folder), *arguments)
    wait_for(lambda: served(made, mutual[1]), what="the certificate is read")
    return made


def write(folder: Path, pair: Pair) -> None:
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    (folder / "ca.crt").write_bytes(pair.authority)


def caller(program: Server, trusted: bytes, shown: Pair | None, folder: Path) -> HTTPSConnection:
    context = ssl.create_default_context(cadata=trusted.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13
    if shown:
        (folder / "shown.pem").write_bytes(shown.certificate + shown.key)
        context.load_cert_chain(folder / "shown.pem")
    return HTTPSConnection("127.0.0.1", program.port, context=context, timeout=60)


def served(program: Server, shown: Pair, trusted: bytes = b"") -> bool:
    """Return whether a request on a new connection is served."""
    with ExitStack() as stack:
        path = Path(stack.enter_context(TemporaryDirectory()))
        made = stack.enter_context(closing(caller(program, trusted or shown.authority, shown, path)))
        try:
            return bool(ask_filter(made)["NodeNames"] == ["a", "b"])
        except (OSError, HTTPException):
            return False


def test_a_caller_with_the_certificate_is_served_on_one_connection(
    program: Server, mutual: Mutual, tmp_path: Path
) -> None:
    with closing(caller(program, mutual[1].authority, mutual[1], tmp_path)) as cluster:
        cluster.connect()
        used = cluster.sock
        for _ in range(3):
            assert ask_filter(cluster)["NodeNames"] == ["a", "b"]
        assert cluster.sock is used


def test_callers_without_the_certificate_are_not_served(
    program: Server, mutual: Mutual, tmp_path: Path
) -> None:
    """Refuse the server's own certificate, which is not for clients, and one of another CA."""
    trusted, strangers = mutual[0].authority, make_mutual(["127.0.0.1"], 3600, time.time())[1]
    shown = (None, mutual[0], strangers, make_pair(["127.0.0.1"], 3600, time.time()))
    callers: list[HTTPConnection] = [caller(program, trusted, pair, tmp_path) for pair in shown]
    for refused in (*callers, HTTPConnection("127.0.0.1", program.port, timeout=60)):
        with closing(refused), pytest.raises((OSError, HTTPException)):
            ask_filter(refused)


def test_a_stalled_handshake_is_ended(folder: Path, mutual: Mutual) -> None:
    with ExitStack() as stack:
        program = ready(stack, folder, mutual, "--impatient")
        before = program.dropped("verbs", "handshake")
        with flood(program.port, PARTIAL_HANDSHAKE, 3) as callers:
            assert [caller.recv(1) for caller in callers] == [b""] * 3
        assert program.dropped("verbs", "handshake") == before + 3


def test_a_caller_that_hangs_up_is_seen_through_tls(program: Server, mutual: Mutual, tmp_path: Path) -> None:
    """A closing caller first sends a message of TLS, which is no sign of life."""
    held = caller(program, mutual[1].authority, mutual[1], tmp_path)
    held.request("POST", "/v1/bind", b'{"PodName": "p0", "PodNamespace": "n", "PodUID": "u", "Node": "a"}')
    program.look("held/1")
    assert program.look("seen/p0") == {"gone": False, "left": False}
    assert isinstance(held.sock, ssl.SSLSocket)
    held.sock.setblocking(False)
    with suppress(ssl.SSLWantReadError):  # raised unless the program has answered the same already
        held.sock.unwrap()  # close_notify, and the connection stays open
    assert program.look("left/p0") == {"gone": True, "left": True}
    held.close()


def test_a_new_ca_is_for_new_connections(program: Server, mutual: Mutual, folder: Path) -> None:
    """The last test of this module: afterwards, the certificates of the others mean nothing any more."""
    server, client = make_mutual(["127.0.0.1"], 3600, time.time())
    write(folder, server)
    wait_for(lambda: served(program, client), what="the new files are read")
    assert not served(program, mutual[1], trusted=server.authority)
