"""From the bytes of a request to the bytes of its answer: gunicorn's parser and writer around an application.

What a web browser sends is answered with 403: no page has business here. An Origin says that a page asks; on
loopback the name of a host says so, too, for a page may give its own name the address 127.0.0.1. Over TLS it
need not be looked at: no page gets past a certificate for another name.
"""

from collections.abc import Mapping, MutableMapping
from ipaddress import ip_address
from ssl import SSLSocket
from typing import Any
from urllib.parse import urlsplit
from wsgiref.types import WSGIApplication

from gunicorn.config import Config
from gunicorn.http import wsgi
from gunicorn.http.errors import LimitRequestHeaders, LimitRequestLine, ParseException
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from werkzeug.exceptions import (
    BadRequest,
    Forbidden,
    InternalServerError,
    RequestHeaderFieldsTooLarge,
    RequestURITooLarge,
)

from extender.telemetry.logs import logger
from extender.web.connection import CallerConnection

NO_PROXIES: Mapping[str, Any] = {  # settings of gunicorn's
    "forwarder_headers": "",  # no proxy stands before us: such headers mean nothing,
    "secure_scheme_headers": {},
    "forwarded_allow_ips": "*",  # and it is not asked of each caller whether it may send them
}
_MOST_WORDS = 200  # of what a caller is told of its own mistake

log = logger(__name__)


class Exchange:
    """`exchange(connection, request)` is the answer to one request, and whether another may follow.

    `server` is the address of the port. Raises HTTPException for what is no request, or is none of ours."""

    def __init__(self, app: WSGIApplication, server: tuple[str, int], settings: Config | None = None) -> None:
        self._app = app
        self._server = server
        self._settings = settings or _plain_settings()
        self._local = _is_loopback(server[0])
        self.ending = False  # true: answers say that the connection ends with them
        _look_up_once(self._settings)

    def __call__(self, connection: CallerConnection, data: bytes) -> tuple[bytes, bool]:
        request = self._parsed(connection, data)
        outgoing = Outgoing()
        sink: Any = outgoing  # of a socket only `send` and `sendall` are asked
        response, environ = wsgi.create(request, sink, connection.client, self._server, self._settings)
        environ["gunicorn.socket"] = connection.sock
        self._refuse_browsers(environ, secure=isinstance(connection.sock, SSLSocket))
        self._run(response, environ)
        return bytes(outgoing.data), not response.should_close()

    def _parsed(self, connection: CallerConnection, data: bytes) -> Request:
        """Raises HTTPException."""
        try:
            return next(RequestParser(self._settings, iter((data,)), connection.client))
        except LimitRequestLine as fault:
            raise RequestURITooLarge(_words(fault)) from fault
        except LimitRequestHeaders as fault:
            raise RequestHeaderFieldsTooLarge(_words(fault)) from fault
        except (ParseException, OSError, StopIteration, ValueError) as fault:
            raise BadRequest(_words(fault)) from fault

    def _refuse_browsers(self, environ: MutableMapping[str, Any], secure: bool) -> None:
        if "HTTP_ORIGIN" in environ:
            raise Forbidden("Pages of the web are not answered, and this request has an Origin")
        host = environ.get("HTTP_HOST", "")
        if self._local and not secure and host and not _is_loopback(_name_of(host)):
            raise Forbidden("This port is called by an address of loopback, or as localhost")

    def _run(self, response: wsgi.Response, environ: MutableMapping[str, Any]) -> None:
        """Nothing has been sent when the application fails, so its caller still gets an answer."""
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
    """Gathers what would be sent, so that head and body leave together."""

    def __init__(self) -> None:
        self.data = bytearray()

    def sendall(self, data: bytes) -> None:
        self.data += data

    send = sendall


def _words(fault: Exception) -> str:
    return str(fault)[:_MOST_WORDS]


def _name_of(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _plain_settings() -> Config:
    made = Config()
    for name, value in NO_PROXIES.items():
        made.set(name, value)
    return made


def _look_up_once(cfg: Config) -> None:
    """A setting is looked up, converted and checked each time it is read, dozens of times a request."""
    vars(cfg).update({name: setting.get() for name, setting in cfg.settings.items()})
