"""Fixtures: a scheduler proxy on real sockets, in bench of a scripted API server."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from extender.api.setting_kinds import Address
from extender.kube.endpoint import find_endpoint
from extender.ports.connections import ConnectionLimits
from extender.proxy.server import LIMITS, Handlers, ProxyServer
from extender.proxy.upstream import Upstream
from extender.web.sockets import listen
from tests.kube.conftest import write_kubeconfig
from tests.kube.server import Server
from tests.proxy.raw import RawConnection, RawServer, dial

SECRET = "first-segment"
UNUSED_ADDRESS = Address("127.0.0.1", 0)
MakeHandlers = Callable[[Upstream], Handlers]


def no_handlers(upstream: Upstream) -> Handlers:
    return Handlers()


def status_and_reason(answer: HTTPResponse) -> tuple[int, str]:
    """Return the status and the reason of a Status object."""
    status_object = json.loads(answer.read())
    assert (status_object["kind"], status_object["code"]) == ("Status", answer.status)
    return answer.status, status_object["reason"]


class ProxyBench:
    """Running scheduler proxy and its clients."""

    def __init__(self, stack: ExitStack, url: str, folder: Path, **options: object) -> None:
        self._stack = stack
        self.listener = listen("--view-listen", UNUSED_ADDRESS)
        kubeconfig = write_kubeconfig(folder, url, **options)  # type: ignore[arg-type]
        self.endpoint = find_endpoint(str(kubeconfig), None)
        self.port: int = self.listener.getsockname()[1]

    def start(self, limits: ConnectionLimits = LIMITS, handlers: MakeHandlers = no_handlers) -> None:
        self.view = ProxyServer(self.listener.dup(), self.endpoint, SECRET, handlers, limits)
        self._stack.callback(self.view.stop)

    def dial(self, first_bytes: bytes = b"", until: bytes = b"") -> RawConnection:
        """Return a client that has sent `first_bytes` and has read up to `until`, open for the whole test."""
        client = self._stack.enter_context(closing(dial(self.port)))
        client.send(first_bytes)
        client.read_until(until)
        return client

    def client(self) -> HTTPConnection:
        return self._stack.enter_context(closing(HTTPConnection("127.0.0.1", self.port, timeout=60)))


Start = Callable[..., ProxyBench]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts a proxy in bench of an API server: `start(url)`."""
    with ExitStack() as stack:

        def start_front(
            url: str,
            limits: ConnectionLimits = LIMITS,
            handlers: MakeHandlers = no_handlers,
            **options: object,
        ) -> ProxyBench:
            bench = ProxyBench(stack, url, tmp_path, **options)
            stack.callback(bench.listener.close)
            bench.start(limits, handlers)
            return bench

        yield start_front


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def raw() -> Iterator[RawServer]:
    with closing(RawServer()) as running:
        yield running


@pytest.fixture
def bench(server: Server, start: Start) -> ProxyBench:
    return start(server.url)
