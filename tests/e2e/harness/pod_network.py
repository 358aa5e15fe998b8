"""The addresses of pods and services, as an API server reaches them: here nothing has such an address.

The API server is told to reach the cluster through a proxy, as with konnectivity, and this is that proxy: an
address that has a route leads to a port on loopback, any other to nobody.
"""

import json
import shutil
import socket
import tempfile
from pathlib import Path

from tests.e2e.harness.tcp_proxy import TcpProxy

END = b"\r\n\r\n"
PATIENCE = 5.0  # seconds for the few words of a CONNECT
NOWHERE = 0


class PodNetwork(TcpProxy):
    """`with PodNetwork() as pods: pods.route("10.1.0.7", 8282, muster_port)`."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="muster-pods-"))
        # Over TCP an API server would want TLS.
        self._socket = self._folder / "socket"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._socket))
        listener.listen()
        super().__init__(NOWHERE, listener)
        self._routes: dict[str, int] = {}

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        shutil.rmtree(self._folder)

    def route(self, address: str, port: int, to: int) -> None:
        self._routes[f"{address}:{port}"] = to

    def flags(self) -> list[str]:
        """What an API server is told."""
        transport = {"uds": {"udsName": str(self._socket)}}
        config = {
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [
                {"name": "cluster", "connection": {"proxyProtocol": "HTTPConnect", "transport": transport}}
            ],
        }
        path = self._folder / "egress.yaml"
        path.write_text(json.dumps(config))
        return [f"--egress-selector-config-file={path}"]

    def _dial(self, caller: socket.socket) -> socket.socket:
        caller.settimeout(PATIENCE)
        wanted = _address(caller)
        if wanted not in self._routes:
            caller.sendall(b"HTTP/1.1 502 Nobody there" + END)
            raise ConnectionRefusedError(wanted)
        target = socket.create_connection(("127.0.0.1", self._routes[wanted]))
        caller.sendall(b"HTTP/1.1 200 OK" + END)
        caller.settimeout(None)
        return target


def _address(caller: socket.socket) -> str:
    """Of `CONNECT ADDRESS:PORT HTTP/1.1`. Nothing follows it before it was answered."""
    head = b""
    while not head.endswith(END):
        if not (more := caller.recv(4096)):
            raise ConnectionAbortedError("no whole CONNECT")
        head += more
    return head.split()[1].decode()
