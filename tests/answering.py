"""HTTP servers on loopback whose answers a test computes."""

from collections.abc import Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple, Self


class HttpRequest(NamedTuple):
    method: str
    target: str
    headers: Message
    body: bytes


class HttpAnswer(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str] = {}


class Answering(ThreadingHTTPServer):
    """Server that listens from the start and answers within `with`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"127.0.0.1:{self.server_port}"
        self.url = f"http://{self.address}"

    def __enter__(self) -> Self:
        Thread(target=self.serve_forever, args=[0.02], daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def answer(self, request: HttpRequest) -> HttpAnswer:
        raise NotImplementedError


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Answering

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answered = self.server.answer(HttpRequest(self.command, self.path, self.headers, body))
        self.send_response_only(answered.status)
        head = {
            "Date": self.date_time_string(),
            "Content-Length": str(len(answered.body)),
            **answered.headers,
        }
        for name, value in head.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answered.body)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve
