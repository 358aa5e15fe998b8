"""The view's port: one event loop in one thread, on a socket that is listening already.

The socket is opened before the worker process is forked, and the parent keeps it: connections made while a
worker restarts wait in its backlog instead of being refused.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from threading import Thread

from aiohttp import web
from werkzeug.exceptions import HTTPException

from extender.api.setting_kinds import Address
from extender.kube.endpoint import ApiEndpoint
from extender.ports.connection import CallerConnection
from extender.ports.connections import NEVER, ConnectionLimits, Patience
from extender.ports.port import ServedPort
from extender.telemetry import metrics
from extender.telemetry.logs import logger
from extender.view.relay import Handlers, Relay
from extender.view.target import refusal
from extender.view.upstream import LARGEST, Upstream

# A scheduler has about fifty connections. Selectors and continue tokens make the heads of its requests long.
# Watches last, and how long a body may take is the matter of the relay, which passes it on as it comes.
LIMITS = ConnectionLimits(
    connections=256,
    body=LARGEST,
    unread=64 * 1024 * 1024,
    patience=Patience(head=10.0, body=NEVER, answer=NEVER),
    head=1024 * 1024,
    line=64 * 1024,
    field=16 * 1024,
    fields=64,
)
_LAST_ANSWERS = 0.2  # seconds to finish requests when stopping; streams end then
_STOPPED = 2.0  # seconds until the thread is left alone

log = logger(__name__)


class ViewServer:
    """Serves from its creation on. `handlers` is called in the loop."""

    def __init__(
        self,
        listener: socket.socket,
        endpoint: ApiEndpoint,
        secret: str,
        handlers: Callable[[Upstream], Handlers] = lambda _: Handlers(),
        limits: ConnectionLimits = LIMITS,
    ) -> None:
        self.address = Address(*listener.getsockname()[:2])
        self._listener = listener
        self._endpoint = endpoint
        self._secret = secret
        self._handlers = handlers
        self._limits = limits
        self._loop = asyncio.new_event_loop()
        self._port: ServedPort | None = None
        self._relay: Relay | None = None
        self._ending = asyncio.Event()

        def run() -> None:
            try:
                with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                    runner.run(self._serve())
            except Exception:
                log.exception("the view has ended")

        self._thread = Thread(target=run, name="view", daemon=True)
        self._thread.start()
        log.info("serving the scheduler's view", listen=str(self.address))

    def stop(self) -> None:
        """End all streams and connections, within a second."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(_STOPPED)

    def show(self) -> dict[str, object]:
        """For the debug page. Any thread."""
        shown: dict[str, object] = {"listen": str(self.address)}
        if self._port and self._relay:
            shown |= {"connections": len(self._port.connections), "watches": self._relay.watches.show()}
        return shown

    def fault(self) -> str | None:
        """Why it does not serve, for /livez."""
        return None if self._thread.is_alive() else "the view's thread has ended"

    async def _serve(self) -> None:
        upstream = Upstream(self._endpoint)
        self._relay = relay = Relay(upstream, self._secret, self._handlers(upstream))

        async def answer(request: web.BaseRequest, connection: CallerConnection) -> web.StreamResponse:
            connection.stream()
            return await relay(request)

        self._port = port = ServedPort(
            "view", self._listener, self._limits, answer, refuse=_malformed, open_to_pages=True
        )
        metrics.view_connections.set_function(lambda: len(port.connections))
        try:
            await self._ending.wait()
        finally:
            await port.stop(_LAST_ANSWERS)
            await upstream.close()


def _malformed(fault: HTTPException, last: bool) -> web.Response:
    """For what is no HTTP: all that is told otherwise, the relay tells."""
    metrics.view_requests.labels("refused").inc()
    answer = refusal(HTTPStatus.BAD_REQUEST, fault.description or "malformed request")
    if last:
        answer.force_close()
    return answer
