"""TCP proxy that can cut connections after any byte, and can refuse new connections."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from tests.e2e.harness import loopback

CHUNK = 1 << 16


class TcpProxy:
    """TCP proxy: `with TcpProxy(port) as wire: ...; wire.cut()`. TLS passes through unchanged."""

    def __init__(self, target_port: int, listener: socket.socket | None = None) -> None:
        self._target_port = target_port
        self._listener = listener or loopback.listener()
        self._open_pairs: set[_Pair] = set()
        self._lock = threading.Lock()
        self._is_refusing = threading.Event()
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="tcp-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
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
        """Return the address of the API server as a client of this proxy sees it."""
        return f"https://{loopback.at(self.port)}"

    def cut(self) -> int:
        """Cut all connections, also those of watches, and return their number.

        New connections are accepted.
        """
        with self._lock:
            cut_pairs, self._open_pairs = self._open_pairs, set()
        for pair in cut_pairs:
            pair.hang_up()
        return len(cut_pairs)

    def cut_after(self, count: int) -> int:
        """Cut each open connection after `count` more bytes to the caller.

        Return the number of connections.
        """
        with self._lock:
            for pair in self._open_pairs:
                pair.cut_after(count)
            return len(self._open_pairs)

    def refuse(self) -> None:
        """Cut all connections, and from now on close new connections at once."""
        self._is_refusing.set()
        self.cut()

    def restore(self) -> None:
        """Accept new connections again."""
        self._is_refusing.clear()

    def _accept(self) -> None:
        while not self._has_ended.is_set():
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            self._connect(caller)

    def _connect(self, caller: socket.socket) -> None:
        """Connect a caller to the target.

        Close the caller's connection if the target is down or the proxy refuses.
        """
        if self._is_refusing.is_set():
            caller.close()
            return
        try:
            target = self._dial(caller)
        except OSError:
            caller.close()
            return
        pair = _Pair(caller, target, self._forget)
        with self._lock:
            self._open_pairs.add(pair)
        pair.start()

    def _dial(self, _caller: socket.socket) -> socket.socket:
        """Return a new connection to the target."""
        return socket.create_connection((loopback.host(), self._target_port))

    def _forget(self, pair: "_Pair") -> None:
        with self._lock:
            self._open_pairs.discard(pair)


class _Pair:
    """Connection of a caller to the target: two sockets, which are closed when both directions have ended."""

    def __init__(
        self, caller: socket.socket, target: socket.socket, on_end: Callable[["_Pair"], None]
    ) -> None:
        self._caller, self._target = caller, target
        self._on_end = on_end
        # bytes that the caller still gets before the cut, or None without a cut
        self._bytes_before_cut: int | None = None
        self._open_directions = 2  # number of directions that still pass bytes on
        self._lock = threading.Lock()

    def start(self) -> None:
        for pump in (self._pump_requests, self._pump_answers):
            threading.Thread(target=pump, name="tcp-proxy-pump", daemon=True).start()

    def cut_after(self, count: int) -> None:
        """Cut the connection after `count` more bytes to the caller."""
        self._bytes_before_cut = count

    def hang_up(self) -> None:
        """Shut both sockets down, so that the reading threads wake up and close the sockets."""
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
        """End one direction of the connection. Close both sockets when both directions have ended."""
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        with self._lock:
            self._open_directions -= 1
            is_last = self._open_directions == 0
        if is_last:
            self._on_end(self)
            for sock in (self._caller, self._target):
                sock.close()
