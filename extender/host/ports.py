"""Assembles what is behind the ports that may be off: the scheduler's view with its kubeconfig, and the
webhooks; and what TLS the ports speak.

The kubeconfig's server is plain HTTP behind a proxy, the view. Without `proxy-url` client-go falls back to a
transport that dials anew for most Events. Over plain HTTP it reads no credential; what lets it in is the
first segment of the path, which only a reader of the file knows.
"""

import json
import os
import re
import secrets
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore

from extender.api.configuration import Configuration, InvalidConfiguration
from extender.api.keys import VIEW_KUBECONFIG
from extender.api.setting_kinds import Address
from extender.domain.ledger.ledger import Ledger
from extender.domain.ledger.releases import Bypasses
from extender.domain.ledger.shown_pods import ShownPods
from extender.kube.admission import AdmissionApi
from extender.kube.connection import Connection
from extender.kube.endpoint import ApiEndpoint
from extender.kube.writers import Poller
from extender.telemetry import metrics
from extender.telemetry.logs import logger
from extender.view.pods import PodReader, PodRequests, readers_text
from extender.view.server import Handlers, StatusPatches, ViewServer
from extender.view.upstream import Upstream
from extender.web.listen import Identity
from extender.web.side import Check, WebhookServer
from extender.webhooks.certificates import AUTHORITY, CERTIFICATE, KEY
from extender.webhooks.latest import IN_LANE, Latest, LookUps, Sources, access_reviews
from extender.webhooks.reviews import Reviewer
from extender.webhooks.rules import AdmissionRules

log = logger(__name__)

_PERIOD = 1.0  # seconds between two looks at files of certificates
_SERVER = "http://kube-apiserver.muster/"
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")


def write_kubeconfig(folder: str, address: Address) -> str:
    """Write the file for a view that listens on `address`; returns the secret of its path. That of a file
    that is there stays, so that a running scheduler goes on. Raises InvalidConfiguration."""
    path = Path(folder) / VIEW_KUBECONFIG
    secret = _kept(path) or secrets.token_urlsafe(32)
    cluster = {"server": f"{_SERVER}{secret}", "proxy-url": f"http://{address}"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "view", "cluster": cluster}],
        "users": [{"name": "view", "user": {}}],
        "contexts": [{"name": "view", "context": {"cluster": "view", "user": "view"}}],
        "current-context": "view",
    }
    new = path.with_name(f".{path.name}.new")
    try:  # whoever reads the file sees the old text or the new one
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps(document, indent=1))
        new.replace(path)
    except OSError as fault:
        allowed = "allowed is a folder in which Muster can write"
        raise InvalidConfiguration(f"--view-folder: got {folder!r}: {fault.strerror}; {allowed}") from fault
    return secret


def _kept(path: Path) -> str | None:
    """The secret of a file that we wrote and that nobody else could read."""
    try:
        state = path.stat()
        if state.st_uid != os.geteuid() or state.st_mode & 0o077:
            return None
        server = json.loads(path.read_bytes())["clusters"][0]["cluster"]["server"]
        found = _SECRET.fullmatch(server.removeprefix(_SERVER))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return found[0] if found else None


class SchedulerView:
    """Created before the fork, so that a folder that cannot be written ends the start with one clear line."""

    def __init__(self, configuration: Configuration, endpoint: ApiEndpoint, listener: socket.socket) -> None:
        self._endpoint = endpoint
        self._listener = listener
        self._secret = write_kubeconfig(configuration.view_folder, Address(*listener.getsockname()[:2]))
        self._schedulers = frozenset(configuration.scheduler_names)
        self._server: ViewServer | None = None
        self._pods: PodRequests | None = None
        self._shown: ShownPods | None = None

    def start(self, shown: ShownPods) -> None:
        def handlers(upstream: Upstream) -> Handlers:
            self._pods = PodRequests(upstream, shown, self._schedulers)
            return Handlers(self._pods, StatusPatches(upstream, shown))

        self._shown = shown
        metrics.view_readers.set_function(lambda: len(self._readers()))
        metrics.view_since_event.set_function(
            lambda: max((reader.silent for reader in self._readers()), default=0.0)
        )
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
        return readers_text(self._readers(), self._shown.bypasses() if self._shown else Bypasses())

    def fault(self) -> str | None:
        """Why it does not serve, for /livez."""
        return self._server.fault() if self._server else None

    def _readers(self) -> list[PodReader]:
        return self._pods.readers() if self._pods else []


class Webhooks:
    """Rules over the ledger, a certificate from files or self-signed, and the port."""

    def __init__(
        self,
        configuration: Configuration,
        connection: Connection,
        ledger: Ledger,
        synced: Callable[[], bool],
        runs_volcano_jobs: Callable[[], bool],
    ) -> None:
        api = AdmissionApi(connection)
        self._identity, callers = Identity("webhooks"), configuration.webhook_client_ca
        self._certificate: Poller
        if configuration.webhook_certificates == "files":
            names = (CERTIFICATE, KEY, *([str(Path(callers).absolute())] if callers else []))
            self._certificate = CertificateFiles(
                Path(configuration.webhook_folder), self._identity.use, names
            )
        else:
            from extender.webhooks.certificate_rotation import CertificateRotation  # slow to load

            self._certificate = CertificateRotation(
                api,
                configuration.webhook_secret,
                frozenset(configuration.webhook_names),
                configuration.webhook_lifetime,
                partial(self._identity.use_for, Path(callers)) if callers else self._identity.use,
            )
        schedulers = frozenset(configuration.scheduler_names)
        lane = BoundedSemaphore(IN_LANE)
        sources = Sources(
            LookUps(api.queue, lane=lane).find,
            LookUps(api.local_queue, lane=lane).find,
            LookUps(api.namespace, lane=lane).find,
        )
        latest, depth = partial(Latest, ledger, sources), configuration.max_queue_depth
        may_use = access_reviews(api)
        rules = AdmissionRules(ledger, latest, may_use, schedulers, depth, runs_volcano_jobs)
        self._reviewer = Reviewer(rules.paths(), synced)
        ledger.intake.judge_users()
        self._server: WebhookServer | None = None

    def start(self, listener: socket.socket) -> None:
        self._certificate.start()
        self._server = WebhookServer(listener, self._reviewer, self._identity)

    def stop(self) -> None:
        self._certificate.stop()
        if self._server:
            self._server.stop()

    def checks(self) -> dict[str, Check]:
        """Checks for /readyz."""
        return {"webhook-certificate": self._identity.missing}


# ---- TLS from files that another program renews, such as cert-manager, and the verbs' port with it. They are
# read again when they change; until certificate and key match, the old ones are served.


class CertificateFiles(Poller):
    """`serve` gets the files `names`; it raises ValueError or OSError if it cannot serve them."""

    def __init__(
        self,
        folder: Path,
        serve: Callable[..., None],
        names: Sequence[str] = (CERTIFICATE, KEY),
        whose: str = "webhooks",
    ) -> None:
        self._folder = folder
        self._serve = serve
        self._names = names
        self._whose = whose
        self._seen: list[bytes] | None = None
        self._logged = ""  # the fault that was logged last
        super().__init__("certificate", _PERIOD, self.look)

    def look(self) -> None:
        try:
            found = [(self._folder / name).read_bytes() for name in self._names]
            if found != self._seen:
                self._serve(*found)
                log.info("a certificate was read", whose=self._whose, folder=str(self._folder))
            self._seen, self._logged = found, ""
        except (OSError, ValueError) as fault:
            if str(fault) != self._logged:  # each fault once in a row
                self._logged, where = str(fault), str(self._folder)
                log.warning("a certificate cannot be used", whose=self._whose, folder=where, error=str(fault))


class MutualTls:
    """Without a `folder`, the port is plain HTTP."""

    def __init__(self, folder: str) -> None:
        self.wanted = bool(folder)
        self._identity = Identity("verbs")
        self._files = CertificateFiles(
            Path(folder), self._identity.use, (CERTIFICATE, KEY, AUTHORITY), "verbs"
        )

    def start(self) -> None:
        if self.wanted:
            self._files.start()

    def stop(self) -> None:
        self._files.stop()

    def context(self) -> ssl.SSLContext | None:
        """The context made of the newest files; None before they could be read."""
        return self._identity.context

    def checks(self) -> dict[str, Check]:
        """Checks for /readyz."""
        return {"tls-certificate": self._identity.missing} if self.wanted else {}
