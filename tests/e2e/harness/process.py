"""Child process with a log file.

`send` and `stop` signal only the child. `kill`, `freeze` and `thaw` signal the process group of the child.
Wrapper programs keep the process id, since each program replaces itself by the next program.
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
# Each worker of pytest-xdist has its own ports, so that no worker takes a port while its server restarts.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
OUR_PORTS = range(10_000, 32_000)[WORKER::WORKERS]
_PORTS = cycle(random.sample(OUR_PORTS, len(OUR_PORTS)))
STARTED: list["Process"] = []


class Process:
    """Program that can be restarted with the same arguments, ports and data."""

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
        self._host_prefix = _host_name_prefix(host) if host else ()
        self.wrapper: Sequence[str] = ()
        # Python may write bytecode, so that later starts of a program need not compile again.
        common_env = {"NO_PROXY": "127.0.0.1,::1,localhost", "PYTHONDONTWRITEBYTECODE": ""}
        self._env = {**os.environ, **common_env, **(env or {})}
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._child is not None, f"{self.name} was never started"
        return self._child.pid

    def start(self, wrapper: Sequence[str] = ()) -> None:
        """Start the program. `wrapper` is the command of a wrapper program, for this start only."""
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
        """Stop the program by SIGTERM, and return its exit code.

        After `timeout` seconds, kill the program and raise AssertionError.
        """
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
        """Restart the program. With `hard`, the program is killed instead of stopped."""
        if hard:
            self.kill()
        else:
            self.stop()
        self.start()

    def send(self, number: signal.Signals) -> None:
        if self.alive():
            os.kill(self.pid, number)

    def freeze(self) -> None:
        """Freeze the program and its children by SIGSTOP, as on a machine that hangs."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen program continue."""
        self._signal_all(signal.SIGCONT)

    def exit_code(self) -> int:
        """Wait until the program ends by itself, and return its exit code."""
        return self._wait(LONGEST_STOP)

    def tail(self, lines: int = 60) -> str:
        """Return the last lines of the log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def require_alive(self) -> None:
        """Raise RuntimeError with the end of the log if the program has ended.

        A test that waits for the program then does not wait in vain.
        """
        code = self._child.poll() if self._child else None
        if code is not None:
            raise RuntimeError(f"{self.name} ended with {code}:\n{self.tail(20)}")

    def _signal_all(self, number: signal.Signals) -> None:
        """Send a signal to the process group, so that it reaches worker processes, too."""
        if self.alive():
            os.killpg(self.pid, number)

    def _wait(self, timeout: float) -> int:
        """Wait for the end of the program, and return its exit code.

        A program that never started has the code 0.
        """
        code = 0 if self._child is None else self._child.wait(timeout)
        if self in STARTED:
            STARTED.remove(self)
        return code


def _host_name_prefix(name: str) -> Sequence[str]:
    """Return a command prefix that changes the host name for a program.

    Leases show the host name as the holder.
    """
    return ("unshare", "--map-root-user", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name)


def free_ports(count: int) -> list[int]:
    """Return distinct free ports of loopback.

    The ports are outside the range from which the kernel takes ports for client connections. No port is
    returned again soon, since the server of a returned port may not listen yet.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = next(_PORTS)
        with suppress(OSError), loopback.listener(port):
            ports.append(port)
    return ports
