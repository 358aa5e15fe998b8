"""Assembles the webhooks: rules over the ledger, a certificate from files or self-signed, and the port."""

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

from extender.api.configuration import Configuration
from extender.api.keys import DEFAULT_SCHEDULER
from extender.domain.cache.ledger import Ledger
from extender.kube.admission import AdmissionApi
from extender.kube.connection import Connection
from extender.web.health import Check
from extender.web.identity import Identity
from extender.web.webhooks import WebhookServer
from extender.webhooks.access import AccessReviews
from extender.webhooks.certificate_files import CertificateFiles
from extender.webhooks.certificate_rotation import CertificateRotation
from extender.webhooks.entry import EntryRules
from extender.webhooks.groups import GroupRules
from extender.webhooks.latest import Latest, Sources
from extender.webhooks.lookups import LookUps
from extender.webhooks.reviews import Reviewer
from extender.webhooks.rules import LocalQueueRules, QueueRules, paths
from extender.webhooks.work import WorkRules


class Webhooks:
    def __init__(
        self,
        configuration: Configuration,
        connection: Connection,
        ledger: Ledger,
        synced: Callable[[], bool],
    ) -> None:
        self._api = AdmissionApi(connection)
        self._identity = Identity()
        self._certificate = self._source(configuration)
        schedulers = frozenset(configuration.scheduler_names)
        api = self._api
        sources = Sources(LookUps(api.queue).find, LookUps(api.local_queue).find, LookUps(api.namespace).find)
        latest, access = partial(Latest, ledger, sources), AccessReviews(self._api)

        def entry() -> EntryRules:
            return EntryRules(ledger, latest(), access)

        queues = QueueRules(ledger, latest, configuration.max_queue_depth)
        groups = GroupRules(ledger, entry)
        work = WorkRules(ledger, entry, schedulers, marked=DEFAULT_SCHEDULER in schedulers)
        self._reviewer = Reviewer(paths(queues, LocalQueueRules(entry), groups, work), synced)
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

    def _source(self, configuration: Configuration) -> CertificateFiles | CertificateRotation:
        if configuration.webhook_certificates == "files":
            return CertificateFiles(Path(configuration.webhook_folder), self._identity.use)
        return CertificateRotation(
            self._api,
            configuration.webhook_secret,
            frozenset(configuration.webhook_names),
            configuration.webhook_lifetime,
            self._identity.use,
        )
