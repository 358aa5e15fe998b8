"""Port of the API server: HTTP/1.1 on loopback, with one thread for each connection and no credentials.

This module is the transport. routes.py has the meaning of requests, service.py has their effect.
"""

import json
import select
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import yaml

from extender.apimachinery.errors import StatusError, bad_request, unsupported
from extender.apimachinery.field_schemas import OPENAPI_PATH, openapi_document
from extender.apimachinery.kinds import Json, discovery_document
from extender.apimachinery.objects import ObjectLoader
from extender.apimachinery.patches import Patch
from extender.apimachinery.service import Service
from extender.kube.decoding import prepare_structs
from extender.sim.apiserver import protobuf
from extender.sim.apiserver.requests import Request, target_of
from extender.sim.apiserver.routes import Watch, answer, encode
from extender.sim.apiserver.tables import accepts_table, table


def parse_body(raw: bytes, content_type: str) -> Any:
    """Return the object in a body.

    Raises:
        StatusError: 400 if the body is malformed, 415 if its media type is unknown.
    """
    media_type = content_type.partition(";")[0].strip() or "application/json"
    if media_type == "application/vnd.kubernetes.protobuf":
        return protobuf.decode_body(raw)
    is_yaml = media_type in ("application/yaml", "application/apply-patch+yaml")
    if not is_yaml and media_type != "application/json" and not media_type.endswith("+json"):
        raise unsupported()
    try:  # most YAML bodies are JSON, which decodes a hundred times as fast
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        if not is_yaml:
            raise bad_request(f"the body is not JSON: {fault}") from fault
    try:
        return yaml.load(raw, ObjectLoader)
    except yaml.YAMLError as fault:
        raise bad_request(f"error decoding YAML: {fault}") from fault


class ApiServer:
    """Server of `service`, from `start` to `stop`, on `listener` or on a free port of loopback."""

    def __init__(self, service: Service, listener: socket.socket | None = None) -> None:
        prepare_structs()
        self._service = service
        self._http = _Http(service, listener or socket.create_server(("127.0.0.1", 0)))
        self._thread = threading.Thread(target=self._http.serve_forever, args=[0.02], daemon=True)

    @property
    def url(self) -> str:
        host, port = self._http.socket.getsockname()[:2]
        return f"http://{host}:{port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._service.store.close()
        self._http.shutdown()
        self._http.server_close()

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig. It is JSON, which is valid YAML."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "muster", "cluster": {"server": self.url}}],
            "users": [{"name": "you", "user": {}}],
            "contexts": [{"name": "muster", "context": {"cluster": "muster", "user": "you"}}],
            "current-context": "muster",
        }
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


class _Http(ThreadingHTTPServer):
    def __init__(self, service: Service, listener: socket.socket) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.service = service

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of clients that hang up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body are sent in one packet
    server: _Http

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def _handle(self) -> None:
        try:
            self._serve()
        except StatusError as refusal:
            self._send(refusal.code, refusal.status())
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as fault:  # malformed
            self._send(400, bad_request(f"{type(fault).__name__}: {fault}").status())

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

    def _serve(self) -> None:
        url = urlsplit(self.path)
        path, raw = unquote(url.path), self._body()
        if path in ("/livez", "/readyz", "/healthz"):
            return self._write(200, b"ok", "text/plain")
        read = openapi_document if path.startswith(OPENAPI_PATH) else discovery_document
        document = read(path.rstrip("/")) if self.command == "GET" else None
        if document is not None:
            return self._send(200, document)
        query = dict(parse_qsl(url.query))
        form, agent = (self.headers.get(name, "") for name in ("Content-Type", "User-Agent"))
        target = target_of(path)  # precedes the body, so that an unknown kind is reported first
        request = Request(self.command, target, query, form, parse_body(raw, form) if raw else None, agent)
        if self.command == "GET" and query.get("watch") in ("true", "1"):
            return self._stream(request)
        code, obj = answer(self.server.service, request)
        self._send(code, self._shape(request)(obj) if self.command == "GET" else obj)

    def _body(self) -> bytes:
        """Return the body of the request.

        Raises:
            ValueError: A length in the request is invalid.
        """
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            former_close, self.close_connection = self.close_connection, True  # close after a malformed body
            body = bytearray()
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            self.close_connection = former_close
            return bytes(body)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(self, code: int, body: Json) -> None:
        self._write(code, encode(body), "application/json")

    def _write(self, code: int, body: bytes, content_type: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _stream(self, request: Request) -> None:
        target, shape = request.target, self._shape(request)
        if target.name:  # watch an object by a selector on its collection
            request.query["fieldSelector"] = f"metadata.name={target.name}"
        watch = Watch(self.server.service.store, target, request.query, self._is_listening, shape)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for piece in filter(None, watch.lines()):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _shape(self, request: Request) -> Patch:
        """Return the conversion of an object to the form that the client accepts: unchanged, or a Table."""
        if not accepts_table(self.headers.get("Accept", "")):
            return lambda obj: obj
        kind, include = request.target.kind, request.query.get("includeObject", "")
        return lambda obj: table(kind, obj, include)

    def _is_listening(self) -> bool:
        """Return whether a watching client is still connected. It sends no data until it hangs up."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        return not poll.poll(0)
