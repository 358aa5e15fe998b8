"""Side ports next to the port for the verbs: health, debug, webhooks.

Side ports have to answer even if the port for the verbs does not answer. Each side port therefore has its own
event loop, which reads and writes, and its own threads, in which handlers can wait.

Probes and metrics are as in Kubernetes' own components. /livez says whether this process works; it ignores
faults of the API server. /readyz says whether callers should use this process. Both accept ?verbose and
?exclude=NAME.
"""

import asyncio
import io
import socket
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Thread
from typing import Any
from urllib.parse import unquote_to_bytes
from wsgiref.types import WSGIApplication

from aiohttp import web
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder
from werkzeug.exceptions import BadRequest, MethodNotAllowed, NotFound
from werkzeug.wrappers import Response

from extender.api.setting_kinds import Address
from extender.ports.connection import CallerConnection
from extender.ports.connections import ConnectionLimits, TurnsByAddress
from extender.ports.port import ReadTlsContext, ServedPort
from extender.telemetry.logs import logger
from extender.web.sockets import Identity
from extender.webhooks.reviews import Malformed, Reviewer

LIMITS = ConnectionLimits(max_connections=128, max_body=64 * 1024, max_unread=64 * 1024 * 1024)
_THREAD_COUNT = 4
MAX_REVIEW_BYTES = 40 * 1024 * 1024  # an old and a new object of 3 MiB each, with all characters escaped
# An API server opens a connection for each concurrent review.
REVIEW_LIMITS = ConnectionLimits(2048, MAX_REVIEW_BYTES, 2 * MAX_REVIEW_BYTES, max_per_address=1024)
_REVIEW_THREAD_COUNT = 64
_JSON_HEADERS = {"Content-Type": "application/json", "Server": "muster"}
_STOP_GRACE = 2.0  # seconds to finish answers at a stop

log = logger(__name__)

App = Callable[[web.BaseRequest, bytes], web.Response]  # gets request and body; raises HTTPException
ImmediateAnswer = Callable[[web.BaseRequest], web.Response | None]  # answers without a thread


class SideServer:
    """Server of a side port. It serves `app` on `listener` as soon as it is created, in several threads.

    Args:
        thread_count: Number of concurrent requests.
        allows_web_pages: Whether the app itself checks requests of web pages.
        immediate_answer: Returns an answer that needs no thread; None means that `app` answers.
    """

    def __init__(
        self,
        name: str,
        listener: socket.socket,
        app: App,
        limits: ConnectionLimits = LIMITS,
        thread_count: int = _THREAD_COUNT,
        secure: ReadTlsContext | None = None,
        allows_web_pages: bool = False,
        immediate_answer: ImmediateAnswer = lambda _: None,
    ) -> None:
        self.address = Address(*listener.getsockname()[:2])
        self._app, self._immediate_answer = app, immediate_answer
        self._turns = TurnsByAddress(thread_count)
        self._pool = ThreadPoolExecutor(thread_count, name)
        self._end_event = asyncio.Event()
        self._loop = asyncio.new_event_loop()

        async def serve() -> None:
            port = ServedPort(name, listener, limits, self._answer, secure, allows_web_pages=allows_web_pages)
            await self._end_event.wait()
            await port.stop(_STOP_GRACE)
            self._pool.shutdown(wait=False, cancel_futures=True)

        def run() -> None:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(serve())

        self._thread = Thread(target=run, name=name, daemon=True)
        self._thread.start()
        log.info("serving", name=name, listen=str(self.address))

    def stop(self) -> None:
        """Accept no new connections, and finish the answers to complete requests."""
        self._call(self._end_event.set)
        self._thread.join(2 * _STOP_GRACE)

    async def _answer(self, request: web.BaseRequest, connection: CallerConnection) -> web.Response:
        """Answer a request. It counts as concurrent until its thread is free, even if the caller hangs up."""
        body = await connection.body(request)
        immediate_answer = self._immediate_answer(request)
        if immediate_answer is not None:
            connection.serve()
            return immediate_answer
        await self._turns.acquire(connection.address)
        connection.serve()
        answer = self._pool.submit(self._app, request, body)
        answer.add_done_callback(lambda _: self._call(self._turns.release))
        try:
            return await asyncio.wrap_future(answer)
        finally:
            del answer, body  # breaks a reference cycle with the frame of an exception

    def _call(self, callback: Callable[[], None]) -> None:
        """Call a function in the event loop, if the loop still runs."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(callback)


def pages(app: WSGIApplication) -> App:
    """Return a WSGI application, for example of Flask, as an application of a side port for browsers."""

    def answer(request: web.BaseRequest, body: bytes) -> web.Response:
        try:  # with an invalid Host, the application would find no page
            request.host.lower().encode("idna")
        except UnicodeError as fault:
            raise BadRequest("Host: there is no such name") from fault
        page = Response.from_app(app, _environ(request, body), buffered=True)
        headers = [*page.headers.items(), ("Server", "muster")]
        return web.Response(body=page.get_data(), status=page.status_code, headers=headers)

    return answer


def _environ(request: web.BaseRequest, body: bytes) -> dict[str, Any]:
    """Return the environment of PEP 3333, in which texts are bytes decoded as latin-1.

    Headers with an underscore in their name are left out, since their names are ambiguous there. Values of
    repeated headers are joined.
    """
    headers = {
        f"HTTP_{name.upper().replace('-', '_')}": _as_latin(
            ("; " if name.lower() == "cookie" else ", ").join(request.headers.getall(name))
        )
        for name in request.headers
        if "_" not in name
    }
    host, port = request.transport.get_extra_info("sockname")[:2] if request.transport else ("", 0)
    return {
        **headers,
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(request.rel_url.raw_path).decode("latin-1"),
        "QUERY_STRING": _as_latin(request.rel_url.raw_query_string),
        "CONTENT_TYPE": headers.get("HTTP_CONTENT_TYPE", ""),
        "CONTENT_LENGTH": str(len(body)),
        "REQUEST_URI": _as_latin(request.raw_path),
        "REMOTE_ADDR": request.remote or "",
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": f"HTTP/{request.version.major}.{request.version.minor}",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": request.scheme,
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }


def _as_latin(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


class WebhookServer(SideServer):
    """Server of AdmissionReviews over TLS. Before the first certificate, connections are closed.

    The API server sends thousands of small reviews over few connections, and each review may in turn wait for
    the API server. So there are more threads than for other ports.
    """

    def __init__(
        self,
        listener: socket.socket,
        reviews: Reviewer,
        identity: Identity,
        limits: ConnectionLimits = REVIEW_LIMITS,
    ) -> None:
        def answer(request: web.BaseRequest, body: bytes) -> web.Response:
            if request.method != "POST":
                raise MethodNotAllowed(["POST"], "must be POST")
            if request.path not in reviews.paths:
                raise NotFound(f"paths: {', '.join(sorted(reviews.paths))}")
            try:
                return web.Response(body=reviews.answer(request.path, body), headers=_JSON_HEADERS)
            except Malformed as fault:
                raise BadRequest(str(fault)) from fault

        super().__init__("webhooks", listener, answer, limits, _REVIEW_THREAD_COUNT, lambda: identity.context)


_METHODS = ("GET", "HEAD", "OPTIONS")
Check = Callable[[], str | None]  # returns why the check fails, or None
ReadyLine = Callable[[], str]  # returns a line for verbose answers


class HealthApp:
    """Application of the health port.

    /readyz runs the checks in `ready_checks` and `live_checks`, and shows `ready_lines`.
    """

    def __init__(
        self,
        live_checks: Mapping[str, Check],
        ready_checks: Mapping[str, Check],
        registry: CollectorRegistry = REGISTRY,
        ready_lines: Mapping[str, ReadyLine] | None = None,
    ) -> None:
        self._live_checks, self._ready_checks = live_checks, {**live_checks, **ready_checks}
        self._registry = registry
        self._ready_lines = ready_lines or {}

    def __call__(self, request: web.BaseRequest, body: bytes) -> web.Response:
        """Answer a request.

        Raises:
            HTTPException: The request is refused.
        """
        path = "/" + request.path.lstrip("/")
        if path not in ("/livez", "/healthz", "/readyz", "/metrics"):
            raise NotFound("Allowed are /livez, /healthz, /readyz and /metrics")
        if request.method == "OPTIONS":
            return web.Response(headers={"Allow": ", ".join(_METHODS), "Server": "muster"})
        if request.method not in _METHODS:
            raise MethodNotAllowed(_METHODS)
        if path == "/metrics":
            encode, content_type = choose_encoder(request.headers.get("Accept", ""))
            return _answer(encode(self._registry), content_type)
        if path == "/readyz":
            return self._probe(request, self._ready_checks, self._ready_lines)
        return self._probe(request, self._live_checks, {})

    def _probe(
        self, request: web.BaseRequest, checks: Mapping[str, Check], ready_lines: Mapping[str, ReadyLine]
    ) -> web.Response:
        """Run the checks, except excluded checks, and answer with 200 or 500."""
        excluded = set(request.query.getall("exclude", []))
        lines, is_healthy = [], True
        for name, check in checks.items():
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
                continue
            try:
                reason = check()
            except Exception as fault:
                log.exception("a health check failed to answer", check=name)
                reason = f"the check itself failed with {type(fault).__name__}"
            is_healthy = is_healthy and not reason
            lines.append(f"[-]{name} failed: {reason}" if reason else f"[+]{name} ok")
        if is_healthy and "verbose" not in request.query:
            return _answer(b"ok")
        lines += [f"[+]{name} ok: {report()}" for name, report in ready_lines.items()]
        if unknown_checks := excluded - checks.keys():
            lines.append(f"warn: no such checks to exclude: {', '.join(sorted(unknown_checks))}")
        verdict = f"{request.path.lstrip('/')} check {'passed' if is_healthy else 'failed'}"
        text = "\n".join((*lines, verdict, ""))
        return _answer(text.encode(errors="replace"), status=200 if is_healthy else 500)


def _answer(body: bytes, content_type: str = "text/plain; charset=utf-8", status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, headers={"Content-Type": content_type, "Server": "muster"})
