"""The view's port: one event loop in one thread, on a socket that is listening already.

The socket is opened before the worker process is forked, and the parent keeps it: connections made while a
worker restarts wait in its backlog instead of being refused.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from extender.api.setting_kinds import Address
from extender.kube.endpoint import ApiEndpoint
from extender.telemetry.logs import logger
from extender.view.callers import LIMITS, Callers, ViewLimits
from extender.view.relay import Handlers, Relay
from extender.view.upstream import Upstream

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
        limits: ViewLimits = LIMITS,
    ) -> None:
        listener.setblocking(False)
        self.address = Address(*listener.getsockname()[:2])
        self._listener = listener
        self._endpoint = endpoint
        self._secret = secret
        self._handlers = handlers
        self._limits = limits
        self._loop = asyncio.new_event_loop()
        self._callers: Callers | None = None
        self._ending = asyncio.Event()
        self._thread = Thread(target=self._run, name="view", daemon=True)
        self._thread.start()
        log.info("serving the scheduler's view", listen=str(self.address))

    def stop(self) -> None:
        """End all streams and connections, within a second."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(_STOPPED)

    def show(self) -> dict[str, object]:
        """For the debug page. Any thread."""
        callers = self._callers
        return {"listen": str(self.address), **(callers.show() if callers else {})}

    def fault(self) -> str | None:
        """Why it does not serve, for /livez."""
        return None if self._thread.is_alive() else "the view's thread has ended"

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except Exception:
            log.exception("the view has ended")

    async def _serve(self) -> None:
        upstream = Upstream(self._endpoint)
        relay = Relay(upstream, self._secret, self._handlers(upstream))
        self._callers = callers = Callers(relay, self._limits)
        listening = await self._loop.create_server(callers.admit, sock=self._listener)
        try:
            await callers.watch_over(self._ending)
        finally:
            listening.close()
            await callers.close(_LAST_ANSWERS)
            await upstream.close()
