"""Assembles the scheduler's view: its kubeconfig, and the port that relays to the API server."""

import socket

from extender.api.configuration import Address, Configuration
from extender.domain.view.appearance import Appearances
from extender.kube.endpoint import ApiEndpoint
from extender.view.kubeconfig import write_kubeconfig
from extender.view.pods import Pods
from extender.view.relay import Handlers
from extender.view.server import ViewServer
from extender.view.status_patches import StatusPatches
from extender.view.upstream import Upstream
from extender.web.health import Check


class SchedulerView:
    """Created before the fork, so that a folder that cannot be written ends the start with one clear line."""

    def __init__(self, configuration: Configuration, endpoint: ApiEndpoint, listener: socket.socket) -> None:
        self._endpoint = endpoint
        self._listener = listener
        self._secret = write_kubeconfig(configuration.view_folder, Address(*listener.getsockname()[:2]))
        self._schedulers = frozenset(configuration.scheduler_names)
        self._server: ViewServer | None = None
        self._pods: Pods | None = None

    def start(self, appearances: Appearances) -> None:
        def handlers(upstream: Upstream) -> Handlers:
            self._pods = Pods(upstream, appearances, self._schedulers)
            return Handlers(self._pods, StatusPatches(upstream, appearances))

        self._server = ViewServer(self._listener, self._endpoint, self._secret, handlers)

    def pass_changes_on(self) -> None:
        """The scheduler is to be shown something else. In any thread; nothing is written here."""
        if self._pods:
            self._pods.on_change()

    def stop(self) -> None:
        """End all streams, within a second."""
        if self._server:
            self._server.stop()

    def show(self) -> dict[str, object] | None:
        """For the debug page."""
        if not self._server or not self._pods:
            return None
        return {**self._server.show(), "pods": self._pods.show()}

    def live(self) -> dict[str, Check]:
        """Checks for /livez."""
        return {"view": self._fault}

    def _fault(self) -> str | None:
        return self._server.fault() if self._server else None
