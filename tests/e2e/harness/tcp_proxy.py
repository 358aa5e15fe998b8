"""A wire that can be cut: passes bytes on, until told to drop or refuse connections."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

CHUNK = 1 << 16


class TcpProxy:
    """`with TcpProxy(port) as wire: ...; wire.cut()`. TLS passes through it untouched."""

    def __init__(self, target_port: int, listener: socket.socket | None = None) -> None:
        self._target_port = target_port
        self._listener = listener or socket.create_server(("127.0.0.1", 0), backlog=512)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._refusing = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="tcp-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self._thread.join()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def server(self) -> str:
        """The API server's address as seen through this wire."""
        return f"https://127.0.0.1:{self.port}"

    def cut(self) -> int:
        """Drops all connections, watches among them, and says how many. New ones are served."""
        with self._lock:
            cut, self._open = self._open, set()
        for each in cut:
            _hang_up(each)
        return len(cut) // 2

    def refuse(self) -> None:
        """From now on new connections are closed at once, and those that exist are cut."""
        self._refusing.set()
        self.cut()

    def restore(self) -> None:
        self._refusing.clear()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            self._connect(caller)

    def _connect(self, caller: socket.socket) -> None:
        """A target that is away looks to the caller as it is: the connection ends."""
        if self._refusing.is_set():
            caller.close()
            return
        try:
            target = self._dial(caller)
        except OSError:
            caller.close()
            return
        with self._lock:
            self._open |= {caller, target}
        _Pair(caller, target, self._forget).start()

    def _dial(self, _caller: socket.socket) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._target_port))

    def _forget(self, ended: set[socket.socket]) -> None:
        with self._lock:
            self._open -= ended


class _Pair:
    """Both directions of one connection. Each end is closed once, when both directions have ended."""

    def __init__(
        self, caller: socket.socket, target: socket.socket, ended: Callable[[set[socket.socket]], None]
    ) -> None:
        self._sockets = (caller, target)
        self._ended = ended
        self._running = 2
        self._lock = threading.Lock()

    def start(self) -> None:
        for source, sink in (self._sockets, self._sockets[::-1]):
            threading.Thread(
                target=self._pump, args=(source, sink), name="tcp-proxy-pump", daemon=True
            ).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        self._finish()

    def _finish(self) -> None:
        with self._lock:
            self._running -= 1
            last = self._running == 0
        if last:
            self._ended(set(self._sockets))
            for each in self._sockets:
                each.close()


def _hang_up(open_socket: socket.socket) -> None:
    """Wakes the threads that read from it; they close it."""
    with suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)
