"""`muster serve` as it is, as a child process on free ports of loopback, which ends when we do."""

import http.client
import json
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

WATCHDOG = Path(__file__).with_name("parent_watchdog.py")
_PATIENCE = 30.0  # seconds


class ServeFailed(Exception):
    """`muster serve` did not start, or ended; the message carries its last words."""


class ServeProcess:
    """`log` is the file that its log lines go to; `arguments` are further flags."""

    def __init__(self, kubeconfig: Path, log: Path, arguments: tuple[str, ...] = ()) -> None:
        self._kubeconfig = kubeconfig
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.address, self.health, self.debug = (f"127.0.0.1:{port}" for port in free_ports(3))
        self.log = log

    def start(self) -> None:
        """Until it is ready. Raises ServeFailed."""
        for _ in range(3):  # another process may take a port between our look and the child's
            listen = ["--listen", self.address, "--health-listen", self.health, "--debug-listen", self.debug]
            alone = ["--kubeconfig", str(self._kubeconfig), "--leader-elect", "off"]  # there is nobody else
            program = "from extender.cli import main; main(prog_name='muster')"
            command = [sys.executable, "-c", program, "serve", *listen, *alone, *self._arguments]
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(WATCHDOG), *command],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            deadline = time.monotonic() + _PATIENCE
            while self.alive():
                if _fetch(self.health, "/readyz") is not None:
                    return
                if time.monotonic() > deadline:
                    self.stop()
                    remedy = "try again when the machine is less busy; it said last:"
                    raise ServeFailed(self.last_lines(f"was not ready within {_PATIENCE:g} s; {remedy}"))
                time.sleep(0.02)
            self.address, self.health, self.debug = (f"127.0.0.1:{port}" for port in free_ports(3))
        raise ServeFailed(self.last_lines())

    def stop(self) -> None:
        """Within two seconds, together with all that it started."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(1.8)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """Of the process that was started; it has children."""
        assert self._process is not None
        return self._process.pid

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def look(self, page: str) -> Any:
        """The JSON of a page below /debug/; None when it does not come at once."""
        answer = _fetch(self.debug, f"/debug/{page}")
        return json.loads(answer) if answer is not None else None

    def last_lines(self, happened: str = "ended:") -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join([f"muster serve {happened}", *lines[-5:]])


def _fetch(address: str, path: str) -> bytes | None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"http://{address}{path}", timeout=1) as answer:
            return bytes(answer.read())
    except (OSError, http.client.HTTPException):  # also one that is not 200
        return None


def free_ports(count: int) -> list[int]:
    """Distinct ports of loopback that were free a moment ago."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]
