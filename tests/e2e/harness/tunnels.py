"""HTTP proxy that opens tunnels (CONNECT), as between two networks."""

import socket

from tests.e2e.harness import loopback
from tests.e2e.harness.tcp_proxy import TcpProxy

END = b"\r\n\r\n"
PATIENCE = 5.0  # seconds in which a caller must send its CONNECT
NOWHERE = 0


class TunnelProxy(TcpProxy):
    """HTTP proxy for tunnels.

    Example: `with TunnelProxy() as proxy: proxy.route("kubernetes.example", 6443, port)`. The proxy connects
    an address that has a route to a port on loopback, and refuses all other addresses.
    """

    def __init__(self, listener: socket.socket | None = None) -> None:
        super().__init__(NOWHERE, listener)
        self._routes: dict[str, int] = {}
        self.closed = False  # whether the proxy answers all callers with 503
        self.turned_away = 0

    def route(self, address: str, port: int, target: int) -> None:
        """Connect callers of this address and port to the loopback port `target`."""
        self._routes[f"{address}:{port}"] = target

    @property
    def url(self) -> str:
        return f"http://{loopback.at(self.port)}"

    def _dial(self, caller: socket.socket) -> socket.socket:
        """Connect a caller to the port that its CONNECT requests.

        Raise ConnectionRefusedError without a route.
        """
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
    """Read `CONNECT ADDRESS:PORT HTTP/1.1` from a caller, and return the address with the port."""
    head = b""
    while not head.endswith(END):
        if not (piece := caller.recv(4096)):
            raise ConnectionAbortedError("no whole CONNECT")
        head += piece
    return head.split()[1].decode()
