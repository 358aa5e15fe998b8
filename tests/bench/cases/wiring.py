"""CPU time of a small write to the API server: extender/kube/connection.py compared with libraries.

The peer answers with the headers of an API server over one kept-alive connection. A gang of
500 causes 1,500 such writes, and filter calls wait for the same interpreter lock.
"""

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import urllib3
from kubernetes.client import Configuration

from extender.kube.connection import Connection
from extender.kube.endpoint import ApiEndpoint
from tests.bench.report import Row, show
from tests.bench.sizes import Bench

_BODY = b'{"metadata":{"uid":"0d1f6a0c-3a52-4a44-8c7e-5d2f4c7b9e11"},"spec":{"schedulingGates":[]}}'
_ANSWER = b"\r\n".join(
    (
        b"HTTP/1.1 200 OK",
        b"Audit-Id: 4d0ef3a5-59f3-4f0a-9a2c-7a5b9a4cf0a0",
        b"Cache-Control: no-cache, private",
        b"Content-Type: application/json",
        b"X-Kubernetes-Pf-Flowschema-Uid: 7d4e7e2c-5a61-4f07-a3e3-5ab4bd3a6c35",
        b"X-Kubernetes-Pf-Prioritylevel-Uid: 1e2fda9a-93a5-4f1e-8a0e-1a3f7f2f9c11",
        b"Date: Sun, 22 Nov 2026 04:00:00 GMT",
        b"Content-Length: 2",
        b"",
        b"{}",
    )
)
_PATH = "/api/v1/namespaces/team/pods/worker-0"
_KIND = "application/merge-patch+json"
_WARM_UP = 200


def wire(bench: Bench) -> Iterator[Row]:
    requests = bench.sizes.pods
    show(f"{requests} small writes over one connection, by each library")
    rows = {}
    for name, make in (("ours", _ours), ("http.client", _http_client), ("urllib3", _urllib3)):
        with _peer() as port:
            rows[name] = _microseconds(make(port), requests)
    for name, spent in rows.items():
        yield {"by": name, "requests": requests, "cpu µs each": spent, "ratio": spent / rows["ours"]}


def _microseconds(write: Callable[[], object], requests: int) -> float:
    for _ in range(_WARM_UP):
        write()
    started = time.thread_time()
    for _ in range(requests):
        write()
    return (time.thread_time() - started) / requests * 1e6


def _ours(port: int) -> Callable[[], object]:
    configuration = Configuration(host=f"http://127.0.0.1:{port}")
    connection = Connection(ApiEndpoint(lambda: configuration))
    return lambda: connection.request("PATCH", _PATH, body=_BODY, content_type=_KIND)


def _http_client(port: int) -> Callable[[], object]:
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def write() -> bytes:
        connection.request("PATCH", _PATH, _BODY, {"Content-Type": _KIND, "Accept": "application/json"})
        return connection.getresponse().read()

    return write


def _urllib3(port: int) -> Callable[[], object]:
    pool = urllib3.HTTPConnectionPool("127.0.0.1", port, maxsize=1)
    headers = {"Content-Type": _KIND, "Accept": "application/json"}
    return lambda: pool.request("PATCH", _PATH, body=_BODY, headers=headers).data


@contextmanager
def _peer() -> Iterator[int]:
    """Answer any request; a request ends with the body, which is always the same."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_answer, args=[listener], daemon=True).start()
        yield listener.getsockname()[1]


def _answer(listener: socket.socket) -> None:
    peer, _ = listener.accept()
    with peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = b""
        while piece := peer.recv(65_536):
            request += piece
            if request.endswith(_BODY):
                request = b""
                peer.sendall(_ANSWER)
