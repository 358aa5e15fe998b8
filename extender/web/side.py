"""The health and debug ports: each served by threads of its own.

They must answer when the verbs' port cannot: while all its threads are held, while it starts, while it stops.
So they share nothing with it, not even the way in which it is stopped.
"""

import socket
from wsgiref.types import WSGIApplication

from extender.api.setting_kinds import Address
from extender.telemetry.logs import logger
from extender.web.exchange import Exchange
from extender.web.port import PortLimits, ServedPort

LIMITS = PortLimits(connections=128, threads=4, body=64 * 1024, unread=64 * 1024 * 1024)
_LAST_ANSWERS = 2.0  # seconds to finish answers when stopping

log = logger(__name__)


class SideServer:
    """Serves `app` on `listener` from its creation on."""

    def __init__(
        self, name: str, listener: socket.socket, app: WSGIApplication, limits: PortLimits = LIMITS
    ) -> None:
        self.address = Address(*listener.getsockname()[:2])
        self._exchange = Exchange(app, self.address)
        self._port = ServedPort(name, listener, limits, self._exchange)
        log.info("serving", name=name, listen=str(self.address))

    def stop(self) -> None:
        self._exchange.ending = True
        self._port.stop(_LAST_ANSWERS)
