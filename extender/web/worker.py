"""gunicorn's worker process, which serves a VerbsPort in an event loop.

Only the process and its signals are gunicorn's: its parser and a thread for each call took most of a call's
processor time, and a window of held calls as many threads.
"""

import asyncio
import socket
from typing import Any, cast

from gunicorn.workers.base import Worker

from extender.web.app import App
from extender.web.port import Secure
from extender.web.pulse import Pulse
from extender.web.verbs_port import VerbsLimits, VerbsPort


class LoopWorker(Worker):
    """`limits`, `pulse` and `secure` are to be set before it runs."""

    limits: VerbsLimits
    pulse: Pulse
    secure: Secure | None = None

    def init_process(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stop_requested = asyncio.Event()
        super().init_process()

    def run(self) -> None:
        """Serve until told to stop, and then until the last answers are sent or the grace is over."""
        self._loop.run_until_complete(self._serve())

    def end(self) -> None:
        """Tell it to stop. From any thread."""
        self._loop.call_soon_threadsafe(self._stop_requested.set)

    async def _serve(self) -> None:
        [bound] = self.sockets
        listener: socket.socket = cast(Any, bound).sock  # inside a class of gunicorn's
        port = VerbsPort(listener, cast(App, self.wsgi), self.limits, self.pulse, self.secure)
        if self.alive:
            await self._stop_requested.wait()
        await port.stop(self.cfg.graceful_timeout)
