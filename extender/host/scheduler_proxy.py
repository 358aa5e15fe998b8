"""Assembly of the scheduler proxy: its port, and the kubeconfig by which the scheduler uses the proxy.

The kubeconfig names a server with plain HTTP behind an HTTP proxy, which is Muster. Without `proxy-url`,
client-go would use a transport that connects again for most Events. Over plain HTTP, client-go sends no
credential. Access depends on the first segment of the path, which only readers of the kubeconfig know.
"""

import json
import os
import re
import secrets
import socket
from pathlib import Path

from extender.api.configuration import Configuration, InvalidConfiguration
from extender.api.keys import VIEW_KUBECONFIG
from extender.api.setting_kinds import Address
from extender.domain.ledger.releases import Bypasses
from extender.domain.ledger.shown_pods import ShownPods
from extender.kube.endpoint import ApiEndpoint
from extender.proxy.pods import PodReader, PodRequests, readers_text
from extender.proxy.server import Handlers, ProxyServer, StatusPatches
from extender.proxy.upstream import Upstream
from extender.telemetry import metrics

_SERVER = "http://kube-apiserver.muster/"
_SECRET_RE = re.compile(r"[A-Za-z0-9_-]{43}")


def write_kubeconfig(folder: str, address: Address) -> str:
    """Write the kubeconfig for a proxy that listens on `address`; return the secret in its path.

    If the file exists, its secret is used again, so that a running scheduler can continue.

    Raises:
        InvalidConfiguration: The file cannot be written.
    """
    path = Path(folder) / VIEW_KUBECONFIG
    secret = _existing_secret(path) or secrets.token_urlsafe(32)
    cluster = {"server": f"{_SERVER}{secret}", "proxy-url": f"http://{address}"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "view", "cluster": cluster}],
        "users": [{"name": "view", "user": {}}],
        "contexts": [{"name": "view", "context": {"cluster": "view", "user": "view"}}],
        "current-context": "view",
    }
    new_path = path.with_name(f".{path.name}.new")
    try:  # readers of the file see either the old text or the new text
        new_path.unlink(missing_ok=True)
        descriptor = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps(document, indent=1))
        new_path.replace(path)
    except OSError as fault:
        rule = "must be a folder in which Muster can write"
        text = f"--view-folder: invalid value {folder!r}: {fault.strerror}: {rule}"
        raise InvalidConfiguration(text) from fault
    return secret


def _existing_secret(path: Path) -> str | None:
    """Return the secret in the existing kubeconfig; None if the secret must not be used again.

    A secret is used again only if Muster wrote the file, and no other user could read the file.
    """
    try:
        state = path.stat()
        if state.st_uid != os.geteuid() or state.st_mode & 0o077:
            return None
        server = json.loads(path.read_bytes())["clusters"][0]["cluster"]["server"]
        secret = _SECRET_RE.fullmatch(server.removeprefix(_SERVER))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return secret[0] if secret else None


class SchedulerProxy:
    """Scheduler proxy.

    It is created before the fork, so that a read-only folder ends the start with a clear error.
    """

    def __init__(self, configuration: Configuration, endpoint: ApiEndpoint, listener: socket.socket) -> None:
        self._endpoint = endpoint
        self._listener = listener
        self._secret = write_kubeconfig(configuration.view_folder, Address(*listener.getsockname()[:2]))
        self._schedulers = frozenset(configuration.scheduler_names)
        self._server: ProxyServer | None = None
        self._pods: PodRequests | None = None
        self._shown_pods: ShownPods | None = None

    def start(self, shown_pods: ShownPods) -> None:
        def create_handlers(upstream: Upstream) -> Handlers:
            self._pods = PodRequests(upstream, shown_pods, self._schedulers)
            return Handlers(self._pods, StatusPatches(upstream, shown_pods))

        self._shown_pods = shown_pods
        metrics.view_readers.set_function(lambda: len(self._readers()))
        metrics.view_since_event.set_function(
            lambda: max((reader.silent_time for reader in self._readers()), default=0.0)
        )
        self._server = ProxyServer(self._listener, self._endpoint, self._secret, create_handlers)

    def pass_changes_on(self) -> None:
        """Notify the proxy of changed pods.

        Safe to call in any thread; nothing is sent in the caller's thread.
        """
        if self._pods:
            self._pods.on_change()

    def stop(self) -> None:
        """End all streams, within about a second."""
        if self._server:
            self._server.stop()

    def debug_state(self) -> dict[str, object] | None:
        """Return the state for the debug page."""
        if not self._server or not self._pods or not self._shown_pods:
            return None
        counts = self._shown_pods.release_counts()
        pods = {"released": counts.released, "leaving": counts.leaving, "takenBack": counts.taken_back}
        return {**self._server.debug_state(), "readers": self._pods.debug_state(), "pods": pods}

    def ready_line(self) -> str:
        """Return a line for /readyz?verbose about the readers of pods, here and elsewhere."""
        return readers_text(self._readers(), self._shown_pods.bypasses() if self._shown_pods else Bypasses())

    def fault(self) -> str | None:
        """Return the fault for /livez; None while the proxy works."""
        return self._server.fault() if self._server else None

    def _readers(self) -> list[PodReader]:
        return self._pods.readers() if self._pods else []
