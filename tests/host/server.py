"""API server with the objects of a test, and with the events that the test sends."""

import json
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

PATIENCE = 10.0  # seconds


class ApiServer:
    """`with ApiServer() as api:`. `objects`: the items of lists, by plural. `send` adds an event to a watch.

    `served`: the plurals in discovery, by group and version, of API groups that a cluster may lack.
    """

    def __init__(self) -> None:
        self.objects: defaultdict[str, list[Any]] = defaultdict(list)
        self.served: dict[str, list[str]] = {"bus.volcano.sh/v1alpha1": ["commands"]}
        self.listed: list[str] = []  # plurals in the order of their lists
        self.open = threading.Event()  # while set, lists are answered
        self.open.set()
        self._closing = False
        self._watches: defaultdict[str, SimpleQueue[bytes | None]] = defaultdict(SimpleQueue)
        self._changed = threading.Condition()
        self._http = _Listener(self)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    def __enter__(self) -> "ApiServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()
        self._closing = True
        for plural, watch in list(self._watches.items()):
            for _watch in range(max(1, self.listed.count(plural))):  # several kinds may have one plural
                watch.put(None)
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def send(self, plural: str, kind: str, obj: Any) -> None:
        event = {"type": kind, "object": _versioned(obj, "2")}
        self._watches[plural].put(json.dumps(event).encode() + b"\n")

    def record(self, plural: str) -> None:
        with self._changed:
            self.listed.append(plural)
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition on `listed`."""
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE), self.listed

    def page(self, plural: str) -> bytes:
        items = [_versioned(obj, "1") for obj in self.objects[plural]]
        return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()

    def watch(self, plural: str) -> "SimpleQueue[bytes | None]":
        """Return the queue of lines of a watch; None ends the watch."""
        watch = self._watches[plural]
        if self._closing:
            watch.put(None)
        return watch


def _versioned(obj: Any, version: str) -> Any:
    plain = msgspec.to_builtins(obj)
    return {**plain, "metadata": {**plain["metadata"], "resourceVersion": version}}


class _Listener(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, api: ApiServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def handle(self) -> None:
        with suppress(OSError):  # a client that is stopped hangs up
            super().handle()

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        group, _, plural = url.path.rpartition("/")
        if url.path == "/api/v1" or (group.count("/") == 2 and group.startswith("/apis")):
            self._discover(url.path.removeprefix("/apis/"))
        elif "watch" in parse_qs(url.query):
            self._watch(plural)
        else:
            self._list(plural)

    def _discover(self, group: str) -> None:
        served = self.server.api.served.get(group)
        body = json.dumps({"resources": [{"name": plural} for plural in served or ()]}).encode()
        self.send_response(404 if served is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _list(self, plural: str) -> None:
        api = self.server.api
        api.record(plural)
        assert api.open.wait(PATIENCE)
        body = api.page(plural)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self, plural: str) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        watch = self.server.api.watch(plural)
        while line := watch.get():
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass
