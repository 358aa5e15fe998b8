"""Target of the fuzzing: the ports of a running Muster, and the visible state of its processes."""

import json
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 30.0  # seconds; the longest wait that Muster promises is shorter
PAGE = 4096


def secret_of(kubeconfig: Path) -> str:
    """Return the secret in the kubeconfig that Muster writes for its scheduler."""
    server: str = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    return server.rpartition("/")[2]


@dataclass(frozen=True)
class Target:
    """Running Muster.

    `ports` by name: verbs, health, debug, webhooks, view. `pid`: of the process that started all others.
    `secret`: the first segment of the proxy's paths, where there is one.
    """

    ports: dict[str, int]
    pid: int
    secret: str = ""

    def connect(self, port: str, *, secure: bool) -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", self.ports[port]), timeout=PATIENCE)
        if not secure:
            return plain
        context = ssl._create_unverified_context()
        try:
            return context.wrap_socket(plain)
        except BaseException:
            plain.close()
            raise

    def threads(self) -> int:
        return sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in self._processes())

    def megabytes(self) -> float:
        """Return the resident set."""
        pages = (int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._processes())
        return sum(pages) * PAGE / 2**20

    def _processes(self) -> list[int]:
        pids = [self.pid]
        for pid in pids:
            children = Path(f"/proc/{pid}/task").glob("*/children")
            pids += [int(child) for file in children for child in file.read_text().split()]
        return pids
