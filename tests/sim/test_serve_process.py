"""`muster serve` as a child that does not come up, at first or at all."""

import json
import socket
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from extender.sim import embedded
from extender.sim.apiserver.server import ApiServer
from extender.sim.embedded import ServeFailed, ServeProcess
from tests.cli.cluster import kubeconfig


def test_the_error_of_a_server_that_is_never_ready_names_the_wait_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock is 20 seconds after the last."""
    clock = SimpleNamespace(monotonic=count(step=20).__next__, sleep=lambda _: None)
    monkeypatch.setattr(embedded, "time", clock)
    (config := tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig("http://127.0.0.1:1")))
    log = tmp_path / "muster.log"
    log.write_text("the last line\n")
    serve = ServeProcess(config, log)
    with pytest.raises(ServeFailed) as raised:
        serve.start()
    first, *last = str(raised.value).splitlines()
    assert first == (
        "muster serve was not ready within 30 s; try again when the machine is less busy; it said last:"
    )
    assert "the last line" in last
    assert not serve.is_alive()


def test_a_server_that_loses_a_port_to_another_process_starts_on_other_ports(
    server: ApiServer, tmp_path: Path
) -> None:
    server.write_kubeconfig(tmp_path / "kubeconfig")
    serve = ServeProcess(tmp_path / "kubeconfig", tmp_path / "muster.log")
    host, port = (lost := serve.address).split(":")
    with socket.create_server((host, int(port))):
        serve.start()
    serve.stop()
    assert serve.address != lost
