"""The tools that scenarios rely on do what they say: processes, wires, faults, the build's refusals."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import urllib3

from tests.e2e.harness import objects
from tests.e2e.harness.access import ADMIN
from tests.e2e.harness.cleanup import empty
from tests.e2e.harness.client import Client
from tests.e2e.harness.fault_proxy import FaultProxy
from tests.e2e.harness.faults import ALL_REQUESTS, answer, before_request, hold_answer, lose_answer
from tests.e2e.harness.kubelet import Kubelet
from tests.e2e.harness.process import Process
from tests.e2e.harness.resources import NODES, PODS
from tests.e2e.harness.stage import Stage
from tests.e2e.harness.tcp_proxy import TcpProxy
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watch import ApiError

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]


@pytest.fixture
def far(stage: Stage, proxy: FaultProxy) -> Iterator[Client]:
    """Yield a client that reaches the API server through the proxy."""
    with Client(stage.cluster.access(ADMIN, proxy.server)) as client:
        yield client


def test_a_restart_comes_back_as_another_process(tmp_path: Path) -> None:
    sleeper = Process("sleeper", ["sleep", "60"], tmp_path / "log")
    sleeper.start()
    before = sleeper.pid
    sleeper.restart(hard=True)
    assert sleeper.alive()
    assert sleeper.pid != before
    assert sleeper.stop() == -signal.SIGTERM


def test_children_die_with_the_tests(tmp_path: Path) -> None:
    """End them even when the tests are killed without a chance to clean up."""
    program = (
        "import pathlib, os, signal\n"
        "from tests.e2e.harness.process import Process\n"
        f"child = Process('child', ['sleep', '60'], pathlib.Path({str(tmp_path / 'log')!r}))\n"
        "child.start()\n"
        "print(child.pid, flush=True)\n"
        "input()\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        wait_for(lambda: b"sleep" in _command_line(child), what="child runs")
        parent.kill()
    wait_for(lambda: not _command_line(child), what="child gone")


def test_faults_happen_once_each_and_in_order(stage: Stage, proxy: FaultProxy, far: Client) -> None:
    stage.nodes(1)
    first, second, third = stage.pods("p", 3)
    proxy.inject(answer(409), answer(500), lose_answer())
    for name, status in ((first, 409), (second, 500)):
        with pytest.raises(ApiError) as refused:
            far.bind(stage.namespace, name, "n0")
        assert refused.value.status == status
    with pytest.raises(urllib3.exceptions.HTTPError):
        far.bind(stage.namespace, third, "n0")
    assert stage.bound([first, second, third]) == {third: "n0"}
    far.bind(stage.namespace, first, "n0")
    assert [call.status for call in proxy.calls] == [409, 500, 0, 201]
    assert proxy.pending_faults() == []


def test_a_failed_cleanup_names_the_last_refusal(stage: Stage, proxy: FaultProxy, far: Client) -> None:
    stage.nodes(1)
    proxy.inject(answer(403, "DELETE", "/nodes", times=ALL_REQUESTS))
    with pytest.raises(TimeoutError, match=r"nodes gone .*; last refusal: 403: injected by the test"):
        empty(far, NODES, "", timeout=0.2)


def test_an_answer_can_be_held_back_after_success(stage: Stage, proxy: FaultProxy, far: Client) -> None:
    stage.nodes(1)
    (name,) = stage.pods("p", 1)
    released = threading.Event()
    proxy.inject(hold_answer(released))
    with ThreadPoolExecutor(1) as pool:
        binding = pool.submit(far.bind, stage.namespace, name, "n0")
        stage.wait_bound([name])
        assert not binding.done()
        released.set()
        binding.result()


def test_something_can_happen_just_before_a_request(stage: Stage, proxy: FaultProxy, far: Client) -> None:
    stage.nodes(1)
    (name,) = stage.pods("p", 1)
    proxy.inject(before_request(lambda: stage.delete_pods([name])))
    with pytest.raises(ApiError) as refused:
        far.bind(stage.namespace, name, "n0")
    assert refused.value.status == 404


def test_watches_stream_through_the_proxy(stage: Stage, far: Client) -> None:
    """A kubelet behind the proxy sees pods as they are bound."""
    stage.kubelet.off()
    stage.nodes(1)
    with Kubelet(far):
        pods = stage.pods("p", 3)
        for name in pods:
            stage.api.bind(stage.namespace, name, "n0")
        stage.wait_phase(pods, "Running")
    stage.kubelet.on()


def test_a_cut_wire_breaks_watches_and_a_restored_one_serves(stage: Stage) -> None:
    wire = stage.start_wire()
    with Client(stage.cluster.access(ADMIN, wire.server)) as far:
        version = far.listing(NODES)["metadata"]["resourceVersion"]
        events = iter(far.watch(NODES, version))
        stage.nodes(1)
        assert next(events)[0] == "ADDED"
        wire.refuse()
        with pytest.raises(urllib3.exceptions.HTTPError):
            next(events)
        with pytest.raises(urllib3.exceptions.HTTPError):
            far.items(NODES)
        wire.restore()
        assert len(far.items(NODES)) == 1


def test_a_wire_is_cut_at_any_byte() -> None:
    """Check that the caller's part of an answer ends at the cut."""
    answer = b"0123456789" * 100
    server = socket.create_server(("127.0.0.1", 0))
    with server, TcpProxy(server.getsockname()[1]) as wire:
        caller = socket.create_connection(("127.0.0.1", wire.port))
        target, _ = server.accept()
        with caller, target:
            target.sendall(answer[:10])
            assert caller.recv(10) == answer[:10]
            assert wire.cut_after(333) == 1
            target.sendall(answer)
            assert b"".join(iter(lambda: caller.recv(100), b"")) == answer[:333]
            assert target.recv(1) == b""


def test_the_scheduler_dump_has_its_cache(stage: Stage) -> None:
    """Read placed and waiting pods from the dump; a scheduler that misses a pod differs from the API."""
    stage.nodes(2, cpu="2")
    wire = stage.start_wire()
    scheduler = stage.start_scheduler(server=wire.server)
    bound = stage.pods("p", 3, scheduler="default-scheduler")
    stage.wait_phase(bound)
    (large,) = stage.pods("large", 1, cpu="64", scheduler="default-scheduler")
    wait_for(lambda: [*scheduler.dump().queued.values()] == [large], what="the large one waits")
    pods = stage.api.items(PODS, stage.namespace)
    dump = scheduler.dump()
    assert {*dump.cached.values()} == {"n0", "n1"}
    assert (len(dump.cached), dump.differences(pods)) == (3, [])
    wire.refuse()
    stage.delete_pods(bound[:1])
    wait_for(lambda: scheduler.dump().differences(stage.api.items(PODS, stage.namespace)), what="it differs")


def test_created_objects_come_back_in_order(stage: Stage) -> None:
    made = [objects.pod(f"p{number}", namespace=stage.namespace) for number in range(50)]
    names = [pod["metadata"]["name"] for pod in stage.api.create_many(PODS, made)]
    assert names == [f"p{number}" for number in range(50)]


@pytest.mark.parametrize(
    ("arguments", "path", "message"),
    [
        (["--kubernetes", "1.2"], os.environ["PATH"], "--kubernetes 1.2: not supported, allowed: 1."),
        ([], "/nowhere", "go: not found on PATH, allowed: Go 1."),
    ],
    ids=["version", "go"],
)
def test_the_build_names_its_requirements(
    arguments: list[str], path: str, message: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.e2e.build", *arguments]
    env = {"PATH": path, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


def _command_line(pid: int) -> bytes:
    """Return the command line, empty for a missing process or a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
