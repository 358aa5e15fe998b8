"""From the bytes of a request to the bytes of its answer: gunicorn's parser and writer around an
application."""

from collections.abc import Mapping, MutableMapping
from ssl import SSLSocket
from typing import Any
from wsgiref.types import WSGIApplication

from gunicorn.config import Config
from gunicorn.http import wsgi
from gunicorn.http.errors import LimitRequestHeaders, LimitRequestLine, ParseException
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from werkzeug.exceptions import (
    BadRequest,
    InternalServerError,
    RequestHeaderFieldsTooLarge,
    RequestURITooLarge,
)

from extender.telemetry.logs import logger
from extender.web.connection import CallerConnection
from extender.web.pages import is_loopback, refuse_pages

# Settings of gunicorn. No proxy is in front of Muster, so headers of proxies have no meaning, and it is not
# checked for each caller whether it may send them.
_NO_PROXIES: Mapping[str, Any] = {
    "forwarder_headers": "",
    "secure_scheme_headers": {},
    "forwarded_allow_ips": "*",
}
_LONGEST_TEXT = 200  # characters of a message about a caller's mistake

log = logger(__name__)


class Exchange:
    """`exchange(connection, request)` returns the answer to one request, and whether another may follow.

    `server` is the address of the port. Raises HTTPException for data that is not a request, or that comes
    from a web page."""

    def __init__(self, app: WSGIApplication, server: tuple[str, int]) -> None:
        self._app = app
        self._server = server
        self._settings = _plain_settings()
        self._local = is_loopback(server[0])
        self.ending = False  # True: every answer closes its connection
        _look_up_once(self._settings)

    def __call__(self, connection: CallerConnection, data: bytes) -> tuple[bytes, bool]:
        request = self._parsed(connection, data)
        outgoing = Outgoing()
        sink: Any = outgoing  # gunicorn calls only `send` and `sendall` of a socket
        response, environ = wsgi.create(request, sink, connection.client, self._server, self._settings)
        checks_host = self._local and not isinstance(connection.sock, SSLSocket)
        refuse_pages(environ.get("HTTP_ORIGIN"), environ.get("HTTP_HOST", "") if checks_host else "")
        self._run(response, environ)
        return bytes(outgoing.data), not response.should_close()

    def _parsed(self, connection: CallerConnection, data: bytes) -> Request:
        """Raises HTTPException."""
        try:
            return next(RequestParser(self._settings, iter((data,)), connection.client))
        except LimitRequestLine as fault:
            raise RequestURITooLarge(_text(fault)) from fault
        except LimitRequestHeaders as fault:
            raise RequestHeaderFieldsTooLarge(_text(fault)) from fault
        except (ParseException, OSError, StopIteration, ValueError) as fault:
            raise BadRequest(_text(fault)) from fault

    def _run(self, response: wsgi.Response, environ: MutableMapping[str, Any]) -> None:
        """Run the application. If it fails, nothing has been sent yet, so the caller still gets an answer."""
        try:
            pieces = self._app(environ, response.start_response)  # type: ignore[arg-type]
            if self.ending:
                response.force_close()
            try:
                for piece in pieces:
                    response.write(piece)
                response.close()
            finally:
                if close := getattr(pieces, "close", None):
                    close()
        except Exception as fault:
            log.exception("an answer failed", path=environ["PATH_INFO"])
            raise InternalServerError("Muster failed to answer; its log says why") from fault


class Outgoing:
    """Collects what would be sent, so that head and body are sent together."""

    def __init__(self) -> None:
        self.data = bytearray()

    def sendall(self, data: bytes) -> None:
        self.data += data

    send = sendall


def _text(fault: Exception) -> str:
    return str(fault)[:_LONGEST_TEXT]


def _plain_settings() -> Config:
    made = Config()
    for name, value in _NO_PROXIES.items():
        made.set(name, value)
    return made


def _look_up_once(cfg: Config) -> None:
    """Store the values of all settings: gunicorn would look up, convert and check each setting whenever it is
    read, dozens of times per request."""
    vars(cfg).update({name: setting.get() for name, setting in cfg.settings.items()})
