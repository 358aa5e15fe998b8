"""Assembly of the webhooks: rules, certificate and port."""

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore

from extender.api.configuration import Configuration
from extender.api.keys import CERTIFICATE, KEY
from extender.domain.ledger.ledger import Ledger
from extender.host.certificate_files import CertificateFiles
from extender.kube.access import AdmissionApi
from extender.kube.connection import Connection
from extender.kube.writers import Poller
from extender.web.side_ports import Check, WebhookServer
from extender.web.sockets import Identity
from extender.webhooks.lookups import MAX_WAITING_REVIEWS, LatestQueues, LookUps, Sources, access_reviews
from extender.webhooks.reviews import Reviewer
from extender.webhooks.rules import AdmissionRules


class Webhooks:
    """Webhooks: rules on the ledger, a certificate from files or self-signed, and the port."""

    def __init__(
        self,
        configuration: Configuration,
        connection: Connection,
        ledger: Ledger,
        is_synced: Callable[[], bool],
        runs_volcano_jobs: Callable[[], bool],
    ) -> None:
        api = AdmissionApi(connection)
        self._identity = Identity("webhooks", connection.server_time)
        client_ca = configuration.webhook_client_ca
        self._certificate: Poller
        if configuration.webhook_certificates == "files":
            names = (CERTIFICATE, KEY, *([str(Path(client_ca).absolute())] if client_ca else []))
            folder = Path(configuration.webhook_folder)
            self._certificate = CertificateFiles(folder, self._identity.use, names)
        else:
            from extender.webhooks.certificate_rotation import CertificateRotation  # loaded only if needed

            self._certificate = CertificateRotation(
                api,
                configuration.webhook_secret,
                frozenset(configuration.webhook_names),
                configuration.webhook_lifetime,
                partial(self._identity.use_for, Path(client_ca)) if client_ca else self._identity.use,
                connection.server_time,
            )
        waiting = BoundedSemaphore(MAX_WAITING_REVIEWS)
        sources = Sources(
            LookUps(api.queue, waiting_slots=waiting).find,
            LookUps(api.local_queue, waiting_slots=waiting).find,
            LookUps(api.namespace, waiting_slots=waiting).find,
        )
        latest, may_use = partial(LatestQueues, ledger, sources), access_reviews(api)
        schedulers, depth = configuration.scheduler_names, configuration.max_queue_depth
        gated = configuration.view_listen is None
        rules = AdmissionRules(ledger, latest, may_use, schedulers, depth, runs_volcano_jobs, has_gates=gated)
        self._reviewer = Reviewer(rules.paths(), is_synced)
        ledger.intake.review_users()
        self._server: WebhookServer | None = None

    def start(self, listener: socket.socket) -> None:
        self._certificate.start()
        self._server = WebhookServer(listener, self._reviewer, self._identity)

    def stop(self) -> None:
        self._certificate.stop()
        if self._server:
            self._server.stop()

    def checks(self) -> dict[str, Check]:
        """Return the checks for /readyz."""
        return {"webhook-certificate": self._identity.fault}
