"""Requests over real sockets: sent and received bytes, and the error for every kind of failure."""

import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.config import incluster_config

from extender.kube.connection import Connection
from extender.kube.endpoint import find_endpoint
from extender.kube.errors import (
    Ambiguous,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NoConfiguration,
    NotFound,
    Refused,
    ServerFault,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from tests.kube.conftest import write_kubeconfig
from tests.kube.server import Lines, Reply, Server, status
from tests.rows import each_of

Rotate = Callable[[Server, str], None]


def test_a_request_carries_credentials_query_and_body(server: Server, connection: Connection) -> None:
    server.script.append(Reply(201, b'{"done": true}'))
    answer = connection.request("POST", "/api/v1/pods", body=b"{}", content_type="a/b", query={"limit": 5})
    (request,) = server.requests
    assert answer == b'{"done": true}'
    assert (request.method, request.path, request.query) == ("POST", "/api/v1/pods", {"limit": "5"})
    assert request.headers["authorization"] == "Bearer secret"
    assert request.headers["content-type"] == "a/b"
    assert request.body == b"{}"


def test_a_path_in_the_server_url_is_part_of_requests(server: Server, tmp_path: Path) -> None:
    server.script.append(Reply())
    behind_a_gateway = Connection.load(str(write_kubeconfig(tmp_path, f"{server.url}/clusters/c-1/")))
    behind_a_gateway.request("GET", "/api/v1/pods")
    behind_a_gateway.close()
    assert server.requests[0].path == "/clusters/c-1/api/v1/pods"


def test_one_connection_serves_request_after_request(server: Server, connection: Connection) -> None:
    server.script.extend([Reply(), status(404), Lines([b"chunked"]), Reply()])
    connection.request("GET", "/1")
    with pytest.raises(NotFound):
        connection.request("GET", "/2")
    assert connection.request("GET", "/3") == b"chunked\n"
    connection.request("GET", "/4")
    assert len(server.connections) == 1


def test_a_connection_that_the_server_closed_is_not_used_again(
    server: Server, connection: Connection
) -> None:
    server.script.extend([Reply(), Reply()])
    connection.request("GET", "/1")
    server.hang_up()
    connection.request("GET", "/2")
    assert len(server.connections) == 2


CLOSING = Reply(headers={"Connection": "close "})  # the space keeps the test server itself from acting on it
ENDLESS = Reply(raw=b"HTTP/1.0 200 OK\r\n\r\n{}")


@pytest.mark.parametrize("answer", [CLOSING, ENDLESS], ids=["closing", "without a length"])
def test_an_answer_may_end_the_connection(server: Server, connection: Connection, answer: Reply) -> None:
    server.answers(answer, Reply())
    assert connection.request("GET", "/1") == b"{}"
    connection.request("GET", "/2")
    assert len(server.connections) == 2


@pytest.mark.parametrize(
    ("code", "kind", "transient", "settled"),
    [
        (400, Refused, False, True),
        (401, Unauthorized, True, True),
        (403, Forbidden, False, True),
        (404, NotFound, False, True),
        (409, Conflict, False, True),
        (410, Gone, False, True),
        (422, Invalid, False, True),
        (429, TooManyRequests, True, True),
        (500, ServerFault, True, False),
        (504, ServerFault, True, False),
    ],
)
def test_a_refusal_has_a_kind_and_the_servers_words(
    server: Server, connection: Connection, code: int, kind: type[Refused], transient: bool, settled: bool
) -> None:
    server.script.append(status(code, "Because", "it is so", Retry_After="7"))
    with pytest.raises(Refused) as caught:
        connection.request("GET", "/x")
    fault = caught.value
    assert type(fault) is kind
    assert (fault.status, fault.reason, fault.message, fault.retry_after) == (code, "Because", "it is so", 7)
    assert (fault.is_transient, fault.is_settled) == (transient, settled)


def test_a_huge_refusal_is_cut_after_its_first_kilobytes(server: Server, connection: Connection) -> None:
    server.script.append(status(422, "Invalid", "x" * 1_000_000))
    with pytest.raises(Invalid) as caught:
        connection.request("GET", "/x")
    assert caught.value.message == "x" * 2048


def test_advice_may_also_come_in_the_status(server: Server, connection: Connection) -> None:
    server.script.append(Reply(429, b'{"details": {"retryAfterSeconds": 10}}'))
    with pytest.raises(TooManyRequests) as caught:
        connection.request("GET", "/x")
    assert caught.value.retry_after == 10


@pytest.mark.parametrize(
    ("date", "reported"), [("Fri, 15 Jan 2027 08:00:00 GMT", 1_800_000_003.0), ("tomorrow", 5.0), ("", 5.0)]
)
def test_the_servers_clock_is_that_of_its_last_answer(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, date: str, reported: float
) -> None:
    monkeypatch.setattr("extender.kube.connection.time.time", lambda: 5.0)
    elapsed = 0.0
    endpoint = find_endpoint(str(write_kubeconfig(tmp_path, server.url)), None)
    connection = Connection(endpoint, clock=lambda: elapsed)
    assert connection.server_time() == 5.0
    raw = f"HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: 2\r\n\r\n{{}}"
    server.script.append(Reply(raw=raw.encode()))
    connection.request("GET", "/api")
    elapsed = 3.0
    assert connection.server_time() == reported
    connection.close()


FULL = status(500, "", "etcdserver: mvcc: database space exceeded")
QUEUE = "/apis/scheduling.volcano.sh/v1beta1/queues/q"
REVIEW = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@pytest.mark.parametrize(
    ("steps", "fails"),
    [
        ([(0, QUEUE, FULL), (59, QUEUE, FULL)], False),
        ([(0, QUEUE, FULL), (60, QUEUE, FULL)], True),
        (
            [
                (0, QUEUE, FULL),
                (60, QUEUE, FULL),
                (61, REVIEW, Reply()),
                (62, "/api/v1/namespaces/a/events", Reply()),
            ],
            True,
        ),
        ([(0, QUEUE, FULL), (60, QUEUE, FULL), (61, QUEUE, Reply())], False),
        ([(0, QUEUE, FULL), (60, QUEUE, FULL), (181, REVIEW, Reply())], False),  # it is not tried any more
        ([(0, QUEUE, FULL), (121, QUEUE, FULL)], False),
        ([(0, QUEUE, status(409)), (60, QUEUE, status(409))], False),
        ([(at, QUEUE, status(500, "InternalError", "failed calling webhook")) for at in (0, 60)], False),
    ],
)
def test_writes_that_are_not_stored_fail_the_health_check_while_they_are_retried(
    server: Server, tmp_path: Path, steps: list[tuple[float, str, Reply]], fails: bool
) -> None:
    now = 0.0
    endpoint = find_endpoint(str(write_kubeconfig(tmp_path, server.url)), None)
    connection = Connection(endpoint, clock=lambda: now)
    for at, path, reply in steps:
        now = at
        server.script.append(reply)
        with suppress(Refused):
            connection.request("POST", path, body=b"{}")
    found = connection.write_fault()
    assert ("database space exceeded" in (found or "")) == fails
    connection.close()


def test_the_message_of_a_proxy_is_shown_unchanged(server: Server, connection: Connection) -> None:
    server.script.append(Reply(502, b"<h1>Bad gateway</h1>"))
    with pytest.raises(ServerFault, match=r"502 : <h1>Bad gateway</h1>"):
        connection.request("GET", "/x")


def test_a_refused_connection_is_unsent(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    none = Connection.load(str(write_kubeconfig(tmp_path, f"http://127.0.0.1:{port}")))
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port}.*refused") as caught:
        none.request("POST", "/x", body=b"")
    assert (caught.value.is_transient, caught.value.is_settled) == (True, True)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
)
def test_a_request_without_an_answer_is_ambiguous(server: Server, connection: Connection, raw: bytes) -> None:
    server.script.append(Reply(raw=raw))
    with pytest.raises(Ambiguous) as caught:
        connection.request("POST", "/x", body=b"")
    assert (caught.value.is_transient, caught.value.is_settled) == (True, False)
    assert len(server.requests) == 1


def test_silence_is_ambiguous(server: Server, connection: Connection) -> None:
    with pytest.raises(Ambiguous, match="timed out"):
        connection.request("GET", "/x", timeout=0.05)


def test_lines_are_read_one_by_one_and_a_cut_is_reported(server: Server, connection: Connection) -> None:
    server.script.append(Lines([b"one", b"two\nthree"], then="cut"))
    seen: list[bytes] = []
    with connection.stream("/watch") as lines, pytest.raises(Ambiguous):
        seen.extend(lines)
    assert seen == [b"one", b"two", b"three"]


def test_a_silent_stream_can_be_cut_from_another_thread(server: Server, connection: Connection) -> None:
    server.script.append(Lines([b"hello"], then="silence"))
    with connection.stream("/watch", read_timeout=60) as stream:
        lines = iter(stream)
        assert next(lines) == b"hello"
        cutter = threading.Timer(0.01, stream.abort)
        cutter.start()
        with pytest.raises(Ambiguous):
            next(lines)
        cutter.join()


def test_a_stream_that_was_not_read_to_its_end_is_not_reused(server: Server, connection: Connection) -> None:
    server.script.extend([Lines([b"one", b"two"]), Reply()])
    with connection.stream("/watch") as lines:
        assert next(iter(lines)) == b"one"
    assert connection.request("GET", "/x") == b"{}"


def test_a_plugin_is_run_again_after_401(server: Server, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(_PLUGIN)
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "args": []}}
    with_plugin = Connection.load(str(write_kubeconfig(tmp_path, server.url, user)))
    server.script.extend([status(401), Reply()])
    with_plugin.request("GET", "/x")
    with_plugin.close()
    first, second = (request.headers["authorization"] for request in server.requests)
    assert first != second
    assert first.startswith("Bearer plugin-")


@each_of(
    ("/no/such/plugin", "No such file or directory: '/no/such/plugin'"),
    ("/bin/false", "process returned 1"),
    ("/bin/true", "failed to decode process output"),
)
def test_a_plugin_without_credentials_is_an_error(command: str, said: str, *, tmp_path: Path) -> None:
    exec_ = {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "args": []}
    with pytest.raises(NoConfiguration, match=f"no credentials from the exec plugin: .*{said}"):
        find_endpoint(str(write_kubeconfig(tmp_path, "http://one:1", {"exec": exec_})), None)


@each_of(5, ["a"], "https://", "host:6443", "ftp://host", "https://host:99999", "http://a\0b")
def test_a_server_that_is_no_url_is_an_error(server: Any, *, tmp_path: Path) -> None:
    with pytest.raises(NoConfiguration, match=r"server: invalid value .*: must be https://HOST or"):
        find_endpoint(str(write_kubeconfig(tmp_path, server)), None)


@each_of(
    {"current-context": ["c"]},
    {"contexts": 5},
    {"clusters": [5]},
    {"contexts": [{"name": "c", "context": 5}]},
)
def test_fields_of_another_type_are_an_error(change: dict[str, Any], *, tmp_path: Path) -> None:
    file = write_kubeconfig(tmp_path, "http://one:1")
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **change}))
    with pytest.raises(NoConfiguration, match=f"^{file}: "):
        find_endpoint(str(file), None)


@pytest.fixture(params=["kubeconfig", "named file", "pod"])
def rotate(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rotate:
    """Write the token where a connection to this server looks for it, which KUBECONFIG or the pod says."""
    form, token = request.param, tmp_path / "token"

    def write(server: Server, value: str) -> None:
        token.write_text(f"{value}\n")
        user = {"token": value} if form == "kubeconfig" else {"tokenFile": "token"}
        kubeconfig = write_kubeconfig(tmp_path, server.url, user, authority=tmp_path / "cert.pem")
        if form == "pod":
            monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
            monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
            monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "cert.pem"))
            monkeypatch.delenv("KUBECONFIG", raising=False)
        else:
            monkeypatch.setenv("KUBECONFIG", str(kubeconfig))

    return write


def test_a_rotated_token_is_read_again_and_the_request_repeated(tmp_path: Path, rotate: Rotate) -> None:
    with Server(*_self_signed(tmp_path)) as server:
        rotate(server, "old")
        with closing(Connection.load()) as connection:
            server.script.extend([Reply(), status(401), Reply(201), status(401)])
            connection.request("GET", "/x")
            rotate(server, "new")
            connection.request("POST", "/x", body=b"{}")
            assert connection.endpoint.refused_seconds == 0
            rotate(server, "newest, and refused")
            with pytest.raises(Unauthorized):
                connection.request("GET", "/x")
            assert connection.endpoint.refused_seconds > 0
    shown = [each.headers["authorization"].split(maxsplit=1)[1] for each in server.requests]
    assert shown == ["old", "old", "new", "new"]
    assert [each.body for each in server.requests[1:3]] == [b"{}", b"{}"]


def test_a_changed_file_is_read_before_the_old_token_is_refused(
    tmp_path: Path, rotate: Rotate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extender.kube.endpoint._REFRESH_PERIOD", 0.0)
    with Server(*_self_signed(tmp_path)) as server:
        rotate(server, "old")
        endpoint = find_endpoint(None, None)
        rotate(server, "another")
        assert endpoint.authorization.endswith("earer another")


def test_another_api_server_is_not_used_before_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extender.kube.endpoint._REFRESH_PERIOD", 0.0)
    endpoint = find_endpoint(str(write_kubeconfig(tmp_path, "http://one:1")), None)
    write_kubeconfig(tmp_path, "http://another:1", {"token": "of-another"})
    assert (endpoint.url, endpoint.authorization) == ("http://one:1", "Bearer secret")


@pytest.fixture
def nothing_bypasses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")


@pytest.mark.parametrize(
    ("credentials", "sent"), [("", None), ("me:a%40b@", "Basic bWU6YUBi")], ids=["anonymous", "user"]
)
def test_a_proxy_is_asked_for_a_tunnel(
    server: Server, tmp_path: Path, nothing_bypasses: None, credentials: str, sent: str | None
) -> None:
    server.script.append(status(502))
    proxy = server.url.replace("//", f"//{credentials}")
    behind = Connection.load(
        str(write_kubeconfig(tmp_path, "http://cluster.example:6443", **{"proxy-url": proxy}))
    )
    with pytest.raises(Unreachable, match="Tunnel connection failed: 502"):
        behind.request("GET", "/x")
    (request,) = server.requests
    assert (request.method, request.target) == ("CONNECT", "cluster.example:6443")
    assert request.headers.get("proxy-authorization") == sent


@pytest.mark.parametrize("proxy", ["socks5://me:secret@a:1", "https://a:1", "http://a:port", "a:1"])
def test_a_proxy_of_another_kind_is_a_configuration_fault(
    tmp_path: Path, nothing_bypasses: None, proxy: str
) -> None:
    behind = write_kubeconfig(tmp_path, "https://cluster.example:6443", **{"proxy-url": proxy})
    with pytest.raises(NoConfiguration, match=r"proxy-url in the kubeconfig, or HTTPS_PROXY\): ") as raised:
        Connection.load(str(behind))
    assert "secret" not in str(raised.value)


def test_a_pod_finds_its_cluster_and_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, _ = _self_signed(tmp_path)
    token = tmp_path / "token"
    token.write_text("of-the-account")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(certificate))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    endpoint = find_endpoint(None, None)
    assert (endpoint.netloc, endpoint.authorization) == ("10.0.0.1:443", "bearer of-the-account")
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path, "http://named:1")))
    assert find_endpoint(None, None).netloc == "named:1"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoConfiguration, match=str(tmp_path / "nowhere")):
        Connection.load(str(tmp_path / "nowhere"))


def test_a_broken_certificate_is_a_configuration_fault(tmp_path: Path) -> None:
    broken = write_kubeconfig(tmp_path, "https://127.0.0.1:1", authority=__file__)
    with pytest.raises(NoConfiguration, match=str(broken)):
        Connection.load(str(broken))


def test_a_missing_configuration_is_reported_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(NoConfiguration, match="give --kubeconfig, set KUBECONFIG, or run in a pod") as raised:
        Connection.load()
    assert f"(there is no {tmp_path}/.kube/config)" in str(raised.value)


def test_tls_is_spoken_and_the_certificate_checked(tmp_path: Path) -> None:
    certificate, key = _self_signed(tmp_path)
    with Server(certificate, key) as server:
        server.script.extend([Reply(), Reply()])
        trusting = Connection.load(str(write_kubeconfig(tmp_path, server.url, authority=certificate)))
        assert trusting.request("GET", "/1") == b"{}"
        assert trusting.request("GET", "/2") == b"{}"
        assert len(server.connections) == 1
        trusting.close()
        suspicious = Connection.load(str(write_kubeconfig(tmp_path, server.url)))
        with pytest.raises(Unreachable, match="certificate verify failed"):
            suspicious.request("GET", "/3")


def test_certificates_are_read_again_once_their_file_has_changed(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
    certificate, key = _self_signed(old)
    other, _ = _self_signed(new)
    with Server(certificate, key) as server:
        server.script.append(Reply())
        endpoint = find_endpoint(str(write_kubeconfig(tmp_path, server.url, authority=certificate)), None)
        before = endpoint.tls()
        assert endpoint.tls() is before
        with closing(Connection(endpoint)) as connection:
            connection.request("GET", "/1")
        other.replace(certificate)
        assert endpoint.tls() is not before
        with pytest.raises(Unreachable, match="certificate verify failed"):
            Connection(endpoint).request("GET", "/2")


def _self_signed(folder: Path) -> tuple[Path, Path]:
    if not shutil.which("openssl"):
        pytest.skip("makes its certificate with openssl")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    subject = "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *subject.split(), *files], check=True, capture_output=True)
    return certificate, key


# Credentials that were never valid for long: each call of the plugin gives another token.
_PLUGIN = """#!/bin/sh
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status":
  {"token": "plugin-'$$'", "expirationTimestamp": "2020-01-01T00:00:00Z"}}'
"""
