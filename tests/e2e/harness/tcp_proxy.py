"""TCP proxy that can cut connections at any byte, and refuse new ones."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from tests.e2e.harness import loopback

CHUNK = 1 << 16


class TcpProxy:
    """Proxy: `with TcpProxy(port) as wire: ...; wire.cut()`. TLS passes unchanged."""

    def __init__(self, target_port: int, listener: socket.socket | None = None) -> None:
        self._target_port = target_port
        self._listener = listener or loopback.listener()
        self._open: set[_Pair] = set()
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
        """Return the API server's address as seen through this proxy."""
        return f"https://{loopback.at(self.port)}"

    def cut(self) -> int:
        """Cut all connections, also of watches, and return their number. New connections are served."""
        with self._lock:
            cut, self._open = self._open, set()
        for pair in cut:
            pair.hang_up()
        return len(cut)

    def cut_after(self, count: int) -> int:
        """Cut each open connection after `count` more bytes to its caller; return their number."""
        with self._lock:
            for pair in self._open:
                pair.cut_after(count)
            return len(self._open)

    def refuse(self) -> None:
        """Cut all connections, and close new ones at once from now on."""
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
        """Connect a caller to the target; close the caller's connection if the target is down."""
        if self._refusing.is_set():
            caller.close()
            return
        try:
            target = self._dial(caller)
        except OSError:
            caller.close()
            return
        pair = _Pair(caller, target, self._forget)
        with self._lock:
            self._open.add(pair)
        pair.start()

    def _dial(self, _caller: socket.socket) -> socket.socket:
        return socket.create_connection((loopback.host(), self._target_port))

    def _forget(self, pair: "_Pair") -> None:
        with self._lock:
            self._open.discard(pair)


class _Pair:
    """Connection: a caller's and the target's socket, closed when both directions have ended."""

    def __init__(
        self, caller: socket.socket, target: socket.socket, on_end: Callable[["_Pair"], None]
    ) -> None:
        self._caller, self._target = caller, target
        self._on_end = on_end
        self._bytes_before_cut: int | None = None  # bytes to the caller before the cut; None: no cut
        self._running = 2  # directions that still pass bytes on
        self._lock = threading.Lock()

    def start(self) -> None:
        for pump in (self._pump_requests, self._pump_answers):
            threading.Thread(target=pump, name="tcp-proxy-pump", daemon=True).start()

    def cut_after(self, count: int) -> None:
        """Cut the connection after `count` more bytes to the caller."""
        self._bytes_before_cut = count

    def hang_up(self) -> None:
        """Unblock the threads that read; they close the sockets."""
        for sock in (self._caller, self._target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _pump_requests(self) -> None:
        with suppress(OSError):
            while data := self._caller.recv(CHUNK):
                self._target.sendall(data)
        self._finish(self._target)

    def _pump_answers(self) -> None:
        with suppress(OSError):
            while self._bytes_before_cut != 0:
                data = self._target.recv(CHUNK)
                if not data:
                    break
                remaining = self._bytes_before_cut
                self._caller.sendall(data[:remaining])
                if remaining is not None:
                    self._bytes_before_cut = max(remaining - len(data), 0)
        if self._bytes_before_cut == 0:
            self.hang_up()
        self._finish(self._caller)

    def _finish(self, sink: socket.socket) -> None:
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        with self._lock:
            self._running -= 1
            last = self._running == 0
        if last:
            self._on_end(self)
            for sock in (self._caller, self._target):
                sock.close()
