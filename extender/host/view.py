"""Assembles the scheduler's view: its kubeconfig, and the port that relays to the API server."""

import socket

from extender.api.configuration import Configuration
from extender.api.setting_kinds import Address
from extender.domain.cache.detours import Detours
from extender.domain.cache.shown_pods import ShownPods
from extender.kube.endpoint import ApiEndpoint
from extender.telemetry import metrics
from extender.view.kubeconfig import write_kubeconfig
from extender.view.pods import Pods
from extender.view.readers import PodReader, readers_text
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
        self._shown: ShownPods | None = None

    def start(self, shown: ShownPods) -> None:
        def handlers(upstream: Upstream) -> Handlers:
            self._pods = Pods(upstream, shown, self._schedulers)
            return Handlers(self._pods, StatusPatches(upstream, shown))

        self._shown = shown
        metrics.view_readers.set_function(lambda: len(self._readers()))
        metrics.view_silence.set_function(lambda: max((each.silent for each in self._readers()), default=0.0))
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
        if not self._server or not self._pods or not self._shown:
            return None
        counts = self._shown.counts()
        pods = {"released": counts.released, "leaving": counts.leaving, "takenBack": counts.taken_back}
        return {**self._server.show(), "readers": self._pods.show(), "pods": pods}

    def note(self) -> str:
        """A line of /readyz?verbose: who reads pods here, and whether a scheduler reads them elsewhere."""
        return readers_text(self._readers(), self._shown.detours() if self._shown else Detours())

    def live(self) -> dict[str, Check]:
        """Checks for /livez."""
        return {"view-serving": self._fault}

    def _readers(self) -> list[PodReader]:
        return self._pods.readers() if self._pods else []

    def _fault(self) -> str | None:
        return self._server.fault() if self._server else None
