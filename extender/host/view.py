"""Assembles the scheduler's view: its kubeconfig, and the port that relays to the API server."""

import socket
from collections.abc import Callable

from extender.api.configuration import Address, Configuration
from extender.kube.endpoint import ApiEndpoint
from extender.view.kubeconfig import write_kubeconfig
from extender.view.relay import Handlers
from extender.view.server import ViewServer
from extender.view.upstream import Upstream
from extender.web.health import Check


class SchedulerView:
    """Created before the fork, so that a folder that cannot be written ends the start with one clear line."""

    def __init__(self, configuration: Configuration, endpoint: ApiEndpoint, listener: socket.socket) -> None:
        self._endpoint = endpoint
        self._listener = listener
        self._secret = write_kubeconfig(configuration.view_folder, Address(*listener.getsockname()[:2]))
        self._server: ViewServer | None = None

    def start(self, handlers: Callable[[Upstream], Handlers] = lambda _: Handlers()) -> None:
        """`handlers` is called in the view's event loop."""
        self._server = ViewServer(self._listener, self._endpoint, self._secret, handlers)

    def stop(self) -> None:
        """End all streams, within a second."""
        if self._server:
            self._server.stop()

    def live(self) -> dict[str, Check]:
        """Checks for /livez."""
        return {"view": self._fault}

    def _fault(self) -> str | None:
        return self._server.fault() if self._server else None
