"""Process of tests.web.program, and the calls that tests send to it."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parents[2]
FILTER = {"Pod": {"metadata": {"name": "p", "namespace": "n"}}, "NodeNames": ["a", "b"]}


class Server:
    """A running tests.web.program."""

    def __init__(self, stack: ExitStack, *arguments: str) -> None:
        self._stack = stack
        self.process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "tests.web.program", *arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        )
        stack.callback(self._kill)
        assert self.process.stdout is not None
        self._output = self.process.stdout
        ports = map(int, self._output.readline().split())
        self.port, self.debug_port, self.health_port, self.webhook_port = ports

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def connect(self, port: int | None = None) -> HTTPConnection:
        connection = HTTPConnection("127.0.0.1", port or self.port, timeout=60)
        return self._stack.enter_context(closing(connection))

    def hold(self, count: int) -> list[HTTPConnection]:
        """Send bind calls in the form of Go's client, and wait until all have arrived."""
        calls = [self.connect() for _ in range(count)]
        for number, call in enumerate(calls):
            binding = {"PodName": f"p{number}", "PodNamespace": "n", "PodUID": "u", "Node": "a"}
            body = msgspec.json.encode(binding)
            call.putrequest("POST", "/v1/bind", skip_accept_encoding=True)
            for name, value in (("User-Agent", "Go-http-client/1.1"), ("Content-Length", str(len(body)))):
                call.putheader(name, value)
            call.endheaders(body)
        self.look(f"held/{count}")
        return calls

    def release(self, calls: list[HTTPConnection]) -> None:
        """Close the calls; afterwards no call is held."""
        for call in calls:
            call.close()
        self.look("held/0")

    def look(self, page: str) -> Any:
        return self.get(self.debug_port, f"/debug/pods/{page}")

    def get(self, port: int, path: str) -> Any:
        """Return the JSON of a page."""
        connection = self.connect(port)
        connection.request("GET", path)
        return answer(connection)

    def dropped(self, port: str, reason: str) -> float:
        """Return the number of closed connections by the metrics of the process."""
        connection = self.connect(self.health_port)
        connection.request("GET", "/metrics")
        name = f'muster_connections_dropped_total{{port="{port}",reason="{reason}"}} '
        lines = connection.getresponse().read().decode().splitlines()
        return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))

    def ended(self) -> int:
        """Return the exit status, once all processes that write to the pipe have ended."""
        self._output.read()
        return self.process.wait()


def answer(connection: HTTPConnection) -> Any:
    response = connection.getresponse()
    assert response.status == 200
    return msgspec.json.decode(response.read())


def ask_filter(connection: HTTPConnection) -> Any:
    connection.request("POST", "/v1/filter", msgspec.json.encode(FILTER))
    return answer(connection)
