"""HTTP proxy that opens tunnels (CONNECT), such as between two networks."""

import socket

from tests.e2e.harness import loopback
from tests.e2e.harness.tcp_proxy import TcpProxy

END = b"\r\n\r\n"
PATIENCE = 5.0  # seconds to receive a CONNECT
NOWHERE = 0


class TunnelProxy(TcpProxy):
    """Proxy for tunnels: `with TunnelProxy() as proxy: proxy.route("kubernetes.example", 6443, port)`.

    It connects an address with a route to a port on loopback, and refuses all others.
    """

    def __init__(self, listener: socket.socket | None = None) -> None:
        super().__init__(NOWHERE, listener)
        self._routes: dict[str, int] = {}
        self.closed = False  # whether it answers all callers with 503
        self.turned_away = 0

    def route(self, address: str, port: int, target: int) -> None:
        self._routes[f"{address}:{port}"] = target

    @property
    def url(self) -> str:
        return f"http://{loopback.at(self.port)}"

    def _dial(self, caller: socket.socket) -> socket.socket:
        caller.settimeout(PATIENCE)
        requested = _address(caller)
        if self.closed:
            self.turned_away += 1
            caller.sendall(b"HTTP/1.1 503 Closed\r\nContent-Length: 0" + END)
            raise ConnectionRefusedError(requested)
        if requested not in self._routes:
            caller.sendall(b"HTTP/1.1 502 No Route" + END)
            raise ConnectionRefusedError(requested)
        target = socket.create_connection((loopback.host(), self._routes[requested]))
        caller.sendall(b"HTTP/1.1 200 OK" + END)
        caller.settimeout(None)
        return target


def _address(caller: socket.socket) -> str:
    """Read `CONNECT ADDRESS:PORT HTTP/1.1` and return the address."""
    head = b""
    while not head.endswith(END):
        if not (piece := caller.recv(4096)):
            raise ConnectionAbortedError("no whole CONNECT")
        head += piece
    return head.split()[1].decode()
