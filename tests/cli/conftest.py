"""Fixtures: a cluster for each test, and the proxy in proxy of its API server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from extender.api.setting_kinds import Address
from extender.web.debug import View, create_debug_app
from extender.web.side_ports import SideServer, pages
from extender.web.sockets import listen
from tests.cli.api_proxy import ApiProxy, in_front_of
from tests.cli.cluster import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    cluster.server.start()
    yield cluster
    cluster.server.stop()


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[ApiProxy]:
    with in_front_of(cluster) as proxy:
        yield proxy


DebugPort = Callable[..., str]


@pytest.fixture
def debug_port() -> Iterator[DebugPort]:
    """Yield a function that serves the given views by name and returns the address."""
    servers: list[SideServer] = []

    def serve(**views: View) -> str:
        app = pages(create_debug_app(views))
        servers.append(SideServer("debug", listen("--debug-listen", Address("127.0.0.1", 0)), app))
        return str(servers[-1].address)

    yield serve
    for server in servers:
        server.stop()
