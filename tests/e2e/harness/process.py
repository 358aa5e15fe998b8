"""Child process with a log file. All signals go to its process id.

Wrapper programs keep the process id, since each replaces itself by the next one.
"""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path

from tests.e2e.harness import loopback

LEASH = Path(__file__).with_name("leash.py")
LONGEST_STOP = 30.0  # seconds
# Each worker of pytest-xdist has separate ports, so that a port stays reserved while its server restarts.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
OUR_PORTS = range(10_000, 32_000)[WORKER::WORKERS]
_PORTS = cycle(random.sample(OUR_PORTS, len(OUR_PORTS)))
STARTED: list["Process"] = []


class Process:
    """Program that can be restarted, with the same arguments, ports and data."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        host: str | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self._host_prefix = _on_host(host) if host else ()
        self.wrapper: Sequence[str] = ()
        # Later starts read the bytecode that the first one has compiled.
        shared = {"NO_PROXY": "127.0.0.1,::1,localhost", "PYTHONDONTWRITEBYTECODE": ""}
        self._env = {**os.environ, **shared, **(env or {})}
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._child is not None, f"{self.name} was never started"
        return self._child.pid

    def start(self, wrapper: Sequence[str] = ()) -> None:
        """Start the program. `wrapper`: the command of a wrapper, for this start only."""
        assert not self.alive(), f"{self.name} runs already"
        self.wrapper = wrapper
        leash = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid())]
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [*self._host_prefix, *leash, *wrapper, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                process_group=0,
            )
        STARTED.append(self)

    def alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def stop(self, timeout: float = LONGEST_STOP) -> int:
        """Stop by SIGTERM and return the exit code. Kills the program and raises an error after `timeout`."""
        self.send(signal.SIGTERM)
        try:
            return self._wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not stop within {timeout:g} s of SIGTERM") from None

    def kill(self) -> None:
        """Kill the program and its children by SIGKILL."""
        self._signal_all(signal.SIGKILL)
        self._wait(LONGEST_STOP)

    def restart(self, *, hard: bool = False) -> None:
        if hard:
            self.kill()
        else:
            self.stop()
        self.start()

    def send(self, number: signal.Signals) -> None:
        if self.alive():
            os.kill(self.pid, number)

    def freeze(self) -> None:
        """Freeze the program by SIGSTOP, as on a machine that hangs."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def exit_code(self) -> int:
        """Wait until the program has ended by itself, and return its exit code."""
        return self._wait(LONGEST_STOP)

    def tail(self, lines: int = 60) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def require_alive(self) -> None:
        """Raise an error with the log if the process has ended, so that no test waits for it in vain."""
        code = self._child.poll() if self._child else None
        if code is not None:
            raise RuntimeError(f"{self.name} ended with {code}:\n{self.tail(20)}")

    def _signal_all(self, number: signal.Signals) -> None:
        """Send a signal to the process group, so that worker processes do not survive."""
        if self.alive():
            os.killpg(self.pid, number)

    def _wait(self, timeout: float) -> int:
        code = 0 if self._child is None else self._child.wait(timeout)
        if self in STARTED:
            STARTED.remove(self)
        return code


def _on_host(name: str) -> Sequence[str]:
    """Return a command prefix that runs a program with another host name, which is its name in a Lease."""
    return ("unshare", "--map-root-user", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name)


def free_ports(count: int) -> list[int]:
    """Return distinct free ports of loopback.

    They are outside the range that the kernel gives to client connections, and were not returned lately: a
    server may not listen yet.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = next(_PORTS)
        with suppress(OSError), loopback.listener(port):
            ports.append(port)
    return ports
