"""The host before gunicorn forks: threads and their handles do not survive a fork."""

from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from msgspec.structs import replace

from extender.api.configuration import Configuration
from extender.api.setting_kinds import Address
from extender.host.host import Host
from extender.kube.connection import Connection
from extender.web.sockets import open_ports
from tests.kube.conftest import write_kubeconfig

ANY_PORT = Address("127.0.0.1", 0)


def test_no_thread_is_started_before_the_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13.0 refuses to start a thread object that was made before a fork."""
    made: list[str] = []
    make = Thread.__init__

    def record(thread: Thread, *arguments: Any, **named: Any) -> None:
        make(thread, *arguments, **named)
        made.append(thread.name)

    monkeypatch.setattr(Thread, "__init__", record)
    given = Configuration(volcano_jobs="on", webhook_certificates="self-signed", view_folder=str(tmp_path))
    listen = dict.fromkeys(
        (name for name in Configuration.__struct_fields__ if name.endswith("listen")), ANY_PORT
    )
    configuration = replace(given, **listen)
    ports = open_ports(configuration)
    Host(configuration, Connection.load(str(write_kubeconfig(tmp_path, "http://127.0.0.1:1"))), ports)
    for port in filter(None, ports):
        port.close()
    assert made == []
