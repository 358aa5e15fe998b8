"""Ports: opened early, distinguished, served separately."""

import socket
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from threading import Condition, Event

import pytest
from aiohttp import web

from extender.api.configuration import InvalidConfiguration
from extender.api.setting_kinds import Address
from extender.web.debug import create_debug_app
from extender.web.side_ports import SideServer, pages
from extender.web.sockets import listen


def test_a_port_in_use_is_reported_with_its_flag() -> None:
    with listen("--listen", Address("127.0.0.1", 0)) as taken:
        address = Address(*taken.getsockname())
        with pytest.raises(
            InvalidConfiguration, match=f"--debug-listen: invalid value '{address}': another process"
        ):
            listen("--debug-listen", address)


def test_an_address_of_another_machine_is_reported() -> None:
    with pytest.raises(InvalidConfiguration, match="this machine has no such address"):
        listen("--listen", Address("192.0.2.1", 0))


def test_an_answer_never_waits_for_more_to_send_also_to_an_early_caller() -> None:
    with listen("--listen", Address("127.0.0.1", 0)) as early, socket.create_connection(early.getsockname()):
        accepted, _ = early.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_without_a_host_all_addresses_are_served() -> None:
    with listen("--health-listen", Address("", 0)) as every:
        port = every.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()


def test_a_side_server_serves_until_it_is_stopped() -> None:
    side = SideServer("debug", listen("--debug-listen", Address("127.0.0.1", 0)), pages(create_debug_app({})))
    with closing(HTTPConnection(*side.address, timeout=30)) as connection:
        connection.request("GET", "/debug/version")
        response = connection.getresponse()
        assert (response.status, response.version) == (200, 11)
        response.read()
    side.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(side.address)


def test_no_more_requests_are_answered_at_a_time_than_there_are_threads() -> None:
    """Keep the limit while callers hang up whose requests are being answered."""
    running, most, changed, go_on = 0, 0, Condition(), Event()

    def app(request: web.BaseRequest, body: bytes) -> web.Response:
        nonlocal running, most
        with changed:
            running += 1
            most = max(most, running)
            changed.notify_all()
        assert go_on.wait(30)
        with changed:
            running -= 1
        return web.Response(body=body)

    side = SideServer("debug", listen("--debug-listen", Address("127.0.0.1", 0)), app, thread_count=2)
    with ExitStack() as stack:

        def ask() -> HTTPConnection:
            caller = stack.enter_context(closing(HTTPConnection(*side.address, timeout=30)))
            caller.request("POST", "/", b"x")
            return caller

        impatient = [ask(), ask()]
        with changed:
            assert changed.wait_for(lambda: running == 2, 30)
        for caller in impatient:
            caller.close()
        waiting = [ask() for _ in range(6)]
        go_on.set()
        assert [caller.getresponse().read() for caller in waiting] == [b"x"] * 6
    assert most == 2
    side.stop()
