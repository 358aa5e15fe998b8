"""Dashboard in the cluster. It shows Muster's state to users that the API server knows.

The dashboard never makes Muster unready. Without a certificate, the dashboard cannot be used, and
/readyz?verbose says so.
"""

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from extender.api.configuration import Configuration
from extender.api.summaries import DecisionSummary, LocalQueueSummary
from extender.api.workloads.further_kinds import with_further
from extender.controllers.cycle import LoggedDecision
from extender.controllers.estimates import Estimates
from extender.controllers.events import StartChanges
from extender.controllers.queue_status import local_queue_report
from extender.dashboard.app import create_dashboard_app, limit_costs
from extender.dashboard.history_page import History
from extender.dashboard.overviews import DecisionSource
from extender.dashboard.rendering import OpenPages
from extender.dashboard.source import STEP, ClusterName
from extender.dashboard.token_login import TokenLogin
from extender.dashboard.what_if_page import WhatIfBase, WhatIfTrials
from extender.domain.ledger.ledger import Ledger
from extender.domain.model.resources import in_units
from extender.domain.scheduling.memory import read_facts
from extender.host.certificate_files import CertificateFiles
from extender.kube.access import AccessApi
from extender.kube.connection import Connection
from extender.kube.writers import Poller
from extender.ports.connections import ConnectionLimits
from extender.web.side_ports import SideServer, pages
from extender.web.sockets import Identity

_LIMITS = ConnectionLimits(1024, max_body=32 * 1024, max_unread=16 * 1024 * 1024, max_per_address=768)
_MAX_CHANGES = 200  # maximum of changed decisions on a page


def decision_source(
    ledger: Ledger,
    latest_changes: Callable[[int], Sequence[LoggedDecision]],
    estimates: Estimates,
    start_changes: StartChanges,
    leads: Callable[[], bool],
) -> DecisionSource:
    """Return the source of the dashboard's data.

    `latest_changes` returns at most the given number of changed decisions, newest first.
    """
    return DecisionSource(
        lambda: ledger.decisions,
        lambda: [*map(_summary, latest_changes(_MAX_CHANGES))],
        estimate_of=estimates.get,
        why_of=start_changes.known_explanation,
        read_estimate_version=lambda: estimates.change_count,
        leads=leads,
        local_queues=lambda: [*local_queue_summaries(ledger)],
    )


def local_queue_summaries(ledger: Ledger) -> Iterator[LocalQueueSummary]:
    """Yield summaries of the LocalQueues, with the group counts of their statuses."""
    for key in sorted(ledger.queues.local_queue_keys()):
        record, report = ledger.queues.local_queue(key), local_queue_report(ledger, key)
        if record is not None and report is not None:
            yield LocalQueueSummary(
                record.namespace,
                record.name,
                record.queue,
                report.waiting,
                report.admitted,
                in_units(report.reserved),
                "" if report.activity.is_active else report.activity.message,
            )


def what_if_source(ledger: Ledger) -> WhatIfTrials:
    """Return trials of what-ifs on the snapshot of the latest decisions."""

    def newest_base() -> WhatIfBase | None:
        facts = read_facts(ledger.decisions)
        return WhatIfBase(facts.snapshot) if facts else None

    return WhatIfTrials(newest_base)


class Dashboard:
    """Dashboard, which is created before the process forks and started afterwards."""

    def __init__(
        self,
        configuration: Configuration,
        connection: Connection,
        listener: socket.socket,
        source: DecisionSource,
        history: History,
        trials: WhatIfTrials,
    ) -> None:
        self._listener = listener
        self._is_secure = bool(configuration.dashboard_tls_folder)
        self._identity = Identity("dashboard")
        folder = Path(configuration.dashboard_tls_folder)
        self._files = CertificateFiles(folder, self._identity.use, port="dashboard")
        token_login = TokenLogin(AccessApi(connection), connection.endpoint)
        self._open_pages = OpenPages(source)
        self._app = create_dashboard_app(
            source,
            token_login.identify,
            token_login.login,
            history,
            trials=trials,
            open_pages=self._open_pages,
            cluster=ClusterName(configuration.cluster_name),
            kinds=with_further(configuration.job_kinds),
        )
        limit_costs(self._app)
        self._sampler = Poller("last hour", STEP, lambda: source.sample(time.time()))
        self._server: SideServer | None = None

    def start(self) -> None:
        self._sampler.start()
        if self._is_secure:
            self._files.start()
        self._server = SideServer(
            "dashboard",
            self._listener,
            pages(self._app),
            _LIMITS,
            secure=(lambda: self._identity.context) if self._is_secure else None,
            allows_web_pages=True,
            immediate_answer=self._open_pages.news_for,
        )

    def stop(self) -> None:
        self._sampler.stop()
        self._files.stop()
        if self._server:
            self._server.stop()

    def ready_line(self) -> str:
        """Return a line for /readyz?verbose."""
        fault = self._identity.fault() if self._is_secure else None
        return fault or "it is served"


def _summary(entry: LoggedDecision) -> DecisionSummary:
    decision = entry.decision
    return DecisionSummary(entry.time, decision.key, decision.verdict, decision.reason or "", decision.detail)
