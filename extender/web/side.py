"""The health and debug ports: each served by threads of its own.

They must answer when the verbs' port cannot: with all its threads held, while it starts, while it ends. So
they share nothing with it, not even the server: werkzeug's, which needs no process of its own. Few clients
call here, and one that falls silent is dropped.
"""

import socket
from threading import Thread
from typing import Any
from wsgiref.types import WSGIApplication

from werkzeug.serving import WSGIRequestHandler, make_server

from extender.api.configuration import Address
from extender.telemetry.logs import logger

log = logger(__name__)


class _Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds that an idle connection may keep its thread

    def log(self, type: str, message: str, *args: Any) -> None:
        log.debug("side request", kind=type, request=message % args)


class SideServer:
    """Serves `app` on `listener` from now on."""

    def __init__(self, name: str, listener: socket.socket, app: WSGIApplication) -> None:
        host, port, *_ = listener.getsockname()
        self.address = Address(host, port)
        with listener:
            self._server = make_server(
                host, port, app, threaded=True, request_handler=_Handler, fd=listener.fileno()
            )
        self._thread = Thread(target=self._server.serve_forever, name=name, daemon=True)
        self._thread.start()
        log.info("serving aside", name=name, listen=str(self.address))

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
